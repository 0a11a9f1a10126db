package server

import (
	"testing"
	"time"

	"mneme/internal/agent"
	"mneme/internal/store"
	"mneme/internal/tool"
)

// TestFinder: a turn that asks does not find its own question.
func TestFinder(t *testing.T) {
	ctx := t.Context()
	st, err := store.Open(ctx, ":memory:", store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	now := time.Now()
	ag := &agent.Agent{ID: agent.NewID("agent"), Name: "Ada", Model: "auto", CreatedAt: now, UpdatedAt: now}
	own := &agent.Conversation{ID: agent.NewID("conv"), AgentID: ag.ID, Own: true, CreatedAt: now, UpdatedAt: now}
	if err := st.CreateAgent(ctx, ag, own); err != nil {
		t.Fatal(err)
	}
	lease, err := st.Acquire(ctx, own.ID)
	if err != nil {
		t.Fatal(err)
	}
	turns := []*agent.Turn{}
	messages := []*agent.Message{}
	for i, text := range []string{"My dog is called Rex", "What is my dog called?"} {
		state := []agent.TurnState{agent.TurnEnded, agent.TurnRunning}[i]
		turn := &agent.Turn{ID: agent.NewID("turn"), AgentID: ag.ID, ConversationID: own.ID, State: state, StartedAt: now}
		turns = append(turns, turn)
		messages = append(messages, &agent.Message{ID: agent.NewID("message"), AgentID: ag.ID, ConversationID: own.ID, Seq: int64(i + 1),
			Role: agent.RoleUser, Parts: []agent.Part{agent.Text(text)}, TurnID: turn.ID, CreatedAt: now})
	}
	if err := st.Commit(ctx, lease, &store.Change{Turns: turns, Messages: messages}); err != nil {
		t.Fatal(err)
	}
	find := func(scope agent.Scope) int {
		t.Helper()
		found, err := finder{st}.FindMessages(ctx, scope, tool.MessageQuery{Text: "what is my dog called", Limit: 5})
		if err != nil {
			t.Fatal(err)
		}
		if len(found) == 1 && found[0].ID != messages[0].ID {
			t.Errorf("found %v", found[0])
		}
		return len(found)
	}
	if n := find(agent.Scope{AgentID: ag.ID, ConversationID: own.ID}); n != 1 {
		t.Errorf("the turn finds %d messages", n)
	}
	if n := find(agent.Scope{AgentID: ag.ID, ConversationID: "conv-not-stored"}); n != 2 {
		t.Errorf("elsewhere %d messages are found", n)
	}
	if n := find(agent.Scope{AgentID: "agent-none", ConversationID: own.ID}); n != 0 {
		t.Errorf("another agent finds %d messages", n)
	}
}
