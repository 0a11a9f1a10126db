package memory_test

import (
	"fmt"
	"os/exec"
	"path"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mneme/internal/agent"
	"mneme/internal/memory"
)

// save files a text and fails the test if that fails.
func (f *fixture) save(text string, tags ...string) memory.Saved {
	f.t.Helper()
	saved, err := f.Save(f.t.Context(), memory.Author{}, id, memory.Item{Text: text, Tags: tags})
	if err != nil {
		f.t.Fatalf("save %q: %v", text, err)
	}
	return saved
}

func (f *fixture) file(path string) *memory.File {
	f.t.Helper()
	s, err := f.Snapshot(f.t.Context(), id, "")
	if err != nil {
		f.t.Fatal(err)
	}
	return s.File(path)
}

func TestSaveIsDeterministic(t *testing.T) {
	f := setup(t)
	text := "Ada's café opens at nine, every day.\nNot on Sundays."
	first := f.save(text, "cafe", "hours")
	digits := strings.TrimPrefix(first.ID, "mem-")
	if len(digits) != 16 || first.Path != "saved/"+digits[:2]+"/ada-s-cafe-opens-at-nine-every--"+digits+".md" {
		t.Errorf("id %s, path %s", first.ID, first.Path)
	}
	head, _ := f.Head(id)
	if !first.Created || first.Commit != head || !strings.Contains(first.Detail, first.ID) || !strings.Contains(first.Detail, first.Path) || !strings.Contains(first.Detail, head[:7]) {
		t.Errorf("saved %+v at %s", first, head)
	}
	file := f.file(first.Path)
	if file.Body != text || file.Description != "Ada's café opens at nine, every day." || file.FrontText("id") != first.ID || file.FrontText("source") != "mcp" {
		t.Errorf("file %q", file.Text)
	}
	if diff := cmp.Diff([]string{"cafe", "hours"}, file.Tags()); diff != "" {
		t.Error(diff)
	}

	again := f.save("  Ada's cafe\u0301 opens at nine, every day. Not on\tSundays.\n", "hours")
	if again.Created || again.Commit != head || again.ID != first.ID || again.Path != first.Path {
		t.Errorf("saved again: %+v", again)
	}
	tagged := f.save(text, "new")
	if diff := cmp.Diff([]string{"cafe", "hours", "new"}, tagged.Tags); diff != "" || tagged.Created || tagged.Commit == head {
		t.Errorf("tags: %s\n%+v", diff, tagged)
	}
	if got := f.file(first.Path); got.Body != text {
		t.Errorf("the first text is kept, got %q", got.Body)
	}
}

func TestSaveKeepsTextsVerbatim(t *testing.T) {
	texts := []string{
		"---\ndescription: mine\n---\nbody",
		"---\n---\n",
		"---",
		"a\r\nb\r\n",
		"\n\n  leading and trailing  \n\n",
		"tags: [x]\n---\nnot: front\n---",
		"# Heading\n\n- one\n- two",
		"好的，记住这个。",
		"nul \x00 and bell \a",
		strings.Repeat("x", 64<<10),
		`"quoted: 'value'" # comment {a: 1}`,
	}
	f := setup(t)
	for _, text := range texts {
		saved := f.save(text, "a: b", "- c", "\"")
		f.reopen()
		got := f.file(saved.Path)
		if got == nil || got.Body != text {
			t.Fatalf("%.40q came back as %.40q", text, got.Body)
		}
		if diff := cmp.Diff([]string{"a: b", "- c", "\""}, got.Tags()); diff != "" {
			t.Errorf("tags of %.40q: %s", text, diff)
		}
		if again := f.save(text); again.Created || again.Path != saved.Path {
			t.Errorf("%.40q was filed twice", text)
		}
	}
}

func TestSlugs(t *testing.T) {
	for text, want := range map[string]string{
		"Straße nach Zürich, Łódź":          "strasse-nach-zurich-lodz",
		"记住":                                "note",
		"!!! ???":                           "note",
		"one two three four five six seven": "one-two-three-four-five-six",
		"../../etc/passwd":                  "etc-passwd",
		strings.Repeat("a", 100):            strings.Repeat("a", 48),
		strings.Repeat("b", 47) + " c":      strings.Repeat("b", 47),
		"x\ty\n\nz":                         "x-y-z",
		"# Meeting: 2026-01-02 (Berlin) & what we said": "meeting-2026-01-02-berlin-what",
	} {
		f := memory.NewSnapshot("", nil)
		saved, _, err := memory.Item{Text: text}.Plan(f, testTime)
		if err != nil {
			t.Fatal(err)
		}
		name := path.Base(saved.Path)
		if got := name[:strings.LastIndex(name, "--")]; got != want {
			t.Errorf("slug of %q is %q, want %q", text, got, want)
		}
	}
}

