package runtime

import (
	"context"
	"time"

	"mneme/internal/agent"
	"mneme/internal/store"
)

// A Journal is where an actor keeps its conversation: *store.Store, or memory
// for turns that leave nothing behind.
type Journal interface {
	Acquire(ctx context.Context, conversationID string) (store.Lease, error)
	Release(ctx context.Context, l store.Lease) error
	Load(ctx context.Context, conversationID string) (*store.Snapshot, error)
	InputByKey(ctx context.Context, conversationID, key string) (*agent.Input, error)
	Commit(ctx context.Context, l store.Lease, c *store.Change) error
}

// ephemeral is the Journal of a conversation that exists only while it is
// watched: nothing of it is ever stored.
type ephemeral struct {
	agent *agent.Agent
	conv  *agent.Conversation
}

func newEphemeral(ag *agent.Agent) *ephemeral {
	now := time.Now()
	return &ephemeral{agent: ag, conv: &agent.Conversation{
		ID: agent.NewID("conv"), AgentID: ag.ID, CreatedAt: now, UpdatedAt: now,
	}}
}

func (e *ephemeral) Acquire(_ context.Context, id string) (store.Lease, error) {
	return store.Lease{ConversationID: id}, nil
}

func (e *ephemeral) Release(context.Context, store.Lease) error { return nil }

func (e *ephemeral) Load(context.Context, string) (*store.Snapshot, error) {
	return &store.Snapshot{Agent: e.agent, Conversation: e.conv}, nil
}

func (e *ephemeral) InputByKey(context.Context, string, string) (*agent.Input, error) {
	return nil, nil
}

func (e *ephemeral) Commit(context.Context, store.Lease, *store.Change) error { return nil }
