package tool_test

import (
	"bytes"
	"encoding/base64"
	"image"
	"image/color"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mneme/internal/agent"
)

// step is one call and what must come of it. A want that ends in "…" is a
// beginning.
type step struct {
	tool   string
	input  []any
	status agent.CallStatus
	want   string
}

const (
	good = agent.StatusSuccess
	bad  = agent.StatusError
)

func (r *rig) steps(steps []step) {
	r.t.Helper()
	for _, s := range steps {
		status, text := r.do(s.tool, s.input...)
		head, isHead := strings.CutSuffix(s.want, "…")
		if status != s.status || isHead && !strings.HasPrefix(text, head) || !isHead && text != s.want {
			r.t.Errorf("%s(%v):\n got %s %q\nwant %s %q", s.tool, s.input, status, text, s.status, s.want)
		}
	}
}

func TestRead(t *testing.T) {
	r := newRig(t)
	a := r.file("work/a.txt", "alpha\nbeta\ngamma\n")
	r.file("work/crlf", "a\r\nb")
	r.file("work/empty", "")
	r.file("work/bin", "a\x00b")
	r.file("memfs/agent-1/memory/system/human.md", "me")
	r.file("home/x", "home")
	long := r.file("work/long", strings.Repeat("line\n", 5000))
	wide := r.file("work/wide", strings.Repeat("ä", 2500)+"\nend")
	big := r.file("work/big", strings.Repeat(strings.Repeat("x", 999)+"\n", 100))
	huge := r.file("work/huge", strings.Repeat("x", 10<<20+1))
	r.steps([]step{
		{"Read", []any{"file_path", a}, good, "1\talpha\n2\tbeta\n3\tgamma\n4\t"},
		{"Read", []any{"file_path", "a.txt", "offset", 1, "limit", 1}, good, "2\tbeta\n[Lines 2 to 2 of 4. Read on with offset 2.]"},
		{"Read", []any{"file_path", "./sub/../a.txt", "offset", "2"}, good, "3\tgamma\n4\t"},
		{"Read", []any{"file_path", a, "offset", 4}, good, "<system-reminder>…"},
		{"Read", []any{"file_path", a, "offset", -3, "limit", 1}, good, "1\talpha\n…"},
		{"Read", []any{"file_path", r.path("work/crlf")}, good, "1\ta\n2\tb"},
		{"Read", []any{"file_path", "$MEMORY_DIR/system/human.md"}, good, "1\tme"},
		{"Read", []any{"file_path", "~/x"}, good, "1\thome"},
		{"Read", []any{"file_path", r.path("work/empty")}, good, "<system-reminder>The file " + r.path("work/empty") + " exists, but it is empty.</system-reminder>"},
		{"Read", []any{"file_path", r.path("work/none")}, bad, "File does not exist. Attempted path: " + r.path("work/none") + ". Current working directory: " + r.env.Cwd},
		{"Read", []any{"file_path", r.path("work")}, bad, "Path is a directory, not a file: " + r.path("work")},
		{"Read", []any{"file_path", r.path("work/bin")}, bad, "Cannot read binary file: " + r.path("work/bin")},
		{"Read", []any{"file_path", "/dev/zero"}, bad, "Not a regular file: /dev/zero"},
		{"Read", []any{"file_path", huge}, bad, "The file is larger than 10 MB: …"},
		{"Read", []any{"file_path", ""}, bad, "The path is empty: "},
		{"Read", []any{"file_path", "a\x00b"}, bad, "The path contains a NUL character: …"},
		{"Read", []any{"file_path", a, "limit", "many"}, bad, "Invalid arguments for Read: …"},
		{"Read", []any{"file_path", 7}, bad, "Invalid arguments for Read: file_path must not be a number"},
		{"Read", []any{"file_path", wide, "limit", 1}, good, "1\t" + strings.Repeat("ä", 2000) + "... [line has 2500 characters]\n[Lines 1 to 1 of 2. Read on with offset 1.]"},
	})
	_, text := r.do("Read", "file_path", long)
	if !strings.HasSuffix(text, "2000\tline\n[Lines 1 to 2000 of 5001. Read on with offset 2000.]") {
		t.Errorf("long file ends in %q", text[len(text)-80:])
	}
	if _, text = r.do("Read", "file_path", big); len(text) > 30_100 || !strings.Contains(text, "[Lines 1 to 29 of 101.") {
		t.Errorf("big file: %d characters, ends in %q", len(text), text[len(text)-80:])
	}
}

