package memory_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mneme/internal/agent"
	"mneme/internal/memory"
)

func TestCleanPath(t *testing.T) {
	const (
		relative = "path must be a non-empty relative path"
		inside   = "path must resolve inside the memory root"
	)
	for _, tc := range []struct{ path, want, fault string }{
		{"a.md", "a.md", ""},
		{"./a//b/../c.md", "a/c.md", ""},
		{"dir/", "dir", ""},
		{"ein ordner/größe.md", "ein ordner/größe.md", ""},
		{"", "", relative},
		{"  ", "", relative},
		{".", "", relative},
		{"a/..", "", relative},
		{"/abs.md", "", relative},
		{"..", "", inside},
		{"../evil.md", "", inside},
		{"a/../../evil.md", "", inside},
		{".git/config", "", inside},
		{"a/.GIT/x", "", inside},
		{".git. /x", "", inside},
		{".g\u200cit/x", "", inside},
		{"git~1/x", "", inside},
		{"a\x00b", "", "control"},
		{"a\nb", "", "control"},
		{`a\b`, "", "backslashes"},
		{"a\xffb", "", "UTF-8"},
		{strings.Repeat("x", 101) + ".md", "", "100 bytes"},
		{strings.Repeat("x", 100) + ".md", strings.Repeat("x", 100) + ".md", ""},
		{strings.Repeat("x/", 501) + "a.md", "", "1000 bytes"},
	} {
		got, err := memory.CleanPath(tc.path)
		if tc.fault == "" {
			if got != tc.want || err != nil {
				t.Errorf("CleanPath(%q) = %q, %v, want %q", tc.path, got, err, tc.want)
			}
			continue
		}
		wantCode(t, err, agent.CodeInvalid)
		if err == nil || !strings.Contains(err.Error(), tc.fault) {
			t.Errorf("CleanPath(%q) = %q, %v, want a fault about %q", tc.path, got, err, tc.fault)
		}
	}
}

func TestLabels(t *testing.T) {
	for label, want := range map[string]string{"human": "system/human.md", "system/human": "system/human.md", "human.md": "system/human.md", "a/b": "system/a/b.md", "a b.c": "system/a b.c.md"} {
		got, err := memory.LabelPath(label)
		if got != want || err != nil {
			t.Errorf("LabelPath(%q) = %q, %v", label, got, err)
		}
		back, ok := memory.PathLabel(got)
		if !ok || "system/"+back+".md" != want {
			t.Errorf("PathLabel(%q) = %q, %v", got, back, ok)
		}
	}
	for _, p := range []string{"human.md", "notes/x.md", "system/pic.png", "system"} {
		if label, ok := memory.PathLabel(p); ok {
			t.Errorf("PathLabel(%q) = %q", p, label)
		}
	}
}

