package memory

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sync/errgroup"

	"mneme/internal/agent"
)

// Our own files inside .git: pending-<commit>, and what is made there before it
// is renamed to its place.
const (
	ownDir        = "mneme"
	pendingPrefix = "pending-"
	pendingRoot   = "none" // instead of a commit: there was none
	parallelFiles = 16     // written at the same time
)

// notePending notes, before the branch moves, that the work tree shows parent.
// The name carries it, so that there is no content to be torn; the note is in
// the journal of the file system before the flushes of the commit are.
func notePending(gitDir, parent string) (noted bool, err error) {
	if _, ok := pendingSince(gitDir); ok {
		return false, nil // behind since an older commit
	}
	if err := os.MkdirAll(filepath.Join(gitDir, ownDir), 0o700); err != nil {
		return false, fmt.Errorf("note checkout: %w", err)
	}
	if parent == "" {
		parent = pendingRoot
	}
	f, err := os.Create(filepath.Join(gitDir, ownDir, pendingPrefix+parent))
	if err != nil {
		return false, fmt.Errorf("note checkout: %w", err)
	}
	return true, f.Close()
}

// pendingSince is the commit that the work tree was last in line with, "" for
// none; ok is false if it is in line now.
func pendingSince(gitDir string) (commit string, ok bool) {
	entries, err := os.ReadDir(filepath.Join(gitDir, ownDir))
	if err != nil {
		return "", false
	}
	for _, e := range entries {
		if since, found := strings.CutPrefix(e.Name(), pendingPrefix); found {
			if since == pendingRoot {
				return "", true
			}
			return since, true
		}
	}
	return "", false
}

func clearPending(gitDir string) {
	notes, _ := filepath.Glob(filepath.Join(gitDir, ownDir, pendingPrefix+"*"))
	for _, n := range notes {
		os.Remove(n)
	}
}

// resume finishes a checkout that a crash cut, unless a writer is at it.
func (m *Memory) resume(ctx context.Context, agentID string) {
	if _, ok := pendingSince(filepath.Join(m.Dir(agentID), ".git")); !ok {
		return
	}
	r := m.repo(agentID)
	select {
	case r.write <- struct{}{}:
		m.settle(ctx, r, agentID)
		<-r.write
	default:
	}
}

// settle brings a repository in order before a write: it removes leftovers of an
// earlier process, once, and finishes a checkout. What it cannot do now it
// leaves for the next time; it never fails. The write lock is held.
func (m *Memory) settle(ctx context.Context, r *repo, agentID string) {
	dir := m.Dir(agentID)
	gitDir := filepath.Join(dir, ".git")
	if !r.cleaned {
		r.cleaned = true
		m.cleanUp(gitDir)
		packs, _ := filepath.Glob(filepath.Join(gitDir, "objects", "pack", "*.pack"))
		r.commits = len(packs)
	}
	since, ok := pendingSince(gitDir)
	if !ok {
		return
	}
	ops, err := m.opsSince(ctx, agentID, since)
	if err != nil {
		if ctx.Err() == nil {
			m.log.Warn("memory checkout: cannot tell what changed", "agent", agentID, "error", err)
			clearPending(gitDir)
		}
		return
	}
	unlock, locked := m.lockIndex(r, gitDir)
	defer unlock()
	m.finishCheckout(context.WithoutCancel(ctx), dir, ops, locked)
}

// cleanUp removes our own temporary files and index lock of a dead process.
func (m *Memory) cleanUp(gitDir string) {
	entries, _ := os.ReadDir(filepath.Join(gitDir, ownDir))
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), pendingPrefix) {
			os.Remove(filepath.Join(gitDir, ownDir, e.Name()))
		}
	}
	removeCrashReports(gitDir)
	removeOwnLock(filepath.Join(gitDir, "index.lock"))
}

// opsSince is what changed from a commit to the newest.
func (m *Memory) opsSince(ctx context.Context, agentID, since string) ([]op, error) {
	head, err := m.Head(agentID)
	if err != nil || head == since {
		return nil, err
	}
	old := &Snapshot{}
	if since != "" {
		if old, err = m.snapshot(ctx, agentID, since); err != nil {
			return nil, err
		}
	}
	now, err := m.snapshot(ctx, agentID, head)
	if err != nil {
		return nil, err
	}
	return diff(old, now), nil
}

