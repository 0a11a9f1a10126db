package store

import (
	"context"

	"mneme/internal/agent"
)

// The conditions `state <> 'ended'` and `state = 'queued'` are written out so that
// the partial indexes serve them.
var (
	sqlPrompt   = "SELECT " + promptColumns + " FROM prompts WHERE conversation_id = ? AND tenant = ?"
	sqlOpenTurn = "SELECT " + turnColumns + ` FROM turns WHERE conversation_id = ? AND state <> 'ended' AND tenant = ?`
	sqlLastTurn = "SELECT " + turnColumns + ` FROM turns WHERE conversation_id = ? AND tenant = ? ORDER BY ord DESC LIMIT 1`
	sqlLastRun  = "SELECT " + runColumns + ` FROM runs
		WHERE conversation_id = ? AND turn_id = ? AND tenant = ? ORDER BY ord DESC LIMIT 1`
	sqlTurnSteps = "SELECT " + stepColumns + ` FROM steps WHERE conversation_id = ? AND turn_id = ? AND tenant = ? ORDER BY n, id`
	sqlStepCalls = "SELECT " + callColumns + ` FROM tool_calls WHERE step_id = ? AND tenant = ? ORDER BY idx, id`
	sqlQueue     = "SELECT " + inputColumns + ` FROM inputs
		WHERE conversation_id = ? AND state = 'queued' AND tenant = ? ORDER BY ord`
	sqlInputByKey = "SELECT " + inputColumns + ` FROM inputs WHERE conversation_id = ? AND key = ? AND tenant = ?`
	sqlUnfinished = `SELECT agent_id, conversation_id FROM turns
			WHERE state <> 'ended' AND state = 'running' AND tenant = ?
		UNION SELECT agent_id, conversation_id FROM inputs
			WHERE state = 'queued' AND paused = 0 AND tenant = ? AND NOT EXISTS (SELECT 1 FROM turns
				WHERE turns.conversation_id = inputs.conversation_id AND turns.state <> 'ended')
		ORDER BY 1, 2`
	sqlParked = "SELECT " + turnColumns + ` FROM turns
		WHERE state <> 'ended' AND state = 'parked' AND tenant = ? ORDER BY started_ns, ord`
	sqlWaitingCalls = "SELECT " + callColumns + ` FROM tool_calls
		WHERE step_id IN (SELECT id FROM steps WHERE conversation_id = ? AND turn_id = ?)
		AND state = 'waiting' AND tenant = ? ORDER BY asked_ns, idx, id`
)

// Load reads what a runtime needs to go on with a conversation, all at one
// instant. It fails with CodeNotFound if there is no such conversation.
func (s *Store) Load(ctx context.Context, conversationID string) (*Snapshot, error) {
	snap := new(Snapshot)
	err := s.snapshot(ctx, func(r reader) error {
		if err := loadHead(ctx, r, conversationID, snap); err != nil {
			return err
		}
		if err := r.each(ctx, appendTo(&snap.Context, scanMessage), sqlContext, conversationID, s.tenant); err != nil {
			return err
		}
		_, err := r.one(ctx, func(row scanner) error { return row.Scan(&snap.LastSeq) }, sqlLastSeq, conversationID, s.tenant)
		return err
	})
	if err != nil {
		return nil, s.dialect.fault("load conversation "+conversationID, err)
	}
	return snap, nil
}

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

// loadTurn reads the open turn with its last run, its steps and the calls of the
// last step; where no turn is open, only the steps of the last one and their calls.
func loadTurn(ctx context.Context, r reader, snap *Snapshot) error {
	id, tenant := snap.Conversation.ID, r.s.tenant
	turn, err := maybe(ctx, r, scanTurn, sqlOpenTurn, id, tenant)
	if err != nil {
		return err
	}
	if snap.Turn = turn; turn != nil {
		if snap.Run, err = maybe(ctx, r, scanRun, sqlLastRun, id, turn.ID, tenant); err != nil {
			return err
		}
	} else if turn, err = maybe(ctx, r, scanTurn, sqlLastTurn, id, tenant); err != nil || turn == nil {
		return err
	}
	if err := r.each(ctx, appendTo(&snap.Steps, scanStep), sqlTurnSteps, id, turn.ID, tenant); err != nil {
		return err
	}
	if len(snap.Steps) == 0 {
		return nil
	}
	last := snap.Steps[len(snap.Steps)-1]
	return r.each(ctx, appendTo(&snap.Calls, scanCall), sqlStepCalls, last.ID, tenant)
}

// maybe reads the one row of a fixed query; nil if there is none.
func maybe[T any](ctx context.Context, r reader, scan func(scanner) (*T, error), query string, args ...any) (*T, error) {
	var v *T
	_, err := r.one(ctx, func(row scanner) (err error) {
		v, err = scan(row)
		return err
	}, query, args...)
	if err != nil {
		return nil, err
	}
	return v, nil
}

// Prompt returns the compiled prompt of a conversation; nil if there is none yet.
func (s *Store) Prompt(ctx context.Context, conversationID string) (*agent.Prompt, error) {
	p, err := maybe(ctx, s.pool(), scanPrompt, sqlPrompt, conversationID, s.tenant)
	return p, s.dialect.fault("read the prompt of "+conversationID, err)
}

// InputByKey returns the input of a conversation that was sent with the key,
// whatever became of it; nil if there is none.
func (s *Store) InputByKey(ctx context.Context, conversationID, key string) (*agent.Input, error) {
	if key == "" {
		return nil, nil
	}
	in, err := maybe(ctx, s.pool(), scanInput, sqlInputByKey, conversationID, clean(key), s.tenant)
	return in, s.dialect.fault("find an input of "+conversationID, err)
}

// Unfinished lists the conversations with work to take up at start: those with a
// running turn, and those with no turn and an input that waits unpaused. Parked
// turns are not among them.
func (s *Store) Unfinished(ctx context.Context) ([]agent.Scope, error) {
	var scopes []agent.Scope
	err := s.pool().each(ctx, func(r scanner) error {
		var sc agent.Scope
		err := r.Scan(&sc.AgentID, &sc.ConversationID)
		scopes = append(scopes, sc)
		return err
	}, sqlUnfinished, s.tenant, s.tenant)
	return scopes, s.dialect.fault("list unfinished work", err)
}

// A ParkedTurn is a turn that waits for people or clients.
type ParkedTurn struct {
	Turn  *agent.Turn
	Calls []*agent.ToolCall // that wait, in the order they were asked
}

// ParkedTurns lists all parked turns, oldest first.
func (s *Store) ParkedTurns(ctx context.Context) ([]ParkedTurn, error) {
	var parked []ParkedTurn
	err := s.snapshot(ctx, func(r reader) error {
		var turns []*agent.Turn
		if err := r.each(ctx, appendTo(&turns, scanTurn), sqlParked, s.tenant); err != nil {
			return err
		}
		for _, t := range turns {
			p := ParkedTurn{Turn: t}
			if err := r.each(ctx, appendTo(&p.Calls, scanCall), sqlWaitingCalls, t.ConversationID, t.ID, s.tenant); err != nil {
				return err
			}
			parked = append(parked, p)
		}
		return nil
	})
	return parked, s.dialect.fault("list parked turns", err)
}
