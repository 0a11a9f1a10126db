package rest_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"mneme/internal/llm/fake"
)

// An endpoint is one call of the official client.
type endpoint struct {
	Method   string `json:"method"`
	Path     string `json:"path"`
	Call     string `json:"client_call"`
	Priority string `json:"priority"`
}

func endpoints(t *testing.T) (all []endpoint) {
	t.Helper()
	if err := json.Unmarshal(fixture(t, "endpoints.json"), &all); err != nil {
		t.Fatal(err)
	}
	return all
}

var label = regexp.MustCompile(`\{[^}]*\}`)

// plain is a path without the names of its labels and without a trailing slash.
func plain(path string) string { return strings.TrimSuffix(label.ReplaceAllString(path, "{}"), "/") }

// TestEveryFirstCallIsServed counts the calls that clients cannot do without
// against the route table, as /openapi.json tells it.
func TestEveryFirstCallIsServed(t *testing.T) {
	r := start(t, nil)
	var doc struct {
		Paths map[string]map[string]any `json:"paths"`
	}
	r.do("GET", "/openapi.json", nil).want(200).into(&doc)
	served := map[string]bool{}
	for path, ops := range doc.Paths {
		for method := range ops {
			served[strings.ToUpper(method)+" "+plain(path)] = true
		}
	}
	n := 0
	for _, e := range endpoints(t) {
		if e.Priority != "P0" {
			continue
		}
		n++
		if !served[e.Method+" "+plain(e.Path)] {
			t.Errorf("%s %s (%s) is not served", e.Method, e.Path, e.Call)
		}
	}
	if n != 55 {
		t.Errorf("%d first calls are listed, want 55", n)
	}
}

// TestOtherCallsSayThatTheyAreNotBuilt sends all the other calls, with and without
// a trailing slash.
func TestOtherCallsSayThatTheyAreNotBuilt(t *testing.T) {
	r := start(t, nil)
	answered := []string{"GET /v1/environments", "GET /v1/environments/{device_id}"}
	for _, e := range endpoints(t) {
		if e.Priority == "P0" || slices.Contains(answered, e.Method+" "+e.Path) {
			continue
		}
		path := label.ReplaceAllString(strings.TrimSuffix(e.Path, "/"), "agent-123e4567-e89b-42d3-8456-426614174000")
		for _, slash := range []string{"", "/"} {
			resp := r.do(e.Method, path+slash, nil)
			var body struct{ Detail string }
			if json.Unmarshal(resp.Body, &body); resp.Status != http.StatusNotImplemented || body.Detail == "" {
				t.Errorf("%s %s: %d %s", e.Method, path+slash, resp.Status, resp.Body)
			}
			if resp.Header.Get("x-should-retry") != "false" {
				t.Errorf("%s %s lets clients try again", e.Method, path+slash)
			}
		}
	}
	r.do("POST", "/v1/templates", "{}").want(501, "only available on the hosted service")
	r.do("GET", "/v1/environments", nil).want(200, `{"connections":[],"hasNextPage":false}`)
	r.do("GET", "/v1/environments/x", nil).want(404, "x")
	r.do("POST", "/v1/environments/x/messages", "{}").want(501, "hosted")
	for _, path := range []string{
		"POST /v1/tools/add-base-tools", "GET /v1/agents/agent-x/secrets", "PUT /v1/agents/agent-x/secrets/",
		"GET /v1/agents/agent-x/mcp-servers", "GET /v1/agents/agent-x/repositories",
	} {
		method, path, _ := strings.Cut(path, " ")
		if resp := r.do(method, path, nil).want(404, `{"detail":"Not Found"}`); resp.Header.Get("x-should-retry") != "" {
			t.Errorf("%s speaks of trying again", path)
		}
	}
	for _, path := range []string{
		"/v1/groups/", "/v1/identities", "/v1/identities/identity-1/blocks", "/v1/jobs/active", "/v1/messages/batches/x",
		"/v1/providers/", "/v1/sources/x/files", "/v1/agents/count", "/v1/blocks/count", "/v1/tools/count", "/v1/folders/count",
	} {
		r.do("GET", path, nil).want(501)
	}
}

// contract is the old server's description, which answers are checked against. It
// is a fixture that has what clients of today add to it. Of the differences that
// spec/openapi-overrides.md lists the rest concerns requests, or fields that may be
// null and are not here.
var contract = sync.OnceValues(func() (*openapi3.T, error) {
	return openapi3.NewLoader().LoadFromFile("testdata/openapi.json")
})

