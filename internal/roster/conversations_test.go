package roster_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mneme/internal/agent"
	"mneme/internal/llm/fake"
	"mneme/internal/roster"
	"mneme/internal/store"
)

func TestResolve(t *testing.T) {
	r, d := setup(t)
	ctx := t.Context()
	a := must(r.CreateAgent(ctx, roster.AgentSpec{}))(t)
	b := must(r.CreateAgent(ctx, roster.AgentSpec{ForeignID: "agent-local-1"}))(t)
	conv := must(r.CreateConversation(ctx, roster.ConversationSpec{AgentID: a.ID, ForeignID: "local-conv-7"}))(t)
	own := must(d.store.OwnConversation(ctx, a.ID))(t)

	for _, c := range []struct {
		agent, conv, want string
	}{
		{a.ID, conv.ID, conv.ID},
		{a.ID, "local-conv-7", conv.ID},
		{a.ID, "default", own.ID},
		{a.ID, own.ID, own.ID},
	} {
		ag, got, err := r.Resolve(ctx, c.agent, c.conv)
		if err != nil || got.ID != c.want || ag.ID != a.ID {
			t.Errorf("%s, %s: %v, %v", c.agent, c.conv, got, err)
		}
	}
	if ag, _, err := r.Resolve(ctx, "agent-local-1", "default"); err != nil || ag.ID != b.ID {
		t.Errorf("imported agent: %v, %v", ag, err)
	}
	for _, c := range []struct {
		agent, conv string
		code        agent.Code
		want        string
		found       bool // the agent comes with the error
	}{
		{"agent-x", "default", agent.CodeNotFound, "Agent agent-x not found", false},
		{"agent-x", conv.ID, agent.CodeNotFound, "Agent agent-x not found", false},
		{a.ID, "conv-x", agent.CodeNotFound, "Conversation conv-x not found", true},
		{"", "conv-x", agent.CodeNotFound, "Conversation conv-x not found", false},
		{b.ID, conv.ID, agent.CodeInvalid, "Conversation " + conv.ID + " belongs to " + a.ID + ", not " + b.ID, true},
		{"", conv.ID, agent.CodeInvalid, "Conversation " + conv.ID + " is agent-backed; provide agent_id", false},
		{"", "default", agent.CodeInvalid, "Agent-free runtimes require a persisted conversation", false},
	} {
		ag, _, err := r.Resolve(ctx, c.agent, c.conv)
		fails(t, err, c.code, c.want)
		if (ag != nil) != c.found {
			t.Errorf("%q, %q: agent %v", c.agent, c.conv, ag)
		}
	}
}

func TestConversationLife(t *testing.T) {
	r, d := setup(t)
	ctx := t.Context()
	ag := must(r.CreateAgent(ctx, roster.AgentSpec{}))(t)
	conv := must(r.CreateConversation(ctx, roster.ConversationSpec{
		AgentID: ag.ID, Summary: ptr("talk"), Model: ptr("fake/two"), ModelSettings: json.RawMessage(`{"temperature":1,"context_window_limit":5}`),
		MaxTokens: 3, Tags: []string{"x"}, Hidden: ptr(false),
	}))(t)
	if diff := cmp.Diff(conv, must(d.store.Conversation(ctx, conv.ID))(t)); diff != "" {
		t.Errorf("stored conversation differs: %s", diff)
	}
	want := map[string]any{"temperature": 1.0, "max_tokens": 3.0, "parallel_tool_calls": true, "provider_type": "fake_type"}
	if diff := cmp.Diff(want, settingsOf(t, conv.ModelSettings)); diff != "" || conv.ContextLimit != 5 {
		t.Errorf("settings, limit %d: %s", conv.ContextLimit, diff)
	}
	plain := must(r.CreateConversation(ctx, roster.ConversationSpec{AgentID: ag.ID}))(t)
	if plain.Model != nil || plain.ModelSettings != nil {
		t.Errorf("%+v", plain)
	}

	archived := must(r.UpdateConversation(ctx, conv.ID, roster.ConversationPatch{Archived: ptr(true), Summary: ptr(ptr("renamed"))}))(t)
	if archived.ArchivedAt.IsZero() || *archived.Summary != "renamed" || !archived.UpdatedAt.After(conv.UpdatedAt) {
		t.Errorf("%+v", archived)
	}
	again := must(r.UpdateConversation(ctx, conv.ID, roster.ConversationPatch{Archived: ptr(true)}))(t)
	if !again.ArchivedAt.Equal(archived.ArchivedAt) {
		t.Error("archiving again changed the time")
	}
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	open := must(r.UpdateConversation(ctx, conv.ID, roster.ConversationPatch{
		Archived: ptr(false), Summary: ptr[*string](nil), Model: ptr[*string](nil), ModelSettings: ptr(json.RawMessage("null")),
		LastMessageAt: &at, ContextLimit: ptr(0), Hidden: ptr[*bool](nil), Tags: &[]string{"y"},
	}))(t)
	if !open.ArchivedAt.IsZero() || open.Summary != nil || open.Model != nil || open.ModelSettings != nil || !open.LastMessageAt.Equal(at) ||
		open.ContextLimit != 0 || open.Hidden != nil || !cmp.Equal(open.Tags, []string{"y"}) {
		t.Errorf("%+v", open)
	}

	own := must(d.store.OwnConversation(ctx, ag.ID))(t)
	for _, id := range []string{"default", own.ID} {
		_, err := r.UpdateConversation(ctx, id, roster.ConversationPatch{})
		fails(t, err, agent.CodeInvalid, "Default conversation cannot be updated")
	}
	_, err := r.UpdateConversation(ctx, "conv-x", roster.ConversationPatch{})
	fails(t, err, agent.CodeNotFound, "Conversation conv-x not found")
	_, err = r.CreateConversation(ctx, roster.ConversationSpec{AgentID: "agent-x"})
	fails(t, err, agent.CodeNotFound, "Agent agent-x not found")
	_, err = r.CreateConversation(ctx, roster.ConversationSpec{AgentID: ag.ID, ModelSettings: json.RawMessage("[]")})
	fails(t, err, agent.CodeInvalid, "model_settings must be an object")

	if err := r.DeleteConversation(ctx, conv.ID); err != nil {
		t.Error(err)
	}
	fails(t, r.DeleteConversation(ctx, conv.ID), agent.CodeNotFound, "Conversation "+conv.ID+" not found")
	fails(t, r.DeleteConversation(ctx, own.ID), agent.CodeInvalid, "Default conversation cannot be deleted")
}

