package roster_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"mneme/internal/agent"
	"mneme/internal/llm"
	"mneme/internal/llm/fake"
	"mneme/internal/memory"
	"mneme/internal/prompt"
	"mneme/internal/roster"
	"mneme/internal/runtime"
	"mneme/internal/store"
	"mneme/internal/tool"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// models knows the handles of one provider.
type models struct{ model llm.Model }

func (m models) Resolve(_ context.Context, handle string) (llm.Model, llm.Info, error) {
	name, ok := strings.CutPrefix(handle, "fake/")
	if !ok && handle != roster.Auto {
		return nil, llm.Info{}, errors.New("no such model")
	}
	return m.model, llm.Info{Handle: "fake/" + name, Name: name, ProviderType: "fake_type", Context: 64000}, nil
}

// deps are what the roster under test works on.
type deps struct {
	store   *store.Store
	memory  *memory.Memory
	runtime *runtime.Manager
	model   *fake.Model
	dir     string // of memory
}

func setup(t *testing.T) (*roster.Roster, *deps) {
	t.Helper()
	ctx := context.Background()
	st, err := store.Open(ctx, filepath.Join(t.TempDir(), "mneme.db"), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	d := &deps{store: st, dir: t.TempDir(), model: fake.New()}
	d.memory = memory.New(d.dir, memory.Options{})
	texts := &prompt.Builder{Memory: d.memory}
	d.runtime = runtime.New(runtime.Config{
		Store: st, Models: models{d.model}, Prompts: texts, Tools: tool.NewBox(), BootDir: t.TempDir(),
	})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
		defer cancel()
		d.runtime.Close(ctx)
		d.memory.Close()
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	return roster.New(roster.Config{
		Store: st, Memory: d.memory, Runtime: d.runtime, Prompts: texts, Models: models{d.model},
	}), d
}

func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// fails checks an error's code and text.
func fails(t *testing.T, err error, code agent.Code, text string) {
	t.Helper()
	if agent.CodeOf(err) != code || err == nil || err.Error() != text {
		t.Errorf("got %q (%s), want %q (%s)", err, agent.CodeOf(err), text, code)
	}
}

func ptr[T any](v T) *T { return &v }

func settingsOf(t *testing.T, raw json.RawMessage) map[string]any {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal(raw, &m); err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	return m
}

func TestCreateAgent(t *testing.T) {
	r, d := setup(t)
	ctx := t.Context()
	ag := must(r.CreateAgent(ctx, roster.AgentSpec{
		Name: "Ada", Description: ptr("first"), System: "Be brief.", Model: "fake/one",
		ModelSettings: map[string]json.RawMessage{"temperature": json.RawMessage("0.5"), "context_window_limit": json.RawMessage("9000")},
		MaxTokens:     500, Tags: []string{"b", " a ", "b", ""}, Hidden: ptr(true), Compaction: json.RawMessage(`{"mode":"all"}`),
		Blocks: []roster.BlockSpec{{Label: "human", Value: "Name: Bo"}, {Label: "system/deep/persona.md", Value: "I am Ada.", Description: ptr("me"), ReadOnly: true}},
	}))(t)
	stored := must(d.store.Agent(ctx, ag.ID))(t)
	if diff := cmp.Diff(ag, stored); diff != "" {
		t.Errorf("stored agent differs: %s", diff)
	}
	if ag.Toolset != "auto" || ag.ContextLimit != 9000 || !cmp.Equal(ag.Tags, []string{"b", "a"}) {
		t.Errorf("%+v", ag)
	}
	want := map[string]any{"temperature": 0.5, "max_tokens": 500.0, "parallel_tool_calls": true, "provider_type": "fake_type"}
	if diff := cmp.Diff(want, settingsOf(t, ag.ModelSettings)); diff != "" {
		t.Errorf("settings: %s", diff)
	}
	own := must(d.store.OwnConversation(ctx, ag.ID))(t)
	if !own.Own || own.AgentID != ag.ID {
		t.Errorf("own conversation %+v", own)
	}
	snap := must(d.memory.Snapshot(ctx, ag.ID, ""))(t)
	got := map[string]string{}
	for _, f := range snap.Files {
		got[f.Path] = f.Description + "|" + f.Body
	}
	if diff := cmp.Diff(map[string]string{"system/human.md": "Memory block human|Name: Bo", "system/deep/persona.md": "me|I am Ada."}, got); diff != "" {
		t.Errorf("memory: %s", diff)
	}
}

func TestAgentWithoutModelFollowsTheDefault(t *testing.T) {
	r, _ := setup(t)
	for _, model := range []string{"", "auto", "letta/auto", "letta/letta-free"} {
		ag := must(r.CreateAgent(t.Context(), roster.AgentSpec{Model: model}))(t)
		if ag.Model != "auto" || string(ag.ModelSettings) != "{}" || ag.Name == "" {
			t.Errorf("%q: %+v", model, ag)
		}
	}
	ag := must(r.CreateAgent(t.Context(), roster.AgentSpec{Model: "nobody/none"}))(t)
	if ag.Model != "nobody/none" {
		t.Errorf("unknown model stored as %s", ag.Model)
	}
}

func TestCreateAgentLeavesNothingOnFailure(t *testing.T) {
	r, d := setup(t)
	ctx := t.Context()
	long := strings.Repeat("x", 11)
	for name, c := range map[string]struct {
		spec roster.AgentSpec
		want string
	}{
		"label":      {roster.AgentSpec{Blocks: []roster.BlockSpec{{Label: "ok"}, {Label: "../evil"}}}, `block label "../evil"`},
		"no label":   {roster.AgentSpec{Blocks: []roster.BlockSpec{{Value: "x"}}}, `block label ""`},
		"twice":      {roster.AgentSpec{Blocks: []roster.BlockSpec{{Label: "human"}, {Label: "system/human.md"}}}, "system/human.md"},
		"limit":      {roster.AgentSpec{Blocks: []roster.BlockSpec{{Label: "human", Value: long, Limit: ptr(10)}}}, "11 characters"},
		"zero limit": {roster.AgentSpec{Blocks: []roster.BlockSpec{{Label: "human", Limit: ptr(0)}}}, "positive"},
		"compaction": {roster.AgentSpec{Compaction: json.RawMessage(`{"mode":"x"}`)}, `Local backend compaction currently supports only modes "all" and "sliding_window" (received "x").`},
		"rest mode":  {roster.AgentSpec{Compaction: json.RawMessage(`{"mode":"self_compact_all"}`)}, `(received "self_compact_all")`},
		"no object":  {roster.AgentSpec{Compaction: json.RawMessage(`[]`)}, "must be an object"},
		"settings":   {roster.AgentSpec{ModelSettings: map[string]json.RawMessage{"a": json.RawMessage("{")}}, "model_settings.a"},
	} {
		_, err := r.CreateAgent(ctx, c.spec)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", name, err, c.want)
		}
		if code := agent.CodeOf(err); code != agent.CodeInvalid && code != agent.CodeConflict {
			t.Errorf("%s: code %s", name, code)
		}
	}
	// A failure of the last step takes the memory away again.
	first := must(r.CreateAgent(ctx, roster.AgentSpec{ForeignID: "old-1"}))(t)
	if _, err := r.CreateAgent(ctx, roster.AgentSpec{ForeignID: "old-1", Blocks: []roster.BlockSpec{{Label: "human"}}}); err == nil {
		t.Error("a foreign id was taken twice")
	}
	all := must(d.store.Agents(ctx, store.AgentFilter{IncludeHidden: true}))(t)
	if len(all) != 1 || all[0].ID != first.ID {
		t.Errorf("%d agents are left", len(all))
	}
	if left, _ := filepath.Glob(filepath.Join(d.dir, "agent-*")); len(left) > 0 {
		t.Errorf("memory is left behind: %v", left)
	}
}

