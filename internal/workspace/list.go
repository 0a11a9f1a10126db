package workspace

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
)

// maxListed bounds a listing, whatever matches.
const maxListed = 200_000

// Files lists the regular files below root, as slash-separated paths relative
// to it, without those that .gitignore or .ignore exclude and without .git.
// Hidden files are listed if hidden is set. The order is unspecified. cut says
// that there are more than the listing holds.
func Files(ctx context.Context, root string, hidden bool) (files []string, cut bool, err error) {
	st, err := os.Stat(root)
	if err != nil {
		return nil, false, err
	}
	if !st.IsDir() {
		return nil, false, fmt.Errorf("%s is not a directory", root)
	}
	if rg, err := exec.LookPath("rg"); err == nil {
		args := []string{"--no-config", "--files", "--follow", "--null", "--no-messages", "--glob", "!.git"}
		if hidden {
			args = append(args, "--hidden")
		}
		return listWith(ctx, root, hidden, rg, args...)
	}
	if git, err := exec.LookPath("git"); err == nil && insideGit(root) {
		files, cut, err := listWith(ctx, root, hidden, git,
			"-c", "core.fsmonitor=false", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
		if err == nil {
			slices.Sort(files)
			return slices.Compact(files), cut, nil
		}
		if ctx.Err() != nil {
			return nil, false, err
		}
	}
	return walk(ctx, root, hidden)
}

func insideGit(dir string) bool {
	for {
		if _, err := os.Stat(filepath.Join(dir, ".git")); err == nil {
			return true
		}
		up := filepath.Dir(dir)
		if up == dir {
			return false
		}
		dir = up
	}
}

// listWith runs a program that prints NUL-terminated relative paths.
func listWith(ctx context.Context, root string, hidden bool, name string, args ...string) (files []string, cut bool, err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = root
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, false, err
	}
	if err := cmd.Start(); err != nil {
		return nil, false, fmt.Errorf("list files: %w", err)
	}
	scan := bufio.NewScanner(out)
	scan.Buffer(make([]byte, 64<<10), 1<<20)
	scan.Split(splitNUL)
	for scan.Scan() {
		if len(files) == maxListed {
			cut = true
			stop()
			break
		}
		name := strings.TrimPrefix(filepath.ToSlash(scan.Text()), "./")
		if hidden || !isHidden(name) {
			files = append(files, name)
		}
	}
	err = errors.Join(scan.Err(), cmd.Wait())
	var exit *exec.ExitError
	switch {
	case cut:
		return files, true, nil
	case ctx.Err() != nil:
		return nil, false, ctx.Err()
	case errors.As(err, &exit) && exit.ExitCode() <= 2 && filepath.Base(name) == "rg":
		return files, false, nil // 1: nothing found, 2: some directories could not be read
	}
	return files, false, err
}

func splitNUL(data []byte, atEOF bool) (advance int, token []byte, err error) {
	if i := bytes.IndexByte(data, 0); i >= 0 {
		return i + 1, data[:i], nil
	}
	if atEOF && len(data) > 0 {
		return len(data), data, nil
	}
	return 0, nil, nil
}

func isHidden(name string) bool {
	return strings.HasPrefix(name, ".") || strings.Contains(name, "/.")
}

func walk(ctx context.Context, root string, hidden bool) (files []string, cut bool, err error) {
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil || path == root:
			return nil // what cannot be read is left out
		case d.IsDir() && (d.Name() == ".git" || d.Name() == "node_modules" || !hidden && isHidden(d.Name())):
			return fs.SkipDir
		case d.IsDir() || !hidden && isHidden(d.Name()) || !isFile(path, d):
			return nil
		case len(files) == maxListed:
			cut = true
			return fs.SkipAll
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		files = append(files, filepath.ToSlash(rel))
		return nil
	})
	return files, cut, err
}

func isFile(path string, d fs.DirEntry) bool {
	if d.Type()&fs.ModeSymlink != 0 {
		st, err := os.Stat(path)
		return err == nil && st.Mode().IsRegular()
	}
	return d.Type().IsRegular()
}

// MatchGlob reports whether a relative path matches a glob as rg understands
// it: a pattern without a slash matches names at any depth.
func MatchGlob(pattern, name string) bool {
	pattern = strings.TrimPrefix(pattern, "./")
	if rooted, ok := strings.CutPrefix(pattern, "/"); ok {
		pattern = rooted
	} else if !strings.Contains(pattern, "/") {
		pattern = "**/" + pattern
	}
	ok, err := doublestar.Match(pattern, name)
	return err == nil && ok
}

// CheckGlob says what is wrong with a pattern.
func CheckGlob(pattern string) error {
	if !doublestar.ValidatePattern(pattern) {
		return fmt.Errorf("%q is not a valid glob", pattern)
	}
	return nil
}
