package client_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mneme/client"
	"mneme/internal/llm/fake"
	"mneme/internal/transcript"
	"mneme/protocol"
)

// dialServer connects to a whole server with a scripted model.
func dialServer(t *testing.T, model *fake.Model) (*client.Client, *transcript.Server) {
	t.Helper()
	s := transcript.Start(t, model, transcript.Options{})
	c, err := client.Dial(t.Context(), s.URL(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c, s
}

func makeAgent(t *testing.T, c *client.Client) string {
	t.Helper()
	name := "Ada"
	made, err := client.Call(t.Context(), c, &protocol.AgentCreate{Body: protocol.AgentBody{
		Name: &name, MemoryBlocks: []protocol.MemoryBlock{{Label: "human", Value: "Ada likes tea"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return made.Agent.ID
}

func TestExtensions(t *testing.T) {
	c, _ := dialServer(t, fake.New(
		fake.Answer{fake.Call("TaskCreate", `{"text":"x"}`)},
		fake.Answer{fake.Text("I only look.")},
	))
	ctx := t.Context()
	ext, err := c.Extensions(ctx)
	if want := (protocol.Extensions{MemorySnapshot: true, MemorySearch: true, EphemeralRuntime: true, ChangeEvents: true}); err != nil || ext != want {
		t.Fatalf("%+v %v", ext, err)
	}
	changes, err := c.WatchChanges(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer changes.Close()
	id := makeAgent(t, c)
	var got []string
	for range 2 {
		ev, err := changes.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, ev.Type)
	}
	if diff := cmp.Diff([]string{"memory_updated", "agents_changed"}, got); diff != "" {
		t.Error(diff)
	}

	snap, err := c.MemorySnapshot(ctx, protocol.MemorySnapshot{AgentID: id})
	if err != nil || snap.Commit == nil || len(snap.Files) != 1 || *snap.Files[0].Content != "Ada likes tea" {
		t.Fatalf("%+v %v", snap, err)
	}
	found, err := c.MemorySearch(ctx, id, "tea", 0)
	if err != nil || len(found.Results) != 1 || found.Results[0].Path != "system/human.md" || *found.Commit != *snap.Commit {
		t.Errorf("%+v %v", found, err)
	}
	var refused *client.ServerError
	if _, err := c.MemorySearch(ctx, id, "tea", 99); !errors.As(err, &refused) {
		t.Errorf("top_k 99: %v", err)
	}

	rt, err := c.StartEphemeral(ctx, protocol.RuntimeStart{AgentID: &id})
	if err != nil {
		t.Fatal(err)
	}
	if info := rt.Info(); info.MemoryCommit == nil || *info.MemoryCommit != *snap.Commit {
		t.Errorf("memory commit %v", info.MemoryCommit)
	}
	turn := send(t, rt, "look")
	result := wait(t, turn)
	end := result.Finished
	if result.Text() != "I only look." || end.WritesBlocked == nil || *end.WritesBlocked != 1 || end.MemoryCommit == nil || *end.MemoryCommit != *snap.Commit {
		t.Errorf("%q, end %+v", result.Text(), end)
	}
	list, err := client.Call(ctx, c, &protocol.ConversationList{Query: &protocol.ConversationQuery{AgentID: &id}})
	if err != nil || len(list.Conversations) != 0 {
		t.Errorf("%d conversations are listed, %v", len(list.Conversations), err)
	}
}

// A server without the commands would never answer: nothing is sent.
func TestNoExtensions(t *testing.T) {
	s := newFakeServer(t)
	c := connect(t, s, client.Options{})
	ctx := t.Context()
	id := "agent-1"
	if ext, err := c.Extensions(ctx); err != nil || ext != (protocol.Extensions{}) {
		t.Errorf("%+v %v", ext, err)
	}
	_, snapshot := c.MemorySnapshot(ctx, protocol.MemorySnapshot{AgentID: id})
	_, search := c.MemorySearch(ctx, id, "x", 0)
	_, ephemeral := c.StartEphemeral(ctx, protocol.RuntimeStart{AgentID: &id})
	_, watch := c.WatchChanges(ctx)
	for _, err := range []error{snapshot, search, ephemeral, watch} {
		if !errors.Is(err, client.ErrUnsupported) {
			t.Errorf("error %v", err)
		}
	}
	if n := s.received("app_server_info"); n != 1 {
		t.Errorf("asked %d times what the server has", n)
	}
	for _, typ := range []string{"memory_snapshot", "memory_search", "runtime_start", "watch_changes"} {
		if s.received(typ) != 0 {
			t.Errorf("%s was sent", typ)
		}
	}
}

// A new connection is asked for changes like the last one.
func TestChangesAfterReconnect(t *testing.T) {
	s := newFakeServer(t)
	s.extensions = &protocol.Extensions{ChangeEvents: true}
	c := connect(t, s, client.Options{Reconnect: quick})
	ctx := t.Context()
	changes, err := c.WatchChanges(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer changes.Close()
	next := func(want string) {
		t.Helper()
		ev, err := changes.Next(ctx)
		if err != nil || ev.Type != want {
			t.Fatalf("%s, want %s; %v", ev.Type, want, err)
		}
	}
	start(t, c) // its events are no changes
	s.change(&protocol.AgentsChanged{AgentID: "agent-1", Change: "created"})
	next("agents_changed")
	s.closeAll(0, "")
	next("client.disconnected")
	next("client.reconnected")
	if told := s.change(&protocol.ConversationsChanged{AgentID: "agent-1", ConversationID: "conv-1", Change: "created"}); told != 1 {
		t.Errorf("%d connections were told", told)
	}
	next("conversations_changed")
}
