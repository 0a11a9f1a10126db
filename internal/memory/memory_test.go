package memory_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"

	"mneme/internal/agent"
	"mneme/internal/memory"
)

func TestMain(m *testing.M) {
	if root := os.Getenv(writerRoot); root != "" {
		writeForEver(root)
	}
	goleak.VerifyTestMain(m)
}

const id = "agent-1"

// A fixture is a Memory on a fresh root.
type fixture struct {
	*memory.Memory
	t    *testing.T
	root string

	mu    sync.Mutex
	heard []string // "commit path,path" as OnCommit told
}

func setup(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{t: t, root: filepath.Join(t.TempDir(), "memfs")}
	f.open()
	t.Cleanup(func() { f.Close() })
	return f
}

// open serves the root as a new process would.
func (f *fixture) open() {
	f.Memory = memory.New(f.root, memory.Options{
		AuthorName: func(string) string { return "Ada Lovelace" },
		OnCommit: []func(string, string, []string){func(_, commit string, paths []string) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.heard = append(f.heard, commit+" "+strings.Join(paths, ","))
		}},
	})
}

func (f *fixture) reopen() {
	f.t.Helper()
	if err := f.Close(); err != nil {
		f.t.Fatal(err)
	}
	f.open()
}

// put writes one file and returns the commit.
func (f *fixture) put(path, content string) string {
	f.t.Helper()
	commit, changed, err := f.Write(f.t.Context(), memory.Author{}, id, []memory.FileChange{{Path: path, Content: []byte(content)}}, "put "+path)
	if err != nil || !changed {
		f.t.Fatalf("write %s: changed %v, error %v", path, changed, err)
	}
	return commit
}

// get reads a file at the newest commit.
func (f *fixture) get(path string) string {
	f.t.Helper()
	data, err := f.At(f.t.Context(), id, path, "HEAD")
	if err != nil {
		f.t.Fatalf("read %s: %v", path, err)
	}
	return string(data)
}

// shell runs git in the repository as an agent's shell does.
func (f *fixture) shell(args ...string) string {
	f.t.Helper()
	return gitIn(f.t, f.Dir(id), args...)
}

func gitIn(t testing.TB, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "LC_ALL=C")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// edit changes a file of the work tree without committing it.
func (f *fixture) edit(path, content string) {
	f.t.Helper()
	full := filepath.Join(f.Dir(id), path)
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		f.t.Fatal(err)
	}
	if err := os.WriteFile(full, []byte(content), 0o644); err != nil {
		f.t.Fatal(err)
	}
}

// workTree is the file as the work tree has it, "(none)" if it is not there.
func (f *fixture) workTree(path string) string {
	f.t.Helper()
	data, err := os.ReadFile(filepath.Join(f.Dir(id), path))
	if errors.Is(err, fs.ErrNotExist) {
		return "(none)"
	}
	if err != nil {
		f.t.Fatal(err)
	}
	return string(data)
}

// sound checks the repository: git finds no fault, nothing of ours lies about,
// and work tree and index agree with the branch but for the dirty paths.
func (f *fixture) sound(dirty ...string) {
	f.t.Helper()
	f.shell("fsck", "--strict", "--no-dangling")
	if got := f.shell("status", "--porcelain", "-uall"); got != strings.Join(dirty, "\n") {
		f.t.Errorf("git status says %q, want %q", got, dirty)
	}
	for _, pattern := range []string{"*.lock", "refs/heads/*.lock", "mneme/*", "fast_import_crash_*"} {
		if left, _ := filepath.Glob(filepath.Join(f.Dir(id), ".git", pattern)); len(left) > 0 {
			f.t.Errorf("left behind: %v", left)
		}
	}
}

func wantCode(t *testing.T, err error, code agent.Code) {
	t.Helper()
	if agent.CodeOf(err) != code {
		t.Errorf("error %v has code %q, want %q", err, agent.CodeOf(err), code)
	}
}

