package rest_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"mneme/internal/auth"
	"mneme/internal/transcript"
)

// someID is well formed and names nothing.
const someID = "123e4567-e89b-42d3-8456-426614174000"

// TestRefusals: what clients get wrong, and what they are told.
func TestRefusals(t *testing.T) {
	r := start(t, nil)
	id := r.agent(nil)
	conv := r.conversation(id)
	long := strings.Repeat("x", 513)
	for _, c := range []struct {
		method, path string
		body         any
		status       int
		text         string
	}{
		{"GET", "/v1/nope", nil, 404, `{"detail":"Not Found"}`},
		{"GET", "/v1/agents/" + id + "/nope", nil, 404, `{"detail":"Not Found"}`},
		{"PUT", "/v1/agents/" + id, nil, 405, `{"detail":"Method Not Allowed"}`},
		{"DELETE", "/v1/health", nil, 405, `{"detail":"Method Not Allowed"}`},

		{"GET", "/v1/agents/agent-" + someID, nil, 404, `{"detail":"Agent not found"}`},
		{"GET", "/v1/agents/nonsense", nil, 422, `"examples":["agent-123e4567-e89b-42d3-8456-426614174000"]`},
		{"GET", "/v1/agents/AGENT-" + someID, nil, 422, "path.agent_id"},
		{"GET", "/v1/agents/agent-" + strings.ToUpper(someID), nil, 422, "path.agent_id"},
		{"GET", "/v1/agents/agent-" + someID + "%2Fx", nil, 422, "path.agent_id"},
		{"GET", "/v1/agents/" + strings.Repeat("x", 2000), nil, 422, "…"},
		{"DELETE", "/v1/agents/agent-" + someID, nil, 404, "Agent not found"},
		{"PATCH", "/v1/agents/agent-" + someID, `{}`, 404, "Agent not found"},
		{"PATCH", "/v1/agents/agent-" + someID, `{"name":5}`, 422, "body.name"}, // the body is looked at first
		{"GET", "/v1/conversations/conv-" + someID, nil, 404, "conv-" + someID},
		{"GET", "/v1/conversations/nonsense", nil, 422, "path.conversation_id"},
		{"GET", "/v1/conversations/default", nil, 422, "path.conversation_id"},

		{"POST", "/v1/agents/", nil, 422, "body: Field required"},
		{"POST", "/v1/agents/", "null", 422, "body: Field required"},
		{"POST", "/v1/agents/", "{", 422, "not valid JSON"},
		{"POST", "/v1/agents/", "hello", 422, "not valid JSON"},
		{"POST", "/v1/agents/", `{} {}`, 422, "not valid JSON"},
		{"POST", "/v1/agents/", `[]`, 422, "Input should be an object, not array"},
		{"POST", "/v1/agents/", `{"name":""}`, 422, "body.name"},
		{"POST", "/v1/agents/", `{"name":"a/b"}`, 422, "body.name"},
		{"POST", "/v1/agents/", `{"name":"a.b"}`, 422, "body.name"},
		{"POST", "/v1/agents/", map[string]any{"name": long}, 422, "512"},
		{"POST", "/v1/agents/", `{"name":["x"]}`, 422, "body.name: Input should be a string, not array"},
		{"POST", "/v1/agents/", `{"tags":"x"}`, 422, "body.tags: Input should be an array, not string"},
		{"POST", "/v1/agents/", `{"tags":[1]}`, 422, "body.tags: Input should be a string, not number"},
		{"POST", "/v1/agents/", `{"hidden":"yes"}`, 422, "body.hidden: Input should be a boolean, not string"},
		{"POST", "/v1/agents/", `{"metadata":[]}`, 422, "body.metadata: Input should be an object, not array"},
		{"POST", "/v1/agents/", `{"context_window_limit":0}`, 422, "body.context_window_limit"},
		{"POST", "/v1/agents/", `{"context_window_limit":1.5}`, 422, "body.context_window_limit: Input should be an integer"},
		{"POST", "/v1/agents/", `{"agent_type":"robot"}`, 422, "body.agent_type"},
		{"POST", "/v1/agents/", `{"model_settings":{"max_output_tokens":"many"}}`, 422, "body.model_settings.max_output_tokens"},
		{"POST", "/v1/agents/", `{"response_format":{"type":"xml"}}`, 422, "body.response_format.type"},
		{"POST", "/v1/agents/", `{"response_format":{"type":"json_schema"}}`, 422, "body.response_format.json_schema"},
		{"POST", "/v1/agents/", `{"compaction_settings":{"mode":"none"}}`, 422, "body.compaction_settings.mode"},
		{"POST", "/v1/agents/", `{"compaction_settings":{"sliding_window_percentage":2}}`, 422, "body.compaction_settings.sliding_window_percentage"},
		{"POST", "/v1/agents/", `{"compaction_settings":{"clip_chars":"x"}}`, 422, "body.compaction_settings.clip_chars"},
		{"POST", "/v1/agents/", `{"tool_rules":[{"type":"exit_loop"}]}`, 422, "body.tool_rules.0.tool_name"},
		{"POST", "/v1/agents/", `{"tool_rules":[{"type":"x","tool_name":"a"}]}`, 422, "body.tool_rules.0.type"},
		{"POST", "/v1/agents/", `{"tool_rules":[{"type":"max_count_per_step","tool_name":"a","max_count_limit":0}]}`, 422, "max_count_limit"},
		{"POST", "/v1/agents/", `{"tool_rules":[null]}`, 422, "body.tool_rules.0"},
		{"POST", "/v1/agents/", `{"secrets":{"":"x"}}`, 422, "body.secrets"},
		{"POST", "/v1/agents/", `{"secrets":{"a":1}}`, 422, "body.secrets"},
		{"POST", "/v1/agents/", `{"model":"gpt-4o"}`, 400, "INVALID_ARGUMENT: "},
		{"POST", "/v1/agents/", `{"model":"nobody/x"}`, 404, "NOT_FOUND: Handle nobody/x not found, must be one of [mneme/offline]"},
		{"POST", "/v1/agents/", `{"model":"openai/gpt-4o"}`, 404, "NOT_FOUND: Handle openai/gpt-4o not found"},
		{"PATCH", "/v1/agents/" + id, `{"model":"nobody/x"}`, 404, "NOT_FOUND: Handle nobody/x"},
		{"PATCH", "/v1/agents/" + id, `{"message_ids":"x"}`, 422, "body.message_ids"},

		{"GET", "/v1/agents/?limit=-1", nil, 422, "query.limit"},
		{"GET", "/v1/agents/?limit=1001", nil, 422, "query.limit"},
		{"GET", "/v1/agents/?limit=many", nil, 422, "query.limit"},
		{"GET", "/v1/agents/?order=sideways", nil, 422, "query.order"},
		{"GET", "/v1/agents/?order_by=name", nil, 422, "query.order_by"},
		{"GET", "/v1/agents/?match_all_tags=maybe", nil, 422, "query.match_all_tags"},
		{"GET", "/v1/agents/?after=agent-" + someID, nil, 404, "agent-" + someID},
		{"GET", "/v1/agents/?before=x", nil, 404, "x"},
		{"GET", "/v1/conversations/?after=conv-" + someID, nil, 404, "conv-" + someID},
		{"GET", "/v1/conversations/?archive_status=x", nil, 422, "query.archive_status"},
		{"GET", "/v1/conversations/?agent_id=agent-" + someID, nil, 404, "Agent not found"},

		{"POST", "/v1/conversations/", `{}`, 422, "query.agent_id: Field required"},
		{"POST", "/v1/conversations/?agent_id=agent-" + someID, nil, 404, "Agent not found"},
		{"POST", "/v1/conversations/?agent_id=" + id, `{"summary":1}`, 422, "body.summary"},
		{"POST", "/v1/conversations/?agent_id=" + id, `{"model":"x"}`, 400, "provider/model"},
		{"POST", "/v1/conversations/?agent_id=" + id, `{"model":"x/y"}`, 404, "NOT_FOUND"},
		{"POST", "/v1/conversations/?agent_id=agent-" + someID, `{"summary":1}`, 422, "body.summary"},
		{"PATCH", "/v1/conversations/" + conv, `{"last_message_at":"yesterday"}`, 422, "body.last_message_at: Input should be an ISO 8601 date"},
		{"PATCH", "/v1/conversations/" + conv, nil, 422, "body: Field required"},
		{"PATCH", "/v1/conversations/conv-" + someID, `{"archived":"x"}`, 422, "body.archived"},
		{"POST", "/v1/conversations/default/fork", nil, 422, "agent_id is required"},
		{"POST", "/v1/conversations/default/fork?agent_id=agent-" + someID, nil, 404, "Agent not found"},
		{"POST", "/v1/conversations/agent-" + someID + "/fork", nil, 404, "Agent not found"},
		{"POST", "/v1/conversations/" + conv + "/fork?message_id=message-" + someID, nil, 400, "message-" + someID},
		{"POST", "/v1/conversations/default/recompile", `{}`, 422, "agent_id is required"},
		{"POST", "/v1/conversations/default/recompile", `{"agent_id":1}`, 422, "body.agent_id"},
		{"GET", "/v1/models/?provider_category=free", nil, 422, "query.provider_category"},
	} {
		resp := r.do(c.method, c.path, c.body)
		if resp.Status != c.status || !strings.Contains(string(resp.Body), c.text) {
			t.Errorf("%s %.80s %.80v: %d %s, want %d with %q", c.method, c.path, c.body, resp.Status, resp.Body, c.status, c.text)
		}
		if resp.Header.Get("X-Request-Id") == "" || resp.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s %.80s: headers %v", c.method, c.path, resp.Header)
		}
	}
}

