package server

import (
	"context"
	"slices"

	"mneme/internal/agent"
	"mneme/internal/store"
	"mneme/internal/tool"
)

// A finder lets tools search the stored messages.
type finder struct{ store *store.Store }

// FindMessages finds messages of all conversations of an agent, but none of the
// turn that asks: its question would be the best match of all.
func (f finder) FindMessages(ctx context.Context, scope agent.Scope, q tool.MessageQuery) ([]*agent.Message, error) {
	turn := ""
	state, err := f.store.LoadState(ctx, scope.ConversationID)
	switch {
	case agent.CodeOf(err) == agent.CodeNotFound: // a conversation that is not stored
	case err != nil:
		return nil, err
	case state.Turn != nil:
		turn = state.Turn.ID
	}
	const ofTurn = 50 // more than the messages of most turns
	hits, err := f.store.SearchMessages(ctx, store.SearchFilter{
		Query: q.Text, AgentID: scope.AgentID, Roles: q.Roles, From: q.From, To: q.To, Limit: q.Limit + ofTurn,
	})
	if err != nil {
		return nil, err
	}
	var found []*agent.Message
	for _, h := range hits {
		if turn == "" || h.Message.TurnID != turn {
			found = append(found, h.Message)
		}
	}
	return slices.Clip(found[:min(len(found), q.Limit)]), nil
}