func TestReadImage(t *testing.T) {
	r := newRig(t)
	img := image.NewRGBA(image.Rect(0, 0, 4000, 10))
	for x := range 4000 {
		img.Set(x, 5, color.RGBA{uint8(x), 0, 0, 255})
	}
	var b bytes.Buffer
	if err := png.Encode(&b, img); err != nil {
		t.Fatal(err)
	}
	r.file("work/wide.PNG", b.String())
	res := r.run("Read", in("file_path", "wide.PNG"))
	if res.Status != good || len(res.Parts) != 2 || res.Parts[1].Kind != agent.PartImage || res.Parts[1].MediaType != "image/png" {
		t.Fatalf("result %+v", res)
	}
	raw, err := base64.StdEncoding.DecodeString(res.Parts[1].Data)
	if err != nil {
		t.Fatal(err)
	}
	conf, kind, err := image.DecodeConfig(bytes.NewReader(raw))
	if err != nil || kind != "png" || conf.Width != 2000 || conf.Height != 5 {
		t.Errorf("made %s %dx%d, %v", kind, conf.Width, conf.Height, err)
	}

	small := image.NewGray(image.Rect(0, 0, 3, 3))
	b.Reset()
	if err := png.Encode(&b, small); err != nil {
		t.Fatal(err)
	}
	r.file("work/small.png", b.String())
	res = r.run("Read", in("file_path", "small.png"))
	if raw, _ := base64.StdEncoding.DecodeString(res.Parts[1].Data); !bytes.Equal(raw, b.Bytes()) {
		t.Error("a small image was changed")
	}
	r.file("work/fake.png", "no image at all")
	r.file("work/cut.png", b.String()[:20])
	r.file("work/photo.heic", "\x00\x00\x00\x18ftypheic")
	for _, name := range []string{"fake.png", "cut.png", "photo.heic", "none.png"} {
		if res := r.run("Read", in("file_path", name)); res.Status != bad {
			t.Errorf("%s: %+v", name, res)
		}
	}
}

func TestWriteTool(t *testing.T) {
	r := newRig(t)
	path := r.path("work/deep/er/new.txt")
	r.steps([]step{
		{"Write", []any{"file_path", path, "content", "hello\nworld\n"}, good, "Successfully wrote 12 characters to " + path},
		{"Write", []any{"file_path", "rel.txt", "content", "äö"}, good, "Successfully wrote 2 characters to rel.txt"},
		{"Write", []any{"file_path", path, "content", ""}, good, "Successfully wrote 0 characters to " + path},
		{"Write", []any{"file_path", r.path("work"), "content", ""}, bad, "Path is a directory, not a file: " + r.path("work")},
		{"Write", []any{"file_path", path + "/x", "content", ""}, bad, "…"},
	})
	if r.content("work/rel.txt") != "äö" || r.content("work/deep/er/new.txt") != "" {
		t.Error("content differs")
	}
	want := [][2]string{{path, "hello\nworld\n"}, {r.path("work/rel.txt"), "äö"}, {path, ""}}
	if diff := cmp.Diff(want, r.host.changes); diff != "" {
		t.Errorf("told changes (-want +got):\n%s", diff)
	}
}

