package memory_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mneme/internal/agent"
	"mneme/internal/memory"
)

func (f *fixture) try(changes ...memory.FileChange) error {
	_, _, err := f.Write(f.t.Context(), memory.Author{}, id, changes, "try")
	return err
}

func file(path, content string) memory.FileChange {
	return memory.FileChange{Path: path, Content: []byte(content)}
}

// Only the path itself matters: uncommitted edits elsewhere, staged or not, do
// not disturb a write and are not touched by it.
func TestDirtyWorkTree(t *testing.T) {
	f := setup(t)
	f.put("a.md", "a")
	f.put("b.md", "b")
	f.put("c.md", "c")
	f.edit("a.md", "edited by hand")
	f.edit("b.md", "staged by hand")
	f.shell("add", "b.md")
	f.edit("untracked.md", "new by hand")

	for _, change := range []memory.FileChange{file("a.md", "mine"), {Path: "a.md", Delete: true}, file("untracked.md", "mine"), file("b.md", "mine")} {
		err := f.try(file("other.md", "x"), change)
		wantCode(t, err, agent.CodeMemoryConflict)
		if err == nil || !strings.Contains(err.Error(), change.Path) {
			t.Errorf("the error %v does not name %s", err, change.Path)
		}
	}
	if got := f.workTree("other.md"); got != "(none)" {
		t.Error("a refused write left a file")
	}
	f.put("c.md", "changed")
	f.put("d/e.md", "new")
	f.sound("M a.md", "M  b.md", "?? untracked.md")
	if got := f.workTree("a.md") + "|" + f.workTree("b.md") + "|" + f.workTree("untracked.md"); got != "edited by hand|staged by hand|new by hand" {
		t.Errorf("edits were touched: %q", got)
	}
	// The shell's next commit holds its own edits and brings nothing old back.
	f.shell("commit", "-q", "-a", "-m", "by hand")
	if got := f.get("c.md") + "|" + f.get("d/e.md") + "|" + f.get("a.md"); got != "changed|new|edited by hand" {
		t.Errorf("after the shell's commit: %q", got)
	}
	// An edit that says the same as the write is no conflict.
	f.edit("a.md", "agreed")
	f.put("a.md", "agreed")
	f.sound("?? untracked.md")
}

func TestDeletedByHand(t *testing.T) {
	f := setup(t)
	f.put("a.md", "a")
	os.Remove(filepath.Join(f.Dir(id), "a.md"))
	wantCode(t, f.try(file("a.md", "new")), agent.CodeMemoryConflict)
	if err := f.try(memory.FileChange{Path: "a.md", Delete: true}); err != nil {
		t.Errorf("deleting what was deleted by hand: %v", err)
	}
	f.sound()
}

// Files that were there before the repository was.
func TestFirstWriteIntoADirectory(t *testing.T) {
	f := setup(t)
	f.edit("notes/mine.md", "by hand")
	wantCode(t, f.try(file("notes/mine.md", "other")), agent.CodeMemoryConflict)
	f.put("system/a.md", "a")
	f.sound("?? notes/mine.md")
}

func TestSymbolicLinks(t *testing.T) {
	f := setup(t)
	outside := t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "secret.md"), []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	f.put("a.md", "a")
	dir := f.Dir(id)
	for link, target := range map[string]string{"out": outside, "file.md": filepath.Join(outside, "secret.md"), "inside.md": "a.md", "git.md": ".git/config"} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range []string{"out/secret.md", "file.md", "inside.md", "git.md"} {
		data, err := f.Read(t.Context(), id, p)
		wantCode(t, err, agent.CodeInvalid)
		if len(data) > 0 {
			t.Errorf("%s was read: %q", p, data)
		}
		wantCode(t, f.try(file(p, "x")), agent.CodeMemoryConflict)
	}
	f.shell("add", "-A")
	f.shell("commit", "-q", "-m", "links")
	for _, p := range []string{"out/secret.md", "file.md", "inside.md"} {
		wantCode(t, f.try(file(p, "x")), agent.CodeInvalid)
	}
	if got, _ := os.ReadFile(filepath.Join(outside, "secret.md")); string(got) != "secret" {
		t.Errorf("a write went through a link: %q", got)
	}
	// A link shows nothing but can be deleted.
	if entries, err := f.List(t.Context(), id); err != nil || len(entries) != 1 {
		t.Errorf("links are listed: %v, %v", entries, err)
	}
	if err := f.try(memory.FileChange{Path: "file.md", Delete: true}); err != nil {
		t.Error(err)
	}
	f.sound()
}

