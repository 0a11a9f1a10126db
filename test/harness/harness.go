// Package harness runs the real programs for the checks that need them: the
// server and the scripted model, as separate processes that are surely gone
// afterwards.
//
// A check builds what it needs (Build), opens a Group, and starts processes in
// it. Every process leads a process group of its own. Stop asks it to end with
// SIGTERM and kills the whole group when it does not; Kill does that at once;
// closing the Group stops all that is left, latest first. When the context
// given to a start ends, the process is killed, so that a time limit or Ctrl-C
// needs no further care, and on Linux the kernel kills the children of a check
// that is itself killed.
//
// Nothing of the caller's environment reaches a server except PATH and what
// the tools need for temporary files and languages: keys of real providers and
// settings in a real home directory must not change what a check sees.
package harness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
)

// programs are the main packages that Build knows, by the name of the binary.
var programs = map[string]string{
	"mneme":      "./cmd/mneme",
	"mockllm":    "./test/conformance/mockllm",
	"wsdiff":     "./test/conformance/wsdiff",
	"mcpfixture": "./test/mcp/fixture",
}

// Root is the module's directory.
func Root() (string, error) {
	out, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("go env GOMOD: %w", err)
	}
	mod := strings.TrimSpace(string(out))
	if mod == "" || mod == os.DevNull {
		return "", errors.New("not inside the module")
	}
	return filepath.Dir(mod), nil
}

// Build compiles the named programs into the module's bin directory, as
// `make build` does, and returns that directory. What the compiler says goes
// into the error.
func Build(ctx context.Context, names ...string) (bin string, err error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	bin = filepath.Join(root, "bin")
	for _, name := range names {
		pkg, ok := programs[name]
		if !ok {
			return "", fmt.Errorf("build %s: no such program", name)
		}
		cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", filepath.Join(bin, name), pkg)
		cmd.Dir = root
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("build %s: %w\n%s", name, err, out)
		}
	}
	return bin, nil
}

// Group is a set of processes that end together.
type Group struct {
	mu        sync.Mutex // guards processes
	processes []*Process
}

// Close stops every process that still runs, latest first.
func (g *Group) Close() {
	g.mu.Lock()
	all := g.processes
	g.processes = nil
	g.mu.Unlock()
	for i := len(all) - 1; i >= 0; i-- {
		all[i].Stop()
	}
}

// lines hands each line of a process's output to see, and everything to log.
// see runs on the goroutine that copies the output.
type lines struct {
	see  func(line string)
	log  io.Writer
	rest []byte
}

func (l *lines) Write(p []byte) (int, error) {
	if l.log != nil {
		if n, err := l.log.Write(p); err != nil {
			return n, err
		}
	}
	l.rest = append(l.rest, p...)
	for {
		line, rest, ok := bytes.Cut(l.rest, []byte("\n"))
		if !ok {
			break
		}
		l.see(strings.TrimRight(string(line), "\r"))
		l.rest = rest
	}
	if len(l.rest) > 1<<16 {
		l.rest = nil // no line that anybody waits for is that long
	}
	return len(p), nil
}

// tail keeps the last bytes of a process's output, for error messages.
type tail struct {
	mu  sync.Mutex // guards buf: stdout and stderr come from two goroutines
	buf []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p...)
	if extra := len(t.buf) - 4096; extra > 0 {
		t.buf = append(t.buf[:0], t.buf[extra:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.buf))
}

// environment is what a child sees: see the package comment.
func environment(extra ...string) []string {
	var env []string
	for _, name := range []string{"PATH", "TMPDIR", "LANG", "LC_ALL", "TZ", "GORACE", "GOCOVERDIR"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return append(env, extra...)
}