func TestEmptyUntilTheFirstWrite(t *testing.T) {
	f := setup(t)
	ctx := t.Context()
	if head, err := f.Head(id); head != "" || err != nil {
		t.Errorf("Head = %q, %v", head, err)
	}
	if entries, err := f.List(ctx, id); len(entries) != 0 || err != nil {
		t.Errorf("List = %v, %v", entries, err)
	}
	if snap, err := f.Snapshot(ctx, id, ""); err != nil || snap.Commit != "" || len(snap.Files) != 0 {
		t.Errorf("Snapshot = %v, %v", snap, err)
	}
	if history, err := f.History(ctx, id, "", 0); len(history) != 0 || err != nil {
		t.Errorf("History = %v, %v", history, err)
	}
	_, err := f.Read(ctx, id, "x.md")
	wantCode(t, err, agent.CodeNotFound)
	_, err = f.At(ctx, id, "x.md", "HEAD")
	wantCode(t, err, agent.CodeNotFound)
	_, err = f.Diff(ctx, id, "HEAD")
	wantCode(t, err, agent.CodeNotFound)
	_, changed, err := f.Write(ctx, memory.Author{}, id, []memory.FileChange{{Path: "x.md", Delete: true}}, "")
	if changed || err != nil {
		t.Errorf("deleting nothing: changed %v, %v", changed, err)
	}
	if commit, err := f.Blocks(ctx, memory.Author{}, id, nil); commit != "" || err != nil {
		t.Errorf("Blocks of nothing = %q, %v", commit, err)
	}
	if _, err := os.Stat(f.root); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("something was made before the first write: %v", err)
	}
}

func TestBlocksAreFiles(t *testing.T) {
	f := setup(t)
	ctx := t.Context()
	commit, err := f.Blocks(ctx, memory.Author{}, id, []memory.Block{
		{Label: "persona", Value: "I am helpful"},
		{Label: "system/human.md", Value: "---\nname: x\n---\nno newline at the end", Description: "who: you talk to", Limit: 500, ReadOnly: true},
		{Label: "team/rules", Value: ""},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"system/persona.md":    "---\ndescription: Memory block persona\n---\nI am helpful",
		"system/human.md":      "---\ndescription: 'who: you talk to'\nread_only: true\nlimit: 500\n---\n---\nname: x\n---\nno newline at the end",
		"system/team/rules.md": "---\ndescription: Memory block team/rules\n---\n",
	}
	for path, text := range want {
		if got := f.get(path); got != text {
			t.Errorf("%s is %q, want %q", path, got, text)
		}
		if got := f.workTree(path); got != text {
			t.Errorf("%s in the work tree is %q", path, got)
		}
	}
	snap, err := f.Snapshot(ctx, id, "")
	if err != nil {
		t.Fatal(err)
	}
	human := snap.File("system/human.md")
	if human.Body != "---\nname: x\n---\nno newline at the end" || human.Description != "who: you talk to" || !human.ReadOnly || human.Limit != 500 || human.Label() != "human" {
		t.Errorf("human is read as %+v", human)
	}
	history, err := f.History(ctx, id, "", 0)
	if err != nil || len(history) != 1 {
		t.Fatalf("history %v, %v", history, err)
	}
	if h := history[0]; h.SHA != commit || h.Message != "chore: initialize local memory" || h.AuthorName != "Ada Lovelace" {
		t.Errorf("first commit is %+v", h)
	}
	if got := f.shell("log", "-1", "--format=%ae %ce"); got != id+"@letta.com "+id+"@letta.com" {
		t.Errorf("addresses are %q", got)
	}
	for key, want := range map[string]string{
		"letta.agentId": id, "user.name": "Ada Lovelace", "user.email": id + "@letta.com",
		"commit.gpgsign": "false", "core.fsync": "all", "gc.auto": "0", "core.hooksPath": "/dev/null", "core.bare": "false",
	} {
		if got := f.shell("config", "--local", key); got != want {
			t.Errorf("config %s is %q, want %q", key, got, want)
		}
	}
	f.sound()
}

func TestBlocksRefuseBadLabels(t *testing.T) {
	f := setup(t)
	for _, label := range []string{"", "system/", ".md", "a//b", "../up", "a/../b", ".", "a/.", "nul\x00", `back\slash`, "tab\t", "/abs", "a/", strings.Repeat("x", 101), ".hidden", "a/.git"} {
		_, err := f.Blocks(t.Context(), memory.Author{}, id, []memory.Block{{Label: label, Value: "v"}})
		wantCode(t, err, agent.CodeInvalid)
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%q", label)) {
			t.Errorf("label %q: the error %v does not name it", label, err)
		}
	}
	_, err := f.Blocks(t.Context(), memory.Author{}, id, []memory.Block{{Label: "a", Value: "1"}, {Label: "system/a.md", Value: "2"}})
	wantCode(t, err, agent.CodeConflict)
	_, err = f.Blocks(t.Context(), memory.Author{}, id, []memory.Block{{Label: "a", Value: strings.Repeat("é", 11), Limit: 10}})
	wantCode(t, err, agent.CodeInvalid)
	if _, err := f.Blocks(t.Context(), memory.Author{}, id, []memory.Block{{Label: strings.Repeat("x", 100), Value: strings.Repeat("é", memory.DefaultLimit)}}); err != nil {
		t.Errorf("at the limits: %v", err)
	}
	f.sound()
}