// TestContractIsChecked: an answer that does not fit is noticed.
func TestContractIsChecked(t *testing.T) {
	doc, err := contract()
	if err != nil {
		t.Fatal(err)
	}
	schema := operationOf(doc, "GET", "/v1/agents/x?a=b").Responses.Status(200).Value.Content.Get("application/json").Schema.Value
	r := start(t, nil)
	good := r.get("/v1/agents/" + r.agent(nil))
	if err := schema.VisitJSON(good, openapi3.EnableJSONSchema2020()); err != nil {
		t.Fatal(err)
	}
	for field, value := range map[string]any{
		"name": nil, "tags": "x", "unheard": 1, "llm_config": map[string]any{}, "model_settings": map[string]any{"provider_type": "x"},
		"created_at": 5, "tool_rules": []any{map[string]any{"type": "exit_loop"}}, "blocks": []any{nil},
	} {
		bad := maps.Clone(good)
		bad[field] = value
		if schema.VisitJSON(bad, openapi3.EnableJSONSchema2020()) == nil {
			t.Errorf("%s: %v fits the contract", field, value)
		}
	}
}

// operationOf finds the description of a request in the contract.
func operationOf(doc *openapi3.T, method, path string) *openapi3.Operation {
	path, _, _ = strings.Cut(path, "?")
	given := strings.Split(strings.TrimSuffix(path, "/"), "/")
	var best *openapi3.Operation
	words := -1
	for template, item := range doc.Paths.Map() {
		parts := strings.Split(strings.TrimSuffix(template, "/"), "/")
		op := item.GetOperation(method)
		if op == nil || len(parts) != len(given) {
			continue
		}
		same, fits := 0, true
		for i, p := range parts {
			if p == given[i] {
				same++
			} else if !strings.HasPrefix(p, "{") {
				fits = false
			}
		}
		if fits && same > words {
			best, words = op, same
		}
	}
	return best
}

// description is what servers say about themselves, the same all the time.
var description struct {
	sync.Mutex
	doc *openapi3.T
}

// described is what this server says about itself.
func described(t testing.TB, r *rig) *openapi3.T {
	t.Helper()
	description.Lock()
	defer description.Unlock()
	if description.doc == nil {
		doc, err := openapi3.NewLoader().LoadFromData(r.do("GET", "/openapi.json", nil).want(200).Body)
		if err != nil {
			t.Fatal(err)
		}
		description.doc = doc
	}
	return description.doc
}

// TestDescription: it is valid, and small enough to be read.
func TestDescription(t *testing.T) {
	r := start(t, nil)
	doc := described(t, r)
	if err := doc.Validate(t.Context()); err != nil {
		t.Error(err)
	}
	if size := len(r.do("GET", "/openapi.json", nil).Body); size > 200_000 {
		t.Errorf("it has %d bytes", size)
	}
	ids := map[string]string{}
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			if op.Summary == "" || ids[op.OperationID] != "" {
				t.Errorf("%s %s: summary %q, operation %s is also %s", method, path, op.Summary, op.OperationID, ids[op.OperationID])
			}
			ids[op.OperationID] = method + " " + path
		}
	}
}

// fits checks an answer of status 200 against the contract, and against what this
// server says about itself.
func (a *response) fits() *response {
	a.t.Helper()
	old, err := contract()
	if err != nil {
		a.t.Fatal(err)
	}
	a.want(http.StatusOK)
	var v any
	a.into(&v)
	method, path, _ := strings.Cut(a.what, " ")
	for name, doc := range map[string]*openapi3.T{"the contract": old, "its description": described(a.t, a.rig)} {
		op := operationOf(doc, method, path)
		if op == nil {
			a.t.Errorf("%s is not in %s", a.what, name)
			continue
		}
		media := op.Responses.Status(http.StatusOK).Value.Content.Get("application/json")
		if media == nil {
			a.t.Errorf("%s has no answer in %s", a.what, name)
			continue
		}
		if err := media.Schema.Value.VisitJSON(v, openapi3.EnableJSONSchema2020()); err != nil {
			a.t.Errorf("%s does not fit %s: %v\n%s", a.what, name, err, a.Body)
		}
	}
	return a
}

