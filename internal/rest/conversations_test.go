package rest_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mneme/client"
	"mneme/internal/agent"
	"mneme/internal/llm/fake"
	"mneme/internal/transcript"
	"mneme/protocol"
)

var conversationFields = strings.Fields(`id agent_id summary description archived archived_at model model_settings context_window_limit
	in_context_message_ids isolated_block_ids last_message_at created_at updated_at created_by_id last_updated_by_id`)

func TestConversationCreate(t *testing.T) {
	r := start(t, nil)
	id := r.agent(nil)
	conv := r.post("/v1/conversations/?agent_id="+id, nil)
	var fields []string
	for name := range conv {
		fields = append(fields, name)
	}
	slices.Sort(fields)
	if diff := cmp.Diff(slices.Sorted(slices.Values(conversationFields)), fields); diff != "" {
		t.Errorf("fields: %s", diff)
	}
	if got := conv["in_context_message_ids"].([]any); len(got) != 1 || !strings.HasPrefix(text(got[0]), "message-") {
		t.Errorf("no system message: %v", got)
	}
	for _, empty := range []string{"", "{}", "null"} {
		r.do("POST", "/v1/conversations?agent_id="+id, empty).want(200)
	}
	conv = r.post("/v1/conversations/?agent_id="+id, map[string]any{
		"summary": "s", "description": "d", "model": "mneme/offline", "model_settings": map[string]any{"provider_type": "openai", "max_output_tokens": 5},
		"context_window_limit": 900, "hidden": true, "isolated_block_labels": []string{"human"}, "unheard_of": 1,
	})
	for field, value := range map[string]any{
		"agent_id": id, "summary": "s", "description": "d", "model": "mneme/offline", "context_window_limit": 900.0, "archived": false,
		"archived_at": nil, "last_message_at": nil, "isolated_block_ids": []any{},
	} {
		if diff := cmp.Diff(value, conv[field]); diff != "" {
			t.Errorf("%s: %s", field, diff)
		}
	}
	if s := conv["model_settings"].(map[string]any); s["max_output_tokens"] != 5.0 || s["provider_type"] != "openai" {
		t.Errorf("settings %v", s)
	}
}

func TestConversationPatch(t *testing.T) {
	r := start(t, nil)
	id := r.agent(nil)
	before := r.post("/v1/conversations/?agent_id="+id, map[string]any{"summary": "s", "description": "d", "model": "mneme/offline", "context_window_limit": 9})
	path := "/v1/conversations/" + text(before["id"])
	changed := func(body map[string]any, fields ...string) map[string]any {
		t.Helper()
		after := r.patch(path, body)
		for field := range before {
			if cmp.Equal(before[field], after[field]) == slices.Contains(fields, field) && field != "updated_at" {
				t.Errorf("%v: %s was %v and is %v", body, field, before[field], after[field])
			}
		}
		before = after
		return after
	}
	changed(map[string]any{})
	changed(map[string]any{"unheard_of": 1, "archived": nil, "last_message_at": nil})
	changed(map[string]any{"summary": "other"}, "summary")
	changed(map[string]any{"summary": nil, "description": nil}, "summary", "description")
	changed(map[string]any{"model": nil, "model_settings": nil, "context_window_limit": nil}, "model", "model_settings", "context_window_limit")
	changed(map[string]any{"model_settings": map[string]any{"temperature": 0.5}}, "model_settings")
	first := changed(map[string]any{"archived": true}, "archived", "archived_at")["archived_at"]
	if again := changed(map[string]any{"archived": true})["archived_at"]; again != first {
		t.Errorf("archived at %v and then %v", first, again)
	}
	changed(map[string]any{"archived": false}, "archived", "archived_at")
	after := changed(map[string]any{"last_message_at": "2026-05-06T07:08:09.5+02:00"}, "last_message_at")
	if after["last_message_at"] != "2026-05-06T05:08:09.500000Z" {
		t.Errorf("last_message_at %v", after["last_message_at"])
	}
	for form, want := range map[string]string{
		"2026-05-06T07:08:09": "2026-05-06T07:08:09.000000Z", "2026-05-06 07:08:09.25": "2026-05-06T07:08:09.250000Z",
		"2026-05-06": "2026-05-06T00:00:00.000000Z", "2026-05-06T07:08:09Z": "2026-05-06T07:08:09.000000Z",
	} {
		if got := r.patch(path, map[string]any{"last_message_at": form})["last_message_at"]; got != want {
			t.Errorf("%s became %v, want %s", form, got, want)
		}
	}
}

