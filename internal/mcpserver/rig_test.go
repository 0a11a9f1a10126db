package mcpserver_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"go.uber.org/goleak"

	"mneme/internal/llm"
	"mneme/internal/llm/fake"
	"mneme/internal/mcpserver"
	"mneme/internal/tool"
	"mneme/internal/transcript"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	token    = "secret-token-of-tests"
	patience = 20 * time.Second // for what must happen; it measures nothing
	modern   = "2026-07-28"
)

// A rig is an MCP server over a whole mneme in this process.
type rig struct {
	t       testing.TB
	app     *transcript.Server
	backend *mcpserver.Embedded
	server  *mcpserver.Server
	http    *httptest.Server
	ids     atomic.Int64
	schemas map[string]*jsonschema.Resolved // output schemas, by tool
	stock   bool                            // the App Server looks like a stock one
}

// environ is an environment of the MCP server.
func environ(pairs ...string) func(string) string {
	vars := map[string]string{"MCP_AUTH_TOKEN": token}
	for i := 0; i < len(pairs); i += 2 {
		vars[pairs[i]] = pairs[i+1]
	}
	return func(name string) string { return vars[name] }
}

// start makes a rig; pairs are further variables of its environment.
func start(t testing.TB, model llm.Model, pairs ...string) *rig {
	t.Helper()
	return startWith(t, model, options(), pairs...)
}

// options give the server the tools that agents really have.
func options() transcript.Options {
	return transcript.Options{Tools: tool.Builtin(tool.Kit{})}
}

func startWith(t testing.TB, model llm.Model, o transcript.Options, pairs ...string) *rig {
	t.Helper()
	if model == nil {
		model = fake.New()
	}
	cfg, err := mcpserver.LoadConfig(environ(pairs...))
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, app: transcript.Start(t, model, o)}
	r.backend = mcpserver.NewEmbedded(cfg, mcpserver.Parts{
		Roster: r.app.Roster, Runtime: r.app.Runtime, Store: r.app.Store, Memory: r.app.Memory, Models: r.app.Models,
		Version: "test", URL: r.app.URL(), Logger: logTo(t),
	})
	r.serve(cfg, r.backend)
	return r
}

// serve starts the MCP server over a backend.
func (r *rig) serve(cfg *mcpserver.Config, b mcpserver.Backend) {
	r.server = mcpserver.New(cfg, b, mcpserver.Options{Version: "test", Logger: logTo(r.t)})
	r.http = httptest.NewServer(r.server.Handler())
	r.t.Cleanup(r.stop)
	r.schemas = map[string]*jsonschema.Resolved{}
}

func (r *rig) stop() {
	r.server.Close()
	r.http.Close()
}

// logTo writes a log to the test's output.
func logTo(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(testWriter{t}, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Logf("%s", bytes.TrimSpace(p))
	return len(p), nil
}

// An answer is an HTTP response.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// do sends a request with the token and the given headers, name, value, …; a
// value of "-" leaves the header out.
func (r *rig) do(method, path string, body []byte, headers ...string) answer {
	r.t.Helper()
	resp := r.open(r.t.Context(), method, path, body, headers...)
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, data}
}

// open is do for a response that is read piece by piece.
func (r *rig) open(ctx context.Context, method, path string, body []byte, headers ...string) *http.Response {
	r.t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, r.http.URL+path, bytes.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Accept", "application/json, text/event-stream")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		switch {
		case headers[i+1] == "-":
			req.Header.Del(headers[i])
		case headers[i] == "Host":
			req.Host = headers[i+1]
		default:
			req.Header.Set(headers[i], headers[i+1])
		}
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		r.t.Fatal(err)
	}
	return resp
}

// request is a message of the modern era with the headers that go with it.
func (r *rig) request(method string, params map[string]any) (body []byte, headers []string) {
	r.t.Helper()
	meta := map[string]any{
		"io.modelcontextprotocol/protocolVersion":    modern,
		"io.modelcontextprotocol/clientCapabilities": map[string]any{},
	}
	if params == nil {
		params = map[string]any{}
	}
	if given, ok := params["_meta"].(map[string]any); ok {
		for k, v := range given {
			meta[k] = v
		}
	}
	params["_meta"] = meta
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": r.ids.Add(1), "method": method, "params": params})
	if err != nil {
		r.t.Fatal(err)
	}
	headers = []string{"MCP-Protocol-Version", modern, "Mcp-Method", method}
	for _, key := range []string{"name", "uri"} {
		if v, ok := params[key].(string); ok {
			headers = append(headers, "Mcp-Name", v)
		}
	}
	return body, headers
}