// TestAnswersFitTheContract calls what concerns agents, conversations and models.
func TestAnswersFitTheContract(t *testing.T) {
	r := start(t, nil)
	r.do("GET", "/v1/health/", nil).fits()
	r.do("GET", "/v1/ready/", nil).fits()
	r.do("GET", "/v1/models/", nil).fits()
	r.do("GET", "/v1/models/embedding", nil).fits()
	var ag map[string]any
	r.do("POST", "/v1/agents/", map[string]any{
		"name": "Ada", "description": "first", "model": "mneme/offline", "tags": []string{"a", "b"},
		"model_settings":       map[string]any{"provider_type": "openai", "max_output_tokens": 500, "temperature": 0.5},
		"context_window_limit": 9000, "metadata": map[string]any{"k": 1},
		"compaction_settings": map[string]any{"mode": "all"}, "response_format": map[string]any{"type": "json_object"},
		"tool_rules": []any{
			map[string]any{"type": "exit_loop", "tool_name": "web_search"},
			map[string]any{"type": "max_count_per_step", "tool_name": "web_search", "max_count_limit": 2},
			map[string]any{"type": "constrain_child_tools", "tool_name": "web_search", "children": []string{"memory"}},
		},
		"secrets": map[string]any{"KEY": "v"}, "timezone": "Europe/Berlin", "hidden": false,
	}).fits().into(&ag)
	path := "/v1/agents/" + text(ag["id"])
	r.do("GET", path, nil).fits()
	r.do("GET", path+"?include=agent.tools&include=agent.blocks&include=agent.secrets", nil).fits()
	r.do("PATCH", path, map[string]any{"name": "Bea"}).fits()
	r.do("GET", "/v1/agents/", nil).fits()
	r.do("POST", path+"/recompile", nil).fits()

	var conv map[string]any
	r.do("POST", "/v1/conversations/?agent_id="+text(ag["id"]), map[string]any{
		"summary": "s", "description": "d", "model": "mneme/offline", "model_settings": map[string]any{"provider_type": "openai", "temperature": 1},
	}).fits().into(&conv)
	one := "/v1/conversations/" + text(conv["id"])
	r.do("GET", one, nil).fits()
	r.do("PATCH", one, map[string]any{"archived": true, "last_message_at": "2026-01-02T03:04:05Z"}).fits()
	r.do("GET", "/v1/conversations/?archive_status=all", nil).fits()
	r.do("POST", one+"/fork", nil).fits()
	r.do("POST", one+"/recompile", nil).fits()
	r.do("DELETE", one, nil).fits()
	r.do("DELETE", path, nil).fits()
}

// TestAnswersAboutMessagesFit calls what concerns messages, runs and steps, after a
// turn with a tool and one that waits for an approval.
func TestAnswersAboutMessagesFit(t *testing.T) {
	r := start(t, fake.New(
		fake.Answer{fake.Reasoning("hm"), fake.Text("one"), fake.Call("hammer", `{"a":1}`)},
		fake.Answer{fake.Text("two")},
		fake.Answer{fake.Text("three")},
	))
	id := r.agent(nil)
	conv := r.conversation(id)
	agents, one := "/v1/agents/"+id, "/v1/conversations/"+conv
	tools := []any{map[string]any{"name": "hammer", "description": "d", "parameters": map[string]any{"type": "object"}}}
	var first map[string]any
	r.do("POST", agents+"/messages", map[string]any{"input": "hi", "client_tools": tools}).fits().into(&first)
	if reason := first["stop_reason"].(map[string]any)["stop_reason"]; reason != "requires_approval" {
		t.Fatalf("it ended with %v", reason)
	}
	r.do("GET", agents+"?include=agent.pending_approval", nil).fits().want(200, "approval_request_message")
	r.do("GET", agents+"/messages", nil).fits()
	r.do("POST", agents+"/messages", map[string]any{"client_tools": tools, "messages": []any{map[string]any{
		"type": "approval", "approvals": []any{map[string]any{"type": "tool", "tool_call_id": "call_1_1", "tool_return": "bang", "status": "success"}},
	}}}).fits()
	r.do("POST", one+"/messages", map[string]any{"streaming": false, "messages": []any{map[string]any{"role": "user", "content": []any{
		map[string]any{"type": "text", "text": "a"}, map[string]any{"type": "text", "text": "b"}}}}}).fits()
	messages := r.do("GET", agents+"/messages?include_err=true", nil).fits().list()
	r.do("GET", one+"/messages", nil).fits()
	r.do("GET", "/v1/messages/", nil).fits()
	r.do("GET", "/v1/messages/"+text(messages[len(messages)-1]["id"]), nil).fits()
	r.do("POST", "/v1/messages/search", map[string]any{"query": "two"}).fits()
	runs := r.do("GET", "/v1/runs/", nil).fits().list()
	for _, run := range runs {
		path := "/v1/runs/" + text(run["id"])
		for _, what := range []string{"", "/messages", "/steps", "/usage", "/trace"} {
			r.do("GET", path+what, nil).fits()
		}
	}
	for _, step := range r.do("GET", "/v1/steps/", nil).fits().list() {
		path := "/v1/steps/" + text(step["id"])
		for _, what := range []string{"", "/messages", "/metrics", "/trace"} {
			r.do("GET", path+what, nil).fits()
		}
		r.do("PATCH", path+"/feedback", map[string]any{"feedback": "positive", "tags": []string{"t"}}).fits()
	}
	if len(runs) != 3 {
		t.Errorf("%d runs", len(runs))
	}
	r.do("POST", agents+"/summarize", nil).fits()
	r.do("PATCH", agents+"/reset-messages", map[string]any{}).fits()
	r.do("POST", agents+"/messages/cancel", map[string]any{"run_ids": []string{text(runs[0]["id"])}}).fits()
}