func TestConversationDelete(t *testing.T) {
	r := start(t, nil)
	id := r.agent(nil)
	conv := "/v1/conversations/" + r.conversation(id)
	if body := string(r.do("DELETE", conv, nil).want(200).Body); body != "null" {
		t.Errorf("answer %s", body)
	}
	for _, what := range []string{"GET ", "DELETE ", "PATCH "} {
		r.do(strings.TrimSpace(what), conv, "{}").want(404)
	}
	r.do("POST", conv+"/fork", nil).want(404)
	r.do("POST", conv+"/recompile", nil).want(404)
	if list := r.do("GET", "/v1/conversations/", nil).list(); len(list) != 0 {
		t.Errorf("still listed: %v", list)
	}
	// The agent's own conversation has no id here.
	own, err := r.Store.OwnConversation(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	for _, method := range []string{"GET", "PATCH", "DELETE"} {
		r.do(method, "/v1/conversations/"+own.ID, "{}").want(404)
	}
}

func TestConversationListFilters(t *testing.T) {
	r := start(t, nil)
	a, b := r.agent(nil), r.agent(nil)
	made := map[string]string{}
	add := func(agentID, summary string, patch map[string]any) {
		id := text(r.post("/v1/conversations/?agent_id="+agentID, map[string]any{"summary": summary, "hidden": summary == "hidden"})["id"])
		made[id] = summary
		if patch != nil {
			r.patch("/v1/conversations/"+id, patch)
		}
	}
	add(a, "One", map[string]any{"last_message_at": "2026-01-02T00:00:00Z"})
	add(a, "two", map[string]any{"archived": true})
	add(b, "Three", map[string]any{"last_message_at": "2026-01-03T00:00:00Z"})
	add(b, "four", nil)
	add(b, "hidden", nil)
	for query, want := range map[string]string{
		"":                                    "[four Three One]",
		"?order=asc":                          "[One Three four]",
		"?archive_status=all":                 "[four Three two One]",
		"?archive_status=archived":            "[two]",
		"?agent_id=" + a:                      "[One]",
		"?agent_id=" + a + "&limit=0":         "[]",
		"?summary_search=O":                   "[four One]",
		"?summary_search=conv":                "[]",
		"?summary_search=%25":                 "[]",
		"?order_by=last_message_at":           "[Three One four]",
		"?order_by=last_message_at&order=asc": "[One Three four]",
		"?limit=2":                            "[four Three]",
	} {
		names := []string{}
		for _, conv := range r.do("GET", "/v1/conversations/"+query, nil).list() {
			names = append(names, made[text(conv["id"])])
			if got := conv["in_context_message_ids"]; !cmp.Equal(got, any([]any{})) {
				t.Errorf("%s: context %v", query, got)
			}
		}
		if got := fmt.Sprint(names); got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
}

// say sends a text over the App Server and waits for the end of the turn.
func (r *rig) say(agentID, conversationID, words string) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), transcript.Patience)
	defer cancel()
	c, err := client.Dial(ctx, r.URL(), client.Options{})
	if err != nil {
		r.t.Fatal(err)
	}
	defer c.Close()
	rt, err := c.StartRuntime(ctx, protocol.RuntimeStart{AgentID: &agentID, ConversationID: &conversationID})
	if err != nil {
		r.t.Fatal(err)
	}
	turn, err := rt.Send(ctx, words)
	if err == nil {
		_, err = turn.Wait(ctx)
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// TestFork: a fork goes on from the context of its source, with a system message of
// its own.
func TestFork(t *testing.T) {
	r := start(t, fake.New(fake.Answer{fake.Text("one")}, fake.Answer{fake.Text("two")}))
	id := r.agent(nil)
	conv := text(r.post("/v1/conversations/?agent_id="+id, map[string]any{"summary": "s", "model": "mneme/offline", "context_window_limit": 9000})["id"])
	r.say(id, conv, "first")
	r.say(id, conv, "second")
	source := r.get("/v1/conversations/" + conv)
	seen := source["in_context_message_ids"].([]any)
	if len(seen) != 5 {
		t.Fatalf("context %v", seen)
	}
	fork := r.post("/v1/conversations/"+conv+"/fork", nil)
	got := fork["in_context_message_ids"].([]any)
	// They are the same messages, behind a system message of its own.
	if got[0] == seen[0] || !cmp.Equal(got[1:], seen[1:]) || fork["id"] == conv {
		t.Errorf("context of the fork %v, of the source %v", got, seen)
	}
	path := "/v1/conversations/" + text(fork["id"]) + "/messages?order=asc"
	source2 := r.do("GET", "/v1/conversations/"+conv+"/messages?order=asc", nil).list()
	list := r.do("GET", path, nil).list()
	if !cmp.Equal(list[1:], source2[1:]) {
		t.Errorf("the fork lists other messages: %s", cmp.Diff(source2[1:], list[1:]))
	}
	if got := ids(r.do("GET", path+"&limit=2&after="+text(seen[2]), nil).list()); !cmp.Equal(got, []string{text(seen[3]), text(seen[4])}) {
		t.Errorf("behind %v: %v", seen[2], got)
	}
	all := ids(r.do("GET", "/v1/agents/"+id+"/messages", nil).list())
	if slices.Sort(all); len(all) != len(slices.Compact(slices.Clone(all))) {
		t.Errorf("the agent has messages twice: %v", all)
	}
	again := r.post("/v1/conversations/"+text(fork["id"])+"/fork?message_id="+text(seen[3]), nil)
	if got := again["in_context_message_ids"].([]any); !cmp.Equal(got[1:], seen[1:4]) {
		t.Errorf("fork of a fork %v", got)
	}
	r.do("DELETE", "/v1/conversations/"+text(again["id"]), nil).want(200)
	for field, value := range map[string]any{"agent_id": id, "summary": nil, "model": "mneme/offline", "context_window_limit": 9000.0, "archived": false} {
		if fork[field] != value {
			t.Errorf("%s is %v, want %v", field, fork[field], value)
		}
	}
	if cut := r.post("/v1/conversations/"+conv+"/fork?hidden=true&message_id="+text(seen[2]), nil); len(cut["in_context_message_ids"].([]any)) != 3 {
		t.Errorf("context of the cut fork %v", cut["in_context_message_ids"])
	}
	if list := r.do("GET", "/v1/conversations/?agent_id="+id, nil).list(); len(list) != 2 {
		t.Errorf("%d are listed: the hidden one is, too", len(list))
	}
	// Of an agent's own conversation, under either name.
	for _, path := range []string{"default/fork?agent_id=" + id, id + "/fork"} {
		own := r.post("/v1/conversations/"+path, nil)
		if own["agent_id"] != id || len(own["in_context_message_ids"].([]any)) != 1 {
			t.Errorf("%s: %v", path, own)
		}
	}
	// Of the source, the fork keeps what it knows.
	defer func() {
		r.do("DELETE", "/v1/conversations/"+conv, nil).want(200)
		if got := r.do("GET", path, nil).list(); !cmp.Equal(ids(got)[1:], ids(list)[1:]) {
			t.Errorf("without its source the fork lists %v", ids(got))
		}
		r.do("GET", "/v1/messages/"+text(seen[1]), nil).want(200, text(seen[1]))
		all := ids(r.do("GET", "/v1/agents/"+id+"/messages", nil).list())
		if !slices.Contains(all, text(seen[1])) {
			t.Errorf("the agent lacks %v: %v", seen[1], all)
		}
	}()
	// What was said stays as it was.
	if again := r.get("/v1/conversations/" + conv)["in_context_message_ids"]; !cmp.Equal(again, any(seen)) {
		t.Errorf("the source changed: %v", again)
	}
}

// TestSystemMessageStays: it does not follow later changes of the memory
// (spec/rest.md section 9.3).
func TestSystemMessageStays(t *testing.T) {
	r := start(t, nil)
	id := r.agent(nil)
	conv := r.conversation(id)
	system := func() string {
		t.Helper()
		messages := r.get("/v1/conversations/" + conv)["in_context_message_ids"].([]any)
		m, err := r.Store.MessageByID(t.Context(), text(messages[0]))
		if err != nil {
			t.Fatal(err)
		}
		return agent.TextOf(m.Parts)
	}
	first := system()
	if !strings.Contains(first, conv) || !strings.Contains(first, id) {
		t.Errorf("%s", first)
	}
	r.patch("/v1/agents/"+id, map[string]any{"system": "Another."})
	if system() != first {
		t.Error("the system message changed before anybody needed it")
	}
	var dry, real string
	r.do("POST", "/v1/conversations/"+conv+"/recompile?dry_run=true", `{"compaction_settings":{"mode":"all"}}`).want(200).into(&dry)
	if !strings.HasPrefix(dry, "Another.") || system() != first {
		t.Errorf("dry run: %s", dry)
	}
	r.do("POST", "/v1/conversations/"+conv+"/recompile", nil).want(200).into(&real)
	if got := system(); got != real || !strings.HasPrefix(real, "Another.") || !strings.Contains(real, conv) {
		t.Errorf("recompiled to %s, stored %s", real, got)
	}
	var own string
	r.do("POST", "/v1/conversations/default/recompile", map[string]any{"agent_id": id}).want(200).into(&own)
	if !strings.Contains(own, "CONVERSATION_ID: default") {
		t.Errorf("%s", own)
	}
	r.do("POST", "/v1/conversations/"+id+"/recompile", nil).want(200)
}

// TestBusyConversation: what must not happen while a turn runs is refused with the
// run's id.
func TestBusyConversation(t *testing.T) {
	gate := make(chan struct{})
	r := start(t, fake.New(fake.Answer{fake.Gate(gate), fake.Text("done")}))
	id := r.agent(nil)
	conv := r.conversation(id)
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.say(id, conv, "go")
	}()
	busy := func() bool {
		s, err := r.Runtime.Status(context.Background(), agent.Scope{AgentID: id, ConversationID: conv})
		return err == nil && s.Processing
	}
	waitFor(t, "the turn runs", busy)
	resp := r.do("POST", "/v1/conversations/"+conv+"/recompile", nil).want(409, "is currently being processed", "run_id=run-")
	if resp.Header.Get("x-should-retry") != "false" {
		t.Error("clients would try again")
	}
	r.do("POST", "/v1/conversations/"+conv+"/recompile?dry_run=true", nil).want(200)
	r.get("/v1/conversations/" + conv)
	close(gate)
	<-done
	waitFor(t, "the turn ends", func() bool { return !busy() })
	if last := text(r.get("/v1/conversations/" + conv)["last_message_at"]); last == "" {
		t.Error("last_message_at is not set")
	} else if _, err := time.Parse("2006-01-02T15:04:05.000000Z", last); err != nil {
		t.Error(err)
	}
	ag := r.get("/v1/agents/" + id)
	if ag["last_stop_reason"] != "end_turn" || ag["last_run_completion"] == nil || ag["last_run_duration_ms"] == nil {
		t.Errorf("last run %v %v %v", ag["last_stop_reason"], ag["last_run_completion"], ag["last_run_duration_ms"])
	}
	for query, n := range map[string]int{"end_turn": 1, "error": 0} {
		if got := r.do("GET", "/v1/agents/?last_stop_reason="+query, nil).list(); len(got) != n {
			t.Errorf("%s: %d agents", query, len(got))
		}
	}
}
