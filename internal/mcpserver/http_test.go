package mcpserver_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

const ping = `{"jsonrpc":"2.0","id":1,"method":"ping"}`

// The order of checks: path, Host and Origin, token, method, content type, size,
// JSON, protocol.
func TestHTTPRules(t *testing.T) {
	r := start(t, nil, "MCP_MAX_BODY_BYTES", "4096", "MCP_ALLOWED_ORIGINS", "https://app.example.org", "MCP_ALLOWED_HOSTS", "mcp.example.org")
	session := r.session("2025-11-25", "")
	initialize := `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`
	for _, tt := range []struct {
		name    string
		method  string
		path    string
		body    string
		headers []string
		status  int
		says    string
	}{
		{"another path", "POST", "/nope", ping, nil, 404, "not_found"},
		{"path before token", "POST", "/mcp/", ping, []string{"Authorization", "-"}, 404, "not_found"},
		{"no token", "POST", "/mcp", ping, []string{"Authorization", "-"}, 401, "unauthorized"},
		{"wrong token", "POST", "/mcp", ping, []string{"Authorization", "Bearer nope"}, 401, "unauthorized"},
		{"wrong scheme", "POST", "/mcp", ping, []string{"Authorization", "Basic " + token}, 401, "unauthorized"},
		{"token in the query", "POST", "/mcp?token=" + token, ping, []string{"Authorization", "-"}, 401, "unauthorized"},
		{"scheme in another case", "POST", "/mcp", initialize, []string{"Authorization", "bEARER   " + token + " "}, 200, "serverInfo"},
		{"token before method", "PUT", "/mcp", "", []string{"Authorization", "-"}, 401, "unauthorized"},
		{"method", "PUT", "/mcp", "", nil, 405, "not allowed"},
		{"foreign origin", "POST", "/mcp", initialize, []string{"Origin", "https://evil.example"}, 403, "forbidden"},
		{"foreign origin before token", "POST", "/mcp", initialize, []string{"Origin", "https://evil.example", "Authorization", "-"}, 403, "forbidden"},
		{"null origin", "POST", "/mcp", initialize, []string{"Origin", "null"}, 403, "forbidden"},
		{"local origin", "POST", "/mcp", initialize, []string{"Origin", "http://localhost:3000"}, 200, "serverInfo"},
		{"local address", "POST", "/mcp", initialize, []string{"Origin", "http://[::1]:3000"}, 200, "serverInfo"},
		{"local by name only", "POST", "/mcp", initialize, []string{"Origin", "http://localhost.evil.example"}, 403, "forbidden"},
		{"allowed origin", "POST", "/mcp", initialize, []string{"Origin", "https://app.example.org"}, 200, "serverInfo"},
		{"allowed origin, other port", "POST", "/mcp", initialize, []string{"Origin", "https://app.example.org:444"}, 403, "forbidden"},
		{"foreign host", "POST", "/mcp", initialize, []string{"Host", "evil.example"}, 403, "forbidden"},
		{"allowed host", "POST", "/mcp", initialize, []string{"Host", "MCP.example.org:6507"}, 200, "serverInfo"},
		{"content type", "POST", "/mcp", initialize, []string{"Content-Type", "text/plain"}, 415, "application/json"},
		{"content type with parameters", "POST", "/mcp", initialize, []string{"Content-Type", "application/json; charset=utf-8"}, 200, "serverInfo"},
		{"no content type", "POST", "/mcp", initialize, []string{"Content-Type", "-"}, 415, "application/json"},
		{"accept neither", "POST", "/mcp", initialize, []string{"Accept", "text/html"}, 406, "Accept"},
		{"accept refused", "POST", "/mcp", initialize, []string{"Accept", "application/json;q=0, text/html"}, 406, "Accept"},
		{"accept JSON", "POST", "/mcp", initialize, []string{"Accept", "application/json"}, 200, "serverInfo"},
		{"accept a stream", "POST", "/mcp", initialize, []string{"Accept", "text/event-stream"}, 200, "data: "},
		{"accept anything", "POST", "/mcp", initialize, []string{"Accept", "*/*"}, 200, "serverInfo"},
		{"accept not said", "POST", "/mcp", initialize, []string{"Accept", "-"}, 200, "serverInfo"},
		{"too large", "POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"` + strings.Repeat("x", 4096) + `"}`, nil, 413, "too large"},
		{"too large before JSON", "POST", "/mcp", strings.Repeat("x", 5000), nil, 413, "too large"},
		{"no JSON", "POST", "/mcp", `{"jsonrpc":`, nil, 400, "-32700"},
		{"empty body", "POST", "/mcp", ``, nil, 400, "-32700"},
		{"no JSON-RPC", "POST", "/mcp", `{"id":1,"method":"ping"}`, nil, 400, "-32600"},
		{"a number", "POST", "/mcp", `7`, nil, 400, "-32600"},
		{"neither request nor response", "POST", "/mcp", `{"jsonrpc":"2.0","id":1}`, nil, 400, "-32600"},
		{"an id that is an object", "POST", "/mcp", `{"jsonrpc":"2.0","id":{},"method":"ping"}`, nil, 400, "-32600"},
		{"no session", "POST", "/mcp", ping, nil, 400, "Mcp-Session-Id"},
		{"unknown session", "POST", "/mcp", ping, []string{"Mcp-Session-Id", "nope"}, 404, "session not found"},
		{"unknown session, GET", "GET", "/mcp", "", []string{"Mcp-Session-Id", "nope"}, 404, "session not found"},
		{"unknown session, DELETE", "DELETE", "/mcp", "", []string{"Mcp-Session-Id", "nope"}, 404, "session not found"},
		{"no session, DELETE", "DELETE", "/mcp", "", nil, 400, "Mcp-Session-Id"},
		{"no stream accepted, GET", "GET", "/mcp", "", []string{"Mcp-Session-Id", session, "Accept", "application/json"}, 406, "event-stream"},
		{"initialize with an old session", "POST", "/mcp", initialize, []string{"Mcp-Session-Id", "gone"}, 200, "serverInfo"},
		{"another version than negotiated", "POST", "/mcp", ping, []string{"Mcp-Session-Id", session, "MCP-Protocol-Version", "2025-06-18"}, 400, "negotiated"},
		{"an unknown old version", "POST", "/mcp", ping, []string{"Mcp-Session-Id", session, "MCP-Protocol-Version", "2025-01-01"}, 400, "unsupported"},
		{"an unknown new version", "POST", "/mcp", ping, []string{"MCP-Protocol-Version", "2099-01-01"}, 400, "-32022"},
		{"a batch", "POST", "/mcp", "[" + ping + "]", []string{"Mcp-Session-Id", session}, 400, "-32600"},
		{"healthz", "GET", "/healthz", "", []string{"Authorization", "-"}, 200, `{"ok":true}`},
		{"healthz, POST", "POST", "/healthz", "", []string{"Authorization", "-"}, 405, "not allowed"},
		{"metadata without OAuth", "GET", "/.well-known/oauth-protected-resource", "", []string{"Authorization", "-"}, 404, "not_found"},
		{"the ping of a session", "POST", "/mcp", ping, []string{"Mcp-Session-Id", session}, 200, `"result":{}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var body []byte
			if tt.body != "" || tt.method == "POST" {
				body = []byte(tt.body)
			}
			a := r.do(tt.method, tt.path, body, tt.headers...)
			if a.status != tt.status || !strings.Contains(string(a.body), tt.says) {
				t.Errorf("%d %s; want %d with %s", a.status, a.body, tt.status, tt.says)
			}
			if kind := a.header.Get("Content-Type"); a.status >= 400 && (kind != "application/json" || !json.Valid(a.body)) {
				t.Errorf("the refusal is %q: %s", kind, a.body)
			}
			if strings.Contains(string(a.body)+fmt.Sprint(a.header), token) {
				t.Error("the answer holds the token")
			}
		})
	}
}

func TestChallenge(t *testing.T) {
	r := start(t, nil)
	if a := r.do("POST", "/mcp", []byte(ping), "Authorization", "-"); a.header.Get("WWW-Authenticate") != `Bearer realm="letta-mcp"` || string(bytes.TrimSpace(a.body)) != `{"error":"unauthorized"}` {
		t.Errorf("without a token: %v %s", a.header, a.body)
	}
	if a := r.do("GET", "/mcp", nil, "Authorization", "Bearer x"); a.header.Get("WWW-Authenticate") != `Bearer realm="letta-mcp", error="invalid_token"` {
		t.Errorf("with a wrong token: %v", a.header)
	}
}

func TestCORS(t *testing.T) {
	r := start(t, nil)
	a := r.do("OPTIONS", "/mcp", nil, "Authorization", "-", "Origin", "http://localhost:5173",
		"Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "authorization, mcp-param-x")
	h := a.header
	if a.status != 204 || h.Get("Access-Control-Allow-Origin") != "http://localhost:5173" || !strings.Contains(h.Get("Access-Control-Allow-Headers"), "mcp-param-x") ||
		!strings.Contains(h.Get("Access-Control-Allow-Headers"), "Authorization") {
		t.Errorf("preflight: %d %v", a.status, h)
	}
	if a := r.do("OPTIONS", "/mcp", nil, "Origin", "https://evil.example", "Access-Control-Request-Method", "POST"); a.status != 403 || a.header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("preflight of a foreign page: %d %v", a.status, a.header)
	}
	if a := r.do("POST", "/mcp", []byte(ping), "Origin", "http://localhost"); !strings.Contains(a.header.Get("Access-Control-Expose-Headers"), "Mcp-Session-Id") {
		t.Errorf("exposed: %v", a.header)
	}
}

// Requests of the modern era say what they are twice, and are refused where the
// two do not agree.
func TestModernRules(t *testing.T) {
	r := start(t, nil)
	good, headers := r.request("tools/call", map[string]any{"name": "agent_lookup", "arguments": map[string]any{}})
	with := func(name, value string) []string { return append(append([]string{}, headers...), name, value) }
	for _, tt := range []struct {
		name    string
		body    string
		headers []string
		status  int
		code    int
	}{
		{"good", string(good), headers, 200, 0},
		{"old headers are ignored", string(good), with("Mcp-Session-Id", "nope"), 200, 0},
		{"resumption is ignored", string(good), with("Last-Event-ID", "x_1"), 200, 0},
		{"encoded name", string(good), with("Mcp-Name", "=?base64?YWdlbnRfbG9va3Vw?="), 200, 0},
		{"no version header", string(good), with("MCP-Protocol-Version", "-"), 400, -32020},
		{"another version header", string(good), with("MCP-Protocol-Version", "2025-11-25"), 400, -32020},
		{"another method header", string(good), with("Mcp-Method", "tools/list"), 400, -32020},
		{"no method header", string(good), with("Mcp-Method", "-"), 400, -32020},
		{"another name header", string(good), with("Mcp-Name", "agent_get"), 400, -32020},
		{"name in another case", string(good), with("Mcp-Name", "Agent_Lookup"), 400, -32020},
		{"no capabilities", `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`,
			[]string{"MCP-Protocol-Version", modern, "Mcp-Method", "tools/list"}, 400, -32602},
		{"unknown version", `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2030-01-01","io.modelcontextprotocol/clientCapabilities":{}}}}`,
			[]string{"MCP-Protocol-Version", "2030-01-01", "Mcp-Method", "tools/list"}, 400, -32022},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := r.do("POST", "/mcp", []byte(tt.body), tt.headers...)
			m := r.last(a)
			code := 0
			if m.Error != nil {
				code = m.Error.Code
			}
			if a.status != tt.status || code != tt.code {
				t.Errorf("%d %s; want %d, %d", a.status, a.body, tt.status, tt.code)
			}
			if tt.code == -32022 {
				var data struct {
					Supported []string
					Requested string
				}
				if json.Unmarshal(m.Error.Data, &data) != nil || data.Requested != "2030-01-01" || data.Supported[0] != modern {
					t.Errorf("data %s", m.Error.Data)
				}
			}
		})
	}
	for _, method := range []string{"initialize", "ping", "logging/setLevel", "resources/subscribe", "nope"} {
		if status, m := r.send(method, map[string]any{"uri": "x", "level": "info"}); status != 404 || m.Error == nil || m.Error.Code != -32601 || string(m.ID) == "null" {
			t.Errorf("%s: %d %+v", method, status, m)
		}
	}
	for _, method := range []string{"GET", "DELETE"} {
		if a := r.do(method, "/mcp", nil, "MCP-Protocol-Version", modern, "Mcp-Session-Id", "x"); a.status != 405 {
			t.Errorf("%s: %d", method, a.status)
		}
	}
}