// Nothing that a client names leaves the repository or reaches git as an option.
func TestAttacks(t *testing.T) {
	f := setup(t)
	ctx := t.Context()
	commit := f.put("a.md", "a")
	trap := filepath.Join(t.TempDir(), "trap")

	for _, agentID := range []string{"", ".", "..", "../../tmp/e", "a/b", "a\x00", "-x/..", ".trash", strings.Repeat("a", 201)} {
		_, err := f.Head(agentID)
		wantCode(t, err, agent.CodeInvalid)
		_, err = f.Snapshot(ctx, agentID, "")
		wantCode(t, err, agent.CodeInvalid)
		_, err = f.Read(ctx, agentID, "a.md")
		wantCode(t, err, agent.CodeInvalid)
		_, err = f.At(ctx, agentID, "a.md", "HEAD")
		wantCode(t, err, agent.CodeInvalid)
		_, err = f.History(ctx, agentID, "", 0)
		wantCode(t, err, agent.CodeInvalid)
		_, err = f.Diff(ctx, agentID, "HEAD")
		wantCode(t, err, agent.CodeInvalid)
		_, _, err = f.Write(ctx, memory.Author{}, agentID, []memory.FileChange{file("a.md", "x")}, "")
		wantCode(t, err, agent.CodeInvalid)
		_, _, err = f.Restore(ctx, memory.Author{}, agentID, "HEAD")
		wantCode(t, err, agent.CodeInvalid)
		wantCode(t, f.Memory.Delete(ctx, agentID), agent.CodeInvalid)
	}
	for _, ref := range []string{"", "--output=" + trap, "-p", "main", "HEAD~1", "HEAD^{/x}", commit + "..", "abc", ":/a", "@", "refs/heads/main", commit + "\n"} {
		_, err := f.Diff(ctx, id, ref)
		wantCode(t, err, agent.CodeInvalid)
		_, err = f.At(ctx, id, "a.md", ref)
		wantCode(t, err, agent.CodeInvalid)
		_, _, err = f.Restore(ctx, memory.Author{}, id, ref)
		wantCode(t, err, agent.CodeInvalid)
	}
	for _, ref := range []string{"deadbeef", strings.Repeat("0", 64)} {
		_, err := f.Diff(ctx, id, ref)
		wantCode(t, err, agent.CodeNotFound)
		_, err = f.At(ctx, id, "a.md", ref)
		wantCode(t, err, agent.CodeNotFound)
	}
	for _, p := range []string{"../x.md", "/x.md", ".git/hooks/zz.md", ".git/x.png", "", ".hidden.md", "a/.b/c.md", "run.sh", "noext", ".md", "a\nM 100644 inline b.md", "a\x00.md"} {
		err := f.try(file(p, "x"))
		wantCode(t, err, agent.CodeInvalid)
	}
	for _, p := range []string{"../../x", ".git/config", "a/../.git/config", "/etc/passwd", ""} {
		_, err := f.Read(ctx, id, p)
		wantCode(t, err, agent.CodeInvalid)
		_, err = f.At(ctx, id, p, "HEAD")
		wantCode(t, err, agent.CodeInvalid)
	}
	_, err := f.History(ctx, id, "../x", 0)
	wantCode(t, err, agent.CodeInvalid)
	_, err = f.Read(ctx, id, "missing.md")
	wantCode(t, err, agent.CodeNotFound)

	// Names that mean something to git are names here.
	for _, p := range []string{"--output=x.md", "-n.md", ":(top)x.md", "*.md", `q"uote.md`, "tab é.md", "HEAD.md"} {
		f.put(p, "odd")
		if got := f.get(p); got != "odd" {
			t.Errorf("%s is %q", p, got)
		}
		if history, err := f.History(ctx, id, p, 0); err != nil || len(history) != 1 {
			t.Errorf("history of %s: %v, %v", p, history, err)
		}
	}
	// A message and a text that look like the language of the import.
	if _, _, err := f.Write(ctx, memory.Author{Name: "x> 0 +0000\ncommitter y"}, id, []memory.FileChange{file("b.md", "x\nM 100644 inline evil.md\ndata 1\nx\ndone\n")}, "subject\nD a.md\ndone\x00"); err != nil {
		t.Fatal(err)
	}
	if got := f.get("a.md"); got != "a" {
		t.Errorf("a.md is %q", got)
	}
	if _, err := os.Stat(trap); err == nil {
		t.Error("git wrote a file for a client")
	}
	f.sound()
}

// A pipe where a file should be does not hold a reader.
func TestSpecialFiles(t *testing.T) {
	f := setup(t)
	f.put("a.md", "a")
	mkfifo(t, filepath.Join(f.Dir(id), "pipe.md"))
	_, err := f.Read(t.Context(), id, "pipe.md")
	wantCode(t, err, agent.CodeInvalid)
	wantCode(t, f.try(file("pipe.md", "x")), agent.CodeMemoryConflict)
	_, err = f.Read(t.Context(), id, "a.md/x")
	wantCode(t, err, agent.CodeNotFound)
	f.put("d/b.md", "b")
	_, err = f.Read(t.Context(), id, "d")
	wantCode(t, err, agent.CodeInvalid)
}