// TestCredentials: with a password both headers open everything but health
// (spec/rest.md section 2.1).
func TestCredentials(t *testing.T) {
	r := startWith(t, nil, transcript.Options{Auth: auth.Options{Token: "tok"}})
	for _, c := range []struct {
		path, name, value string
		status            int
	}{
		{"/v1/health", "", "", 200}, {"/v1/health/", "", "", 200}, {"/v1/ready", "", "", 200}, {"/v1/ready/", "Authorization", "Bearer x", 200},
		{"/v1/agents/", "", "", 401}, {"/v1/nope", "", "", 401}, {"/openapi.json", "", "", 401}, {"/v1/tools/", "", "", 401},
		{"/v1/agents/", "Authorization", "Bearer tok", 200}, {"/v1/agents/", "Authorization", "bearer tok", 200},
		{"/v1/agents/", "Authorization", "Bearer tok2", 401}, {"/v1/agents/", "Authorization", "tok", 401},
		{"/v1/agents/", "X-BARE-PASSWORD", "password tok", 200}, {"/v1/agents/", "X-BARE-PASSWORD", "tok", 401},
		{"/v1/agents/", "X-BARE-PASSWORD", "password ", 401}, {"/v1/agents/", "X-BARE-PASSWORD", "password x", 401},
		{"/openapi.json", "Authorization", "Bearer tok", 200},
	} {
		r.header = http.Header{}
		if c.name != "" {
			r.header[c.name] = []string{c.value} // as it is: header names know no case
		}
		resp := r.do("GET", c.path, nil)
		if resp.Status != c.status || c.status == 401 && string(resp.Body) != `{"detail":"Unauthorized"}` {
			t.Errorf("%s %s %q: %d %s, want %d", c.path, c.name, c.value, resp.Status, resp.Body, c.status)
		}
	}
	open := start(t, nil)
	open.header = http.Header{"Authorization": {"Bearer anything"}}
	open.do("GET", "/v1/agents/", nil).want(200)
	open.header = http.Header{"Authorization": {"nonsense"}}
	open.do("GET", "/v1/agents/", nil).want(200)
}

