package memory

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
	"time"

	"mneme/internal/agent"
)

// gitConfig goes before every command: nothing of the user's or the repository's
// configuration may change what a command does, run a program or ask a person.
var gitConfig = []string{
	"-c", "core.fsync=all",
	"-c", "core.hooksPath=/dev/null",
	"-c", "core.fsmonitor=false",
	"-c", "core.quotePath=false",
	"-c", "core.autocrlf=false",
	"-c", "core.splitIndex=false",
	"-c", "commit.gpgSign=false",
	"-c", "gc.auto=0",
	"-c", "maintenance.auto=false",
	"-c", "fastimport.unpackLimit=1",
}

// The limits of one git command.
const (
	gitTimeout   = 30 * time.Second
	gitStopGrace = 3 * time.Second // between SIGTERM and SIGKILL
	gitMaxOutput = 32 << 20
	gitMaxErrors = 4 << 10
)

// A git runs the git program with fixed settings.
type git struct {
	program string
	root    string        // never shown in errors
	slots   chan struct{} // bounds the processes at work
}

// A gitCall is one command in one repository.
type gitCall struct {
	dir     string // holds .git, which is named: discovery never looks elsewhere
	args    []string
	stdin   io.Reader
	env     []string      // added to the fixed environment
	timeout time.Duration // 0 = gitTimeout
}

// A gitError is a command that failed: what git said, in one sentence.
type gitError struct {
	command string
	text    string
	err     error
}

func (e *gitError) Error() string { return fmt.Sprintf("git %s: %s", e.command, e.text) }
func (e *gitError) Unwrap() error { return e.err }

// command prepares a process. It ends by SIGTERM when ctx does, so that git can
// remove its lock files.
func (g *git) command(ctx context.Context, c gitCall) *exec.Cmd {
	cmd := exec.CommandContext(ctx, g.program, append(append([]string{}, gitConfig...), c.args...)...)
	cmd.Dir = c.dir
	cmd.Env = append([]string{
		"PATH=" + os.Getenv("PATH"),
		"HOME=/nonexistent",
		"LC_ALL=C",
		"GIT_CONFIG_NOSYSTEM=1",
		"GIT_CONFIG_GLOBAL=/dev/null",
		"GIT_TERMINAL_PROMPT=0",
		"GIT_OPTIONAL_LOCKS=0",
		"GIT_LITERAL_PATHSPECS=1",
		"GIT_NO_REPLACE_OBJECTS=1",
		"GIT_DIR=" + filepath.Join(c.dir, ".git"),
	}, c.env...)
	ownGroup(cmd)
	cmd.WaitDelay = gitStopGrace
	return cmd
}

// run runs a command to its end and returns what it printed, with an error too.
func (g *git) run(ctx context.Context, c gitCall) ([]byte, error) {
	if c.timeout == 0 {
		c.timeout = gitTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	if err := take(ctx, g.slots); err != nil {
		return nil, err
	}
	defer func() { <-g.slots }()
	out := &capped{max: gitMaxOutput}
	stderr := &capped{max: gitMaxErrors}
	cmd := g.command(ctx, c)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = c.stdin, out, stderr
	if err := cmd.Run(); err != nil {
		return out.buf.Bytes(), g.failed(ctx, c, err, stderr.buf.Bytes())
	}
	if out.full {
		return nil, agent.Errorf(agent.CodeTooLarge, "the answer of git %s is larger than %d MiB", c.args[0], gitMaxOutput>>20)
	}
	return out.buf.Bytes(), nil
}

// failed makes the error of a command that did not end well.
func (g *git) failed(ctx context.Context, c gitCall, err error, stderr []byte) error {
	if errors.Is(err, exec.ErrNotFound) {
		return agent.Errorf(agent.CodeInternal, "the git program is not installed; memory needs it")
	}
	if ctx.Err() != nil {
		return fmt.Errorf("git %s: %w", c.args[0], ctx.Err())
	}
	text := g.sentence(string(stderr))
	if text == "" {
		text = err.Error()
	}
	return &gitError{command: c.args[0], text: text, err: err}
}

// sentence cuts git's complaint to its first line, without severity and without
// places on this machine.
func (g *git) sentence(stderr string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(stderr), "\n")
	for _, prefix := range []string{"fatal: ", "error: ", "warning: "} {
		line = strings.TrimPrefix(line, prefix)
	}
	return strings.ReplaceAll(line, g.root+string(filepath.Separator), "")
}

// Check says whether the git program is there and new enough.
func (m *Memory) Check(ctx context.Context) error {
	out, err := m.git.run(ctx, gitCall{args: []string{"version"}})
	if err != nil {
		return err
	}
	var major, minor int
	if _, err := fmt.Sscanf(string(out), "git version %d.%d", &major, &minor); err != nil {
		return agent.Errorf(agent.CodeInternal, "git answered %q to version", strings.TrimSpace(string(out)))
	}
	if major < 2 || major == 2 && minor < 36 {
		return agent.Errorf(agent.CodeInternal, "git %d.%d is too old: memory needs 2.36 or newer", major, minor)
	}
	return nil
}

// A capped buffer keeps the first max bytes and swallows the rest, so that the
// writer never stalls.
type capped struct {
	buf  bytes.Buffer
	max  int
	full bool
}

func (c *capped) Write(p []byte) (int, error) {
	if room := c.max - c.buf.Len(); room < len(p) {
		c.full = true
		c.buf.Write(p[:room])
		return len(p), nil
	}
	return c.buf.Write(p)
}