func TestWriteReplaceDelete(t *testing.T) {
	f := setup(t)
	ctx := t.Context()
	first := f.put("a.md", "---\ndescription: a\n---\none\n")
	second := f.put("a.md", "---\ndescription: a\n---\ntwo\n")
	same, changed, err := f.Write(ctx, memory.Author{}, id, []memory.FileChange{{Path: "./a.md", Content: []byte("---\ndescription: a\n---\ntwo\n")}}, "again")
	if changed || same != second || err != nil {
		t.Errorf("writing the same: %q, %v, %v", same, changed, err)
	}
	diff, err := f.Diff(ctx, id, second)
	if err != nil || !strings.HasPrefix(diff, "diff --git a/a.md b/a.md\nindex ") || !strings.HasSuffix(diff, "@@ -1,4 +1,4 @@\n ---\n description: a\n ---\n-one\n+two\n") {
		t.Errorf("diff is %q, %v", diff, err)
	}
	if old, err := f.At(ctx, id, "a.md", first[:8]); err != nil || !strings.Contains(string(old), "one") {
		t.Errorf("a.md at the first commit is %q, %v", old, err)
	}
	third, changed, err := f.Write(ctx, memory.Author{Name: "Someone\nElse <x>", Email: "e@x"}, id, []memory.FileChange{
		{Path: "a.md", Delete: true},
		{Path: "b/c.md", Content: []byte("c")},
		{Path: "pic.png", Content: []byte("\x89PNG\x00\xff")},
	}, "  three | paths\n\nand a body\n")
	if err != nil || !changed {
		t.Fatal(err)
	}
	history, err := f.History(ctx, id, "", 2)
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprintf("%v/%s/%s/%v/%d", history[0].SHA == third, history[0].Message, history[0].AuthorName, history[1].SHA == second, len(history))
	if want := "true/three | paths/Someone Else x/true/2"; got != want {
		t.Errorf("history is %s, want %s", got, want)
	}
	if history, err := f.History(ctx, id, "b", 0); err != nil || len(history) != 1 {
		t.Errorf("history of a directory: %v, %v", history, err)
	}
	if got := f.workTree("a.md"); got != "(none)" {
		t.Errorf("a.md is still there: %q", got)
	}
	if got := f.workTree("pic.png"); got != "\x89PNG\x00\xff" {
		t.Errorf("pic.png is %q", got)
	}
	if want := []string{first + " a.md", second + " a.md", third + " a.md,b/c.md,pic.png"}; !slices.Equal(f.heard, want) {
		t.Errorf("told of %v, want %v", f.heard, want)
	}
	f.sound()
}

