package tool_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"mneme/internal/agent"
	"mneme/internal/sandbox"
	"mneme/internal/tool"
)

// FuzzEdit holds the edit tool to what it promises, whatever the texts are.
func FuzzEdit(f *testing.F) {
	for _, s := range [][3]string{
		{"alpha\nbeta\n", "beta", "BETA"}, {"a\r\nb\r\na\r\n", "a", "x"}, {"a\r\nb\nc", "a\nb", "1\n2\n3"}, {"x\nx", "x", ""}, {"", "a", "b"},
		{"a\r\r\nb", "\n", "z"}, {"\r\n\r\n", "\n", "-"}, {`say "x"`, `say \"x\"`, `say \"y\"`}, {"aaaa", "aa", "b"}, {"ä\r\nö", "ä\n", "ü\n"}, {"\xEF\xBB\xBFa", "a", "b"},
		{"a\\nb", "a\nb", "c"}, {"one", "one", "one"}, {"x", "", "y"}, {"\ufffd", "\ufffd", "a"}, {"a\rb", "a\rb", "c\rd"}, {"tab\there", `tab\there`, "x"},
	} {
		f.Add(s[0], s[1], s[2], false)
		f.Add(s[0], s[1], s[2], true)
	}
	shells := sandbox.New(0)
	f.Cleanup(func() {
		if err := shells.Close(); err != nil {
			f.Error(err)
		}
	})
	edit := tool.Find(tool.Builtin(tool.Kit{Shells: shells}), "Edit")
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, content, old, next string, all bool) {
		if !utf8.ValidString(old) || !utf8.ValidString(next) {
			t.Skip() // no JSON text
		}
		path := filepath.Join(dir, "f")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		input := in("file_path", path, "old_string", old, "new_string", next, "replace_all", all)
		res := edit.Run(t.Context(), &tool.Call{Name: "Edit", Input: input, Env: &tool.Env{Cwd: dir}})
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		got := string(b)
		flat := func(s string) string { return strings.ReplaceAll(s, "\r\n", "\n") }
		body := strings.TrimPrefix(content, "\xEF\xBB\xBF")
		n := 0
		if old != "" {
			n = strings.Count(flat(body), flat(old))
		}
		if res.Status == agent.StatusError {
			if got != content {
				t.Fatalf("an error (%s) changed %q to %q", agent.TextOf(res.Parts), content, got)
			}
			if utf8.ValidString(content) && !strings.Contains(content, "\x00") && old != next && old != "" && (n == 1 || n > 1 && all) {
				t.Fatalf("refused although it occurs %d times in %q: %s", n, content, agent.TextOf(res.Parts))
			}
			return
		}
		if old == next || old == "" || n > 1 && !all {
			t.Fatalf("%d occurrences of %q replaced in %q (all %v)", n, old, content, all)
		}
		// A lone CR next to a line break would read as one of another kind.
		if lone := strings.ReplaceAll(content+next, "\r\n", ""); n > 0 && !strings.Contains(lone, "\r") {
			want, bare := strings.ReplaceAll(flat(body), flat(old), flat(next)), flat(strings.TrimPrefix(got, "\xEF\xBB\xBF"))
			if bare != want {
				t.Fatalf("%q became %q, want %q but for line breaks", content, got, want)
			}
		}
		if strings.HasPrefix(content, "\xEF\xBB\xBF") != strings.HasPrefix(got, "\xEF\xBB\xBF") && !strings.HasPrefix(next, "\uFEFF") {
			t.Fatalf("the byte order mark came or went: %q, %q", content, got)
		}
		// Everything around the replacement stays byte for byte.
		if n == 1 {
			i := strings.Index(flat(body), flat(old))
			head, tail := flat(body)[:i], flat(body)[i+len(flat(old)):]
			if !strings.Contains(content, "\r") && !strings.Contains(next, "\r") {
				if bare := strings.TrimPrefix(got, "\xEF\xBB\xBF"); bare != head+flat(next)+tail {
					t.Fatalf("%q became %q", content, got)
				}
			} else if strings.Count(got, "\r\n") < strings.Count(content, "\r\n")-strings.Count(flat(old), "\n")-1 {
				t.Fatalf("line breaks were lost: %q became %q", content, got)
			}
		}
	})
}
