// Package runtime is the heart: it takes inputs and turns them into turns.
//
// Every conversation at work has one actor: a goroutine that alone changes the
// conversation and is fenced by a lease in the database. Commands reach it
// through a mailbox; model calls and tools run in workers whose results come
// back through the same mailbox. So a turn is a small state machine over
// journalled rows, and one function, advance, decides what comes next, whether
// the state was just made or read back after a crash:
//
//	input ──► begin ──► ask ──► answered ──► no calls: end
//	                     ▲          │
//	                     │          ▼
//	                next step ◄── run tools ◄── answer ◄── park
//
// Rules that everything here keeps:
//   - A row is committed before its effect can be seen: the input before its
//     acknowledgement, the answer before its tools start, "started" before the
//     tool runs, the result before the next model call.
//   - Nothing with side effects runs twice. A call that was started and has no
//     result gets one that says so.
//   - A parked turn is rows only. Its actor may leave; the answer brings one back.
//   - If the journal cannot be written the actor gives up and is loaded afresh:
//     memory is never ahead of the database.
//   - Events are published in order, by the actor or by the worker it started,
//     never after the actor has cut that worker off.
//
// The runtime knows no door: doors submit, answer, abort, and subscribe.
package runtime

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"mneme/internal/agent"
	"mneme/internal/bus"
	"mneme/internal/llm"
	"mneme/internal/prompt"
	"mneme/internal/store"
	"mneme/internal/tool"
)

// Causes with which contexts of workers end.
var (
	ErrAborted  = errors.New("aborted")
	ErrShutdown = errors.New("the server is stopping")
)

// Defaults and limits.
const (
	defaultMaxSteps = 200
	maxQueue        = 100
	busyWait        = 60 * time.Second
	orphanGrace     = 5 * time.Second
	linger          = 30 * time.Second
	commitTimeout   = 30 * time.Second
	parkedExpiry    = 24 * time.Hour
	reloadDelay     = 2 * time.Second
)

// Models resolves model handles.
type Models interface {
	Resolve(ctx context.Context, handle string) (llm.Model, llm.Info, error)
}

// Prompts makes what the model sees besides the history; *prompt.Builder does.
type Prompts interface {
	// Compile makes the system prompt of a conversation that holds count messages.
	Compile(ctx context.Context, ag *agent.Agent, conv *agent.Conversation, count int) (agent.Prompt, error)
	// Revision is the newest memory commit of an agent, "" = none. It is cheap.
	Revision(agentID string) (string, error)
	// Notice tells the model of the memory as it is now, where it knew commit since.
	Notice(ctx context.Context, ag *agent.Agent, since string) (text, revision string, err error)
	// Remind is what the harness adds to a user message; "" = nothing.
	Remind(ctx context.Context, in prompt.ReminderInput) string
}

// Config wires a Manager. Store, Models and Prompts are required.
type Config struct {
	Store      *store.Store
	Models     Models
	Prompts    Prompts
	Tools      *tool.Box
	Memory     Memory // nil = ephemeral conversations see no memory files
	Logger     *slog.Logger
	Mode       agent.Mode // default permission mode; "" = standard
	BootDir    string     // default working directory, absolute
	MaxSteps   int        // 0 = 200
	MemoryDir  func(agentID string) string
	MemoryRoot string
	OutputDir  string
	SkillDirs  []string
	// Unattended is "park" (default) or "deny": what becomes of calls that ask
	// in turns that nobody watches.
	Unattended  string
	OrphanGrace time.Duration // 0 = 5 s
	Linger      time.Duration // how long an idle actor stays; 0 = 30 s
	// SnapshotPrefix begins the names of the directories, below the system's for
	// temporary files, that hold the memory of ephemeral runtimes; "" = a default.
	SnapshotPrefix string
}

// A Manager runs the actors of one process. It is safe for concurrent use.
type Manager struct {
	cfg       Config
	log       *slog.Logger
	bus       *bus.Local
	externals externals
	wake      context.Context // ends when Close begins: no new turns and steps
	work      context.Context // ends when workers must stop
	stopWake  context.CancelCauseFunc
	stopWork  context.CancelCauseFunc
	wg        sync.WaitGroup

	mu         sync.Mutex
	actors     map[string]*actor     // by conversation id
	ephemerals map[string]*ephemeral // likewise
	// background lists the processes that outlived their calls, by conversation.
	background map[string][]agent.Background
	leaving    map[agent.Scope]*time.Timer // scopes whose last watcher left
	closed     bool
	bootDir    string
	cwdRev     int
}

