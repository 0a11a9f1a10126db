// Package roster is the only place where agents, conversations and blocks are
// made, changed, forked and deleted. Doors turn their requests into specs and
// patches and render what comes back.
//
// One change touches up to three places: rows in the store, an agent's memory
// repository, and actors that are at work. The order keeps each change whole:
//
//   - Create: the memory is committed first, under an id that nobody knows yet;
//     then one transaction makes the agent visible together with its own
//     conversation. A failure, or a crash in between, leaves no agent.
//   - Change: one read-modify-write transaction, then the live actors are told.
//   - Delete: the actors end (their turns are cancelled), then the rows go in one
//     transaction, then the repository. What a crash leaves is files that no row
//     names.
//
// A block is a row and, attached to an agent, a file of its memory: two views of one
// text (blocks.go). Files are compared with the rows by digests that the rows keep
// (blockindex.go); what is to be written to files is a row until it is done, so
// that Serve, which runs as long as the server, ends it after any crash
// (blocksync.go).
//
// Checks that every door shares are here; what one door words or defaults by
// itself (names, tags, the word "default") is the door's.
package roster

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"

	"mneme/internal/agent"
	"mneme/internal/llm"
	"mneme/internal/memory"
	"mneme/internal/runtime"
	"mneme/internal/store"
)

// Models describes models by their handles; *llm.Catalogue does.
type Models interface {
	Resolve(ctx context.Context, handle string) (llm.Model, llm.Info, error)
}

// Prompts compiles system prompts; *prompt.Builder does.
type Prompts interface {
	Compile(ctx context.Context, ag *agent.Agent, conv *agent.Conversation, count int) (agent.Prompt, error)
}

// Config is what a Roster works on. All fields but Logger are required.
type Config struct {
	Store   *store.Store
	Memory  *memory.Memory
	Runtime *runtime.Manager
	Prompts Prompts
	Models  Models
	Logger  *slog.Logger // nil = silent
}

// A Roster changes agents and conversations. It is safe for concurrent use.
type Roster struct {
	store   *store.Store
	memory  *memory.Memory
	runtime *runtime.Manager
	prompts Prompts
	models  Models
	log     *slog.Logger

	cores  keyLock       // by agent: who works on its blocks and their files
	wake   chan struct{} // there may be something for Serve
	seenMu sync.Mutex    // guards what follows
	seen   map[string]string
	dirty  map[string]bool // agents whose memory may have moved
}

// New makes a Roster.
func New(cfg Config) *Roster {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Roster{
		store: cfg.Store, memory: cfg.Memory, runtime: cfg.Runtime,
		prompts: cfg.Prompts, models: cfg.Models, log: cfg.Logger,
		wake: make(chan struct{}, 1), seen: map[string]string{}, dirty: map[string]bool{},
	}
}

func agentNotFound(id string) error {
	return agent.Errorf(agent.CodeNotFound, "Agent %s not found", id)
}

func conversationNotFound(id string) error {
	return agent.Errorf(agent.CodeNotFound, "Conversation %s not found", id)
}

// Agent finds an agent by its id or by the id it was imported under.
func (r *Roster) Agent(ctx context.Context, id string) (*agent.Agent, error) {
	ag, err := r.store.Agent(ctx, id)
	if agent.CodeOf(err) == agent.CodeNotFound {
		return nil, agentNotFound(id)
	}
	return ag, err
}

// Conversation finds a conversation by its stored id, or by the id it was
// imported under. The word "default" names none without an agent: see Resolve.
func (r *Roster) Conversation(ctx context.Context, id string) (*agent.Conversation, error) {
	conv, err := r.store.Conversation(ctx, id)
	if agent.CodeOf(err) == agent.CodeNotFound {
		return nil, conversationNotFound(id)
	}
	return conv, err
}

// Resolve maps the ids of a runtime as clients write them to rows: "default" is
// the agent's own conversation. The texts are those of
// spec/app-server-core.md section 3.2.
func (r *Roster) Resolve(ctx context.Context, agentID, conversationID string) (*agent.Agent, *agent.Conversation, error) {
	if agentID == "" && conversationID == agent.DefaultConversation {
		return nil, nil, agent.Invalid("agent_id", "Agent-free runtimes require a persisted conversation")
	}
	var ag *agent.Agent
	var err error
	if agentID != "" {
		if ag, err = r.Agent(ctx, agentID); err != nil {
			return nil, nil, err
		}
		if conversationID == agent.DefaultConversation {
			conv, err := r.store.OwnConversation(ctx, ag.ID)
			return ag, conv, err
		}
	}
	conv, err := r.Conversation(ctx, conversationID)
	if err != nil {
		return ag, nil, err
	}
	if ag == nil {
		return nil, nil, agent.Invalid("agent_id", "Conversation %s is agent-backed; provide agent_id", conversationID)
	}
	if conv.AgentID != ag.ID {
		return ag, nil, agent.Invalid("conversation_id", "Conversation %s belongs to %s, not %s", conversationID, conv.AgentID, agentID)
	}
	return ag, conv, nil
}

// modelDefaults are the settings that come with a model
// (spec/app-server-commands.md section 2.2). The window and the output limit are
// not among them: they are looked up when they are needed, so that they follow
// the provider. A model that nobody knows has no defaults.
func (r *Roster) modelDefaults(ctx context.Context, handle string) map[string]json.RawMessage {
	_, info, err := r.models.Resolve(ctx, handle)
	if err != nil {
		return map[string]json.RawMessage{keyParallel: json.RawMessage("true")}
	}
	kind, err := json.Marshal(info.ProviderType)
	if err != nil {
		return nil
	}
	return map[string]json.RawMessage{keyProvider: kind, keyParallel: json.RawMessage("true")}
}

// undo joins the error of an action with that of taking it back.
func undo(err error, back func() error) error {
	if berr := back(); berr != nil {
		return errors.Join(err, berr)
	}
	return err
}