func TestEdit(t *testing.T) {
	r := newRig(t)
	a := r.file("work/a.txt", "alpha\nbeta\ngamma\n")
	edit := func(path, old, next string, more ...any) []any {
		return append([]any{"file_path", path, "old_string", old, "new_string", next}, more...)
	}
	three := r.file("work/three", "x\nx\nx\n")
	many := r.file("work/many", strings.Repeat("x", 1<<20))
	crlf := r.file("work/crlf", "one\r\ntwo\r\nthree\r\n")
	mixed := r.file("work/mixed", "a\r\nb\nc\r\nd\ne\n")
	bom := r.file("work/bom", "\xEF\xBB\xBFhead\ntail\n")
	quoted := r.file("work/quoted", "say \u201chello\u201d\n\tindented line\n")
	escaped := r.file("work/escaped", "print(\"a\")\nnext\n")
	script := r.file("work/script", "#!/bin/sh\necho old\n")
	r.file("work/utf16", "\xFF\xFEh\x00i\x00")
	if err := os.Chmod(script, 0o755); err != nil {
		t.Fatal(err)
	}
	r.steps([]step{
		{"Edit", edit(a, "beta", "BETA"), good, `{"message":"Successfully replaced 1 occurrence in ` + a + `","replacements":1,"startLine":2}`},
		{"Edit", edit(three, "x", "y"), bad, "old_string occurs 3 times in the file. …"},
		{"Edit", edit(three, "x", "y", "replace_all", true), good, `{"message":"Successfully replaced 3 occurrences in ` + three + `","replacements":3,"startLine":1}`},
		{"Edit", edit(many, "x", strings.Repeat("y", 1000), "replace_all", true), bad, "The file would become larger than 10 MB."},
		{"Edit", edit(crlf, "one\ntwo", "1\n2\n2b"), good, `{"message":"Successfully replaced 1 occurrence in ` + crlf + `","replacements":1,"startLine":1}`},
		{"Edit", edit(crlf, "three\r\n", "3\r\n"), good, "{…"},
		{"Edit", edit(mixed, "d\ne", "D\nE\nF"), good, "{…"},
		{"Edit", edit(mixed, "a\nb", "A\nB"), good, "{…"},
		{"Edit", edit(bom, "head", "HEAD"), good, "{…"},
		{"Edit", edit(script, "old", "new"), good, "{…"},
		{"Edit", edit(escaped, `print(\"a\")\nnext`, `print(\"b\")\nlast`), good, "{…"},
		{"Edit", edit(quoted, `say "hello"`, "x"), bad, "String to replace not found in file. It is there with other quotation marks…"},
		{"Edit", edit(quoted, "    indented line", "x"), bad, "String to replace not found in file. It is there with other whitespace…"},
		{"Edit", edit(a, "absent", "x"), bad, "String to replace not found in file. Read the file again…"},
		{"Edit", edit(a, "", "x"), bad, "old_string must not be empty.…"},
		{"Edit", edit(a, "alpha", "alpha"), bad, "No changes to make: old_string and new_string are exactly the same."},
		{"Edit", edit(r.path("work/none"), "a", "b"), bad, "File does not exist.…"},
		{"Edit", edit(r.path("work/utf16"), "hi", "ho"), bad, "The file is UTF-16;…"},
	})
	for name, want := range map[string]string{
		"a.txt": "alpha\nBETA\ngamma\n", "three": "y\ny\ny\n", "crlf": "1\r\n2\r\n2b\r\n3\r\n", "mixed": "A\r\nB\nc\r\nD\nE\nF\n",
		"bom": "\xEF\xBB\xBFHEAD\ntail\n", "script": "#!/bin/sh\necho new\n", "escaped": "print(\"b\")\nlast\n", "quoted": "say \u201chello\u201d\n\tindented line\n",
	} {
		if got := r.content(filepath.Join("work", name)); got != want {
			t.Errorf("%s = %q, want %q", name, got, want)
		}
	}
	if st, err := os.Stat(script); err != nil || st.Mode().Perm() != 0o755 {
		t.Errorf("the script lost its mode: %v, %v", st.Mode(), err)
	}
	if got := r.host.changes[0]; got != [2]string{a, "alpha\nBETA\ngamma\n"} {
		t.Errorf("told %q", got)
	}
}

func TestGlobTool(t *testing.T) {
	r := newRig(t)
	b := r.file("work/sub/b.go", "")
	a := r.file("work/a.go", "")
	r.file("work/c.txt", "")
	h := r.file("work/.hidden.go", "")
	o := r.file("outside/o.go", "")
	r.file("memfs/agent-2/memory/system/secret.md", "")
	r.steps([]step{
		{"Glob", []any{"pattern", "**/*.go"}, good, h + "\n" + a + "\n" + b},
		{"Glob", []any{"pattern", "*.go", "path", "sub"}, good, b},
		{"Glob", []any{"pattern", "sub/*.go"}, good, b},
		{"Glob", []any{"pattern", "sub/**"}, good, b},
		{"Glob", []any{"pattern", "./a.*"}, good, a},
		{"Glob", []any{"pattern", "a.go"}, good, a},
		{"Glob", []any{"pattern", r.path("outside") + "/*.go"}, good, o},
		{"Glob", []any{"pattern", "*.rs"}, good, "No files found"},
		{"Glob", []any{"pattern", "["}, bad, `"[" is not a valid glob`},
		{"Glob", []any{"pattern", ""}, bad, "pattern must not be empty"},
		{"Glob", []any{"pattern", "*", "path", r.path("none")}, bad, "Path does not exist: " + r.path("none")},
	})
	r.env.Cwd = r.root // a search from above leaves other agents' memory out
	if _, text := r.do("Glob", "pattern", "**/*.md"); text != "No files found" {
		t.Errorf("found in another agent's memory: %q", text)
	}
}

