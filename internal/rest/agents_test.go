package rest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mneme/client"
	"mneme/internal/agent"
	"mneme/internal/llm/fake"
	"mneme/internal/transcript"
	"mneme/protocol"
)

// agentFields are the fields that an agent has in every answer
// (spec/rest.md section 11.2).
var agentFields = strings.Fields(`id name agent_type description system model model_settings embedding llm_config embedding_config
	compaction_settings response_format message_ids memory blocks tools sources tags tool_rules tool_exec_environment_variables secrets
	metadata project_id template_id base_template_id deployment_id entity_id identity_ids identities pending_approval
	message_buffer_autoclear enable_sleeptime multi_agent_group managed_group last_run_completion last_run_duration_ms last_stop_reason
	timezone max_files_open per_file_view_window_char_limit hidden created_by_id last_updated_by_id created_at updated_at`)

func TestAgentDefaults(t *testing.T) {
	r := start(t, nil)
	ag := r.post("/v1/agents/", map[string]any{})
	var fields []string
	for name := range ag {
		fields = append(fields, name)
	}
	slices.Sort(fields)
	want := slices.Sorted(slices.Values(agentFields))
	if diff := cmp.Diff(want, fields); diff != "" {
		t.Errorf("fields: %s", diff)
	}
	if name := text(ag["name"]); len(strings.Fields(name)) != 2 {
		t.Errorf("name %q, want two words", name)
	}
	for field, value := range map[string]any{
		"agent_type": "letta_v1_agent", "system": systemText, "model": "mneme/offline", "description": nil, "metadata": nil,
		"compaction_settings": nil, "timezone": "UTC", "hidden": nil, "message_buffer_autoclear": false, "last_run_completion": nil,
		"last_stop_reason": nil, "pending_approval": nil, "embedding": nil, "tags": []any{}, "tool_rules": []any{}, "secrets": []any{},
		"identity_ids": []any{}, "sources": []any{}, "blocks": []any{},
	} {
		if diff := cmp.Diff(value, ag[field]); diff != "" {
			t.Errorf("%s: %s", field, diff)
		}
	}
	config := ag["llm_config"].(map[string]any)
	for field, value := range map[string]any{"model": "offline", "handle": "mneme/offline", "model_endpoint_type": "openai", "context_window": 128000.0} {
		if config[field] != value {
			t.Errorf("llm_config.%s is %v, want %v", field, config[field], value)
		}
	}
	// The first message is the system message; there is no other.
	if messages := ag["message_ids"].([]any); len(messages) != 1 || !strings.HasPrefix(text(messages[0]), "message-") {
		t.Errorf("message_ids %v", messages)
	}
}