// diff is the ops that lead from one snapshot to another.
func diff(old, now *Snapshot) []op {
	var ops []op
	for _, f := range old.Files {
		if g := now.File(f.Path); g == nil || g.Blob != f.Blob || g.Mode != f.Mode {
			ops = append(ops, op{path: f.Path, old: f, file: g})
		}
	}
	for _, g := range now.Files {
		if old.File(g.Path) == nil {
			ops = append(ops, op{path: g.Path, file: g})
		}
	}
	return ops
}

// finishCheckout brings work tree and index in line with a commit. If it cannot,
// or may not touch the index, the note stays and the next access tries again:
// the commit stands.
func (m *Memory) finishCheckout(ctx context.Context, dir string, ops []op, locked bool) {
	gitDir := filepath.Join(dir, ".git")
	ours, err := showsBranch(gitDir)
	if ours {
		err = m.checkOut(ctx, dir, ops, locked)
	}
	if err != nil {
		m.log.Warn("memory checkout is late", "dir", filepath.Base(filepath.Dir(dir)), "error", err)
		return
	}
	clearPending(gitDir)
}

// showsBranch says whether the work tree is one of our branch. If a shell has
// another branch or a commit in it, it is none of ours.
func showsBranch(gitDir string) (bool, error) {
	head, err := os.ReadFile(filepath.Join(gitDir, "HEAD"))
	return err == nil && strings.TrimSpace(string(head)) == "ref: "+branch, err
}

func (m *Memory) checkOut(ctx context.Context, dir string, ops []op, locked bool) error {
	if err := m.fetch(ctx, dir, ops); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("open work tree: %w", err)
	}
	defer root.Close()
	// Removals first: a directory may have to make room for a file. Then some at
	// a time, since each waits for the disk.
	placed := make([]bool, len(ops))
	for _, deletions := range []bool{true, false} {
		var group errgroup.Group
		group.SetLimit(parallelFiles)
		if deletions {
			group.SetLimit(1)
		}
		for i, o := range ops {
			if (o.file == nil) != deletions {
				continue
			}
			group.Go(func() (err error) {
				if placed[i], err = place(root, o, fmt.Sprint("file-", i)); err != nil {
					err = fmt.Errorf("check out %s: %w", o.path, err)
				}
				return err
			})
		}
		if err := group.Wait(); err != nil {
			return err
		}
	}
	var done []op
	for i, o := range ops {
		if placed[i] {
			done = append(done, o)
		}
	}
	if !locked {
		return errors.New("another process holds the index")
	}
	return m.updateIndex(ctx, dir, done)
}

