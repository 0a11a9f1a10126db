package runtime

import (
	"context"

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
