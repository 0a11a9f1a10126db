// Package workspace looks at the files of a working directory and changes them:
// text in strict UTF-8, writes that are complete or not at all, listings that
// respect .gitignore, and search by regular expression.
//
// Listing and search use `rg` when it is installed. Without it they list with
// `git ls-files` inside a git work tree, else by walking, and search with Go's
// regexp: the same syntax as rg's but for a few classes. Both ways yield the
// same Match values, and everything is bounded: files over 10 MiB and binary
// files are not searched, results stop at the caller's limit.
//
// Nothing here decides what may be read or written; callers pass absolute paths
// that were allowed.
package workspace

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"unicode/utf16"
	"unicode/utf8"
)

// MaxText is the size of the largest text file that is read or searched.
const MaxText = 10 << 20

// Why a file is not read as text. IsMissing tells a file that is not there.
var (
	ErrDirectory = errors.New("the path is a directory")
	ErrSpecial   = errors.New("the path is not a regular file")
	ErrTooLarge  = fmt.Errorf("the file is larger than %d MB", MaxText>>20)
	ErrBinary    = errors.New("the file is binary or not valid UTF-8")
)

// IsMissing reports whether err says that a path does not exist.
func IsMissing(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// ReadText reads a text file of at most MaxText bytes. A byte order mark is
// dropped; UTF-16 with one is converted.
func ReadText(path string) (string, error) {
	b, err := Read(path, MaxText)
	if err != nil {
		return "", err
	}
	return Decode(b)
}

// Read reads a regular file of at most limit bytes. Devices and pipes are
// refused: reading them may never end.
func Read(path string, limit int64) ([]byte, error) {
	st, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case st.IsDir():
		return nil, ErrDirectory
	case !st.Mode().IsRegular():
		return nil, ErrSpecial
	case st.Size() > limit:
		return nil, ErrTooLarge
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	if int64(len(b)) > limit {
		return nil, ErrTooLarge
	}
	return b, nil
}

var utf8BOM = []byte{0xEF, 0xBB, 0xBF}

// Decode turns the bytes of a file into text, or ErrBinary.
func Decode(b []byte) (string, error) {
	switch {
	case bytes.HasPrefix(b, utf8BOM):
		b = b[len(utf8BOM):]
	case bytes.HasPrefix(b, []byte{0xFF, 0xFE}):
		return decode16(b[2:], binary.LittleEndian)
	case bytes.HasPrefix(b, []byte{0xFE, 0xFF}):
		return decode16(b[2:], binary.BigEndian)
	}
	if !utf8.Valid(b) || bytes.IndexByte(b, 0) >= 0 {
		return "", ErrBinary
	}
	return string(b), nil
}

func decode16(b []byte, order binary.ByteOrder) (string, error) {
	if len(b)%2 != 0 {
		return "", ErrBinary
	}
	units := make([]uint16, len(b)/2)
	for i := range units {
		units[i] = order.Uint16(b[2*i:])
		if units[i] == 0 {
			return "", ErrBinary
		}
	}
	return string(utf16.Decode(units)), nil
}

// Write replaces or makes a file: missing directories are made, readers see the
// old content or the new, never a part. An existing file keeps its mode and, as
// far as the system lets us, its owner; a symbolic link keeps pointing where it
// does and its target is written.
func Write(path string, content []byte) (err error) {
	target := path
	if real, err := filepath.EvalSymlinks(path); err == nil {
		target = real
	} else if link, err := os.Readlink(path); err == nil { // to a file that is not there yet
		if !filepath.IsAbs(link) {
			link = filepath.Join(filepath.Dir(path), link)
		}
		target = link
	}
	mode := fs.FileMode(0o644)
	st, err := os.Stat(target)
	switch {
	case err == nil && st.IsDir():
		return ErrDirectory
	case err == nil && !st.Mode().IsRegular():
		return ErrSpecial
	case err == nil:
		mode = st.Mode().Perm()
	case !IsMissing(err):
		return err
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(target), ".write-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	_, err = f.Write(content)
	if err := errors.Join(err, f.Chmod(mode), f.Close()); err != nil {
		return err
	}
	if st != nil {
		keepOwner(f.Name(), st)
	}
	return os.Rename(f.Name(), target)
}
