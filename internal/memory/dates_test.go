package memory_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"mneme/internal/memory"
)

// commitAt commits the work tree as a shell does, at a given time.
func (f *fixture) commitAt(at string, args ...string) {
	f.t.Helper()
	f.t.Setenv("GIT_COMMITTER_DATE", at)
	f.t.Setenv("GIT_AUTHOR_DATE", at)
	f.shell(append([]string{"commit", "-q"}, args...)...)
	os.Unsetenv("GIT_COMMITTER_DATE")
	os.Unsetenv("GIT_AUTHOR_DATE")
}

// Files have the time of the commit that last changed them, whoever made it; what
// a merge brought has the merge's.
func TestDates(t *testing.T) {
	f := setup(t)
	f.put("first.md", "1")
	f.edit("old ünd blank.md", "x")
	f.shell("add", "-A")
	f.commitAt("2020-01-02T03:04:05Z", "-m", "one")
	f.edit("changed.md", "1")
	f.shell("add", "-A")
	f.commitAt("2020-02-02T00:00:00Z", "-m", "two")
	f.edit("changed.md", "2")
	f.shell("mv", "old ünd blank.md", "moved.md")
	f.shell("add", "-A")
	f.commitAt("2020-03-03T00:00:00Z", "-m", "three")
	f.shell("checkout", "-q", "-b", "side")
	f.edit("side.md", "s")
	f.shell("add", "-A")
	f.commitAt("2020-04-04T00:00:00Z", "-m", "side")
	f.shell("checkout", "-q", "main")
	f.edit("main.md", "m")
	f.shell("add", "-A")
	f.commitAt("2020-05-05T00:00:00Z", "-m", "main")
	t.Setenv("GIT_COMMITTER_DATE", "2020-06-06T00:00:00Z")
	f.shell("merge", "-q", "-m", "merge", "side")

	want := map[string]string{
		"changed.md": "2020-03-03", "moved.md": "2020-03-03", "side.md": "2020-06-06", "main.md": "2020-05-05",
		"first.md": time.Now().UTC().Format("2006-01-02"),
	}
	check := func() {
		t.Helper()
		s, err := f.Snapshot(t.Context(), id, "")
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Date(t.Context(), id, s, s.Files); err != nil {
			t.Fatal(err)
		}
		for p, day := range want {
			if got := s.File(p).Updated().Format("2006-01-02"); got != day {
				t.Errorf("%s: %s, want %s", p, got, day)
			}
		}
	}
	check()
	f.reopen()
	// With many files all of the history is read, else only theirs.
	f.save("one more")
	check()
	f.reopen()
	var changes []memory.FileChange
	for i := range 60 {
		changes = append(changes, memory.FileChange{Path: fmt.Sprintf("many/%d.md", i), Content: []byte("x")})
	}
	if _, _, err := f.Write(t.Context(), memory.Author{}, id, changes, "many"); err != nil {
		t.Fatal(err)
	}
	f.reopen()
	check()
}
