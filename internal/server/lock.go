package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// LockFile is the name of the lock in the state directory.
const LockFile = "lock"

// A Holder tells who holds a state directory and how to reach it.
type Holder struct {
	PID int `json:"pid"`
	// URL is the address of the holder's WebSocket; "" = it does not listen yet.
	URL string `json:"url,omitempty"`
	// TokenFile holds the token for URL; "" = none is needed, or none is known.
	TokenFile string `json:"token_file,omitempty"`
	// Auth says that a token is needed.
	Auth bool `json:"auth,omitempty"`
	// Command is what runs: serve, server or chat.
	Command string `json:"command,omitempty"`
}

// A HeldError says that another process holds the state directory.
type HeldError struct {
	Home   string
	Holder Holder // PID 0 = it has not said who it is
}

func (e *HeldError) Error() string {
	where := ""
	if e.Holder.URL != "" {
		where = ", listening on " + e.Holder.URL
	}
	return fmt.Sprintf("the state in %s is held by another server (pid %d%s); stop it, or give this one a MNEME_HOME of its own",
		e.Home, e.Holder.PID, where)
}

// A Lock is the right to use a state directory. The operating system ends it
// with the process, so that a killed server leaves nothing to clean up.
type Lock struct {
	file *os.File
}

// The lock of a process that is just starting, ending or looking is waited for.
const (
	lockTries = 100
	lockPause = 20 * time.Millisecond
)

// AcquireLock takes the lock of a state directory, or returns a *HeldError that
// says who has it.
func AcquireLock(home string, me Holder) (*Lock, error) {
	f, err := os.OpenFile(filepath.Join(home, LockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	var holder Holder
	for range lockTries {
		if err = flock(f); !errors.Is(err, unix.EWOULDBLOCK) {
			break
		}
		if holder = readHolder(f); holder.URL != "" {
			break
		}
		time.Sleep(lockPause)
	}
	l := &Lock{file: f}
	switch {
	case errors.Is(err, unix.EWOULDBLOCK):
		err = &HeldError{Home: home, Holder: holder}
	case err != nil:
		err = fmt.Errorf("lock %s: %w", f.Name(), err)
	default:
		err = l.Announce(me)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return l, nil
}

func flock(f *os.File) error {
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// Announce writes who holds the lock. A reader sees the old text or the new
// one, or one that does not parse and tries again.
func (l *Lock) Announce(h Holder) error {
	text, err := json.Marshal(h)
	if err != nil {
		return err
	}
	text = append(text, '\n')
	if _, err := l.file.WriteAt(text, 0); err != nil {
		return fmt.Errorf("write lock: %w", err)
	}
	if err := l.file.Truncate(int64(len(text))); err != nil {
		return fmt.Errorf("write lock: %w", err)
	}
	return nil
}

// Release gives the lock up. The file stays: removing it would let two
// processes lock two files of one name.
func (l *Lock) Release() error {
	err := l.file.Truncate(0)
	return errors.Join(err, l.file.Close())
}

// HolderOf tells who holds a state directory; nil = nobody.
func HolderOf(home string) (*Holder, error) {
	f, err := os.OpenFile(filepath.Join(home, LockFile), os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	defer f.Close() // gives up the lock too, if we got it
	for range lockTries {
		err := flock(f)
		if err == nil {
			return nil, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
		}
		if h := readHolder(f); h.URL != "" {
			return &h, nil
		}
		time.Sleep(lockPause)
	}
	h := readHolder(f)
	return &h, nil
}

// readHolder reads the text of a held lock; what is empty, or just being
// written, gives the zero Holder.
func readHolder(f *os.File) Holder {
	text := make([]byte, 4096)
	n, err := f.ReadAt(text, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return Holder{}
	}
	var h Holder
	if json.Unmarshal(text[:n], &h) != nil {
		return Holder{}
	}
	return h
}
