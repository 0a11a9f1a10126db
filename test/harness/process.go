package harness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

const (
	startLimit = 30 * time.Second // from start to the line that says ready
	stopLimit  = 20 * time.Second // from SIGTERM to SIGKILL; the server drains for up to 10 s
)

// command says what to start and how to know that it is ready.
type command struct {
	path string
	args []string
	dir  string
	env  []string
	log  io.Writer // gets all output, or nil
	// ready sees each line of output until it returns true.
	ready func(line string) bool
}

// Process is a running child.
type Process struct {
	name string
	cmd  *exec.Cmd
	said *tail
	done chan struct{} // closed when the child was waited for; err is valid then
	err  error
}

// start starts the command in the group and returns once it is ready. A child
// that ends before, or that is not ready in time, is an error that quotes the
// last it said.
func (g *Group) start(ctx context.Context, c command) (*Process, error) {
	p := &Process{name: filepath.Base(c.path), said: &tail{}, done: make(chan struct{})}
	ready := make(chan struct{})
	out := &tailedLog{tail: p.said, log: c.log}
	waiting := true
	see := func(line string) {
		if waiting && c.ready(line) {
			waiting = false
			close(ready)
		}
	}
	p.cmd = exec.CommandContext(ctx, c.path, c.args...)
	p.cmd.Dir, p.cmd.Env = c.dir, c.env
	w := &lines{see: see, log: out}
	p.cmd.Stdout, p.cmd.Stderr = w, w // one writer for both: exec copies them with one goroutine
	p.cmd.SysProcAttr = attributes()
	p.cmd.Cancel = p.killGroup
	p.cmd.WaitDelay = 2 * time.Second // a grandchild may hold the output open
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", p.name, err)
	}
	go func() { // ends with the child; Stop waits for it
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	limit := time.NewTimer(startLimit)
	defer limit.Stop()
	select {
	case <-ready:
		g.mu.Lock()
		g.processes = append(g.processes, p)
		g.mu.Unlock()
		return p, nil
	case <-p.done:
		_ = p.killGroup() // children that outlived it
		if ctx.Err() != nil {
			return nil, fmt.Errorf("start %s: %w", p.name, context.Cause(ctx))
		}
		return nil, fmt.Errorf("start %s: ended before it was ready (%v): %s", p.name, p.err, p.said)
	case <-limit.C:
		p.Kill()
		return nil, fmt.Errorf("start %s: not ready after %s: %s", p.name, startLimit, p.said)
	}
}

// tailedLog writes to the tail, and to the log if there is one.
type tailedLog struct {
	tail *tail
	log  io.Writer
}

func (t *tailedLog) Write(p []byte) (int, error) {
	_, _ = t.tail.Write(p) // cannot fail
	if t.log == nil {
		return len(p), nil
	}
	return t.log.Write(p)
}

// Run runs a command to its end, in a process group of its own that is killed
// with all that the command left behind when it ends or the context does. The
// command's own Cancel and WaitDelay are replaced, so make it with
// exec.CommandContext.
func Run(cmd *exec.Cmd) error {
	cmd.SysProcAttr = attributes()
	cmd.Cancel = func() error { return killGroup(cmd.Process.Pid) }
	cmd.WaitDelay = 2 * time.Second
	if err := cmd.Start(); err != nil {
		return err
	}
	defer func() { _ = killGroup(cmd.Process.Pid) }()
	return cmd.Wait()
}

// PID is the child's process id, and its group's.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the child has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Output is the last 4 KiB that the child wrote to stdout and stderr.
func (p *Process) Output() string { return p.said.String() }

// Stop asks the child to end, kills what is left of its group, and returns how
// it ended: nil for exit code 0. Repeated calls return the same.
func (p *Process) Stop() error {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	limit := time.NewTimer(stopLimit)
	defer limit.Stop()
	select {
	case <-p.done:
	case <-limit.C:
		p.Kill()
		return fmt.Errorf("%s did not end within %s: %s", p.name, stopLimit, p.said)
	}
	_ = p.killGroup() // children that outlived it
	if p.err != nil {
		return fmt.Errorf("%s: %w", p.name, p.err)
	}
	return nil
}

// Kill ends the child and its group with SIGKILL and waits until it is gone.
func (p *Process) Kill() {
	_ = p.killGroup() // it may have ended
	<-p.done
}

func (p *Process) killGroup() error { return killGroup(p.PID()) }

// killGroup kills a process group. One that is gone is no error.
func killGroup(leader int) error {
	err := syscall.Kill(-leader, syscall.SIGKILL)
	if errors.Is(err, syscall.ESRCH) {
		return nil
	}
	return err
}
