package memory_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"mneme/internal/agent"
	"mneme/internal/memory"
)

var testTime = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func asError(err error) *agent.Error {
	var e *agent.Error
	errors.As(err, &e)
	return e
}

func TestDeleteItem(t *testing.T) {
	f := setup(t)
	first := f.save("Ada likes tea.")
	second := f.save("Grace likes coffee, black.")
	f.put("system/human.md", "---\ndescription: d\n---\n# Human\n\n- Name: Ada\n- Town: Łódź\n  - street: Main\n- Pet:   a cat\n\nWorks at\nthe mill.\n")
	f.put("system/project.md", "gone soon")
	f.put("reference/notes.md", "one\n\ntwo\n\nthree\n")

	remove := func(ref, path string) memory.Removed {
		t.Helper()
		before, _ := f.Head(id)
		r, err := f.DeleteItem(t.Context(), memory.Author{}, id, ref)
		if err != nil {
			t.Fatalf("delete %q: %v", ref, err)
		}
		after, _ := f.Head(id)
		if r.Path != path || r.Before != before || r.Commit != after || before == after {
			t.Errorf("delete %q: %+v (%s to %s)", ref, r, before, after)
		}
		if !strings.Contains(r.Detail, path) || !strings.Contains(r.Detail, before[:7]) {
			t.Errorf("detail %q", r.Detail)
		}
		if _, err := f.At(t.Context(), id, path, r.Before); err != nil {
			t.Errorf("%s cannot be brought back: %v", path, err)
		}
		return r
	}
	remove(first.ID, first.Path)
	remove("LIKES  coffee", second.Path)
	remove("project", "system/project.md")
	remove("the name: ada"[4:], "system/human.md")
	remove("town", "system/human.md")
	remove("works at the", "system/human.md")
	if got, want := f.file("system/human.md").Text, "---\ndescription: d\n---\n# Human\n\n- Pet:   a cat\n"; got != want {
		t.Errorf("human.md is %q, want %q", got, want)
	}
	remove("two", "reference/notes.md")
	if got := f.file("reference/notes.md").Text; got != "one\n\nthree\n" {
		t.Errorf("notes.md is %q", got)
	}
	remove("reference/notes.md", "reference/notes.md")
	if f.file(first.Path) != nil || f.file(second.Path) != nil || f.file("system/project.md") != nil || f.file("reference/notes.md") != nil {
		t.Error("a file is still there")
	}
	if _, err := f.DeleteItem(t.Context(), memory.Author{}, id, first.ID); agent.CodeOf(err) != agent.CodeNotFound {
		t.Errorf("second delete: %v", err)
	}
	if _, changed, err := f.Restore(t.Context(), memory.Author{}, id, first.Commit); err != nil || !changed || f.file(first.Path) == nil {
		t.Errorf("restore: %v %v", changed, err)
	}
}

func TestDeleteItemNeedsOneHit(t *testing.T) {
	f := setup(t)
	f.save("Tea is green.")
	f.save("Tea is black.")
	f.put("system/locked.md", "---\nread_only: true\n---\nnever change this")
	f.put("a/list.md", "- milk\n- Milk, again\n")
	before, _ := f.Head(id)
	for ref, want := range map[string]agent.Code{
		"tea is":               agent.CodeAmbiguous,
		"milk":                 agent.CodeAmbiguous,
		"never change":         agent.CodeReadOnly,
		"locked":               agent.CodeReadOnly,
		"system/locked.md":     agent.CodeReadOnly,
		"no such thing":        agent.CodeNotFound,
		"mem-0000000000000000": agent.CodeNotFound,
		"a":                    agent.CodeAmbiguous,
		"../a/list.md":         agent.CodeInvalid,
		"a/../../x":            agent.CodeInvalid,
		"/etc/passwd":          agent.CodeInvalid,
		".git/config":          agent.CodeInvalid,
		"saved/.GIT":           agent.CodeInvalid,
		" ":                    agent.CodeInvalid,
		"again\n- milk":        agent.CodeNotFound,
	} {
		_, err := f.DeleteItem(t.Context(), memory.Author{}, id, ref)
		if agent.CodeOf(err) != want {
			t.Errorf("delete %q: %v, want %s", ref, err, want)
		}
		if want == agent.CodeAmbiguous && strings.Count(err.Error(), ";") < 1 {
			t.Errorf("%q names no candidates: %v", ref, err)
		}
	}
	if after, _ := f.Head(id); after != before {
		t.Error("something was written")
	}
}

// Each piece of Markdown can be taken out by itself.
func TestDeletePieces(t *testing.T) {
	for _, c := range []struct{ body, ref, want string }{
		{"- a\n- b\n- c\n", "b", "- a\n- c\n"},
		{"- a\n  - b\n  - c\n- d\n", "a", "- d\n"},
		{"- x\n  - b\n  - c\n- d\n", "c", "- x\n  - b\n- d\n"},
		{"1. one\n   more\n2) two\n", "more", "2) two\n"},
		{"para one\nstill one\n\npara two", "still", "para two"},
		{"# Head\ntext\n", "head", "text\n"},
		{"intro\n\n```\ncode one\n\ncode two\n```\n\nend\n", "code two", "intro\n\nend\n"},
		{"* item\n\n  its second part\n* other\n", "second part", "* other\n"},
		{"only", "only", ""},
		{"a\r\n\r\nb\r\n\r\nc\r\n", "b", "a\r\n\r\nc\r\n"},
		{"- [ ] todo one\n- [x] todo two\n", "todo two", "- [ ] todo one\n"},
		{"- a\nlazy\n- b\n", "lazy", "- b\n"},
		{"q\n\n- a\n\n- b\n\np\n", "b", "q\n\n- a\n\np\n"},
	} {
		s := memory.NewSnapshot("0123456789", map[string]string{"f.md": c.body})
		_, changes, err := s.PlanDelete(c.ref)
		if err != nil {
			t.Errorf("%q without %q: %v", c.body, c.ref, err)
			continue
		}
		if got := string(changes[0].Content); got != c.want || len(changes) != 1 {
			t.Errorf("%q without %q is %q, want %q", c.body, c.ref, got, c.want)
		}
	}
}

// A cut keeps everything else byte for byte.
func FuzzPlanDelete(f *testing.F) {
	f.Add("- a\n  - b\n\n```\nx\n```\ntext\n", "b")
	f.Add("# h\n1. x\n\ty\n", "x")
	f.Fuzz(func(t *testing.T, body, ref string) {
		s := memory.NewSnapshot("c", map[string]string{"f.md": body})
		r, changes, err := s.PlanDelete(ref)
		if err != nil || r.Whole {
			return
		}
		after := string(changes[0].Content)
		if len(after) >= len(s.File("f.md").Text)+1 {
			t.Errorf("%q grew to %q", body, after)
		}
		left := strings.Fields(after)
		if len(left)+len(strings.Fields(r.Text)) != len(strings.Fields(body)) && !strings.HasPrefix(after, "---") {
			t.Errorf("%q without %q is %q", body, r.Text, after)
		}
	})
}
