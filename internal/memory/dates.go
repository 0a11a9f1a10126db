package memory

import (
	"bufio"
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// fewPaths is how many files are asked for by name; for more the whole history
// is read until all of them have come up.
const fewPaths = 50

// noDate marks a file that no commit names.
const noDate = -1

// Updated is when the commit that last changed the file was made; zero if
// Memory.Date was not asked yet.
func (f *File) Updated() time.Time {
	if seconds := f.unix(); seconds > 0 {
		return time.Unix(seconds, 0).UTC()
	}
	return time.Time{}
}

// unix is Updated in seconds, at most 0 if it is not known.
func (f *File) unix() int64 { return atomic.LoadInt64(&f.updated) }

func (f *File) setUnix(seconds int64) { atomic.StoreInt64(&f.updated, seconds) }

// Date finds out when files of a snapshot were last changed. It costs no process
// for files that were dated before or written by this process.
func (m *Memory) Date(ctx context.Context, agentID string, s *Snapshot, files []*File) error {
	if len(undated(files)) == 0 {
		return nil
	}
	r := m.repo(agentID)
	if err := take(ctx, r.load); err != nil {
		return err
	}
	defer func() { <-r.load }()
	wanted := undated(files)
	if len(wanted) == 0 {
		return nil // while we waited
	}
	if err := m.readDates(ctx, m.Dir(agentID), s.Commit, wanted); err != nil {
		return fmt.Errorf("date memory files: %w", err)
	}
	for _, f := range wanted {
		f.setUnix(noDate)
	}
	return nil
}

// undated is the files without date, by path.
func undated(files []*File) map[string]*File {
	var wanted map[string]*File
	for _, f := range files {
		if f.unix() != 0 {
			continue
		}
		if wanted == nil {
			wanted = map[string]*File{}
		}
		wanted[f.Path] = f
	}
	return wanted
}

// readDates dates files by the history of a commit and takes them out of wanted.
// What a merge brought has the time of the merge.
func (m *Memory) readDates(ctx context.Context, dir, commit string, wanted map[string]*File) error {
	call := gitCall{dir: dir, args: []string{"log", "--first-parent", "--diff-merges=first-parent", "--no-renames",
		"--name-only", "-z", "--no-show-signature", "--no-color", "--format=%x01%ct", "--end-of-options", commit, "--"}}
	if len(wanted) <= fewPaths {
		for p := range wanted {
			call.args = append(call.args, p)
		}
	}
	return m.git.fields(ctx, call, readDate(wanted))
}

// readDate takes the fields of the log: a time, then the paths of that commit.
func readDate(wanted map[string]*File) func(field string) (more bool) {
	var at int64
	return func(field string) bool {
		if text, ok := strings.CutPrefix(field, "\x01"); ok {
			if seconds, err := strconv.ParseInt(text, 10, 64); err == nil {
				at = seconds
				return true
			}
		}
		p := strings.TrimPrefix(field, "\n")
		if f := wanted[p]; f != nil {
			f.setUnix(at)
			delete(wanted, p)
		}
		return len(wanted) > 0
	}
}

// fields runs a command that prints fields with a NUL behind each, and ends it
// when got wants no more.
func (g *git) fields(ctx context.Context, c gitCall, got func(string) (more bool)) error {
	if err := take(ctx, g.slots); err != nil {
		return err
	}
	defer func() { <-g.slots }()
	ctx, cancel := context.WithTimeout(ctx, gitTimeout)
	defer cancel()
	stderr := &capped{max: gitMaxErrors}
	cmd := g.command(ctx, c)
	cmd.Stderr = stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return g.failed(ctx, c, err, nil)
	}
	r := bufio.NewReaderSize(out, 64<<10)
	for {
		field, err := r.ReadString(0)
		if err != nil {
			break // the end, or what Wait says
		}
		if !got(field[:len(field)-1]) {
			cancel()
			cmd.Wait() // it was told to stop
			return nil
		}
	}
	if err := cmd.Wait(); err != nil {
		return g.failed(ctx, c, err, stderr.buf.Bytes())
	}
	return nil
}