func TestAgentIsStoredAsGiven(t *testing.T) {
	r := start(t, nil)
	id := r.agent(map[string]any{
		"name": "Ünal 七-O'Neill_2", "description": "d", "system": "Be.\u2028<é>", "tags": []string{"b", "a", "b"}, "include_base_tools": false,
		"model": "mneme/offline", "context_window_limit": 9000, "max_tokens": 700, "parallel_tool_calls": false,
		"model_settings":      map[string]any{"provider_type": "openai", "max_output_tokens": 500, "temperature": 0.25},
		"compaction_settings": map[string]any{"mode": "self_compact_all", "clip_chars": nil}, "metadata": map[string]any{"a": []any{1.0}},
		"response_format": map[string]any{"type": "json_object"}, "timezone": "Europe/Berlin", "hidden": true, "agent_type": "memgpt_agent",
		"message_buffer_autoclear": true, "enable_sleeptime": false, "embedding": "x/y", "max_files_open": 3,
		"per_file_view_window_char_limit": 9, "identity_ids": []string{"identity-1"}, "project_id": "p", "unheard_of": map[string]any{"x": 1},
		"llm_config": 5, "reasoning": true, "from_template": "t",
	})
	ag := r.get("/v1/agents/" + id + "?include=agent.tags")
	for field, value := range map[string]any{
		"name": "Ünal 七-O'Neill_2", "description": "d", "system": "Be.\u2028<é>", "tags": []any{"b", "a"}, "metadata": map[string]any{"a": []any{1.0}},
		"response_format": map[string]any{"type": "json_object"}, "timezone": "Europe/Berlin", "hidden": true, "agent_type": "memgpt_agent",
		"message_buffer_autoclear": true, "enable_sleeptime": false, "embedding": "x/y", "max_files_open": 3.0,
		"per_file_view_window_char_limit": 9.0, "identity_ids": []any{"identity-1"}, "project_id": "p",
		"compaction_settings": map[string]any{
			"mode": "self_compact_all", "model": nil, "model_settings": nil, "prompt": nil, "prompt_acknowledgement": false,
			"clip_chars": nil, "sliding_window_percentage": 0.3,
		},
		"model_settings": map[string]any{
			"provider_type": "openai", "max_output_tokens": 700.0, "temperature": 0.25, "parallel_tool_calls": false,
			"response_format": map[string]any{"type": "json_object"},
		},
	} {
		if diff := cmp.Diff(value, ag[field]); diff != "" {
			t.Errorf("%s: %s", field, diff)
		}
	}
	config := ag["llm_config"].(map[string]any)
	if config["context_window"] != 9000.0 || config["max_tokens"] != 700.0 || config["temperature"] != 0.25 || config["parallel_tool_calls"] != false {
		t.Errorf("llm_config %v", config)
	}
	// It has no shell: the tools of other doors are not for agents made here.
	stored, err := r.Store.Agent(t.Context(), id)
	if err != nil || stored.Toolset != "none" {
		t.Errorf("toolset %q, %v", stored.Toolset, err)
	}
	// The window is never above that of the model.
	if ag := r.patch("/v1/agents/"+id, map[string]any{"context_window_limit": 1_000_000}); ag["llm_config"].(map[string]any)["context_window"] != 128000.0 {
		t.Errorf("window %v", ag["llm_config"])
	}
}

func TestAgentPatch(t *testing.T) {
	r := start(t, nil)
	given := map[string]any{
		"name": "Ada", "description": "d", "tags": []string{"a"}, "metadata": map[string]any{"k": 1.0}, "timezone": "Asia/Tokyo",
		"compaction_settings": map[string]any{"mode": "all"}, "hidden": true, "include_base_tools": false,
		"model_settings": map[string]any{"provider_type": "openai", "temperature": 0.5}, "secrets": map[string]string{"A": "1", "B": "2"},
		"response_format": map[string]any{"type": "json_object"},
	}
	id := r.agent(given)
	before := r.get("/v1/agents/" + id + "?include=agent.tags&include=agent.secrets")
	changed := func(body map[string]any, fields ...string) map[string]any {
		t.Helper()
		after := r.patch("/v1/agents/"+id, body)
		for field := range before {
			if cmp.Equal(before[field], after[field]) == slices.Contains(fields, field) && field != "updated_at" && field != "tools" {
				t.Errorf("%v: %s was %v and is %v", body, field, before[field], after[field])
			}
		}
		before = after
		return after
	}
	changed(map[string]any{})
	changed(map[string]any{"name": nil, "system": nil, "model": nil, "model_settings": nil, "tool_ids": nil, "block_ids": nil, "unheard_of": 1})
	changed(map[string]any{"name": "Bea"}, "name")
	changed(map[string]any{"description": nil}, "description")
	changed(map[string]any{"metadata": nil, "compaction_settings": nil}, "metadata", "compaction_settings")
	changed(map[string]any{"hidden": nil, "timezone": nil}, "hidden", "timezone")
	changed(map[string]any{"tags": []string{"x", "y"}}, "tags")
	after := changed(map[string]any{"secrets": map[string]string{"B": "3", "C": "4"}}, "secrets", "tool_exec_environment_variables")
	var secrets []string
	for _, s := range after["secrets"].([]any) {
		s := s.(map[string]any)
		secrets = append(secrets, text(s["key"])+"="+text(s["value"]))
	}
	if diff := cmp.Diff([]string{"B=3", "C=4"}, secrets); diff != "" {
		t.Error(diff)
	}
	after = changed(map[string]any{"model_settings": map[string]any{"temperature": 0.75}}, "model_settings", "llm_config")
	if s := after["model_settings"].(map[string]any); s["temperature"] != 0.75 || s["response_format"] == nil {
		t.Errorf("settings %v", s)
	}
	changed(map[string]any{"response_format": nil}, "response_format", "model_settings", "llm_config")
	changed(map[string]any{"system": "Other."}, "system")
	changed(map[string]any{"tool_rules": []any{map[string]any{"type": "exit_loop", "tool_name": "memory"}}}, "tool_rules")
	changed(map[string]any{"tool_rules": nil}, "tool_rules")
	changed(map[string]any{"tags": nil}, "tags")
}