func TestListOrder(t *testing.T) {
	f := setup(t)
	var changes []memory.FileChange
	for _, p := range []string{"zeta.md", "Alpha.md", "notes/b.md", "notes/deep/x.md", "notes/a.MD", "system/persona.md", "system/team/x.md", "aaa/pic.webp", "beta.md"} {
		changes = append(changes, memory.FileChange{Path: p, Content: []byte("---\ndescription: d\n---\nföö")})
	}
	if _, _, err := f.Write(t.Context(), memory.Author{}, id, changes, "all"); err != nil {
		t.Fatal(err)
	}
	f.edit("run.sh", "echo")
	f.edit(".memfs.config.json", "{}")
	f.edit(".hidden/x.md", "x")
	f.shell("add", "-A")
	f.shell("commit", "-q", "-m", "by hand")
	entries, err := f.List(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Path)
	}
	want := []string{"system/team/x.md", "system/persona.md", "aaa/pic.webp", "notes/deep/x.md", "notes/a.MD", "notes/b.md", "Alpha.md", "beta.md", "zeta.md"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
	d := "d"
	if diff := cmp.Diff(memory.Entry{Path: "system/persona.md", System: true, Description: &d, Content: "föö", Size: 3, Kind: memory.KindMarkdown, MediaType: "text/markdown"}, entries[1]); diff != "" {
		t.Errorf("entry (-want +got):\n%s", diff)
	}
	if e := entries[2]; e.Kind != memory.KindImage || e.MediaType != "image/webp" || e.Content != "" || e.Description != nil || e.Size != int64(len("---\ndescription: d\n---\nföö")) {
		t.Errorf("image is %+v", e)
	}
}

func TestReferences(t *testing.T) {
	f := setup(t)
	var changes []memory.FileChange
	for _, p := range []string{"a.md", "notes/b.md", "notes/c.md", "system/human.md", "pic.png"} {
		changes = append(changes, memory.FileChange{Path: p, Content: []byte("x")})
	}
	changes = append(changes, memory.FileChange{Path: "notes/links.md", Content: []byte(
		"[[a]] [[<b#part|alias>]] [[human]] [[./c.md]] [[../a]] [[a?x]] [[pic.png]] [[links]] [[http://x/a.md]] [[mailto:a]] [[nowhere]] [[../../a]] [[ ]]")})
	if _, _, err := f.Write(t.Context(), memory.Author{}, id, changes, "all"); err != nil {
		t.Fatal(err)
	}
	snap, err := f.Snapshot(t.Context(), id, "")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"a.md", "notes/b.md", "system/human.md", "notes/c.md", "pic.png"}
	if got := snap.References(snap.File("notes/links.md")); !slices.Equal(got, want) {
		t.Errorf("references are %v, want %v", got, want)
	}
}

func TestSnapshotAtACommit(t *testing.T) {
	f := setup(t)
	ctx := t.Context()
	one := f.put("system/a.md", "1")
	two := f.put("system/b.md", "2")
	f.reopen() // an empty cache
	for commit, want := range map[string]string{one: "system/a.md", two: "system/a.md system/b.md", "": "system/a.md system/b.md"} {
		snap, err := f.Snapshot(ctx, id, commit)
		if err != nil {
			t.Fatal(err)
		}
		var paths []string
		for _, file := range snap.Files {
			paths = append(paths, file.Path)
		}
		if got := strings.Join(paths, " "); got != want {
			t.Errorf("snapshot of %q has %q, want %q", commit, got, want)
		}
	}
	for _, ref := range []string{"HEAD", one[:10], "--output=/tmp/x", strings.Repeat("g", 40)} {
		_, err := f.Snapshot(ctx, id, ref)
		wantCode(t, err, agent.CodeInvalid)
	}
	if _, err := f.Snapshot(ctx, id, strings.Repeat("0", 40)); err == nil {
		t.Error("a snapshot of a commit that does not exist")
	}
}