func TestSaveRefuses(t *testing.T) {
	f := setup(t)
	many := make([]string, 33)
	for i := range many {
		many[i] = fmt.Sprint("tag", i)
	}
	for _, c := range []struct {
		item  memory.Item
		field string
	}{
		{memory.Item{Text: ""}, "text"},
		{memory.Item{Text: " \n\t "}, "text"},
		{memory.Item{Text: strings.Repeat("x", 64<<10+1)}, "text"},
		{memory.Item{Text: "\xff"}, "text"},
		{memory.Item{Text: "x", Tags: []string{"ok", " "}}, "tags"},
		{memory.Item{Text: "x", Tags: []string{"a\x00b"}}, "tags"},
		{memory.Item{Text: "x", Tags: []string{strings.Repeat("ö", 65)}}, "tags"},
		{memory.Item{Text: "x", Tags: many}, "tags"},
	} {
		_, err := f.Save(t.Context(), memory.Author{}, id, c.item)
		if e := asError(err); e == nil || e.Code != agent.CodeInvalid || e.Field != c.field {
			t.Errorf("%.20q %v: %v", c.item.Text, c.item.Tags, err)
		}
	}
	if head, _ := f.Head(id); head != "" {
		t.Errorf("something was written: %s", head)
	}
}

// What is reported as saved can be read, whatever was done to the file since.
func TestSaveAfterEdits(t *testing.T) {
	f := setup(t)
	saved := f.save("The door code is 4711.", "door")
	f.put(saved.Path, strings.Replace(f.file(saved.Path).Text, "4711", "0815", 1))
	again := f.save("The door code is 4711.")
	if got := f.file(again.Path); again.Created || got.Body != "The door code is 4711." || len(got.Tags()) != 1 {
		t.Errorf("%+v: %q", again, got.Text)
	}

	if _, err := f.Apply(t.Context(), id, memory.Op{Command: "rename", OldPath: saved.Path, NewPath: "reference/door.md"}); err != nil {
		t.Fatal(err)
	}
	moved := f.save("The door code is 4711.", "moved")
	if moved.Created || moved.Path != "reference/door.md" || f.file(saved.Path) != nil {
		t.Errorf("%+v", moved)
	}

	text := f.file(moved.Path).Text
	f.put(moved.Path, strings.Replace(text, "---\n", "---\nread_only: true\n", 1))
	if _, err := f.Save(t.Context(), memory.Author{}, id, memory.Item{Text: "The door code is 4711.", Tags: []string{"x"}}); agent.CodeOf(err) != agent.CodeReadOnly {
		t.Errorf("read-only: %v", err)
	}
}

// Parallel writers lose nothing, and each reads its own write.
func TestParallelSaves(t *testing.T) {
	f := setup(t)
	var wg sync.WaitGroup
	for w := range 6 {
		wg.Go(func() {
			for i := range 4 {
				text := fmt.Sprintf("fact %d", (w*4+i)%16) // some are the same
				saved, err := f.Save(t.Context(), memory.Author{}, id, memory.Item{Text: text, Tags: []string{fmt.Sprint("w", w)}})
				if err != nil {
					t.Error(err)
					return
				}
				s, err := f.Snapshot(t.Context(), id, "")
				if err != nil || s.File(saved.Path) == nil || s.File(saved.Path).Body != text {
					t.Errorf("%s is not there: %v", saved.Path, err)
				}
			}
		})
	}
	wg.Wait()
	c, err := f.Get(t.Context(), id)
	if err != nil || len(c.Files) != 16 || len(c.Blocks) != 0 {
		t.Errorf("%d files, %d blocks, error %v", len(c.Files), len(c.Blocks), err)
	}
	out, err := exec.Command("git", "-C", f.Dir(id), "status", "--porcelain").CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("work tree: %s %v", out, err)
	}
}

func TestContents(t *testing.T) {
	f := setup(t)
	for _, p := range []string{"system/persona.md", "system/deep/note.md", "reference/a.md", "system/pic.png", ".hidden/x.md"} {
		if p != ".hidden/x.md" {
			f.put(p, "x "+p)
		}
	}
	saved := f.save("hello")
	c, err := f.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	names := func(files []*memory.File) (out []string) {
		for _, f := range files {
			out = append(out, f.Path)
		}
		return out
	}
	if diff := cmp.Diff([]string{"system/deep/note.md", "system/persona.md"}, names(c.Blocks)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"reference/a.md", saved.Path, "system/pic.png"}, names(c.Files)); diff != "" {
		t.Error(diff)
	}
	if head, _ := f.Head(id); c.Commit != head {
		t.Errorf("commit %s, want %s", c.Commit, head)
	}
}