// rpc is a JSON-RPC response.
type rpc struct {
	ID     json.RawMessage `json:"id"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Code    int             `json:"code"`
		Message string          `json:"message"`
		Data    json.RawMessage `json:"data"`
	} `json:"error"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
}

// send sends a request of the modern era and returns the status and the response,
// the last message where it came as a stream.
func (r *rig) send(method string, params map[string]any) (int, rpc) {
	r.t.Helper()
	body, headers := r.request(method, params)
	a := r.do(http.MethodPost, "/mcp", body, headers...)
	return a.status, r.last(a)
}

func (r *rig) last(a answer) rpc {
	r.t.Helper()
	raw := a.body
	if strings.HasPrefix(a.header.Get("Content-Type"), "text/event-stream") {
		all := events(a.body)
		if len(all) == 0 {
			r.t.Fatalf("the stream holds no message: %q", a.body)
		}
		raw = []byte(all[len(all)-1])
	}
	var m rpc
	if err := json.Unmarshal(raw, &m); err != nil {
		r.t.Fatalf("status %d: %v in %q", a.status, err, a.body)
	}
	return m
}

// events are the data of the messages of a stream.
func events(stream []byte) []string {
	var all []string
	sc := bufio.NewScanner(bytes.NewReader(stream))
	sc.Buffer(nil, 64<<20)
	for sc.Scan() {
		if data, ok := strings.CutPrefix(sc.Text(), "data: "); ok && data != "" {
			all = append(all, data)
		}
	}
	return all
}

// An outcome is what a tool answered.
type outcome struct {
	OK    bool            `json:"ok"`
	Data  json.RawMessage `json:"data"`
	Error *struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
	meta map[string]any
	raw  string
}

// code is the error's; "" for success.
func (o outcome) code() string {
	if o.Error == nil {
		return ""
	}
	return o.Error.Code
}

// get is a field of data.
func (o outcome) get(t testing.TB, name string) any {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal(o.Data, &m); err != nil {
		t.Fatalf("data is no object: %v: %s", err, o.raw)
	}
	return m[name]
}

func (o outcome) text(t testing.TB, name string) string {
	t.Helper()
	s, ok := o.get(t, name).(string)
	if !ok {
		t.Fatalf("%s is no text in %s", name, o.raw)
	}
	return s
}

// tool calls a tool in the modern era and checks the form of its answer.
func (r *rig) tool(name string, args any) outcome {
	r.t.Helper()
	_, m := r.send("tools/call", map[string]any{"name": name, "arguments": args})
	return r.outcome(name, m)
}

// must is tool for a call that succeeds.
func (r *rig) must(name string, args any) outcome {
	r.t.Helper()
	o := r.tool(name, args)
	if !o.OK {
		r.t.Fatalf("%s%v: %s", name, args, o.raw)
	}
	return o
}

// outcome reads a tool's result and holds it to the rules of the envelope.
func (r *rig) outcome(name string, m rpc) outcome {
	r.t.Helper()
	if m.Error != nil {
		r.t.Fatalf("%s: protocol error %d: %s", name, m.Error.Code, m.Error.Message)
	}
	var result struct {
		Meta       map[string]any  `json:"_meta"`
		IsError    bool            `json:"isError"`
		Structured json.RawMessage `json:"structuredContent"`
		Content    []struct{ Type, Text string }
	}
	if err := json.Unmarshal(m.Result, &result); err != nil {
		r.t.Fatal(err)
	}
	if len(result.Content) != 1 || result.Content[0].Type != "text" ||
		!reflect.DeepEqual(mapped(r.t, json.RawMessage(result.Content[0].Text)), mapped(r.t, result.Structured)) {
		r.t.Fatalf("%s: content is not the envelope: %.500s", name, m.Result)
	}
	o := outcome{meta: result.Meta, raw: string(result.Structured)}
	var keys map[string]json.RawMessage
	if json.Unmarshal(result.Structured, &o) != nil || json.Unmarshal(result.Structured, &keys) != nil {
		r.t.Fatalf("%s: not an envelope: %s", name, result.Structured)
	}
	if len(keys) != 2 || o.OK != (keys["data"] != nil) || o.OK == (keys["error"] != nil) || o.OK == result.IsError {
		r.t.Fatalf("%s: the envelope is not strict (isError %v): %s", name, result.IsError, result.Structured)
	}
	r.checkSchema(name, result.Structured)
	return o
}