func TestDiscover(t *testing.T) {
	r := start(t, nil)
	_, m := r.send("server/discover", nil)
	var d struct {
		SupportedVersions []string
		Instructions      string
		TTLMs             int
		CacheScope        string
		Meta              map[string]struct{ Name string } `json:"_meta"`
		Capabilities      map[string]map[string]bool
	}
	if err := json.Unmarshal(m.Result, &d); err != nil {
		t.Fatal(err)
	}
	if d.SupportedVersions[0] != modern || len(d.SupportedVersions) != 5 || d.Instructions == "" || len(d.Instructions) > 1200 || d.TTLMs != 3_600_000 || d.CacheScope != "public" ||
		d.Meta["io.modelcontextprotocol/serverInfo"].Name != "mneme" {
		t.Errorf("discover: %s (instructions of %d)", m.Result, len(d.Instructions))
	}
	c := d.Capabilities
	if !c["resources"]["subscribe"] || !c["resources"]["listChanged"] || c["tools"]["listChanged"] || c["completions"] == nil || c["logging"] == nil || c["prompts"] == nil {
		t.Errorf("capabilities %v", c)
	}
}

// What is answered without a stream is one JSON object.
func TestReplyForms(t *testing.T) {
	r := start(t, nil)
	session := r.session("2025-11-25", "")
	call := `{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"agent_lookup","arguments":{}%s}}`
	plain, token := fmt.Sprintf(call, ""), fmt.Sprintf(call, `,"_meta":{"progressToken":1}`)
	kind := func(a answer) string {
		k, _, _ := strings.Cut(a.header.Get("Content-Type"), ";")
		return k
	}
	if a := r.legacy(session, plain); kind(a) != "application/json" || r.last(a).Result == nil {
		t.Errorf("a plain call: %v %s", a.header, a.body)
	}
	a := r.legacy(session, token, "MCP-Protocol-Version", "2025-11-25")
	if kind(a) != "text/event-stream" || a.header.Get("Cache-Control") != "no-cache, no-transform" || a.header.Get("X-Accel-Buffering") != "no" || r.last(a).Result == nil {
		t.Errorf("a call with a progress token: %v %s", a.header, a.body)
	}
	if !strings.HasPrefix(string(a.body), "event: prime\nid: ") {
		t.Errorf("the stream of a 2025-11-25 client begins with %.80s", a.body)
	}
	if a := r.legacy(session, token, "Accept", "application/json"); kind(a) != "application/json" || r.last(a).Result == nil {
		t.Errorf("a client that reads JSON only: %v %s", a.header, a.body)
	}
	old := r.session("2025-06-18", "")
	if a := r.legacy(old, token, "MCP-Protocol-Version", "2025-06-18"); strings.Contains(string(a.body), "prime") || r.last(a).Result == nil {
		t.Errorf("an older client: %s", a.body)
	}
	batching := r.session("2025-03-26", "")
	a = r.legacy(batching, "["+plain+`,{"jsonrpc":"2.0","id":"b","method":"ping"}]`)
	var batch []rpc
	if json.Unmarshal(a.body, &batch) != nil || len(batch) != 2 {
		t.Errorf("a batch: %d %s", a.status, a.body)
	}
}

