package roster_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mneme/internal/agent"
	"mneme/internal/llm/fake"
	"mneme/internal/memory"
	"mneme/internal/roster"
)

// vectorModel is a provider that makes vectors: as many numbers as the text has
// words.
type vectorModel struct {
	*fake.Model
	asked *[]string // the models' names
}

func (v vectorModel) Embed(_ context.Context, model string, texts []string) ([][]float32, error) {
	*v.asked = append(*v.asked, model)
	out := make([][]float32, len(texts))
	for i, text := range texts {
		out[i] = []float32{1, float32(len(strings.Fields(text)))}
	}
	return out, nil
}

func TestEmbedder(t *testing.T) {
	plain, d := setup(t)
	var asked []string
	r := roster.New(roster.Config{Store: d.store, Memory: d.memory, Runtime: d.runtime, Models: models{vectorModel{d.model, &asked}}})
	ctx := t.Context()
	named := &agent.Agent{ID: "agent-1", Extra: json.RawMessage(`{"embedding":"fake/own"}`)}
	other := &agent.Agent{ID: "agent-2", Extra: json.RawMessage(`{"embedding":null}`)}

	if e, name := r.Embedder(ctx, other, ""); e != nil || name != "" {
		t.Errorf("without a model: %v %q", e, name)
	}
	for ag, want := range map[*agent.Agent]string{named: "own", other: "default"} {
		e, name := r.Embedder(ctx, ag, "fake/default")
		vectors, err := e.Embed(ctx, []string{"one two", "three"})
		if err != nil || name != "fake/"+want || asked[len(asked)-1] != want {
			t.Errorf("%s: %v, %v", name, asked, err)
		}
		if diff := cmp.Diff([][]float32{{1, 2}, {1, 1}}, vectors); diff != "" {
			t.Error(diff)
		}
	}
	// What cannot be used says so when it is asked, and costs the search nothing.
	for what, c := range map[string]struct {
		r      *roster.Roster
		handle string
	}{"no such model": {r, "nowhere/x"}, "makes no vectors": {plain, "fake/one"}} {
		e, name := c.r.Embedder(ctx, other, c.handle)
		if _, err := e.Embed(ctx, []string{"x"}); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", c.handle, err)
		}
		if _, err := d.memory.Save(ctx, memory.Author{}, "agent-2", memory.Item{Text: "tea"}); err != nil {
			t.Fatal(err)
		}
		found, err := d.memory.Search(ctx, "agent-2", memory.Query{Text: "tea", Embedder: e, Model: name})
		if err != nil || found.Mode != memory.ModeLexical || len(found.Hits) != 1 || !strings.Contains(found.Warning, what) {
			t.Errorf("%s: %+v %v", c.handle, found, err)
		}
	}
}

// Who watches all agents hears what became of them, once each.
func TestChanges(t *testing.T) {
	r, d := setup(t)
	ctx := t.Context()
	var got []agent.Changed
	defer d.runtime.Subscribe(agent.Scope{}, func(ev *agent.Event) { got = append(got, ev.Payload.(agent.Changed)) })()
	ag := must(r.CreateAgent(ctx, roster.AgentSpec{Name: "Ada"}))(t)
	must(r.UpdateAgent(ctx, ag.ID, roster.AgentPatch{Name: ptr("Bo")}))(t)
	conv := must(r.CreateConversation(ctx, roster.ConversationSpec{AgentID: ag.ID}))(t)
	must(r.UpdateConversation(ctx, conv.ID, roster.ConversationPatch{Hidden: ptr(ptr(true))}))(t)
	fork := must(r.Fork(ctx, conv.ID, "", "", nil))(t)
	if err := r.DeleteConversation(ctx, fork.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := r.UpdateAgent(ctx, "nobody", roster.AgentPatch{Name: ptr("x")}); err == nil {
		t.Error("an unknown agent was changed")
	}
	if err := r.DeleteAgent(ctx, ag.ID); err != nil {
		t.Fatal(err)
	}
	want := []agent.Changed{
		{AgentID: ag.ID, Change: agent.ChangeCreated},
		{AgentID: ag.ID, Change: agent.ChangeUpdated},
		{AgentID: ag.ID, ConversationID: conv.ID, Change: agent.ChangeCreated},
		{AgentID: ag.ID, ConversationID: conv.ID, Change: agent.ChangeUpdated},
		{AgentID: ag.ID, ConversationID: fork.ID, Change: agent.ChangeCreated},
		{AgentID: ag.ID, ConversationID: fork.ID, Change: agent.ChangeDeleted},
		{AgentID: ag.ID, Change: agent.ChangeDeleted},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