// TestSecretsAreSealed: what a secret holds is not in the database.
func TestSecretsAreSealed(t *testing.T) {
	r := start(t, nil)
	id := r.agent(map[string]any{"tool_exec_environment_variables": map[string]string{"KEY": "topsecret"}})
	sealed, err := r.Store.Secrets(t.Context(), id)
	if err != nil || len(sealed["KEY"]) == 0 || strings.Contains(string(sealed["KEY"]), "topsecret") {
		t.Errorf("%q, %v", sealed["KEY"], err)
	}
	if got := r.do("GET", "/v1/agents/"+id+"?include=agent.secrets", nil).want(200); !strings.Contains(string(got.Body), "topsecret") {
		t.Errorf("not shown: %s", got.Body)
	}
	if got := r.do("GET", "/v1/agents/"+id, nil); strings.Contains(string(got.Body), "KEY") {
		t.Errorf("shown unasked: %s", got.Body)
	}
}

func TestIncludedRelations(t *testing.T) {
	r := start(t, nil)
	id := r.agent(map[string]any{"tags": []string{"a"}, "secrets": map[string]string{"K": "v"}})
	for query, want := range map[string]string{
		"": "", "?include=agent.tags": "tags", "?include=agent.tags&include=agent.secrets": "secrets tags", "?include[]=agent.tags": "tags",
		"?include=agent.tags,agent.secrets": "secrets tags", "?include_relationships=tags": "tags", "?include_relationships=nonsense": "",
		"?include=agent.managed_group&include=agent.identities&include=agent.sources": "",
	} {
		var got []string
		ag := r.get("/v1/agents/" + id + query)
		for _, field := range []string{"secrets", "tags"} {
			if len(ag[field].([]any)) > 0 {
				got = append(got, field)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %v, want %s", query, got, want)
		}
	}
	r.do("GET", "/v1/agents/"+id+"?include=agent.nonsense", nil).want(422, "query.include")
}

func TestAgentDelete(t *testing.T) {
	r := start(t, nil)
	id, other := r.agent(nil), r.agent(nil)
	conv := r.conversation(id)
	got := r.do("DELETE", "/v1/agents/"+id, nil).object()
	if diff := cmp.Diff(map[string]any{"message": "Agent id=" + id + " successfully deleted"}, got); diff != "" {
		t.Error(diff)
	}
	for _, path := range []string{
		"GET /v1/agents/" + id, "PATCH /v1/agents/" + id, "DELETE /v1/agents/" + id, "POST /v1/agents/" + id + "/recompile",
		"POST /v1/conversations/?agent_id=" + id, "GET /v1/conversations/?agent_id=" + id,
	} {
		method, path, _ := strings.Cut(path, " ")
		r.do(method, path, "{}").want(404, `{"detail":"Agent not found"}`)
	}
	r.do("GET", "/v1/conversations/"+conv, nil).want(404)
	r.get("/v1/agents/" + other)
}

// TestAgentIsTheSameAtEveryDoor: made here it is used over the App Server, and the
// other way round.
func TestAgentIsTheSameAtEveryDoor(t *testing.T) {
	r := start(t, nil)
	id := r.agent(map[string]any{"name": "Ada", "tags": []string{"t"}})
	c, err := client.Dial(t.Context(), r.URL(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	got, err := client.Call(t.Context(), c, &protocol.AgentRetrieve{AgentID: id})
	if err != nil || got.Agent == nil || got.Agent.ID != id || got.Agent.Name != "Ada" {
		t.Fatalf("%+v, %v", got, err)
	}
	made, err := client.Call(t.Context(), c, &protocol.AgentCreate{Body: protocol.AgentBody{Name: new("Bea (2)")}})
	if err != nil {
		t.Fatal(err)
	}
	ag := r.do("GET", "/v1/agents/"+made.Agent.ID, nil).fits().object()
	if ag["name"] != "Bea (2)" {
		t.Errorf("%v", ag["name"])
	}
	// A change of the one shows at the other.
	r.patch("/v1/agents/"+made.Agent.ID, map[string]any{"description": "changed"})
	got, err = client.Call(t.Context(), c, &protocol.AgentRetrieve{AgentID: made.Agent.ID})
	if err != nil || got.Agent.Description == nil || *got.Agent.Description != "changed" {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestRecompile: the text is a JSON string; a dry run stores nothing.
func TestRecompile(t *testing.T) {
	r := start(t, nil)
	id := r.agent(nil)
	first := r.get("/v1/agents/" + id)["message_ids"].([]any)
	var dry, real string
	r.do("POST", "/v1/agents/"+id+"/recompile?dry_run=true&update_timestamp=true", nil).want(200).into(&dry)
	if after := r.get("/v1/agents/" + id)["message_ids"].([]any); !cmp.Equal(first, after) {
		t.Errorf("a dry run changed the system message: %v", after)
	}
	r.do("POST", "/v1/agents/"+id+"/system-prompt/recompile", nil).want(200).into(&real)
	for _, s := range []string{dry, real} {
		if !strings.HasPrefix(s, systemText) || !strings.Contains(s, id) || !strings.Contains(s, "CONVERSATION_ID: default") {
			t.Errorf("text %q", s)
		}
	}
	after := r.get("/v1/agents/" + id)["message_ids"].([]any)
	if len(after) != 1 || cmp.Equal(first, after) {
		t.Errorf("message_ids %v and then %v", first, after)
	}
}

// TestInitialMessages are part of what the model sees.
func TestInitialMessages(t *testing.T) {
	r := start(t, nil)
	ag := r.post("/v1/agents/", map[string]any{"initial_message_sequence": []any{
		map[string]any{"role": "user", "content": "hi"}, map[string]any{"role": "assistant", "content": "hello"},
	}})
	if got := ag["message_ids"].([]any); len(got) != 3 {
		t.Errorf("message_ids %v", got)
	}
	if ag := r.post("/v1/agents/", map[string]any{"initial_message_sequence": []any{}}); len(ag["message_ids"].([]any)) != 1 {
		t.Errorf("message_ids %v", ag["message_ids"])
	}
	r.do("POST", "/v1/agents/", map[string]any{"initial_message_sequence": []any{map[string]any{"role": "robot", "content": "x"}}}).
		want(422, "body.initial_message_sequence.0.role")

	// The context can be chosen by ids.
	path := "/v1/agents/" + text(ag["id"])
	all := ag["message_ids"].([]any)
	if got := r.patch(path, map[string]any{"message_ids": all[:2]})["message_ids"]; !cmp.Equal(got, any(all[:2])) {
		t.Errorf("message_ids %v, want %v", got, all[:2])
	}
	if got := r.patch(path, map[string]any{"message_ids": all})["message_ids"]; !cmp.Equal(got, any(all)) {
		t.Errorf("message_ids %v, want %v", got, all)
	}
	unknown := "message-123e4567-e89b-42d3-8456-426614174000"
	r.do("PATCH", path, map[string]any{"message_ids": []string{unknown}}).want(400, unknown)
}

// TestAgentsMadeAtOnce are as many as were asked for, and each is whole.
func TestAgentsMadeAtOnce(t *testing.T) {
	r := start(t, nil)
	var wg sync.WaitGroup
	var mu sync.Mutex
	seen := map[string]bool{}
	for i := range 20 {
		wg.Go(func() {
			id := r.agent(map[string]any{"name": fmt.Sprint("Agent ", i), "secrets": map[string]string{"K": "v"}})
			mu.Lock()
			defer mu.Unlock()
			seen[id] = true
		})
	}
	wg.Wait()
	list := r.do("GET", "/v1/agents/?limit=1000&include=agent.secrets", nil).list()
	if len(seen) != 20 || len(list) != 20 {
		t.Errorf("%d agents, %d in the list", len(seen), len(list))
	}
	for _, ag := range list {
		if len(ag["secrets"].([]any)) != 1 {
			t.Errorf("%v has secrets %v", ag["name"], ag["secrets"])
		}
	}
}

func TestDeleteWhileItRuns(t *testing.T) {
	r := start(t, nil)
	id := r.agent(nil)
	own, err := r.Store.OwnConversation(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if resp := r.do("DELETE", "/v1/agents/"+id, nil); resp.Status != http.StatusOK && resp.Status != http.StatusNotFound {
				t.Errorf("%d %s", resp.Status, resp.Body)
			}
		})
		wg.Go(func() {
			if resp := r.do("PATCH", "/v1/agents/"+id, `{"name":"x"}`); resp.Status != http.StatusOK && resp.Status != http.StatusNotFound {
				t.Errorf("%d %s", resp.Status, resp.Body)
			}
		})
		wg.Go(func() {
			resp := r.do("GET", "/v1/agents/?include=agent.secrets", nil)
			var list []json.RawMessage
			if resp.want(200).into(&list); len(list) > 1 {
				t.Errorf("%s", resp.Body)
			}
		})
	}
	wg.Wait()
	if _, err := r.Store.Conversation(t.Context(), own.ID); agent.CodeOf(err) != agent.CodeNotFound {
		t.Errorf("its conversation is left: %v", err)
	}
}

// TestAutoclear: each turn starts from the system message; the list keeps all.
func TestAutoclear(t *testing.T) {
	model := fake.New(fake.Answer{fake.Text("one")}, fake.Answer{fake.Text("two")})
	r := start(t, model)
	id := r.agent(map[string]any{"message_buffer_autoclear": true})
	for _, words := range []string{"first", "second"} {
		r.post("/v1/agents/"+id+"/messages", map[string]any{"input": words})
	}
	last := model.Requests()[1]
	if len(last.Messages) != 1 || agent.TextOf(last.Messages[0].Parts) != "second" {
		t.Errorf("the model saw %d messages", len(last.Messages))
	}
	if got := r.do("GET", "/v1/agents/"+id+"/messages", nil).list(); len(got) != 5 {
		t.Errorf("%d messages are listed, want 5", len(got))
	}
	if got := r.get("/v1/agents/" + id)["message_ids"].([]any); len(got) != 3 {
		t.Errorf("message_ids %v", got)
	}
}

// TestDeleteEndsStreams: turns of a deleted agent, or of a deleted conversation, are
// cancelled, and their streams end.
func TestDeleteEndsStreams(t *testing.T) {
	for _, what := range []string{"agents", "conversations"} {
		t.Run(what, func(t *testing.T) {
			model := fake.New(fake.Answer{fake.Text("half"), fake.Hang()})
			r := start(t, model)
			id := r.agent(nil)
			conv := r.conversation(id)
			ctx, cancel := context.WithTimeout(t.Context(), transcript.Patience)
			defer cancel()
			resp, err := r.http.Do(r.request(ctx, "POST", "/v1/conversations/"+conv+"/messages", map[string]any{"input": "go", "stream_tokens": true}))
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if err := model.Wait(ctx, 1); err != nil {
				t.Fatal(err)
			}
			path := map[string]string{"agents": "/v1/agents/" + id, "conversations": "/v1/conversations/" + conv}[what]
			r.do("DELETE", path, nil).want(200)
			rest, err := io.ReadAll(resp.Body)
			if err != nil || !strings.Contains(string(rest), "data: [DONE]") || !strings.Contains(string(rest), `"stop_reason":"cancelled"`) {
				t.Errorf("%v: %s", err, rest)
			}
			r.do("GET", path, nil).want(404)
			r.do("POST", "/v1/conversations/"+conv+"/messages", map[string]any{"input": "again"}).want(404)
		})
	}
}
