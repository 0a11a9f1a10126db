package sandbox

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"mneme/internal/agent"
)

// Shells runs commands and keeps those that go on in the background. Its
// methods are safe for concurrent use.
type Shells struct {
	yield time.Duration

	mu      sync.Mutex
	closed  bool
	seq     int
	entries []*entry   // in the order they went to the background
	running []*process // every process that is not done
	wg      sync.WaitGroup
	closing chan struct{}
}

// An entry is a background process, running or finished.
type entry struct {
	id      string
	p       *process
	stopped bool // by Stop: nobody wants to hear of its end
	adopted bool
	status  string // running, completed, failed
	exit    *int
}

// settle writes down how the process ended. Its done is closed and Shells.mu held.
func (e *entry) settle() {
	e.exit, e.status = &e.p.exit, "completed"
	if e.p.exit != 0 || e.stopped {
		e.status = "failed"
	}
}

// New returns an empty Shells. yield is how long a command may stay in the
// foreground, 0 = YieldAfter.
func New(yield time.Duration) *Shells {
	if yield <= 0 {
		yield = YieldAfter
	}
	return &Shells{yield: yield, closing: make(chan struct{})}
}

// Run starts cmd and waits until it ends or goes to the background. The end of
// ctx kills the whole group at once while Run waits, and means nothing to a
// command in the background. An error means that the command did not start
// (a missing directory, ErrTooMany, ErrClosed).
func (s *Shells) Run(ctx context.Context, cmd Command) (*Result, error) {
	if err := ctx.Err(); err != nil {
		return &Result{Aborted: true}, nil
	}
	p, err := s.start(cmd)
	if err != nil {
		return nil, err
	}
	if cmd.Background {
		if id, ok := s.background(p, false); ok {
			return &Result{Background: id, Log: p.record.path}, nil
		}
		ask(p.kill)
		<-p.done
		return nil, ErrTooMany
	}
	return s.wait(ctx, p), nil
}

// wait is Run's foreground: it reports live output until the command ends or
// yields.
func (s *Shells) wait(ctx context.Context, p *process) *Result {
	yield := time.NewTimer(s.yield)
	defer yield.Stop()
	report := func() {}
	var tick <-chan time.Time
	if p.cmd.Output != nil {
		ticker := time.NewTicker(liveEvery)
		defer ticker.Stop()
		tick = ticker.C
		report = func() {
			if stdout, stderr, ok := p.record.live(); ok {
				p.cmd.Output(stdout, stderr)
			}
		}
	}
	abort, aborted := ctx.Done(), false
	for {
		select {
		case <-p.answered:
			if !aborted {
				report()
			}
			return s.result(p, aborted || s.isClosing())
		case <-abort:
			abort, aborted = nil, true
			ask(p.kill)
		case <-tick:
			if !aborted {
				report()
			}
		case <-yield.C:
			if aborted {
				continue
			}
			if id, ok := s.background(p, false); ok {
				report()
				return &Result{Background: id, Log: p.record.path, Elapsed: time.Since(p.started)}
			}
		}
	}
}

// result describes a command that has ended; its leftovers are adopted.
func (s *Shells) result(p *process, aborted bool) *Result {
	res := &Result{
		ExitCode: p.exit, TimedOut: p.timedOut, Aborted: aborted,
		Elapsed: p.elapsed, record: p.record,
	}
	res.Stdout, res.Stderr = p.record.captures()
	if p.leftover && !aborted {
		res.Leftover, _ = s.background(p, true)
	}
	if p.leftover && res.Leftover == "" {
		ask(p.kill)
		<-p.done
	}
	res.Log = p.record.log()
	return res
}

// start spawns cmd and registers the process until it is gone.
func (s *Shells) start(cmd Command) (*process, error) {
	s.mu.Lock()
	switch {
	case s.closed:
		s.mu.Unlock()
		return nil, ErrClosed
	case cmd.Background && s.live() >= MaxBackground:
		s.mu.Unlock()
		return nil, ErrTooMany
	}
	s.wg.Add(1)
	s.mu.Unlock()

	p, err := spawn(cmd, cmd.Background)
	if err != nil {
		s.wg.Done()
		return nil, err
	}
	s.mu.Lock()
	s.running = append(s.running, p)
	closed := s.closed
	s.mu.Unlock()
	if closed { // Close has asked those it saw, and waits for this one
		ask(p.kill)
	}
	go func() {
		defer s.wg.Done()
		<-p.done
		s.mu.Lock()
		s.running = slices.DeleteFunc(s.running, func(q *process) bool { return q == p })
		s.mu.Unlock()
	}()
	return p, nil
}