func TestVersionNegotiation(t *testing.T) {
	r := start(t, nil)
	for asked, want := range map[string]string{
		"2025-11-25": "2025-11-25", "2025-06-18": "2025-06-18", "2025-03-26": "2025-03-26", "2024-11-05": "2024-11-05",
		"2023-01-01": "2025-11-25", "2026-07-28": "2025-11-25", "x": "2025-11-25",
	} {
		a := r.do("POST", "/mcp", fmt.Appendf(nil, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":%q,"capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`, asked))
		var result struct{ ProtocolVersion string }
		if err := json.Unmarshal(r.last(a).Result, &result); err != nil || result.ProtocolVersion != want {
			t.Errorf("%s: %s, want %s", asked, a.body, want)
		}
		if id := a.header.Get("Mcp-Session-Id"); len(id) < 26 {
			t.Errorf("session id %q is too short", id)
		}
	}
}

func TestStateless(t *testing.T) {
	r := start(t, nil, "MCP_STATELESS", "true")
	a := r.do("POST", "/mcp", []byte(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`))
	if a.status != 200 || a.header.Get("Mcp-Session-Id") != "" {
		t.Errorf("initialize: %d %v", a.status, a.header)
	}
	// A client of a server that was started again just goes on (bug report I03).
	a = r.legacy("id-of-an-earlier-life", `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"agent_lookup","arguments":{}}}`, "MCP-Protocol-Version", "2025-11-25")
	if o := r.outcome("agent_lookup", r.last(a)); !o.OK {
		t.Errorf("a call with an old session: %s", a.body)
	}
	for _, method := range []string{"GET", "DELETE"} {
		if a := r.do(method, "/mcp", nil, "Mcp-Session-Id", "x"); a.status != 405 {
			t.Errorf("%s: %d", method, a.status)
		}
	}
	if status, m := r.send("tools/list", nil); status != 200 || m.Result == nil {
		t.Errorf("modern: %d", status)
	}
}

// A body that is sent without its length is bounded all the same.
func TestChunkedBodyIsBounded(t *testing.T) {
	r := start(t, nil)
	pr, pw := io.Pipe()
	go func() {
		chunk := bytes.Repeat([]byte(" "), 1<<16)
		for {
			if _, err := pw.Write(chunk); err != nil {
				return
			}
		}
	}()
	req, err := http.NewRequestWithContext(t.Context(), "POST", r.http.URL+"/mcp", pr)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	pr.Close()
	if resp.StatusCode != 413 {
		t.Errorf("an endless body: %d", resp.StatusCode)
	}
}