// TestSlashes: each path is taken with and without, and never redirected.
func TestSlashes(t *testing.T) {
	r := start(t, nil)
	r.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	id := r.agent(nil)
	for _, path := range []string{"/v1/agents", "/v1/agents/" + id, "/v1/conversations", "/v1/models", "/v1/models/embedding", "/v1/health", "/openapi.json"} {
		for _, slash := range []string{"", "/"} {
			r.do("GET", path+slash, nil).want(200)
		}
	}
	for _, path := range []string{"/v1/conversations?agent_id=" + id, "/v1/conversations/?agent_id=" + id} {
		r.do("POST", path, `{"summary":"s"}`).want(200, `"summary":"s"`)
	}
	r.do("GET", "/v1/agents//", nil).want(404)
	r.do("GET", "//v1/agents", nil).want(404)
}

func TestRequestIDs(t *testing.T) {
	r := start(t, nil)
	r.header = http.Header{"X-Request-Id": {"abc-1"}}
	if id := r.do("GET", "/v1/health", nil).Header.Get("X-Request-Id"); id != "abc-1" {
		t.Errorf("id %q", id)
	}
	r.header = http.Header{"X-Request-Id": {"a b\"c"}}
	if id := r.do("GET", "/v1/nope", nil).Header.Get("X-Request-Id"); !strings.HasPrefix(id, "req-") {
		t.Errorf("id %q", id)
	}
	r.header = http.Header{"User_id": {"nobody"}}
	r.do("GET", "/v1/agents/", nil).want(400, "INVALID_ARGUMENT: ", "user_id")
	r.header = http.Header{"User_id": {"user-" + someID}}
	r.do("GET", "/v1/agents/", nil).want(200)
}