// What was derived from a write is what a fresh process reads.
func TestDerivedSnapshotIsTheRealOne(t *testing.T) {
	f := setup(t)
	ctx := t.Context()
	f.put("system/a.md", "---\ntags: [x, y]\n---\n1")
	f.put("notes/deep/b.md", "2")
	f.put("pic.png", "\x00")
	if _, err := f.Apply(ctx, id, memory.Op{Command: "rename", OldPath: "notes", NewPath: "old"}); err != nil {
		t.Fatal(err)
	}
	derived, err := f.Snapshot(ctx, id, "")
	if err != nil {
		t.Fatal(err)
	}
	f.reopen()
	read, err := f.Snapshot(ctx, id, "")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(read.Files, derived.Files, cmpopts.IgnoreUnexported(memory.File{})); diff != "" || read.Commit != derived.Commit {
		t.Errorf("derived snapshot differs (-read +derived):\n%s", diff)
	}
	if err := f.Date(ctx, id, read, read.Files); err != nil {
		t.Fatal(err)
	}
	for i, file := range read.Files {
		if got, want := derived.Files[i].Updated(), file.Updated(); !got.Equal(want) || got.IsZero() {
			t.Errorf("%s was written at %v, git says %v", file.Path, got, want)
		}
	}
}

func TestDelete(t *testing.T) {
	f := setup(t)
	ctx := t.Context()
	f.put("a.md", "x")
	if err := f.Memory.Delete(ctx, id); err != nil {
		t.Fatal(err)
	}
	if err := f.Memory.Delete(ctx, id); err != nil {
		t.Errorf("second delete: %v", err)
	}
	if left, _ := os.ReadDir(f.root); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	f.put("b.md", "y")
	snap, err := f.Snapshot(ctx, id, "")
	if err != nil || len(snap.Files) != 1 {
		t.Errorf("after a new start: %v, %v", snap, err)
	}
	f.sound()
}

func TestCloseRefusesWrites(t *testing.T) {
	f := setup(t)
	f.put("a.md", "x")
	f.Close()
	_, _, err := f.Write(t.Context(), memory.Author{}, id, []memory.FileChange{{Path: "b.md", Content: []byte("x")}}, "late")
	wantCode(t, err, agent.CodeShutdown)
	if got := f.get("a.md"); got != "x" {
		t.Errorf("reading after Close: %q", got)
	}
}

func TestCheck(t *testing.T) {
	f := setup(t)
	if err := f.Check(t.Context()); err != nil {
		t.Error(err)
	}
	none := memory.New(f.root, memory.Options{Git: "no-such-git"})
	defer none.Close()
	err := none.Check(t.Context())
	if err == nil || !strings.Contains(err.Error(), "not installed") {
		t.Errorf("without git: %v", err)
	}
	_, _, err = none.Write(t.Context(), memory.Author{}, id, []memory.FileChange{{Path: "b.md", Content: []byte("x")}}, "")
	if err == nil || !strings.Contains(err.Error(), "not installed") {
		t.Errorf("a write without git: %v", err)
	}
}

func TestRestore(t *testing.T) {
	f := setup(t)
	ctx := t.Context()
	good := f.put("system/a.md", "---\nread_only: true\n---\ngood")
	f.put("pic.png", "\x00")
	if _, _, err := f.Write(ctx, memory.Author{}, id, []memory.FileChange{{Path: "system/a.md", Content: []byte("bad"), Force: true}, {Path: "b.md", Content: []byte("b")}}, "spoil"); err != nil {
		t.Fatal(err)
	}
	if _, changed, err := f.Restore(ctx, memory.Author{}, id, good[:7]); err != nil || !changed {
		t.Fatal(err)
	}
	if got := f.shell("ls-tree", "-r", "--name-only", "HEAD"); got != "system/a.md" {
		t.Errorf("after restore: %q", got)
	}
	if history, err := f.History(ctx, id, "", 0); err != nil || len(history) != 4 {
		t.Errorf("history was not kept: %v, %v", history, err)
	}
	f.sound()
	_, _, err := f.Restore(ctx, memory.Author{}, id, "abcdef")
	wantCode(t, err, agent.CodeNotFound)
}

func TestCancelledWriteDoesNothing(t *testing.T) {
	f := setup(t)
	head := f.put("a.md", "x")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, err := f.Write(ctx, memory.Author{}, id, []memory.FileChange{{Path: "b.md", Content: []byte("x")}}, "")
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error is %v", err)
	}
	if now, _ := f.Head(id); now != head {
		t.Error("a cancelled write committed")
	}
	f.put("b.md", "x")
	f.sound()
}

func tryGit(dir string, args ...string) error {
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "LC_ALL=C")
	return cmd.Run()
}
