package mcpserver_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"mneme/internal/llm"
	"mneme/internal/llm/fake"
)

// asking is a model that wants to read a file and then says what it got.
func asking() llm.Model {
	return fake.NewFunc(func(req *llm.Request) fake.Answer {
		last := req.Messages[len(req.Messages)-1]
		raw, err := json.Marshal(last)
		if err != nil {
			panic(err)
		}
		switch {
		case strings.Contains(string(raw), "kept"):
			return fake.Answer{fake.Text("I read it")}
		case strings.Contains(string(raw), "question"):
			return fake.Answer{fake.Call("Read", `{"file_path":"kept.txt"}`)}
		}
		return fake.Answer{fake.Text("I could not read it: " + string(raw))}
	})
}

// everythingAsks makes each tool call of turns in the server's directory ask.
func everythingAsks(t testing.TB, dir string) {
	t.Helper()
	err := os.MkdirAll(filepath.Join(dir, ".letta"), 0o700)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, ".letta", "settings.json"), []byte(`{"permissions":{"alwaysAsk":["Read"]}}`), 0o600)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "kept.txt"), []byte("kept"), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// connect makes a client of the official SDK, of the legacy era or the modern one.
func (r *rig) connect(legacy bool, o *mcp.ClientOptions) *mcp.ClientSession {
	r.t.Helper()
	c := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, o)
	var so *mcp.ClientSessionOptions
	if legacy {
		so = &mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"}
	}
	cs, err := c.Connect(r.t.Context(), &mcp.StreamableClientTransport{Endpoint: r.http.URL + "/mcp", HTTPClient: r.client()}, so)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { cs.Close() })
	return cs
}

// call calls a tool with a client of the SDK.
func (r *rig) call(cs *mcp.ClientSession, name string, args map[string]any) outcome {
	r.t.Helper()
	res, err := cs.CallTool(r.t.Context(), &mcp.CallToolParams{Name: name, Arguments: args})
	if err != nil {
		r.t.Fatalf("%s: %v", name, err)
	}
	raw, err := json.Marshal(res)
	if err != nil {
		r.t.Fatal(err)
	}
	return r.outcome(name, rpc{Result: raw})
}

// person makes a client whose user answers everything the same way.
func (r *rig) person(legacy bool, action string, content map[string]any, asked *atomic.Int64) *mcp.ClientSession {
	return r.connect(legacy, &mcp.ClientOptions{
		ElicitationHandler: func(_ context.Context, req *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			asked.Add(1)
			return &mcp.ElicitResult{Action: action, Content: content}, nil
		},
	})
}

// The person in front of the client is asked for the approvals of its own
// session_ask, in both eras; a stock server's turn is never approved of.
func TestApproval(t *testing.T) {
	for _, legacy := range []bool{true, false} {
		for _, action := range []string{"accept", "decline", "cancel"} {
			t.Run(fmt.Sprintf("legacy %v %s", legacy, action), func(t *testing.T) {
				eachMode(t, asking, func(t *testing.T, r *rig) {
					everythingAsks(t, r.app.Dir)
					r.agent("vole")
					var asked atomic.Int64
					o := r.call(r.person(legacy, action, nil, &asked), "session_ask", map[string]any{"agent_id": "vole", "message": "question"})
					switch {
					case r.stock:
						if !o.OK || asked.Load() != 0 || !strings.Contains(o.raw, "storage_locked") {
							t.Errorf("asked %d times: %s", asked.Load(), o.raw)
						}
					case action == "accept":
						if !o.OK || asked.Load() != 1 || o.text(t, "reply") != "I read it" {
							t.Errorf("asked %d times: %s", asked.Load(), o.raw)
						}
					case o.code() != "approval_required" || asked.Load() != 1:
						t.Errorf("asked %d times: %s", asked.Load(), o.raw)
					}
				})
			})
		}
	}
}