func TestSetModel(t *testing.T) {
	r, d := setup(t)
	ctx := t.Context()
	ag := must(r.CreateAgent(ctx, roster.AgentSpec{Model: "fake/one"}))(t)
	conv := must(r.CreateConversation(ctx, roster.ConversationSpec{AgentID: ag.ID, ContextLimit: 5}))(t)
	own := must(d.store.OwnConversation(ctx, ag.ID))(t)

	to, err := r.SetModel(ctx, agent.Scope{AgentID: ag.ID, ConversationID: conv.ID}, "fake/two", json.RawMessage(`{"reasoning_effort":"low"}`))
	if to != "conversation" || err != nil {
		t.Fatalf("%s, %v", to, err)
	}
	conv = must(r.Conversation(ctx, conv.ID))(t)
	want := map[string]any{"reasoning_effort": "low", "parallel_tool_calls": true, "provider_type": "fake_type"}
	if diff := cmp.Diff(want, settingsOf(t, conv.ModelSettings)); diff != "" || *conv.Model != "fake/two" || conv.ContextLimit != 0 {
		t.Errorf("%+v: %s", conv, diff)
	}
	if ag := must(r.Agent(ctx, ag.ID))(t); ag.Model != "fake/one" {
		t.Errorf("the agent has %s", ag.Model)
	}
	to, err = r.SetModel(ctx, agent.Scope{AgentID: ag.ID, ConversationID: own.ID}, "nobody/none", nil)
	if to != "agent" || err != nil {
		t.Fatalf("%s, %v", to, err)
	}
	if ag := must(r.Agent(ctx, ag.ID))(t); ag.Model != "nobody/none" {
		t.Errorf("the agent has %s", ag.Model)
	}
}

func TestRecompile(t *testing.T) {
	r, d := setup(t)
	ctx := t.Context()
	ag := must(r.CreateAgent(ctx, roster.AgentSpec{System: "Hi."}))(t)
	conv := must(r.CreateConversation(ctx, roster.ConversationSpec{AgentID: ag.ID}))(t)
	if text, err := r.Recompile(ctx, conv.ID, true); err != nil || !strings.HasPrefix(text, "Hi.\n\n") {
		t.Errorf("%q, %v", text, err)
	}
	if p := must(d.store.Prompt(ctx, conv.ID))(t); p != nil {
		t.Error("a dry run stored the prompt")
	}
	if _, err := r.Recompile(ctx, conv.ID, false); err != nil {
		t.Fatal(err)
	}
	if p := must(d.store.Prompt(ctx, conv.ID))(t); p == nil || !strings.HasPrefix(p.Text, "Hi.\n\n") || p.RawHash == "" {
		t.Errorf("stored %+v", p)
	}
	reached, open := make(chan struct{}), make(chan struct{})
	d.model.Add(fake.Answer{fake.Signal(reached), fake.Gate(open), fake.Text("ok")})
	if _, err := d.runtime.Submit(ctx, input(agent.Scope{AgentID: ag.ID, ConversationID: conv.ID}, "x"), nil); err != nil {
		t.Fatal(err)
	}
	<-reached
	if _, err := r.Recompile(ctx, conv.ID, false); agent.CodeOf(err) != agent.CodeBusy {
		t.Errorf("while a turn runs: %v", err)
	}
	close(open)
	_, err := r.Recompile(ctx, "conv-x", true)
	fails(t, err, agent.CodeNotFound, "Conversation conv-x not found")
}