// fetch reads the contents that ops do not carry.
func (m *Memory) fetch(ctx context.Context, dir string, ops []op) error {
	var missing []*op
	var requests []string
	for i := range ops {
		if o := &ops[i]; o.file != nil && o.data == nil {
			if o.file.Kind == KindMarkdown && !o.file.Oversized {
				o.data = []byte(o.file.Text)
				continue
			}
			missing = append(missing, o)
			requests = append(requests, "contents "+o.file.Blob)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	objects, err := m.git.openObjects(ctx, dir)
	if err != nil {
		return err
	}
	defer objects.close()
	return objects.each(requests, 1<<30, func(i int, obj object) error {
		if obj.kind != "blob" || obj.cut {
			return fmt.Errorf("memory file %q: %w", missing[i].path, errMissing)
		}
		missing[i].data = obj.data
		return nil
	})
}

// place writes or removes one file of the work tree; it is made under the name
// tmp in our directory. ok is false if the path has edits that nobody committed:
// they stay.
func place(root *os.Root, o op, tmp string) (ok bool, err error) {
	state, err := lookAt(root, o.path, idLenOf(o), nil)
	if err != nil {
		return false, err
	}
	switch {
	case state.is(o.file):
		return true, nil
	case !state.is(o.old):
		return false, nil
	case o.file == nil:
		return true, removeFile(root, o.path)
	}
	return true, writeFile(root, o, path.Join(".git", ownDir, tmp))
}

// removeFile removes a file and the directories it leaves empty.
func removeFile(root *os.Root, p string) error {
	if err := root.Remove(p); err != nil && !isAbsent(err) {
		return err
	}
	for d := path.Dir(p); d != "."; d = path.Dir(d) {
		if root.Remove(d) != nil {
			break // not empty
		}
	}
	return nil
}

// writeFile replaces a file in one step and flushes it, so that a power cut
// cannot leave an empty file that looks like an edit.
func writeFile(root *os.Root, o op, tmp string) error {
	if dir := path.Dir(o.path); dir != "." {
		if err := root.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if err := root.Remove(tmp); err != nil && !isAbsent(err) {
		return err
	}
	if o.file.Mode == "120000" {
		if err := root.Symlink(string(o.data), tmp); err != nil {
			return err
		}
		return root.Rename(tmp, o.path)
	}
	perm := os.FileMode(0o644)
	if o.file.Mode == "100755" {
		perm = 0o755
	}
	if err := root.MkdirAll(path.Dir(tmp), 0o700); err != nil {
		return err
	}
	f, err := root.OpenFile(tmp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, perm)
	if err != nil {
		return err
	}
	_, err = f.Write(o.data)
	err = errors.Join(err, f.Sync(), f.Close())
	if err != nil {
		return err
	}
	return root.Rename(tmp, o.path)
}

// A state is what the work tree has at a path.
type state struct {
	kind byte   // '-' absent, 'f' file, 'l' link, '?' something else
	blob string // of files and links
}

// is says whether the work tree shows a committed file (nil = none).
func (s state) is(f *File) bool {
	switch {
	case f == nil:
		return s.kind == '-'
	case f.Mode == "120000":
		return s.kind == 'l' && s.blob == f.Blob
	}
	return s.kind == 'f' && s.blob == f.Blob
}

func idLenOf(o op) int {
	if o.file != nil {
		return len(o.file.Blob)
	}
	return len(o.old.Blob)
}

// lookAt looks at a path of the work tree without following any link. Files in
// gone count as absent where they are in the way.
func lookAt(root *os.Root, p string, idLen int, gone map[string]bool) (state, error) {
	for i, c := range p {
		if c != '/' {
			continue
		}
		info, err := root.Lstat(p[:i])
		switch {
		case isAbsent(err):
			return state{kind: '-'}, nil
		case err != nil:
			return state{}, err
		case info.Mode().IsRegular() && gone[p[:i]]:
			return state{kind: '-'}, nil
		case !info.IsDir():
			return state{kind: '?'}, nil
		}
	}
	info, err := root.Lstat(p)
	switch {
	case isAbsent(err):
		return state{kind: '-'}, nil
	case err != nil:
		return state{}, err
	case info.Mode()&os.ModeSymlink != 0:
		target, err := root.Readlink(p)
		return state{kind: 'l', blob: blobID([]byte(target), idLen)}, err
	case info.IsDir() && (removeEmptyDir(root, p) || gone[p+"/"]):
		return state{kind: '-'}, nil
	case !info.Mode().IsRegular():
		return state{kind: '?'}, nil
	}
	f, err := root.Open(p)
	if err != nil {
		return state{}, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return state{}, err
	}
	if len(data) > maxFile {
		return state{kind: '?'}, nil
	}
	return state{kind: 'f', blob: blobID(data, idLen)}, nil
}

// removeEmptyDir removes a directory if it is empty: git knows none of those.
func removeEmptyDir(root *os.Root, p string) bool { return root.Remove(p) == nil }

// checkClean refuses paths whose work tree shows neither the committed content
// nor the new one: somebody edits them. A work tree that shows something else
// than our branch is not touched by writes and so does not matter.
func checkClean(dir string, ops []op) error {
	ours, err := showsBranch(filepath.Join(dir, ".git"))
	missing := isAbsent(err)
	switch {
	case err != nil && !missing:
		return fmt.Errorf("memory repository: %w", err)
	case !missing && !ours:
		return nil
	}
	root, err := os.OpenRoot(dir)
	if isAbsent(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open work tree: %w", err)
	}
	defer root.Close()
	gone := map[string]bool{} // files that go, and with slash the directories that may
	for _, o := range ops {
		if o.file == nil {
			gone[o.path] = true
			for d := path.Dir(o.path); d != "."; d = path.Dir(d) {
				gone[d+"/"] = true
			}
		}
	}
	for _, o := range ops {
		s, err := lookAt(root, o.path, idLenOf(o), gone)
		if err != nil {
			return fmt.Errorf("look at %s: %w", o.path, err)
		}
		if !s.is(o.old) && !s.is(o.file) {
			return &agent.Error{Code: agent.CodeMemoryConflict, Ref: o.path, Message: o.path + inTheWay(dir, o, missing)}
		}
	}
	return nil
}

// inTheWay says what is wrong with the work tree at a path, and what to do.
func inTheWay(dir string, o op, noRepository bool) string {
	switch {
	case noRepository:
		return fmt.Sprintf(" is in %s, but the repository that it belongs to (.git) is missing there; "+
			"bring .git back, or move the files away to start anew", dir)
	case o.old == nil:
		return " is in the work tree but was never committed; commit it or move it away first"
	}
	return " has uncommitted edits in the work tree; commit or discard them first"
}