// New makes a Manager. Call Recover once the doors are up, and Close at the end.
func New(cfg Config) *Manager {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	cfg.MaxSteps = orDefault(cfg.MaxSteps, defaultMaxSteps)
	cfg.OrphanGrace = orDefault(cfg.OrphanGrace, orphanGrace)
	cfg.Linger = orDefault(cfg.Linger, linger)
	cfg.SnapshotPrefix = orDefault(cfg.SnapshotPrefix, snapshotPrefix)
	cfg.Mode = orDefault(cfg.Mode, agent.ModeStandard)
	m := &Manager{
		cfg: cfg, log: cfg.Logger,
		actors:     map[string]*actor{},
		ephemerals: map[string]*ephemeral{},
		background: map[string][]agent.Background{},
		leaving:    map[agent.Scope]*time.Timer{},
		bootDir:    cfg.BootDir,
		cwdRev:     1,
	}
	m.bus = bus.New(m.presence)
	m.externals.init(m.bus.Publish)
	m.wake, m.stopWake = context.WithCancelCause(context.Background())
	m.work, m.stopWork = context.WithCancelCause(context.Background())
	return m
}

func orDefault[T comparable](v, def T) T {
	var zero T
	if v == zero {
		return def
	}
	return v
}

// Recover starts the actors of all conversations that were at work when the
// server stopped. They go on by themselves.
func (m *Manager) Recover(ctx context.Context) error {
	scopes, err := m.cfg.Store.Unfinished(ctx)
	if err != nil {
		return err
	}
	for _, scope := range scopes {
		m.post(scope, command{run: func(*actor) {}, fail: func(err error) {
			m.log.Error("conversation could not be resumed", "conversation", scope.ConversationID, "err", err)
		}})
	}
	m.wg.Go(m.expireParked)
	return nil
}

// Close stops accepting, lets running steps end until ctx ends, then stops
// them. What is unfinished stays in the journal and goes on at the next start.
func (m *Manager) Close(ctx context.Context) error {
	m.mu.Lock()
	m.closed = true
	for _, t := range m.leaving {
		t.Stop()
	}
	m.mu.Unlock()
	m.stopWake(ErrShutdown)
	done := make(chan struct{})
	go func() { m.wg.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
	}
	m.stopWork(ErrShutdown)
	<-done
	return nil
}

// A command is a letter to an actor: run is called in its goroutine, or fail if
// the actor could not start.
type command struct {
	run  func(*actor)
	fail func(error)
}

// post delivers a command, starting the actor where there is none.
func (m *Manager) post(scope agent.Scope, cmd command) {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		cmd.fail(errStopping())
		return
	}
	a := m.actors[scope.ConversationID]
	if a == nil || !a.box.put(cmd) {
		a = newActor(m, scope, m.cfg.Store)
		a.box.put(cmd)
		m.actors[scope.ConversationID] = a
		m.wg.Go(a.main)
	}
	m.mu.Unlock()
}

// live returns the actor of a conversation, nil if none is there.
func (m *Manager) live(conversationID string) *actor {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.actors[conversationID]
}

// Live is how many conversations are at work or have just been.
func (m *Manager) Live() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.actors)
}

func (m *Manager) forget(a *actor) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.actors[a.scope.ConversationID] == a {
		delete(m.actors, a.scope.ConversationID)
		delete(m.ephemerals, a.scope.ConversationID)
	}
}

func errStopping() error {
	return agent.Errorf(agent.CodeShutdown, "The server is stopping")
}

// ask runs f in the actor of scope and waits for its result.
func ask[T any](ctx context.Context, m *Manager, scope agent.Scope, f func(*actor) (T, error)) (T, error) {
	type result struct {
		v   T
		err error
	}
	ch := make(chan result, 1)
	m.post(scope, command{
		run: func(a *actor) {
			v, err := f(a)
			ch <- result{v, err}
		},
		fail: func(err error) { ch <- result{err: err} },
	})
	select {
	case r := <-ch:
		return r.v, r.err
	case <-ctx.Done():
		var zero T
		return zero, context.Cause(ctx)
	}
}

// Subscribe calls h for every event of scope, in order, in the publisher's
// goroutine: h must not block and must not call the Manager. Turns whose
// OnOrphan says so end when the last subscription of their scope is gone.
func (m *Manager) Subscribe(scope agent.Scope, h func(*agent.Event)) (leave func()) {
	return m.bus.Subscribe(scope, h)
}

// EventID is the stable id of event n: the same for everybody who sees it.
func (m *Manager) EventID(n uint64) string { return m.bus.EventID(n) }

// Changed publishes a change of any agent to those who watch all of them, in
// agent.Scope{}.
func (m *Manager) Changed(c agent.Changed) { m.Notify(agent.Scope{}, c) }

// Committed publishes a commit to an agent's memory.
func (m *Manager) Committed(agentID, commit string, paths []string) {
	m.Notify(agent.Scope{AgentID: agentID}, agent.MemoryChanged{Commit: commit, Paths: paths})
	m.Changed(agent.Changed{AgentID: agentID, Change: agent.ChangeCommitted, Commit: commit, Paths: paths})
}

// Notify publishes a payload into a scope on behalf of a door.
func (m *Manager) Notify(scope agent.Scope, p agent.Payload) {
	m.bus.Publish(&agent.Event{Scope: scope, At: time.Now(), Payload: p})
}
