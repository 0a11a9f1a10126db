package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// stream makes the events of `go test -json` from short lines.
func stream(t *testing.T, events ...event) string {
	t.Helper()
	var b strings.Builder
	for _, e := range events {
		line, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		b.Write(append(line, '\n'))
	}
	return b.String()
}

func TestReport(t *testing.T) {
	in := stream(t,
		event{"build-output", "", "", "x.go:1: syntax error\n"},
		event{"output", "a", "TestQuiet", "=== RUN   TestQuiet\n"},
		event{"output", "a", "TestQuiet", "    a_test.go:5: noise\n"},
		event{"pass", "a", "TestQuiet", ""},
		event{"output", "a", "TestDB", "    a_test.go:9: no PostgreSQL found\n"},
		event{"output", "a", "TestDB", "--- SKIP: TestDB (0.00s)\n"},
		event{"skip", "a", "TestDB", ""},
		event{"output", "a", "TestBare", "--- SKIP: TestBare (0.00s)\n"},
		event{"skip", "a", "TestBare", ""},
		event{"output", "a", "", "PASS\n"},
		event{"output", "a", "", "ok  \ta\t0.1s\n"},
		event{"pass", "a", "", ""},
		event{"output", "b", "TestFine", "    b_test.go:1: noise\n"},
		event{"pass", "b", "TestFine", ""},
		event{"output", "b", "TestBad", "=== RUN   TestBad\n"},
		event{"output", "b", "TestBad", "    b_test.go:7: wrong\n"},
		event{"output", "b", "TestBad", "--- FAIL: TestBad (0.00s)\n"},
		event{"fail", "b", "TestBad", ""},
		event{"output", "b", "TestHangs", "panic: timed out\n"},
		event{"output", "b", "", "FAIL\tb\t0.2s\n"},
		event{"fail", "b", "", ""},
	) + "not an event\n"
	want := `x.go:1: syntax error
ok  	a	0.1s
    b_test.go:7: wrong
--- FAIL: TestBad (0.00s)
panic: timed out
FAIL	b	0.2s
not an event
SKIPPED: no PostgreSQL found
    a TestDB
SKIPPED: no reason given
    a TestBare
packages: 1 passed, 1 failed; tests skipped: 2
`
	var out strings.Builder
	r := newReport(&out)
	if err := r.read(strings.NewReader(in)); err != nil {
		t.Fatal(err)
	}
	r.end()
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
}

// The real go test, on a module made for it.
func TestExitCode(t *testing.T) {
	self := filepath.Join(t.TempDir(), "gotest")
	if out, err := exec.Command("go", "build", "-o", self, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for name, c := range map[string]struct {
		body string
		code int
		want string
	}{
		"pass":  {`t.Log("noise")`, 0, "tests skipped: 0"},
		"skip":  {`t.Skip("not today")`, 0, "SKIPPED: not today\n    m TestIt\n"},
		"fail":  {`t.Fatal("wrong")`, 1, "wrong"},
		"panic": {`panic("ouch")`, 1, "ouch"},
		"build": {`undefined()`, 1, "undefined: undefined"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, text := range map[string]string{
				"go.mod":    "module m\n\ngo 1.26\n",
				"m_test.go": "package m\n\nimport \"testing\"\n\nfunc TestIt(t *testing.T) { " + c.body + " }\n",
			} {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			cmd := exec.Command(self, "-vet=off", "./...")
			cmd.Dir = dir
			out, err := cmd.CombinedOutput()
			if cmd.ProcessState.ExitCode() != c.code {
				t.Errorf("exit code %d (%v), want %d", cmd.ProcessState.ExitCode(), err, c.code)
			}
			if !strings.Contains(string(out), c.want) || strings.Contains(string(out), "noise") {
				t.Errorf("want %q in\n%s", c.want, out)
			}
		})
	}
}