func TestFilesAndDirectories(t *testing.T) {
	f := setup(t)
	f.put("a.md", "a")
	f.put("dir/b.md", "b")
	wantCode(t, f.try(file("a.md/x.md", "x")), agent.CodeInvalid)
	wantCode(t, f.try(memory.FileChange{Path: "dir", Delete: true}), agent.CodeInvalid)
	wantCode(t, f.try(file("n.md", "1"), file("n.md/x.md", "2")), agent.CodeInvalid)
	wantCode(t, f.try(file("n.md", "1"), file("./n.md", "2")), agent.CodeInvalid)
	// A directory may make room for a file and the other way round.
	if err := f.try(memory.FileChange{Path: "a.md", Delete: true}, file("a.md/x.md", "x")); err != nil {
		t.Fatal(err)
	}
	f.sound()
	if err := f.try(memory.FileChange{Path: "a.md/x.md", Delete: true}, file("a.md", "a")); err != nil {
		t.Fatal(err)
	}
	f.sound()
	if got := f.workTree("a.md"); got != "a" {
		t.Errorf("a.md is %q", got)
	}
}

func TestLimits(t *testing.T) {
	f := setup(t)
	long := strings.Repeat("é", memory.DefaultLimit)
	f.put("a.md", long)
	wantCode(t, f.try(file("a.md", long+"x")), agent.CodeInvalid)
	f.put("a.md", "---\nlimit: 100001\n---\n"+long+"x")
	wantCode(t, f.try(file("b.md", "---\nlimit: 3\n---\nlong")), agent.CodeInvalid)
	wantCode(t, f.try(file("b.md", "not \xff text")), agent.CodeInvalid)
	wantCode(t, f.try(file("big.png", strings.Repeat("x", 16<<20+1))), agent.CodeTooLarge)
	// What a shell commits is kept and shown.
	f.edit("shell.md", long+"xyz")
	f.edit("huge.md", strings.Repeat("y", 5<<20))
	f.shell("add", "-A")
	f.shell("commit", "-q", "-m", "long")
	snap, err := f.Snapshot(t.Context(), id, "")
	if err != nil {
		t.Fatal(err)
	}
	if s := snap.File("shell.md"); s.Chars() != memory.DefaultLimit+3 || s.Limit != memory.DefaultLimit {
		t.Errorf("shell.md has %d characters of %d", s.Chars(), s.Limit)
	}
	if h := snap.File("huge.md"); !h.Oversized || h.Text != "" || h.Size != 5<<20 {
		t.Errorf("huge.md: oversized %v, %d bytes of text, size %d", h.Oversized, len(h.Text), h.Size)
	}
}

func TestReadOnly(t *testing.T) {
	f := setup(t)
	f.put("system/a.md", "---\nread_only: true\n---\nfixed")
	wantCode(t, f.try(file("system/a.md", "x")), agent.CodeInvalid)
	wantCode(t, f.try(memory.FileChange{Path: "system/a.md", Delete: true}), agent.CodeInvalid)
	if err := f.try(file("system/a.md", "---\nread_only: true\n---\nfixed")); err != nil {
		t.Errorf("writing the same: %v", err)
	}
	if err := f.try(memory.FileChange{Path: "system/a.md", Content: []byte("free"), Force: true}); err != nil {
		t.Errorf("the owner: %v", err)
	}
}

// Many writers, none of whose updates may be lost (a read-modify-write each).
func TestConcurrentUpdates(t *testing.T) {
	f := setup(t)
	const writers, each = 8, 6
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				_, changed, err := f.Update(t.Context(), memory.Author{}, id, "append", func(s *memory.Snapshot) ([]memory.FileChange, error) {
					old := ""
					if log := s.File("system/log.md"); log != nil {
						old = log.Text
					}
					return []memory.FileChange{file("system/log.md", old+fmt.Sprintf("%d-%d\n", w, i)), file(fmt.Sprintf("own/%d.md", w), strconv.Itoa(i))}, nil
				})
				if err != nil || !changed {
					t.Errorf("writer %d: %v, %v", w, changed, err)
				}
			}
		})
		wg.Go(func() { // readers see whole commits
			for range each {
				s, err := f.Snapshot(t.Context(), id, "")
				if err != nil {
					t.Errorf("reader: %v", err)
				} else if log := s.File("system/log.md"); log == nil && s.Commit != "" {
					t.Error("a commit without its files")
				}
			}
		})
	}
	wg.Wait()
	log := f.get("system/log.md")
	for w := range writers {
		for i := range each {
			if !strings.Contains(log, fmt.Sprintf("%d-%d\n", w, i)) {
				t.Errorf("update %d-%d is lost", w, i)
			}
		}
	}
	if got := f.shell("rev-list", "--count", "main"); got != strconv.Itoa(writers*each) {
		t.Errorf("%s commits, want %d", got, writers*each)
	}
	f.sound()
}