func TestRESTModesAreStoredWhereAsked(t *testing.T) {
	r, _ := setup(t)
	ag := must(r.CreateAgent(t.Context(), roster.AgentSpec{AnyCompaction: true, Compaction: json.RawMessage(`{"mode":"self_compact_all"}`)}))(t)
	if string(ag.Compaction) != `{"mode":"self_compact_all"}` {
		t.Errorf("stored %s", ag.Compaction)
	}
	if _, err := r.UpdateAgent(t.Context(), ag.ID, roster.AgentPatch{AnyCompaction: true, Compaction: ptr(json.RawMessage(`{"mode":"none"}`))}); err == nil {
		t.Error("an unknown mode was accepted")
	}
}

func TestUpdateAgent(t *testing.T) {
	r, _ := setup(t)
	ctx := t.Context()
	ag := must(r.CreateAgent(ctx, roster.AgentSpec{
		Name: "Ada", Description: ptr("d"), Model: "fake/one", ContextLimit: 7, Tags: []string{"a"}, Hidden: ptr(true),
		ModelSettings: map[string]json.RawMessage{"temperature": json.RawMessage("1"), "top_p": json.RawMessage("0.1")},
	}))(t)

	same := must(r.UpdateAgent(ctx, ag.ID, roster.AgentPatch{Model: ptr("fake/one"), ModelSettings: map[string]json.RawMessage{
		"temperature": json.RawMessage("0"), "top_p": json.RawMessage("null"), "parallel_tool_calls": json.RawMessage("false")}}))(t)
	want := map[string]any{"temperature": 0.0, "parallel_tool_calls": false, "provider_type": "fake_type"}
	if diff := cmp.Diff(want, settingsOf(t, same.ModelSettings)); diff != "" || same.ContextLimit != 7 {
		t.Errorf("merged settings, limit %d: %s", same.ContextLimit, diff)
	}

	other := must(r.UpdateAgent(ctx, ag.ID, roster.AgentPatch{Model: ptr("fake/two"), MaxTokens: ptr(9), ModelSettings: map[string]json.RawMessage{
		"effort": json.RawMessage(`"low"`), "parallel_tool_calls": json.RawMessage("false")}}))(t)
	want = map[string]any{"effort": "low", "parallel_tool_calls": true, "provider_type": "fake_type", "max_tokens": 9.0}
	if diff := cmp.Diff(want, settingsOf(t, other.ModelSettings)); diff != "" || other.Model != "fake/two" || other.ContextLimit != 0 {
		t.Errorf("settings of the new model, %s, limit %d: %s", other.Model, other.ContextLimit, diff)
	}

	done := must(r.UpdateAgent(ctx, ag.ID, roster.AgentPatch{
		Name: ptr("Bea"), System: ptr("s"), Description: ptr[*string](nil), Hidden: ptr[*bool](nil), Tags: &[]string{},
		Compaction: ptr(json.RawMessage("null")), ContextLimit: ptr(11), ParallelCalls: ptr(false), Toolset: ptr("none"),
	}))(t)
	if done.Name != "Bea" || done.System != "s" || done.Description != nil || done.Hidden != nil || len(done.Tags) != 0 ||
		done.Compaction != nil || done.ContextLimit != 11 || done.Toolset != "none" || done.ForeignID != "" {
		t.Errorf("%+v", done)
	}
	if diff := cmp.Diff(done, must(r.Agent(ctx, ag.ID))(t)); diff != "" {
		t.Errorf("stored agent differs: %s", diff)
	}
	_, err := r.UpdateAgent(ctx, "agent-x", roster.AgentPatch{})
	fails(t, err, agent.CodeNotFound, "Agent agent-x not found")
}