func TestApprovalWithoutElicitation(t *testing.T) {
	r := start(t, asking())
	everythingAsks(t, r.app.Dir)
	r.agent("vole")
	for _, legacy := range []bool{true, false} {
		if o := r.call(r.connect(legacy, nil), "session_ask", map[string]any{"agent_id": "vole", "message": "question"}); o.code() != "approval_required" {
			t.Errorf("legacy %v: %s", legacy, o.raw)
		}
	}
	// One that reads JSON only cannot be asked on the way.
	session := r.session("2025-11-25", `{"elicitation":{}}`)
	a := r.legacy(session, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"session_ask","arguments":{"agent_id":"vole","message":"question"}}}`, "Accept", "application/json")
	if o := r.outcome("session_ask", r.last(a)); o.code() != "approval_required" {
		t.Errorf("JSON only: %s", o.raw)
	}
}

// The state of an answer that asks for input works once, for its own call.
func TestRequestState(t *testing.T) {
	r := start(t, asking())
	everythingAsks(t, r.app.Dir)
	r.agent("vole")
	ask := func(message string, more map[string]any) rpc {
		t.Helper()
		params := map[string]any{
			"name": "session_ask", "arguments": map[string]any{"agent_id": "vole", "message": message},
			"_meta": map[string]any{"io.modelcontextprotocol/clientCapabilities": map[string]any{"elicitation": map[string]any{}}},
		}
		for k, v := range more {
			params[k] = v
		}
		_, m := r.send("tools/call", params)
		return m
	}
	type needs struct {
		ResultType    string
		RequestState  string
		InputRequests map[string]struct {
			Method string
			Params struct{ Message string }
		}
	}
	first := func() needs {
		t.Helper()
		var n needs
		if m := ask("question", nil); m.Error != nil || json.Unmarshal(m.Result, &n) != nil || n.ResultType != "input_required" || n.RequestState == "" {
			t.Fatalf("the first answer is %s %+v", m.Result, m.Error)
		}
		return n
	}
	accept := map[string]any{"answer": map[string]any{"action": "accept", "content": map[string]any{}}}
	n := first()
	if q := n.InputRequests["answer"]; q.Method != "elicitation/create" || !strings.Contains(q.Params.Message, "Read") || strings.Contains(n.RequestState, "vole") {
		t.Errorf("asked for %+v", n)
	}
	for name, state := range map[string]string{"altered": n.RequestState[:len(n.RequestState)-2] + "xx", "nonsense": "?", "made up": "AAAA"} {
		if m := ask("question", map[string]any{"requestState": state, "inputResponses": accept}); m.Error == nil || m.Error.Code != -32602 {
			t.Errorf("%s: %s", name, m.Result)
		}
	}
	if m := ask("another question", map[string]any{"requestState": n.RequestState, "inputResponses": accept}); m.Error == nil || m.Error.Code != -32602 {
		t.Errorf("for another call: %s", m.Result)
	}
	// Without an answer the client is asked again, with a new state.
	m := ask("question", map[string]any{"requestState": n.RequestState})
	var again needs
	if json.Unmarshal(m.Result, &again) != nil || again.ResultType != "input_required" || again.RequestState == n.RequestState {
		t.Fatalf("without an answer: %s", m.Result)
	}
	if m := ask("question", map[string]any{"requestState": n.RequestState, "inputResponses": accept}); m.Error == nil || m.Error.Code != -32602 {
		t.Errorf("used twice: %s", m.Result)
	}
	o := r.outcome("session_ask", ask("question", map[string]any{"requestState": again.RequestState, "inputResponses": accept}))
	if !o.OK || o.text(t, "reply") != "I read it" {
		t.Errorf("in the end: %s", o.raw)
	}
	if m := ask("question", map[string]any{"requestState": again.RequestState, "inputResponses": accept}); m.Error == nil {
		t.Errorf("after the end: %s", m.Result)
	}
}

// A turn that waits for an answer that never comes ends with its state.
func TestHeldTurnExpires(t *testing.T) {
	r := start(t, asking())
	everythingAsks(t, r.app.Dir)
	r.agent("vole")
	for range 3 {
		_, m := r.send("tools/call", map[string]any{
			"name": "session_ask", "arguments": map[string]any{"agent_id": "vole", "message": "question"},
			"_meta": map[string]any{"io.modelcontextprotocol/clientCapabilities": map[string]any{"elicitation": map[string]any{}}},
		})
		if !strings.Contains(string(m.Result), "input_required") {
			t.Fatalf("%s", m.Result)
		}
	}
	r.server.Close() // waits for the turns, which end with it
}

func TestDeleteAsksThePerson(t *testing.T) {
	for _, legacy := range []bool{true, false} {
		t.Run(fmt.Sprintf("legacy %v", legacy), func(t *testing.T) {
			r := start(t, nil, "MCP_ELICIT_CONFIRM", "true")
			r.agent("vole")
			var asked atomic.Int64
			if o := r.call(r.person(legacy, "decline", nil, &asked), "agent_delete", map[string]any{"agent_id": "vole"}); o.code() != "confirmation_required" {
				t.Errorf("declined: %s", o.raw)
			}
			if o := r.call(r.connect(legacy, nil), "agent_delete", map[string]any{"agent_id": "vole", "confirm": false}); o.code() != "confirmation_required" {
				t.Errorf("a client without elicitation: %s", o.raw)
			}
			if o := r.call(r.person(legacy, "accept", map[string]any{}, &asked), "agent_delete", map[string]any{"agent_id": "vole"}); !o.OK {
				t.Errorf("accepted: %s", o.raw)
			}
			if asked.Load() != 2 {
				t.Errorf("asked %d times", asked.Load())
			}
		})
	}
}