// checkSchema holds an answer to the published output schema.
func (r *rig) checkSchema(name string, envelope json.RawMessage) {
	r.t.Helper()
	if len(r.schemas) == 0 {
		_, m := r.send("tools/list", nil)
		var list struct {
			Tools []struct {
				Name         string             `json:"name"`
				OutputSchema *jsonschema.Schema `json:"outputSchema"`
			} `json:"tools"`
		}
		if err := json.Unmarshal(m.Result, &list); err != nil {
			r.t.Fatal(err)
		}
		for _, t := range list.Tools {
			resolved, err := t.OutputSchema.Resolve(nil)
			if err != nil {
				r.t.Fatalf("output schema of %s: %v", t.Name, err)
			}
			r.schemas[t.Name] = resolved
		}
	}
	var v any
	if err := json.Unmarshal(envelope, &v); err != nil {
		r.t.Fatal(err)
	}
	if err := r.schemas[name].Validate(v); err != nil {
		r.t.Fatalf("%s: the answer does not fit the output schema: %v\n%s", name, err, envelope)
	}
}

// agent makes an agent and returns its id.
func (r *rig) agent(name string) string {
	r.t.Helper()
	return r.must("agent_create", map[string]any{"name": name}).text(r.t, "agent_id")
}

// session begins a session of the legacy era and returns its id.
func (r *rig) session(version string, capabilities string) string {
	r.t.Helper()
	if capabilities == "" {
		capabilities = "{}"
	}
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":%q,"capabilities":%s,"clientInfo":{"name":"t","version":"1"}}}`, version, capabilities)
	a := r.do(http.MethodPost, "/mcp", []byte(body))
	id := a.header.Get("Mcp-Session-Id")
	if a.status != http.StatusOK || id == "" {
		r.t.Fatalf("initialize: %d %s", a.status, a.body)
	}
	a = r.do(http.MethodPost, "/mcp", []byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}`), "Mcp-Session-Id", id)
	if a.status != http.StatusAccepted || len(a.body) != 0 {
		r.t.Fatalf("initialized: %d %s", a.status, a.body)
	}
	return id
}

// legacy sends a message in a session.
func (r *rig) legacy(session, body string, headers ...string) answer {
	r.t.Helper()
	return r.do(http.MethodPost, "/mcp", []byte(body), append([]string{"Mcp-Session-Id", session}, headers...)...)
}

// readUntil reads a stream until a line contains a text, or with "" to its end,
// and returns what was read.
func readUntil(t testing.TB, body io.Reader, text string) string {
	t.Helper()
	var read strings.Builder
	done := make(chan error, 1)
	go func() {
		r := bufio.NewReader(body)
		for {
			line, err := r.ReadString('\n')
			read.WriteString(line)
			if text != "" && strings.Contains(line, text) || err != nil {
				if text == "" && err == io.EOF {
					err = nil
				}
				done <- err
				return
			}
		}
	}()
	select {
	case err := <-done:
		if err != nil {
			t.Fatalf("%v before %q came, after %s", err, text, read.String())
		}
		return read.String()
	case <-time.After(patience):
		t.Fatalf("%q did not come", text)
	}
	return ""
}

// lastEventID is the id of the last event of a stream that has one.
func lastEventID(stream string) string {
	id := ""
	for line := range strings.Lines(stream) {
		if v, ok := strings.CutPrefix(line, "id: "); ok {
			id = strings.TrimSpace(v)
		}
	}
	return id
}

// client is an HTTP client that sends the token.
func (r *rig) client() *http.Client { return &http.Client{Transport: withToken{}} }

type withToken struct{}

func (withToken) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.Header.Set("Authorization", "Bearer "+token)
	return http.DefaultTransport.RoundTrip(req)
}