// Shells commit at the same time: both sides' work stays, and the history is
// never rewritten.
func TestShellCommitsBetween(t *testing.T) {
	f := setup(t)
	f.put("a.md", "0")
	calls := 0
	commit, _, err := f.Update(t.Context(), memory.Author{}, id, "update", func(s *memory.Snapshot) ([]memory.FileChange, error) {
		calls++
		if calls == 1 { // after the branch was read
			f.edit("shell.md", "by the shell")
			f.shell("add", "shell.md")
			f.shell("commit", "-q", "-m", "shell")
		}
		return []memory.FileChange{file("a.md", strconv.Itoa(len(s.Files)))}, nil
	})
	if err != nil || calls != 2 {
		t.Fatalf("%d calls, %v", calls, err)
	}
	if got := f.get("a.md") + " " + f.get("shell.md"); got != "2 by the shell" {
		t.Errorf("files are %q", got)
	}
	if got := f.shell("log", "--format=%s", commit); got != "update\nshell\nput a.md" {
		t.Errorf("history is %q", got)
	}
	f.sound()

	// Somebody who never stops committing is a conflict in the end.
	n := 0
	_, _, err = f.Update(t.Context(), memory.Author{}, id, "update", func(*memory.Snapshot) ([]memory.FileChange, error) {
		n++
		f.shell("commit", "-q", "--allow-empty", "-m", fmt.Sprint("shell ", n))
		return []memory.FileChange{file("a.md", "mine")}, nil
	})
	wantCode(t, err, agent.CodeMemoryConflict)
	if n != 3 {
		t.Errorf("%d tries, want 3", n)
	}
	f.sound()
}

func TestParallelShell(t *testing.T) {
	f := setup(t)
	f.put("a.md", "0")
	dir := f.Dir(id)
	var shells []string
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 15 {
			name := fmt.Sprintf("shell-%d.md", i)
			if os.WriteFile(filepath.Join(dir, name), []byte("s"), 0o644) != nil {
				return
			}
			if tryGit(dir, "add", name) == nil && tryGit(dir, "commit", "-q", "-m", name) == nil {
				shells = append(shells, name)
			}
		}
	}()
	ours := 0
	for i := range 15 {
		err := f.try(file(fmt.Sprintf("ours-%d.md", i), "o"))
		if err == nil {
			ours++
		} else {
			wantCode(t, err, agent.CodeMemoryConflict)
		}
	}
	<-done
	f.put("last.md", "x")
	snap, err := f.Snapshot(t.Context(), id, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range shells {
		if snap.File(name) == nil {
			t.Errorf("the shell's %s is lost", name)
		}
	}
	found := 0
	for i := range 15 {
		if snap.File(fmt.Sprintf("ours-%d.md", i)) != nil {
			found++
		}
	}
	if found != ours || ours == 0 {
		t.Errorf("%d of %d writes are there", found, ours)
	}
	f.shell("fsck", "--strict", "--no-dangling")
}

// A branch that is not there while others are is not written over by a new
// history.
func TestMissingBranch(t *testing.T) {
	f := setup(t)
	f.put("a.md", "a")
	f.shell("branch", "-m", "main", "other")
	wantCode(t, f.try(file("b.md", "b")), agent.CodeMemoryConflict)
	f.shell("pack-refs", "--all")
	wantCode(t, f.try(file("b.md", "b")), agent.CodeMemoryConflict)
	f.shell("branch", "-m", "other", "main")
	f.shell("pack-refs", "--all")
	if head, err := f.Head(id); err != nil || head != f.shell("rev-parse", "HEAD") {
		t.Errorf("packed branch is read as %q, %v", head, err)
	}
	f.put("b.md", "b")
	f.sound()
}

