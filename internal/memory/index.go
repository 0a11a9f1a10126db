package memory

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	indexLockWait = time.Second // for a shell's git at work
	lockText      = "mneme\n"   // in an index.lock of ours
)

// updateIndex brings the paths of the shell's index in line, so that its next
// commit does not bring old content back. It follows git's protocol: who made
// index.lock, which the caller did, may replace the index.
func (m *Memory) updateIndex(ctx context.Context, dir string, ops []op) error {
	if len(ops) == 0 {
		return nil
	}
	gitDir := filepath.Join(dir, ".git")
	index, tmp := filepath.Join(gitDir, "index"), filepath.Join(gitDir, ownDir, "index")
	os.Remove(tmp)
	os.Remove(tmp + ".lock")
	// A link will do: git replaces an index, it never writes into one.
	if err := os.Link(index, tmp); err != nil && !isAbsent(err) {
		return fmt.Errorf("update index: %w", err)
	}
	env := []string{"GIT_INDEX_FILE=" + tmp}
	_, err := m.git.run(ctx, gitCall{dir: dir, env: env, stdin: indexInfo(ops),
		args: []string{"-c", "core.fsync=none", "update-index", "-z", "--index-info"}})
	if err != nil {
		// A damaged index holds nothing to keep.
		os.Remove(tmp)
		os.Remove(tmp + ".lock")
		if _, err := m.git.run(ctx, gitCall{dir: dir, env: env, args: []string{"read-tree", branch}}); err != nil {
			return fmt.Errorf("update index: %w", err)
		}
	}
	if err := os.Rename(tmp, index); err != nil {
		return fmt.Errorf("update index: %w", err)
	}
	return nil
}

// indexInfo is ops in the language of git update-index, removals first.
func indexInfo(ops []op) *bytes.Buffer {
	var b bytes.Buffer
	for _, deletions := range []bool{true, false} {
		for _, o := range ops {
			switch {
			case (o.file == nil) != deletions:
			case deletions:
				fmt.Fprintf(&b, "0 %s\t%s\x00", strings.Repeat("0", idLenOf(o)), o.path)
			default:
				fmt.Fprintf(&b, "%s %s\t%s\x00", o.file.Mode, o.file.Blob, o.path)
			}
		}
	}
	return &b
}

// lockIndex makes index.lock with our text in it, in one step, so that one of
// ours can be told from that of a git at work. It waits a moment for others; a
// lock that it waited for in vain is not waited for again. Without a repository
// there is nothing to lock. unlock is never nil.
func (m *Memory) lockIndex(r *repo, gitDir string) (unlock func(), ok bool) {
	lock, mine := filepath.Join(gitDir, "index.lock"), filepath.Join(gitDir, ownDir, "lock")
	none := func() {}
	if _, err := os.Lstat(gitDir); err != nil {
		return none, false
	}
	err := os.MkdirAll(filepath.Dir(mine), 0o700)
	if err == nil {
		err = os.WriteFile(mine, []byte(lockText), 0o600)
	}
	if err != nil {
		m.log.Warn("memory index cannot be locked", "error", err)
		return none, false
	}
	defer os.Remove(mine)
	for deadline := time.Now().Add(indexLockWait); ; {
		err := os.Link(mine, lock)
		if err == nil {
			r.stuck = nil
			return func() { os.Remove(lock) }, true
		}
		if !errors.Is(err, os.ErrExist) {
			m.log.Warn("memory index cannot be locked", "error", err)
			return none, false
		}
		if removeOwnLock(lock) {
			continue
		}
		info, err := os.Lstat(lock)
		if err != nil {
			continue // free now
		}
		if r.stuck != nil && os.SameFile(info, r.stuck) {
			return none, false
		}
		if time.Now().After(deadline) {
			r.stuck = info
			return none, false
		}
		time.Sleep(lockPoll)
	}
}

// removeOwnLock removes an index.lock that a process of ours left: we hold the
// write lock, so none of ours is at work.
func removeOwnLock(lock string) bool {
	text, err := os.ReadFile(lock)
	if err != nil || string(text) != lockText {
		return false
	}
	return os.Remove(lock) == nil
}
