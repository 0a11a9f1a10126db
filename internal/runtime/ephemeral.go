package runtime

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"sync"
	"time"

	"mneme/internal/agent"
	"mneme/internal/store"
	"mneme/internal/tool"
)

// maxEphemeral bounds the ephemeral runtimes of a process: each holds a
// goroutine, a directory and its whole history in memory.
const maxEphemeral = 1000

// Memory writes the files of a commit out for those who must not see another;
// *memory.Memory does.
type Memory interface {
	Export(ctx context.Context, agentID, commit, dir string) error
}

// ephemeral is the Journal of a conversation that exists only while it is
// watched: nothing of it is ever stored. It also holds what such a conversation
// sees instead of the agent's memory: the prompt and the files of one commit.
type ephemeral struct {
	agent  *agent.Agent
	conv   *agent.Conversation
	prompt *agent.Prompt
	memory Memory // nil = there are no files
	dir    string // for the files; private, empty until they are needed

	export  sync.Once
	keys    map[string]*agent.Input // taken inputs with a key; the actor's
	blocked int                     // calls of the turn that would have written; the actor's
}

// newEphemeral compiles the memory of the newest commit and stays with it.
func (m *Manager) newEphemeral(ctx context.Context, agentID string) (*ephemeral, error) {
	ag, err := m.cfg.Store.Agent(ctx, agentID)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	e := &ephemeral{agent: ag, memory: m.cfg.Memory, keys: map[string]*agent.Input{}, conv: &agent.Conversation{
		ID: agent.NewID("conv"), AgentID: ag.ID, CreatedAt: now, UpdatedAt: now,
	}}
	p, err := m.cfg.Prompts.Compile(ctx, ag, e.conv, 0)
	if err != nil {
		return nil, err
	}
	p.ConversationID, p.RawHash = e.conv.ID, hashOf(ag.System)
	p.Text += "\n\n" + noteEphemeral
	e.prompt = &p
	if e.dir, err = os.MkdirTemp("", m.cfg.SnapshotPrefix); err != nil {
		return nil, fmt.Errorf("make a directory for the memory: %w", err)
	}
	return e, nil
}

// snapshotPrefix begins the names of temporary directories where Config does not
// say.
const snapshotPrefix = "mneme-memory-"

// noteEphemeral ends the system prompt, so that the model does not try in vain.
const noteEphemeral = "<system-reminder>This conversation leaves nothing behind. You can read your memory and the files of the working directory, but not change anything.</system-reminder>"

func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

func (e *ephemeral) Acquire(_ context.Context, id string) (store.Lease, error) {
	return store.Lease{ConversationID: id}, nil
}

// Release ends the conversation for good.
func (e *ephemeral) Release(context.Context, store.Lease) error {
	if err := os.RemoveAll(e.dir); err != nil {
		return fmt.Errorf("remove the memory's directory: %w", err)
	}
	return nil
}

func (e *ephemeral) Load(context.Context, string) (*store.Snapshot, error) {
	return &store.Snapshot{Agent: e.agent, Conversation: e.conv, Prompt: e.prompt}, nil
}

func (e *ephemeral) InputByKey(_ context.Context, _, key string) (*agent.Input, error) {
	return e.keys[key], nil
}

func (e *ephemeral) Commit(_ context.Context, _ store.Lease, c *store.Change) error {
	for _, in := range c.Inputs {
		if in.Key != "" {
			known := *in
			known.Messages = nil // its digest says enough
			e.keys[in.Key] = &known
		}
	}
	return nil
}

// write puts the files in place, before the first tool runs.
func (e *ephemeral) write(ctx context.Context) (err error) {
	e.export.Do(func() {
		if e.memory != nil && e.prompt.Revision != "" {
			err = e.memory.Export(ctx, e.agent.ID, e.prompt.Revision, e.dir)
		}
	})
	return err
}

// OpenEphemeral makes a runtime that leaves nothing behind: its conversation
// exists in memory, its tools only read, the agent's memory stays as it is now,
// and it is gone with its last watcher, after the grace; without one too.
func (m *Manager) OpenEphemeral(ctx context.Context, agentID string) (agent.Scope, error) {
	e, err := m.newEphemeral(ctx, agentID)
	if err != nil {
		return agent.Scope{}, err
	}
	scope := agent.Scope{AgentID: e.agent.ID, ConversationID: e.conv.ID}
	if err := m.startEphemeral(scope, e); err != nil {
		os.Remove(e.dir)
		return agent.Scope{}, err
	}
	m.presence(scope, 0)
	_, err = ask(ctx, m, scope, func(*actor) (struct{}, error) { return struct{}{}, nil }) // it has come up
	return scope, err
}

func (m *Manager) startEphemeral(scope agent.Scope, e *ephemeral) error {
	a := newActor(m, scope, e)
	a.eph = e
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.closed:
		return errStopping()
	case len(m.ephemerals) >= maxEphemeral:
		return agent.Errorf(agent.CodeQueueFull, "There are too many ephemeral runtimes; try again later")
	}
	m.actors[scope.ConversationID] = a
	m.ephemerals[scope.ConversationID] = e
	m.wg.Go(a.main)
	return nil
}

// An Ephemeral runtime, as it was opened.
type Ephemeral struct {
	Agent        *agent.Agent
	Conversation *agent.Conversation
	Commit       string // of the memory that it sees; "" = nothing was written yet
}

// Ephemeral finds an ephemeral runtime that is still there. The rows are
// copies: such a runtime has no others.
func (m *Manager) Ephemeral(conversationID string) (Ephemeral, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.ephemerals[conversationID]
	if e == nil {
		return Ephemeral{}, false
	}
	ag, conv := *e.agent, *e.conv
	return Ephemeral{Agent: &ag, Conversation: &conv, Commit: e.prompt.Revision}, true
}

// vanish ends an ephemeral conversation that nobody watches any more.
func (a *actor) vanish() {
	a.queue = nil
	if a.turn != nil {
		a.abort(false, func() {})
	}
	a.die(agent.Errorf(agent.CodeNotFound, "Conversation %s not found", a.conv.WireID()))
}

// readers are the tools of an ephemeral conversation, whatever its toolset.
func (m *Manager) readers() []*tool.Tool {
	return m.cfg.Tools.Attached([]string{"Read", "Glob", "Grep"})
}

// lock says why an ephemeral conversation does not run a call that others could:
// it would write. "" if that is not so.
func (a *actor) lock(t *tool.Tool, name string) string {
	if a.eph == nil || t != nil {
		return ""
	}
	known := len(a.m.cfg.Tools.Attached([]string{name})) > 0 ||
		tool.Find(a.m.externals.visible(a.scope, a.turn.Origin, a.turn.Options.ExternalScopes), name) != nil
	if !known {
		return ""
	}
	a.eph.blocked++
	return "storage_locked: this conversation can only read, so " + name + " was not run and nothing was changed. Go on without it."
}

// ephemeralEnd is what the end of a turn tells of an ephemeral conversation.
func (a *actor) ephemeralEnd() *agent.EphemeralEnd {
	if a.eph == nil {
		return nil
	}
	end := &agent.EphemeralEnd{WritesBlocked: a.eph.blocked}
	rev, err := a.m.cfg.Prompts.Revision(a.agent.ID)
	if err != nil {
		a.m.log.Warn("memory commit not read", "agent", a.agent.ID, "err", err)
	}
	end.MemoryCommit = rev
	return end
}