func TestDeleteAgent(t *testing.T) {
	r, d := setup(t)
	ctx := t.Context()
	ag := must(r.CreateAgent(ctx, roster.AgentSpec{Blocks: []roster.BlockSpec{{Label: "human", Value: "x"}}}))(t)
	conv := must(r.CreateConversation(ctx, roster.ConversationSpec{AgentID: ag.ID}))(t)
	reached := make(chan struct{})
	d.model.Add(fake.Answer{fake.Signal(reached), fake.Hang()})
	scope := agent.Scope{AgentID: ag.ID, ConversationID: conv.ID}
	if _, err := d.runtime.Submit(ctx, input(scope, "hello"), nil); err != nil {
		t.Fatal(err)
	}
	<-reached // a turn runs
	if err := r.DeleteAgent(ctx, ag.ID); err != nil {
		t.Fatal(err)
	}
	_, err := r.Agent(ctx, ag.ID)
	fails(t, err, agent.CodeNotFound, "Agent "+ag.ID+" not found")
	_, err = r.Conversation(ctx, conv.ID)
	fails(t, err, agent.CodeNotFound, "Conversation "+conv.ID+" not found")
	if _, err := os.Stat(d.memory.Dir(ag.ID)); !os.IsNotExist(err) {
		t.Errorf("memory is left: %v", err)
	}
	fails(t, r.DeleteAgent(ctx, ag.ID), agent.CodeNotFound, "Agent "+ag.ID+" not found")
}

// input is one user message for a scope.
func input(scope agent.Scope, text string) *agent.Input {
	return &agent.Input{
		ID: agent.NewID("input"), AgentID: scope.AgentID, ConversationID: scope.ConversationID, Door: agent.DoorAppServer,
		Kind: "message", Source: "user", IfBusy: agent.BusyQueue, OnOrphan: agent.OrphanKeep, CreatedAt: time.Now(),
		Messages: []agent.InputMessage{{Role: agent.RoleUser, Parts: []agent.Part{agent.Text(text)}}},
	}
}