// Another branch in the work tree is the shell's business.
func TestOtherBranchCheckedOut(t *testing.T) {
	f := setup(t)
	f.put("a.md", "a")
	f.shell("checkout", "-q", "-b", "draft")
	f.put("b.md", "b")
	if got := f.workTree("b.md"); got != "(none)" {
		t.Errorf("b.md is in the other branch's work tree: %q", got)
	}
	if got := f.get("b.md"); got != "b" {
		t.Errorf("main has %q", got)
	}
	f.shell("checkout", "-q", "main")
	f.put("c.md", "c")
	f.sound()
}

// Lock files of processes that died.
func TestStaleLocks(t *testing.T) {
	f := setup(t)
	f.put("a.md", "a")
	gitDir := filepath.Join(f.Dir(id), ".git")
	old := time.Now().Add(-time.Minute)
	for _, name := range []string{"refs/heads/main.lock", "HEAD.lock"} {
		lock := filepath.Join(gitDir, name)
		if err := os.WriteFile(lock, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		os.Chtimes(lock, old, old)
		f.put("a.md", name)
		if _, err := os.Stat(lock); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is still there", name)
		}
	}
	// A lock that is held is waited for.
	lock := filepath.Join(gitDir, "refs/heads/main.lock")
	if err := os.WriteFile(lock, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(300*time.Millisecond, func() { os.Remove(lock) })
	f.put("a.md", "waited")
	f.sound()
}

// The index belongs to the shell: while it is locked, commits go on, and the
// index follows when it is free again.
func TestLockedIndex(t *testing.T) {
	f := setup(t)
	f.put("a.md", "a")
	lock := filepath.Join(f.Dir(id), ".git", "index.lock")
	if err := os.WriteFile(lock, []byte("DIRC"), 0o644); err != nil {
		t.Fatal(err)
	}
	f.put("a.md", "b")
	f.put("new.md", "n")
	if got := f.get("a.md") + f.workTree("a.md") + f.workTree("new.md"); got != "bbn" {
		t.Errorf("committed and checked out are %q", got)
	}
	os.Remove(lock)
	if _, err := f.Snapshot(t.Context(), id, ""); err != nil { // any access brings it in line
		t.Fatal(err)
	}
	f.sound()
	// One of ours is known by its text.
	if err := os.WriteFile(lock, []byte("mneme\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	f.put("a.md", "c")
	f.sound()
}

func TestDamagedIndex(t *testing.T) {
	f := setup(t)
	f.put("a.md", "a")
	if err := os.WriteFile(filepath.Join(f.Dir(id), ".git", "index"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	f.put("a.md", "b")
	f.sound()
}

// What a crash between commit and checkout leaves is finished at the next
// access, and a person's edits made since then stay.
func TestUnfinishedCheckout(t *testing.T) {
	f := setup(t)
	before := f.put("a.md", "1")
	f.put("b.md", "1")
	f.put("gone.md", "1")
	base, _ := f.Head(id)
	if err := f.try(file("a.md", "2"), file("b.md", "2"), file("new/c.md", "2"), memory.FileChange{Path: "gone.md", Delete: true}); err != nil {
		t.Fatal(err)
	}
	f.Close()
	// Put work tree and index back to where they were, as if it had not begun.
	f.shell("read-tree", "-u", "--reset", base)
	if err := os.WriteFile(filepath.Join(f.Dir(id), ".git", "mneme", "pending-"+base), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f.edit("b.md", "by hand")
	f.open()
	if _, err := f.Snapshot(t.Context(), id, ""); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join([]string{f.workTree("a.md"), f.workTree("b.md"), f.workTree("new/c.md"), f.workTree("gone.md")}, " "); got != "2 by hand 2 (none)" {
		t.Errorf("work tree has %q", got)
	}
	wantCode(t, f.try(file("b.md", "3")), agent.CodeMemoryConflict)
	f.shell("checkout", "-q", "HEAD", "--", "b.md")
	f.put("b.md", "3")
	f.sound()
	_ = before
}

func TestErrorsShowNoPlaces(t *testing.T) {
	f := setup(t)
	f.put("a.md", "a")
	// Make git fail in its own words.
	pack := filepath.Join(f.Dir(id), ".git", "objects", "pack")
	if err := os.RemoveAll(pack); err != nil {
		t.Fatal(err)
	}
	f.reopen()
	err := f.try(file("b.md", "x"))
	if err == nil {
		t.Fatal("a write into a damaged repository succeeded")
	}
	if strings.Contains(err.Error(), f.root) || strings.Contains(err.Error(), "\n") {
		t.Errorf("error is %q", err)
	}
}

func TestWaitingWriterGivesUp(t *testing.T) {
	f := setup(t)
	inside, leave := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		f.Update(context.Background(), memory.Author{}, id, "slow", func(*memory.Snapshot) ([]memory.FileChange, error) {
			close(inside)
			<-leave
			return nil, nil
		})
	})
	<-inside
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, _, err := f.Write(ctx, memory.Author{}, id, []memory.FileChange{file("a.md", "x")}, "")
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error is %v", err)
	}
	close(leave)
	wg.Wait()
}

// Files that are no Markdown move with their content, and keep their mode.
func TestOtherFilesMove(t *testing.T) {
	f := setup(t)
	f.put("skills/x/SKILL.md", "a skill")
	f.put("skills/x/pic.png", "\x89\x00")
	f.edit("skills/x/run.sh", "#!/bin/sh\n")
	dir := f.Dir(id)
	if err := os.Chmod(filepath.Join(dir, "skills/x/run.sh"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("run.sh", filepath.Join(dir, "skills/x/link")); err != nil {
		t.Fatal(err)
	}
	f.shell("add", "-A")
	f.shell("commit", "-q", "-m", "by hand")
	if _, err := f.Apply(t.Context(), id, memory.Op{Command: "rename", OldPath: "skills/x", NewPath: "skills/y"}); err != nil {
		t.Fatal(err)
	}
	if got := f.workTree("skills/y/pic.png") + f.workTree("skills/y/run.sh") + f.workTree("skills/y/link"); got != "\x89\x00#!/bin/sh\n#!/bin/sh\n" {
		t.Errorf("contents are %q", got)
	}
	if info, err := os.Stat(filepath.Join(dir, "skills/y/run.sh")); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("run.sh: %v, %v", info, err)
	}
	if target, err := os.Readlink(filepath.Join(dir, "skills/y/link")); err != nil || target != "run.sh" {
		t.Errorf("link leads to %q, %v", target, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "skills/x")); !errors.Is(err, fs.ErrNotExist) {
		t.Error("the old directory is still there")
	}
	f.sound()
	_, err := f.Apply(t.Context(), id, memory.Op{Command: "str_replace", FilePath: "skills/y/run.sh", OldString: "sh", NewString: "x"})
	wantCode(t, err, agent.CodeNotFound) // run.sh.md
	_, err = f.Apply(t.Context(), id, memory.Op{Command: "rename", OldPath: "skills/y/pic.png", NewPath: "pic.md"})
	wantCode(t, err, agent.CodeInvalid)
}

// A repository that came with other object names is served as it is.
func TestForeignRepository(t *testing.T) {
	f := setup(t)
	dir := f.Dir(id)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	gitIn(t, dir, "init", "-q", "-b", "main", "--object-format=sha256")
	gitIn(t, dir, "config", "user.name", "x")
	gitIn(t, dir, "config", "user.email", "x@y")
	f.put("a.md", "first") // an empty history may be begun
	f.edit("b.md", "shell")
	f.shell("add", "b.md")
	f.shell("commit", "-q", "-m", "shell")
	f.put("b.md", "ours")
	if err := f.try(memory.FileChange{Path: "a.md", Delete: true}); err != nil {
		t.Fatal(err)
	}
	f.reopen()
	snap, err := f.Snapshot(t.Context(), id, "")
	if err != nil || len(snap.Files) != 1 || snap.Files[0].Text != "ours" || len(snap.Commit) != 64 {
		t.Errorf("snapshot is %+v, %v", snap, err)
	}
	f.sound()
}

// What a crash leaves of a first write is no repository.
func TestHalfMadeRepository(t *testing.T) {
	f := setup(t)
	staging := filepath.Join(filepath.Dir(f.Dir(id)), ".new", ".git")
	if err := os.MkdirAll(filepath.Join(staging, "refs"), 0o755); err != nil {
		t.Fatal(err)
	}
	if head, err := f.Head(id); head != "" || err != nil {
		t.Errorf("Head = %q, %v", head, err)
	}
	f.put("a.md", "a")
	f.sound()
	if _, err := os.Stat(filepath.Dir(staging)); !errors.Is(err, fs.ErrNotExist) {
		t.Error("the leftovers are still there")
	}
}

// Commits that a shell made are told as soon as they are seen, once.
func TestForeignCommitsAreTold(t *testing.T) {
	f := setup(t)
	first := f.put("a.md", "1")
	commit := func(p string) string {
		f.edit(p, "by hand "+p)
		f.shell("add", "-A")
		f.shell("commit", "-qm", "by hand")
		return f.shell("rev-parse", "HEAD")
	}
	read := func() {
		if _, err := f.Snapshot(t.Context(), id, ""); err != nil {
			t.Fatal(err)
		}
	}
	second := commit("b.md")
	read()
	read()
	third := commit("c.md")
	fourth := f.put("d.md", "4")
	read()
	want := []string{first + " a.md", second + " b.md", third + " c.md", fourth + " d.md"}
	if diff := cmp.Diff(want, f.heard); diff != "" {
		t.Error(diff)
	}
	f.reopen()
	commit("e.md")
	read() // what happened before we looked is nobody's news
	fifth := commit("f.md")
	read()
	if diff := cmp.Diff(append(want, fifth+" f.md"), f.heard); diff != "" {
		t.Error(diff)
	}
}

func TestExport(t *testing.T) {
	f := setup(t)
	f.put("system/persona.md", "---\ndescription: p\n---\nme")
	f.put("deep/er/pic.png", "\x00\x01")
	f.edit("other.bin", "other")
	if err := os.Symlink("/etc/passwd", filepath.Join(f.Dir(id), "link.md")); err != nil {
		t.Fatal(err)
	}
	f.shell("add", "-A")
	f.shell("commit", "-qm", "by hand")
	commit := f.shell("rev-parse", "HEAD")
	f.put("later.md", "later")
	dir := t.TempDir()
	if err := f.Export(t.Context(), id, commit, dir); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(p)
		rel, _ := filepath.Rel(dir, p)
		got[rel] = string(data)
		return err
	})
	want := map[string]string{"system/persona.md": "---\ndescription: p\n---\nme", "deep/er/pic.png": "\x00\x01", "other.bin": "other"}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Error(diff, err)
	}
	if err := f.Export(t.Context(), id, strings.Repeat("0", 40), t.TempDir()); err == nil {
		t.Error("a commit that is not there was exported")
	}
}

// A commit in the work tree is the shell's business like another branch.
func TestDetachedHead(t *testing.T) {
	f := setup(t)
	f.put("a.md", "one")
	f.put("a.md", "two")
	for _, commit := range []string{"main", "main~1"} {
		f.shell("checkout", "-q", "--detach", commit)
		for _, text := range []string{"three", "four " + commit} {
			f.put("a.md", text)
			if got := f.get("a.md"); got != text {
				t.Errorf("main has %q, want %q", got, text)
			}
		}
		if got := f.shell("status", "--porcelain"); got != "" {
			t.Errorf("the work tree at %s was touched:\n%s", commit, got)
		}
	}
	f.shell("checkout", "-q", "main")
	f.put("a.md", "five")
	f.sound()
}

// Files without their repository: equal ones are adopted, others are named.
func TestRepositoryIsMissing(t *testing.T) {
	f := setup(t)
	f.put("a.md", "a")
	f.put("b.md", "b")
	if err := os.RemoveAll(filepath.Join(f.Dir(id), ".git")); err != nil {
		t.Fatal(err)
	}
	refused := func(path, want string) {
		t.Helper()
		_, _, err := f.Write(t.Context(), memory.Author{}, id, []memory.FileChange{{Path: path, Content: []byte("other")}}, "")
		var e *agent.Error
		if !errors.As(err, &e) || e.Code != agent.CodeMemoryConflict || !strings.Contains(e.Message, want) {
			t.Errorf("write %s: %v, want a conflict that says %q", path, err, want)
		}
	}
	refused("a.md", "(.git) is missing")
	f.put("a.md", "a")
	if got := f.get("a.md"); got != "a" {
		t.Errorf("a.md is %q", got)
	}
	refused("b.md", "never committed")
	f.put("b.md", "b")
	f.put("b.md", "other")
	f.sound()
}
