package workspace_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"mneme/internal/workspace"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tree makes files below a new directory; names that end in "/" are directories.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestReadText(t *testing.T) {
	root := tree(t, map[string]string{
		"plain": "a\r\nb\n", "empty": "", "bom": "\xEF\xBB\xBFx", "utf16le": "\xFF\xFEh\x00i\x00", "utf16be": "\xFE\xFF\x00h\x00i",
		"nul": "a\x00b", "latin1": "caf\xE9", "odd16": "\xFF\xFEh", "nul16": "\xFF\xFE\x00\x00", "big": strings.Repeat("x", workspace.MaxText+1),
	})
	if err := syscall.Mkfifo(filepath.Join(root, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"plain": "a\r\nb\n", "empty": "", "bom": "x", "utf16le": "hi", "utf16be": "hi"} {
		if got, err := workspace.ReadText(filepath.Join(root, name)); err != nil || got != want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	for name, want := range map[string]error{
		"nul": workspace.ErrBinary, "latin1": workspace.ErrBinary, "odd16": workspace.ErrBinary, "nul16": workspace.ErrBinary,
		"big": workspace.ErrTooLarge, ".": workspace.ErrDirectory, "pipe": workspace.ErrSpecial, "missing": os.ErrNotExist,
	} {
		if _, err := workspace.ReadText(filepath.Join(root, name)); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
	}
}

func TestWrite(t *testing.T) {
	root := tree(t, map[string]string{"script": "old", "target": "old", "dir/x": ""})
	path := func(name string) string { return filepath.Join(root, name) }
	if err := os.Chmod(path("script"), 0o750); err != nil {
		t.Fatal(err)
	}
	for link, to := range map[string]string{"link": "target", "dangling": "made"} {
		if err := os.Symlink(to, path(link)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"script", "link", "dangling", "new", "a/b/c"} {
		if err := workspace.Write(path(name), []byte("new")); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if b, err := os.ReadFile(path(name)); err != nil || string(b) != "new" {
			t.Errorf("%s holds %q, %v", name, b, err)
		}
	}
	if st, err := os.Stat(path("script")); err != nil || st.Mode().Perm() != 0o750 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
	for _, link := range []string{"link", "dangling"} {
		if st, err := os.Lstat(path(link)); err != nil || st.Mode()&os.ModeSymlink == 0 {
			t.Errorf("%s is no link any more (%v)", link, err)
		}
	}
	if err := workspace.Write(path("dir"), nil); !errors.Is(err, workspace.ErrDirectory) {
		t.Errorf("a directory: %v", err)
	}
	if err := workspace.Write(path("script/x"), nil); err == nil {
		t.Error("wrote below a file")
	}
	if left, err := filepath.Glob(path(".write-*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// withAndWithoutRg runs a test twice: with rg where it is installed, and without.
func withAndWithoutRg(t *testing.T, test func(t *testing.T)) {
	git, err := exec.LookPath("git")
	if err != nil {
		t.Fatal(err)
	}
	t.Run("rg", func(t *testing.T) {
		if _, err := exec.LookPath("rg"); err != nil {
			t.Skip("rg is not installed: its path is not tested")
		}
		test(t)
	})
	t.Run("git", func(t *testing.T) {
		bin := t.TempDir()
		if err := os.Symlink(git, filepath.Join(bin, "git")); err != nil {
			t.Fatal(err)
		}
		t.Setenv("PATH", bin)
		test(t)
	})
}

func gitInit(t *testing.T, root string) {
	t.Helper()
	if out, err := exec.Command("git", "-C", root, "init", "-q").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

func TestFiles(t *testing.T) {
	withAndWithoutRg(t, func(t *testing.T) {
		root := tree(t, map[string]string{
			"a.go": "", "sub/b.go": "", "sub/übung 1.txt": "", ".hidden": "", ".dir/c": "", "ignored.log": "", "build/x": "", ".gitignore": "*.log\nbuild/\n",
		})
		gitInit(t, root)
		files, cut, err := workspace.Files(t.Context(), root, true)
		slices.Sort(files)
		want := []string{".dir/c", ".gitignore", ".hidden", "a.go", "sub/b.go", "sub/übung 1.txt"}
		if diff := cmp.Diff(want, files); diff != "" || cut || err != nil {
			t.Errorf("all files (-want +got), cut %v, %v:\n%s", cut, err, diff)
		}
		files, _, err = workspace.Files(t.Context(), filepath.Join(root, "sub"), false)
		slices.Sort(files)
		if diff := cmp.Diff([]string{"b.go", "übung 1.txt"}, files); diff != "" || err != nil {
			t.Errorf("files of a directory (-want +got), %v:\n%s", err, diff)
		}
		if files, _, err = workspace.Files(t.Context(), root, false); err != nil || slices.Contains(files, ".hidden") || slices.Contains(files, ".dir/c") {
			t.Errorf("hidden files are listed: %v, %v", files, err)
		}
		if _, _, err := workspace.Files(t.Context(), filepath.Join(root, "missing"), true); !workspace.IsMissing(err) {
			t.Errorf("missing directory: %v", err)
		}
		if _, _, err := workspace.Files(t.Context(), filepath.Join(root, "a.go"), true); err == nil {
			t.Error("listed a file")
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, _, err := workspace.Files(ctx, root, true); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: %v", err)
		}

		plain := tree(t, map[string]string{"x/y": "", "z": ""})
		files, _, err = workspace.Files(t.Context(), plain, true)
		slices.Sort(files)
		if diff := cmp.Diff([]string{"x/y", "z"}, files); diff != "" || err != nil {
			t.Errorf("outside git (-want +got), %v:\n%s", err, diff)
		}
	})
}

func TestMatchGlob(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"*.go", "a.go", true}, {"*.go", "sub/a.go", true}, {"*.go", "a.gox", false}, {"/*.go", "sub/a.go", false}, {"./a.go", "a.go", true},
		{"sub/*.go", "sub/a.go", true}, {"sub/*.go", "x/sub/a.go", false}, {"**/*.go", "a.go", true}, {"**/x/*.go", "a/x/b.go", true},
		{"sub/**", "sub/a/b", true}, {"*.{ts,tsx}", "a/b.tsx", true}, {"a?c", "abc", true}, {"[ab].go", "b.go", true}, {"[", "[", false},
	} {
		if got := workspace.MatchGlob(c.pattern, c.name); got != c.want {
			t.Errorf("MatchGlob(%q, %q) = %v", c.pattern, c.name, got)
		}
	}
	if workspace.CheckGlob("a[") == nil || workspace.CheckGlob("**/*.{a,b}") != nil {
		t.Error("CheckGlob")
	}
}

func TestGrep(t *testing.T) {
	withAndWithoutRg(t, func(t *testing.T) {
		root := tree(t, map[string]string{
			"a.txt": "one\ntwo\nthree\nfour\nfive\n", "b.go": "func Two() {\n}\n", "sub/c.txt": "zero\r\ntwo\r\n", "sub/d.md": "two two\n",
			"bin": "two\x00two\n", ".hidden": "two\n", "skip.log": "two\n", ".gitignore": "*.log\n", "none": "",
		})
		gitInit(t, root)
		type row struct {
			File    string
			Line    int
			Text    string
			Context bool
		}
		grep := func(q workspace.Query) (rows []row, err error) {
			if q.Root == "" {
				q.Root = root
			}
			err = workspace.Grep(t.Context(), q, func(m workspace.Match) bool {
				rel, err := filepath.Rel(root, m.Path)
				if err != nil {
					t.Error(err)
				}
				rows = append(rows, row{rel, m.Line, m.Text, m.Context})
				return true
			})
			return rows, err
		}
		for _, c := range []struct {
			name string
			q    workspace.Query
			want []row
		}{
			{"plain", workspace.Query{Pattern: "two"}, []row{{"a.txt", 2, "two", false}, {"sub/c.txt", 2, "two", false}, {"sub/d.md", 1, "two two", false}}},
			{"case", workspace.Query{Pattern: "two", IgnoreCase: true, Type: "go"}, []row{{"b.go", 1, "func Two() {", false}}},
			{"glob", workspace.Query{Pattern: "two", Glob: "*.md"}, []row{{"sub/d.md", 1, "two two", false}}},
			{"glob with directory", workspace.Query{Pattern: "two", Glob: "sub/*.txt"}, []row{{"sub/c.txt", 2, "two", false}}},
			{"not glob", workspace.Query{Pattern: "two", Glob: "!sub/**"}, []row{{"a.txt", 2, "two", false}}},
			{"regexp", workspace.Query{Pattern: "^f(our|ive)$"}, []row{{"a.txt", 4, "four", false}, {"a.txt", 5, "five", false}}},
			{"one file", workspace.Query{Pattern: "two", Root: filepath.Join(root, "sub/d.md")}, []row{{"sub/d.md", 1, "two two", false}}},
			{"subdirectory", workspace.Query{Pattern: "zero", Root: filepath.Join(root, "sub")}, []row{{"sub/c.txt", 1, "zero", false}}},
			{"context", workspace.Query{Pattern: "two|four", Glob: "a.txt", Before: 1, After: 1}, []row{
				{"a.txt", 1, "one", true}, {"a.txt", 2, "two", false}, {"a.txt", 3, "three", true}, {"a.txt", 4, "four", false}, {"a.txt", 5, "five", true}}},
			{"multiline", workspace.Query{Pattern: "two.*four", Multiline: true}, []row{{"a.txt", 2, "two", false}, {"a.txt", 3, "three", false}, {"a.txt", 4, "four", false}}},
			{"hidden", workspace.Query{Pattern: "two", Hidden: true, Glob: ".hidden"}, []row{{".hidden", 1, "two", false}}},
			{"starts like a flag", workspace.Query{Pattern: "--two"}, nil},
			{"nothing", workspace.Query{Pattern: "absent"}, nil},
		} {
			got, err := grep(c.q)
			if diff := cmp.Diff(c.want, got); diff != "" || err != nil {
				t.Errorf("%s (-want +got), %v:\n%s", c.name, err, diff)
			}
		}
		for name, q := range map[string]workspace.Query{
			"pattern": {Pattern: "("}, "glob": {Pattern: "x", Glob: "["}, "type": {Pattern: "x", Type: "no-such-type"},
		} {
			if _, err := grep(q); !errors.Is(err, workspace.ErrPattern) {
				t.Errorf("bad %s: %v", name, err)
			}
		}
		if _, err := grep(workspace.Query{Pattern: "x", Root: filepath.Join(root, "missing")}); !workspace.IsMissing(err) {
			t.Errorf("missing root: %v", err)
		}
		n := 0
		if err := workspace.Grep(t.Context(), workspace.Query{Root: root, Pattern: "."}, func(workspace.Match) bool { n++; return n < 2 }); err != nil || n != 2 {
			t.Errorf("stopped after %d matches, %v", n, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := workspace.Grep(ctx, workspace.Query{Root: root, Pattern: "two"}, func(workspace.Match) bool { return true }); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: %v", err)
		}
	})
}
