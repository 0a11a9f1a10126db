package workspace

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// maxRecord bounds one line of rg's output: a matching line of a minified file.
const maxRecord = 16 << 20

// ripgrep searches with `rg --json`.
func ripgrep(ctx context.Context, rg string, q Query, yield func(Match) bool) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	dir, target := q.Root, "./"
	if st, err := os.Stat(q.Root); err == nil && !st.IsDir() {
		dir, target = filepath.Dir(q.Root), "./"+filepath.Base(q.Root)
	}
	cmd := exec.CommandContext(ctx, rg, append(rgArgs(q), target)...)
	cmd.Dir = dir // globs are relative to it
	var stderr bytes.Buffer
	cmd.Stderr = &limited{buf: &stderr, left: 8 << 10}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("search: %w", err)
	}
	scan := bufio.NewScanner(out)
	scan.Buffer(make([]byte, 64<<10), maxRecord)
	found := false
	for scan.Scan() {
		matches, err := rgRecord(dir, scan.Bytes())
		if err != nil {
			stop()
			return errors.Join(err, ignoreExit(cmd.Wait()))
		}
		for _, m := range matches {
			found = true
			if !yield(m) {
				stop()
				return errors.Join(errStop, ignoreExit(cmd.Wait()))
			}
		}
	}
	scanErr := scan.Err()
	if scanErr != nil {
		stop()
	}
	err = cmd.Wait()
	if ctx.Err() != nil && scanErr == nil {
		return ctx.Err()
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		switch {
		case exit.ExitCode() == 1 || found: // nothing found, or some files could not be read
			err = nil
		case exit.ExitCode() == 2 && isUsage(stderr.String()):
			err = fmt.Errorf("%w: %s", ErrPattern, strings.TrimSpace(stderr.String()))
		case exit.ExitCode() == 2:
			err = nil
		}
	}
	return errors.Join(scanErr, err)
}

func rgArgs(q Query) []string {
	args := []string{"--no-config", "--json", "--sort", "path", "--max-filesize", strconv.Itoa(MaxText), "--glob", "!.git"}
	add := func(on bool, flags ...string) {
		if on {
			args = append(args, flags...)
		}
	}
	add(q.Hidden, "--hidden")
	add(q.IgnoreCase, "--ignore-case")
	add(q.Multiline, "--multiline", "--multiline-dotall")
	add(q.Before > 0, "--before-context", strconv.Itoa(q.Before))
	add(q.After > 0, "--after-context", strconv.Itoa(q.After))
	add(q.Glob != "", "--glob", q.Glob)
	add(q.Type != "", "--type", q.Type)
	return append(args, "--regexp", q.Pattern, "--")
}

// isUsage tells a refused pattern, glob or type from files that could not be
// read: rg exits with 2 for both.
func isUsage(stderr string) bool {
	for _, sign := range []string{"regex parse error", "unrecognized file type", "error parsing glob", "the literal"} {
		if strings.Contains(stderr, sign) {
			return true
		}
	}
	return false
}

// rgRecord reads one line of `rg --json`; a multi-line match is several lines.
func rgRecord(dir string, line []byte) ([]Match, error) {
	var rec struct {
		Type string `json:"type"`
		Data struct {
			Path  rgText `json:"path"`
			Lines rgText `json:"lines"`
			Line  int    `json:"line_number"`
		} `json:"data"`
	}
	if err := json.Unmarshal(line, &rec); err != nil {
		return nil, fmt.Errorf("search: read rg's output: %w", err)
	}
	if rec.Type != "match" && rec.Type != "context" {
		return nil, nil
	}
	var out []Match
	n := rec.Data.Line
	for text := range strings.Lines(rec.Data.Lines.s) {
		out = append(out, Match{
			Path: filepath.Join(dir, rec.Data.Path.s), Line: n, Text: strings.TrimRight(text, "\r\n"), Context: rec.Type == "context",
		})
		n++
	}
	return out, nil
}

// An rgText is {"text": …} or, if that is not UTF-8, {"bytes": base64}.
type rgText struct{ s string }

func (t *rgText) UnmarshalJSON(b []byte) error {
	var v struct{ Text, Bytes *string }
	if err := json.Unmarshal(b, &v); err != nil {
		return err
	}
	switch {
	case v.Text != nil:
		t.s = *v.Text
	case v.Bytes != nil:
		raw, err := base64.StdEncoding.DecodeString(*v.Bytes)
		if err != nil {
			return err
		}
		t.s = strings.ToValidUTF8(string(raw), "\uFFFD")
	}
	return nil
}

// ignoreExit drops the exit status of a program that was stopped.
func ignoreExit(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) || errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// limited keeps the first bytes that are written to it.
type limited struct {
	buf  *bytes.Buffer
	left int
}

func (l *limited) Write(b []byte) (int, error) {
	n := min(len(b), l.left)
	l.buf.Write(b[:n])
	l.left -= n
	return len(b), nil
}