func TestGrepTool(t *testing.T) {
	r := newRig(t)
	r.file("work/a.txt", "one\ntwo\nthree\nfour\ntwo\n")
	r.file("work/sub/b.go", "var two = 2\n")
	r.file("work/wide", "two"+strings.Repeat("x", 1000)+"\n")
	r.file("memfs/agent-2/memory/system/secret.md", "two\n")
	r.file("outside/o.txt", "two\n")
	r.steps([]step{
		{"Grep", []any{"pattern", "two"}, good, "Found 3 files\na.txt\nsub/b.go\nwide"},
		{"Grep", []any{"pattern", "four"}, good, "Found 1 file\na.txt"},
		{"Grep", []any{"pattern", "absent"}, good, "No files found"},
		{"Grep", []any{"pattern", "absent", "output_mode", "content"}, good, "No matches found"},
		{"Grep", []any{"pattern", "absent", "output_mode", "count"}, good, "No matches found"},
		{"Grep", []any{"pattern", "TWO", "output_mode", "content", "-i", true, "glob", "*.txt"}, good, "a.txt:2:two\na.txt:5:two"},
		{"Grep", []any{"pattern", "two", "output_mode", "content", "-n", false, "type", "go"}, good, "sub/b.go:var two = 2"},
		{"Grep", []any{"pattern", "two", "output_mode", "content", "-A", 1, "path", "a.txt"}, good, "a.txt:2:two\na.txt-3-three\n--\na.txt:5:two"},
		{"Grep", []any{"pattern", "three", "output_mode", "content", "-C", "1", "path", "a.txt"}, good, "a.txt-2-two\na.txt:3:three\na.txt-4-four"},
		{"Grep", []any{"pattern", "two", "output_mode", "count"}, good, "a.txt:2\nsub/b.go:1\nwide:1\n\nFound 4 matches in 3 files."},
		{"Grep", []any{"pattern", "two", "head_limit", 1}, good, "Found 1 file\na.txt\n[There is more. Narrow the search, or read on with offset 1.]"},
		{"Grep", []any{"pattern", "two", "head_limit", 1, "offset", 1}, good, "Found 1 file\nsub/b.go\n[There is more. Narrow the search, or read on with offset 2.]"},
		{"Grep", []any{"pattern", "two", "offset", 2}, good, "Found 1 file\nwide"},
		{"Grep", []any{"pattern", "twox", "output_mode", "content"}, good, "wide:1:two" + strings.Repeat("x", 497) + "..."},
		{"Grep", []any{"pattern", "two.three", "multiline", true}, good, "Found 1 file\na.txt"},
		{"Grep", []any{"pattern", "two", "path", r.path("outside")}, good, "Found 1 file\n" + r.path("outside/o.txt")},
		{"Grep", []any{"pattern", "("}, bad, "invalid search: …"},
		{"Grep", []any{"pattern", "x", "output_mode", "other"}, bad, "output_mode must be …"},
		{"Grep", []any{"pattern", "x", "path", "none"}, bad, "Path does not exist: " + r.path("work/none")},
	})
	r.file("work/many", strings.Repeat("two two two two two two\n", 2000))
	_, text := r.do("Grep", "pattern", "two", "output_mode", "content", "head_limit", 0, "path", "many")
	if n := len(text); n > 10_100 || !strings.HasSuffix(text, "read on with offset 285.]") && !strings.Contains(text, "There is more") {
		t.Errorf("%d characters, end %q", n, text[n-60:])
	}
	r.env.Cwd = r.root
	if _, text := r.do("Grep", "pattern", "two", "glob", "*.md"); text != "No files found" {
		t.Errorf("found in another agent's memory: %q", text)
	}
}