// history stores messages of a conversation as a turn does.
func history(t *testing.T, d *deps, conv *agent.Conversation, messages ...*agent.Message) {
	t.Helper()
	lease := must(d.store.Acquire(t.Context(), conv.ID))(t)
	for i, m := range messages {
		m.AgentID, m.ConversationID, m.Seq = conv.AgentID, conv.ID, int64(i+1)
		m.CreatedAt = time.Date(2026, 1, 1, 0, 0, i, 0, time.UTC)
	}
	if err := d.store.Commit(t.Context(), lease, &store.Change{Messages: messages}); err != nil {
		t.Fatal(err)
	}
	if err := d.store.Release(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
}

func message(role agent.Role, parts ...agent.Part) *agent.Message {
	return &agent.Message{ID: agent.NewID("message"), Role: role, Parts: parts}
}

// show is what a history says, one word per part.
func show(messages []*agent.Message) string {
	var out []string
	for _, m := range messages {
		for _, p := range m.Parts {
			word := p.Text
			if p.Kind == agent.PartToolCall {
				word = "call " + p.Call.ID
			}
			if m.Interrupted {
				word += "(cut)"
			}
			out = append(out, word)
		}
	}
	return strings.Join(out, ", ")
}

func TestFork(t *testing.T) {
	r, d := setup(t)
	ctx := t.Context()
	ag := must(r.CreateAgent(ctx, roster.AgentSpec{}))(t)
	other := must(r.CreateAgent(ctx, roster.AgentSpec{}))(t)
	conv := must(r.CreateConversation(ctx, roster.ConversationSpec{AgentID: ag.ID, Summary: ptr("s"), Model: ptr("fake/two"), Tags: []string{"t"}, ContextLimit: 9}))(t)
	call := func(id string) agent.Part {
		return agent.Part{Kind: agent.PartToolCall, Call: &agent.CallPart{ID: id, Name: "Bash", Arguments: "{}"}}
	}
	user := message(agent.RoleUser, agent.Text("one"))
	user.ClientKey = "cm-1"
	think := agent.Part{Kind: agent.PartReasoning, Text: "hm"}
	answer := message(agent.RoleAssistant, think, agent.Text("first"), call("c1"), call("c2"), agent.Text("last"))
	result := func(id string) *agent.Message {
		m := message(agent.RoleTool, agent.Text("result "+id))
		m.CallID, m.Status = id, agent.StatusSuccess
		return m
	}
	r1, r2 := result("c1"), result("c2")
	end := message(agent.RoleAssistant, agent.Text("done"))
	history(t, d, conv, user, answer, r1, r2, end)

	for upTo, want := range map[string]string{
		"":                         "one, hm, first, call c1, call c2, last, result c1, result c2, done",
		end.ID:                     "one, hm, first, call c1, call c2, last, result c1, result c2, done",
		user.ID:                    "one",
		answer.ID:                  "one, hm, first",
		answer.ID + ":reasoning:0": "one, hm",
		answer.ID + ":tool:c1":     "one, hm(cut), first(cut), call c1(cut)",
		answer.ID + ":assistant:4": "one, hm(cut), first(cut), call c1(cut), call c2(cut), last(cut)",
		r2.ID:                      "one, hm, first, call c1, call c2, last, result c1, result c2",
	} {
		fork, err := r.Fork(ctx, conv.ID, upTo, "", nil)
		if err != nil {
			t.Errorf("up to %s: %v", upTo, err)
			continue
		}
		copies := must(d.store.Messages(ctx, store.MessageFilter{ConversationID: fork.ID}))(t)
		if got := show(copies); got != want {
			t.Errorf("up to %s:\n got %s\nwant %s", upTo, got, want)
		}
		if copies[0].ID == user.ID || !copies[0].CreatedAt.Equal(user.CreatedAt) || copies[0].ClientKey != "cm-1" {
			t.Errorf("copy %+v", copies[0])
		}
		if *fork.Summary != "s" || *fork.Model != "fake/two" || fork.Tags != nil || fork.ContextLimit != 0 || !fork.LastMessageAt.IsZero() {
			t.Errorf("fork %+v", fork)
		}
	}
	if got := show(must(d.store.Messages(ctx, store.MessageFilter{ConversationID: conv.ID}))(t)); !strings.HasSuffix(got, "done") || strings.Contains(got, "(cut)") {
		t.Errorf("the original has changed: %s", got)
	}
	fork := must(r.Fork(ctx, conv.ID, "", other.ID, ptr(true)))(t)
	if fork.AgentID != other.ID || !*fork.Hidden {
		t.Errorf("moved fork %+v", fork)
	}
	for _, id := range []string{"message-x", answer.ID + ":assistant:0", answer.ID + ":tool:c9", answer.ID + ":x", user.ID + ":assistant:0"} {
		_, err := r.Fork(ctx, conv.ID, id, "", nil)
		fails(t, err, agent.CodeNotFound, "Message "+id+" not found")
	}
	_, err := r.Fork(ctx, "conv-x", "", "", nil)
	fails(t, err, agent.CodeNotFound, "Conversation conv-x not found")
	_, err = r.Fork(ctx, conv.ID, "", "agent-x", nil)
	fails(t, err, agent.CodeNotFound, "Agent agent-x not found")
}
