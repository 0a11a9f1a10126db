package shell_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"mneme/internal/tool/shell"
)

// snapshot is the state of a directory: names, modes and contents.
func snapshot(t testing.TB, dir string) string {
	t.Helper()
	var out strings.Builder
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		fmt.Fprintf(&out, "%s %s", path, info.Mode())
		if d.Type().IsRegular() {
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			fmt.Fprintf(&out, " %x", sha256.Sum256(b))
		}
		out.WriteByte('\n')
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// pieces are joined at random: harmless words, operators, quotes, and words
// whose only effect would be a file named pwned.
var pieces = []string{
	"ls", "cat", "echo", "grep", "sed", "sort", "find", "printf", "true", "cd", "env", "bash", "-c", "test", "[", "]", "-f", "-n", "-e", "-o", "-i",
	"a.txt", "b.go", "sub", ".", "x", "*.txt", "touch pwned", "touch", "pwned", ">pwned", "> pwned", ">>pwned", "2>pwned", ">/dev/null", "2>&1", "<a.txt",
	"$(touch pwned)", "`touch pwned`", "<(touch pwned)", "${x:=y}", "$x", "${x}", "$f", "\"$f\"", "$MEMORY_DIR", "'", "\"", "\\", "\n", "\\\n", "#", ";", ";;", "&", "&&", "||", "|", "|&",
	"(", ")", "{", "}", "((", "))", "[[", "]]", "if", "then", "else", "fi", "for f in", "for", "f", "in", "do", "done", "while", "case", "esac", "function", "f()", "!", "time",
	"'touch pwned'", "\"touch pwned\"", "\"$(touch pwned)\"", "w pwned", "'w pwned'", "'s/a/b/w pwned'", "s/x/touch pwned/e", "'1e touch pwned'", "-exec touch pwned \\;", "-fprint pwned", "-fprint", "--output=pwned", "-opwned",
	"<<EOF", "EOF", "<<<", "{a,b}", "~", "$'\\x74ouch pwned'", "eval", "alias ls=touch", "x=1", "PATH=.", "LC_ALL=C", "=", "-", "--", "\t", " ",
}

// TestAgainstBash runs random scripts that count as read-only with bash and sees
// that they change nothing. The scripts cannot do worse than make a file.
func TestAgainstBash(t *testing.T) {
	dir, w := place(t)
	rng := rand.New(rand.NewPCG(1, 2))
	tries := 60_000
	if testing.Short() {
		tries = 10_000
	}
	before, ran := snapshot(t, dir), 0
	for range tries {
		var text strings.Builder
		for i := range 1 + rng.IntN(9) {
			if i > 0 && rng.IntN(4) > 0 {
				text.WriteByte(' ')
			}
			text.WriteString(pieces[rng.IntN(len(pieces))])
		}
		s, err := shell.Parse(text.String())
		if err != nil || !s.ReadOnly(w) {
			continue
		}
		ran++
		if ran > 400 {
			break
		}
		run(t, dir, w, text.String())
		if after := snapshot(t, dir); after != before {
			t.Fatalf("%q counts as read-only but changed the directory:\n%s", text.String(), after)
		}
	}
	if ran < 100 {
		t.Fatalf("only %d scripts ran", ran)
	}
}

// TestEvasionsAreReal shows that a sample of the evasions does what it was
// refused for.
func TestEvasionsAreReal(t *testing.T) {
	dir, w := place(t)
	for _, text := range []string{"ls; touch pwned", "echo $(touch pwned)", "ls > pwned", "sed -n 'w pwned' a.txt", "sort -o pwned a.txt",
		"find . -name a.txt -exec touch pwned \\;", "printf -v PATH '%s' x; touch pwned || /usr/bin/touch pwned", "ls #\\\ntouch pwned", "env touch pwned",
		"cat {a.txt,b.go} > pwned", "echo ${y[$(touch pwned)]}", "xxd a.txt pwned || touch pwned"} {
		if readOnly(w, text) {
			t.Errorf("counts as read-only: %q", text)
		}
		run(t, dir, w, text)
		if err := os.Remove(filepath.Join(dir, "pwned")); err != nil {
			t.Errorf("%q did nothing: %v", text, err)
		}
	}
}

func run(t *testing.T, dir string, w *shell.World, text string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", text)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=" + w.Home, "MEMORY_DIR=" + w.Vars["MEMORY_DIR"]}
	cmd.WaitDelay = time.Second
	_ = cmd.Run() // its exit status does not matter
}

func FuzzShell(f *testing.F) {
	for _, text := range evasions {
		f.Add(text)
	}
	f.Add("cat a.txt | head")
	f.Add("bash -c 'bash -c \"ls\"'")
	_, w := place(f)
	f.Fuzz(func(t *testing.T, text string) {
		shell.Texts(text)
		shell.Dangerous(text)
		s, err := shell.Parse(text)
		if err != nil {
			return
		}
		if s.ReadOnly(w) && !strings.HasSuffix(text, "\\") { // which would take the line break
			// What only reads stays harmless in a group, and stops being so with
			// a command behind it.
			if inner, err := shell.Parse("(" + text + "\n)"); err == nil && !inner.ReadOnly(w) {
				t.Errorf("%q reads only, but not in a subshell", text)
			}
			if more, err := shell.Parse(text + "\nrm x"); err == nil && more.ReadOnly(w) {
				t.Errorf("%q hides the command behind it", text)
			}
			if !s.Allowed(w, true, func(string) bool { return false }) {
				t.Errorf("%q reads only, but is not allowed", text)
			}
		}
		s.InMemory(w)
		s.Open(w)
		if s.Allowed(w, false, func(string) bool { return false }) {
			t.Errorf("%q is allowed by no rule", text)
		}
	})
}