// TestPreflight: all methods and headers are allowed, to the origins that the
// listener lets in; this door names none.
func TestPreflight(t *testing.T) {
	r := start(t, nil)
	r.header = http.Header{
		"Origin": {"https://app.example"}, "Access-Control-Request-Method": {"PATCH"}, "Access-Control-Request-Headers": {"authorization, x-foo"},
	}
	resp := r.do("OPTIONS", "/v1/agents/", nil).want(204)
	if h := resp.Header; !strings.Contains(h.Get("Access-Control-Allow-Methods"), "PATCH") ||
		h.Get("Access-Control-Allow-Headers") != "authorization, x-foo" || h.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("%v", h)
	}
	r.header = nil
	r.do("OPTIONS", "/v1/agents/", nil).want(405)
}

// TestLargeBodies: 32 MiB are taken, what is above the limit is refused before it is
// read.
func TestLargeBodies(t *testing.T) {
	r := start(t, nil)
	id := r.agent(nil)
	big := strings.Repeat("ä", 16<<20)
	r.do("PATCH", "/v1/agents/"+id, `{"system":"x","unheard_of":"`+big+`"}`).want(200, `"system":"x"`)
	conn, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "PATCH /v1/agents/%s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n", id, 65<<20)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, _ := io.ReadAll(resp.Body); resp.StatusCode != 413 || !strings.Contains(string(body), "64 MiB") {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	// The same without a length in front.
	req := r.request(t.Context(), "PATCH", "/v1/agents/"+id, "{}")
	req.Body, req.ContentLength = io.NopCloser(io.MultiReader(
		strings.NewReader(`{"unheard_of":"`), io.LimitReader(letters{}, 65<<20), strings.NewReader(`"}`))), -1
	if resp, err := r.http.Do(req); err == nil { // the connection may break while it is still written
		defer resp.Body.Close()
		if resp.StatusCode != 413 {
			t.Errorf("%d", resp.StatusCode)
		}
	}
	r.do("GET", "/v1/agents/"+id, nil).want(200)
}

// letters are an endless text.
type letters struct{}

func (letters) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

// TestText: any Unicode survives, NUL may not.
func TestText(t *testing.T) {
	r := start(t, nil)
	given := "a\u2028b <&> 😀 עברית \U0001F469\u200D\U0001F680 \\ \" \t\n\r é"
	id := r.agent(map[string]any{"system": given, "description": given, "metadata": map[string]any{"k": given}})
	ag := r.get("/v1/agents/" + id)
	if ag["system"] != given || ag["description"] != given || ag["metadata"].(map[string]any)["k"] != given {
		t.Errorf("%q", ag["system"])
	}
	r.patch("/v1/agents/"+id, map[string]any{"system": "a\x00b"})
	if s := text(r.get("/v1/agents/" + id)["system"]); s != "ab" && s != "a\ufffdb" {
		t.Errorf("%q", s)
	}
}
