package store

import (
	"context"
)

// LoadState is Load without the messages: what the state of a runtime that is
// at rest is made of. Context and LastSeq stay empty.
func (s *Store) LoadState(ctx context.Context, conversationID string) (*Snapshot, error) {
	snap := new(Snapshot)
	err := s.snapshot(ctx, func(r reader) error {
		return loadHead(ctx, r, conversationID, snap)
	})
	if err != nil {
		return nil, s.dialect.fault("load the state of conversation "+conversationID, err)
	}
	return snap, nil
}

// loadHead reads everything of a snapshot but its messages.
func loadHead(ctx context.Context, r reader, conversationID string, snap *Snapshot) (err error) {
	tenant := r.s.tenant
	if snap.Conversation, err = get(ctx, r, "Conversation", conversationID, scanConversation,
		sqlConversation, conversationID, tenant); err != nil {
		return err
	}
	if snap.Agent, err = get(ctx, r, "Agent", snap.Conversation.AgentID, scanAgent,
		sqlAgent, snap.Conversation.AgentID, tenant); err != nil {
		return err
	}
	if snap.Prompt, err = maybe(ctx, r, scanPrompt, sqlPrompt, conversationID, tenant); err != nil {
		return err
	}
	if err := loadTurn(ctx, r, snap); err != nil {
		return err
	}
	return r.each(ctx, appendTo(&snap.Queue, scanInput), sqlQueue, conversationID, tenant)
}

// LastEventSeq is the position of the newest entry in a run's log, 0 if it has
// none.
func (s *Store) LastEventSeq(ctx context.Context, runID string) (int64, error) {
	var seq int64
	_, err := s.pool().one(ctx, func(row scanner) error { return row.Scan(&seq) },
		`SELECT COALESCE(MAX(seq), 0) FROM run_events WHERE run_id = ? AND tenant = ?`, runID, s.tenant)
	return seq, s.dialect.fault("read the log of run "+runID, err)
}