// live counts running background processes. s.mu is held.
func (s *Shells) live() (n int) {
	for _, e := range s.entries {
		if e.status == "running" {
			n++
		}
	}
	return n
}

// background lists p under a new id and watches it from then on. ok is false
// if there are too many, or the Shells is closing.
func (s *Shells) background(p *process, adopted bool) (id string, ok bool) {
	s.mu.Lock()
	if s.closed || s.live() >= MaxBackground {
		s.mu.Unlock()
		return "", false
	}
	s.seq++
	e := &entry{id: fmt.Sprintf("bash_%d", s.seq), p: p, adopted: adopted, status: "running"}
	s.entries = append(s.entries, e)
	s.wg.Go(func() { s.watch(e) })
	s.mu.Unlock()

	select {
	case <-p.bg:
	default:
		close(p.bg)
	}
	<-p.logged
	_, _ = p.record.save() // for those whose output had ended; a lost log shows itself
	s.changed(p)
	return e.id, true
}

// watch waits for the end of a background process, tells of it, and forgets
// the entry some minutes later.
func (s *Shells) watch(e *entry) {
	p := e.p
	<-p.done
	s.mu.Lock()
	e.settle()
	quiet := s.closed || e.stopped || e.adopted
	s.mu.Unlock()
	if s.isClosing() {
		return
	}
	s.changed(p)
	if !quiet && p.cmd.Done != nil {
		f := Finished{
			ID: e.id, Command: p.cmd.Text, ExitCode: p.exit, TimedOut: p.timedOut,
			Log: p.record.path, Elapsed: p.elapsed,
		}
		f.Stdout, f.Stderr = p.record.captures()
		p.cmd.Done(f)
	}
	forget := time.NewTimer(keepFinished)
	defer forget.Stop()
	select {
	case <-forget.C:
	case <-s.closing:
		return
	}
	s.mu.Lock()
	s.entries = slices.DeleteFunc(s.entries, func(x *entry) bool { return x == e })
	s.mu.Unlock()
	s.changed(p)
}

func (s *Shells) changed(p *process) {
	if p.cmd.Changed != nil {
		p.cmd.Changed(s.List(p.cmd.Scope))
	}
}

// List is the background processes of a conversation, oldest first: the
// running ones and those that ended in the last five minutes.
func (s *Shells) List(scope agent.Scope) []agent.Background {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := []agent.Background{}
	for _, e := range s.entries {
		if e.p.cmd.Scope == scope {
			list = append(list, agent.Background{
				ID: e.id, Command: e.p.cmd.Text, StartedAt: e.p.started, Status: e.status, ExitCode: e.exit,
			})
		}
	}
	return list
}

// Stop ends a running background process of the conversation, SIGTERM first,
// and waits until it is gone (about two seconds at most). It returns false if
// there is none of that id, or it has ended already.
func (s *Shells) Stop(ctx context.Context, scope agent.Scope, id string) bool {
	s.mu.Lock()
	i := slices.IndexFunc(s.entries, func(e *entry) bool {
		return e.id == id && e.p.cmd.Scope == scope && e.status == "running"
	})
	if i < 0 {
		s.mu.Unlock()
		return false
	}
	e := s.entries[i]
	e.stopped = true
	s.mu.Unlock()
	ask(e.p.term)
	select {
	case <-e.p.done:
	case <-ctx.Done():
		ask(e.p.kill)
		<-e.p.done
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e.settle()
	return true
}

func (s *Shells) isClosing() bool {
	select {
	case <-s.closing:
		return true
	default:
		return false
	}
}

// Close kills every process, waits for all of them and makes later calls fail.
// Calls of Run that wait return as aborted.
func (s *Shells) Close() error {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.closing)
	}
	running := slices.Clone(s.running)
	s.mu.Unlock()
	for _, p := range running {
		ask(p.kill)
	}
	s.wg.Wait()
	return nil
}
