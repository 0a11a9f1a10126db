package main

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coder/websocket"
)

// fake serves a script: lines sent after each command, "--" between commands,
// with the x-conn header of the connection they go to in front.
func fake(t *testing.T, script string) string {
	conns := map[string]chan *websocket.Conn{"a": make(chan *websocket.Conn, 1), "b": make(chan *websocket.Conn, 1)}
	turns := strings.Split(strings.TrimSpace(script), "\n--\n")
	next := 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		conns[r.Header.Get("x-conn")] <- c
		for {
			if _, _, err := c.Read(context.Background()); err != nil || next == len(turns) {
				return
			}
			for _, line := range strings.Split(turns[next], "\n") {
				name, frame, _ := strings.Cut(line, ":")
				to := <-conns[name]
				_ = to.Write(context.Background(), websocket.MessageText, []byte(frame))
				conns[name] <- to
			}
			next++
		}
	}))
	t.Cleanup(srv.Close)
	return "ws" + strings.TrimPrefix(srv.URL, "http")
}

const fakeScenario = `{"steps": [
{"conn": "b", "open": {"headers": {"x-conn": "b"}}},
{"conn": "a", "open": {"headers": {"x-conn": "a"}}},
{"conn": "a", "send": {"type": "runtime_start", "request_id": "start"}},
{"conn": "a", "wait_for": {"type": "runtime_start_response"}},
{"conn": "a", "send": {"type": "update_toolset", "request_id": "bad", "toolset_preference": "bogus"}},
{"conn": "a", "wait_for": {"type": "pong"}},
{"conn": "a", "send": {"type": "input", "request_id": "in-1", "payload": {"messages": [{"content": "hi", "client_message_id": "cm-1"}]}}},
{"conn": "a", "wait_for": {"type": "turn_finished"}, "timeout": 2000}
]}`

const fakeScript = `
a:{"type":"runtime_start_response","request_id":"start","success":true,"tools":[]}
--
a:{"type":"pong"}
--
a:{"type":"input_accepted","request_id":"in-1","accepted":true}
a:{"type":"update_loop_status","event_seq":1,"emitted_at":"x","idempotency_key":"k1","runtime":{},"loop_status":{"status":"SENDING_API_REQUEST"}}
a:{"type":"stream_delta","event_seq":2,"emitted_at":"x","idempotency_key":"k2","runtime":{},"delta":{"message_type":"assistant_message","id":"m1","content":"hello"}}
b:{"type":"stream_delta","event_seq":2,"emitted_at":"x","idempotency_key":"k2","runtime":{},"delta":{"message_type":"assistant_message","id":"m1","content":"hello"}}
a:{"type":"turn_finished","event_seq":3,"emitted_at":"x","idempotency_key":"k3","runtime":{},"stop_reason":"end_turn"}`

// kit is a directory with the fake scenario and its golden transcript.
type kit struct {
	t   *testing.T
	dir string
}

func newKit(t *testing.T) kit {
	k := kit{t, t.TempDir()}
	k.write("scenarios/fake.json", fakeScenario)
	if code, out := k.wsdiff(fakeScript, "record", "-out", k.path("fake.golden")); code != 0 {
		t.Fatal(out)
	}
	return k
}

func (k kit) path(name string) string { return filepath.Join(k.dir, name) }

func (k kit) write(name, text string) {
	k.t.Helper()
	_ = os.MkdirAll(filepath.Dir(k.path(name)), 0o755)
	if err := os.WriteFile(k.path(name), []byte(text), 0o644); err != nil {
		k.t.Fatal(err)
	}
}

// wsdiff runs a command line against a fake server.
func (k kit) wsdiff(script string, args ...string) (int, string) {
	k.t.Helper()
	workspace, err := os.MkdirTemp(k.dir, "workspace")
	if err != nil {
		k.t.Fatal(err)
	}
	var out bytes.Buffer
	all := append(args[:1:1], "-url", fake(k.t, script), "-scenario", k.path("scenarios"), "-golden", k.path("fake.golden"), "-workspace", workspace)
	code := app(append(all, args[1:]...), &out, &out)
	return code, out.String()
}

// swap exchanges two lines of the script.
func swap(i, j int) string {
	lines := strings.Split(fakeScript, "\n")
	lines[i], lines[j] = lines[j], lines[i]
	return strings.Join(lines, "\n")
}

func TestFaultsAreCaught(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	edit := func(old, replacement string) string { return strings.Replace(fakeScript, old, replacement, 1) }
	lines := strings.Split(fakeScript, "\n")
	seq := strings.NewReplacer(`"event_seq":1`, `"event_seq":2`, `"event_seq":2`, `"event_seq":1`)
	order := strings.Join(append(append(append([]string{}, lines[:6]...), seq.Replace(lines[7]), seq.Replace(lines[6])), lines[8:]...), "\n")
	echo := `a:{"type":"stream_delta","event_seq":9,"emitted_at":"x","idempotency_key":"k9","runtime":{},"delta":{"message_type":"user_message","otid":"cm-1","content":"hi"}}`
	for name, c := range map[string]struct{ script, want string }{
		"frame order":           {order, "update_loop_status"},
		"ack after the turn":    {swap(5, 9), "- a["},
		"missing frame":         {strings.Replace(fakeScript, lines[7]+"\n", "", 1), "- a["},
		"wrong value":           {edit(`"end_turn"`, `"error"`), `want "end_turn"`},
		"wrong type":            {edit(`"tools":[]`, `"tools":{}`), "want an array"},
		"missing key":           {edit(`,"tools":[]`, ``), "tools: missing"},
		"wrong text":            {edit(`"hello"`, `"hullo"`), `want "hello"`},
		"event numbers":         {edit(`"event_seq":2`, `"event_seq":1`), "event_seq 1 after 1"},
		"extra frame":           {edit("a:{\"type\":\"pong\"}", "a:{\"type\":\"pong\"}\na:{\"type\":\"ping\"}"), "+ a["},
		"failure of an answer":  {edit(`"success":true`, `"success":false`), "success"},
		"refusal of a sent one": {edit("a:{\"type\":\"pong\"}", "a:{\"type\":\"input_accepted\",\"request_id\":\"start\",\"accepted\":false}\na:{\"type\":\"pong\"}"), "+ a["},
		"refusal of none":       {edit("a:{\"type\":\"pong\"}", "a:{\"type\":\"sync_response\",\"request_id\":\"other\",\"success\":false}\na:{\"type\":\"pong\"}"), "+ a["},
		"success out of place":  {edit("a:{\"type\":\"pong\"}", "a:{\"type\":\"update_toolset_response\",\"request_id\":\"bad\",\"success\":true}\na:{\"type\":\"pong\"}"), "+ a["},
		"echo to the sender":    {fakeScript[:strings.LastIndex(fakeScript, "\n")+1] + echo + "\n" + lines[9], "+ a["},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, out := k.wsdiff(c.script, "check")
			if code != 1 || !strings.Contains(out, c.want) || !strings.HasSuffix(out, "0 passed, 1 failed\n") {
				t.Errorf("want %q in\n%s", c.want, out)
			}
		})
	}
}

func TestAllowedExtras(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	if code, out := k.wsdiff(fakeScript, "check"); code != 0 || out != "PASS fake\n1 passed, 0 failed\n" {
		t.Fatal(out)
	}
	for name, line := range map[string]string{
		"error":   `a:{"type":"error","message":"bad toolset"}`,
		"refusal": `a:{"type":"update_toolset_response","request_id":"bad","success":false,"error":"bad toolset"}`,
		"echo":    `b:{"type":"stream_delta","event_seq":1,"emitted_at":"x","idempotency_key":"k0","runtime":{},"delta":{"message_type":"user_message","otid":"cm-1","content":"hi"}}`,
	} {
		script := strings.Replace(fakeScript, `a:{"type":"pong"}`, line+"\n"+`a:{"type":"pong"}`, 1)
		if code, out := k.wsdiff(script, "check", "-v"); code != 0 || !strings.Contains(out, "extra") {
			t.Errorf("%s: %s", name, out)
		}
		twice := strings.Replace(script, line, line+"\n"+line, 1)
		if code, _ := k.wsdiff(twice, "check"); (code == 0) != (name == "error") {
			t.Errorf("%s twice: exit code %d", name, code)
		}
		if code, _ := k.wsdiff(script, "check", "-allow-extra", "ping"); (code == 0) == (name == "error") {
			t.Errorf("%s without -allow-extra error: exit code %d", name, code)
		}
	}
}

func TestDeviations(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	mended := strings.Replace(fakeScript, `"end_turn"`, `"mended"`, 1)
	if code, out := k.wsdiff(mended, "deviate", "-out", k.path("dev"), "-reason", "because"); code != 1 || !strings.Contains(out, "needs a reason and what it mends") {
		t.Errorf("no -mends: %s", out)
	}
	if code, out := k.wsdiff(mended, "deviate", "-out", k.path("dev"), "-reason", "because", "-mends", "WEAK-8"); code != 0 {
		t.Fatal(out)
	}
	if code, out := k.wsdiff(mended, "check", "-deviations", k.path("dev")); code != 0 || out != "DEVIATES fake (WEAK-8)\n0 passed, 1 deviate, 0 failed\n" {
		t.Error(out)
	}
	for name, script := range map[string]string{"reference": fakeScript, "other": strings.Replace(mended, `"hello"`, `"hullo"`, 1)} {
		if code, out := k.wsdiff(script, "check", "-deviations", k.path("dev")); code != 1 || !strings.HasSuffix(out, "0 passed, 0 deviate, 1 failed\n") {
			t.Errorf("%s: %s", name, out)
		}
	}
	for _, bad := range []string{`{"mends":"x","golden":{"a":[]}}`, `{"reason":"x","golden":{"a":[]}}`, `{"reason":"x","mends":" ","golden":{"a":[]}}`, `{"reason":"x","mends":"x"}`} {
		k.write("bad/fake.json", bad)
		if code, out := k.wsdiff(mended, "check", "-deviations", k.path("bad")); code != 2 {
			t.Errorf("%s: %s", bad, out)
		}
	}
}

func TestLists(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	k.write("scenarios/later.json", fakeScenario)
	k.write("list", "# comment\nlater # not built\n")
	if code, out := k.wsdiff(fakeScript, "check", "-skip", k.path("list")); code != 0 || out != "PASS fake\n1 passed, 0 failed, 1 not yet\n" {
		t.Error(out)
	}
	if code, out := k.wsdiff(fakeScript, "check", "-only-listed", k.path("list"), "-deviations", k.path("none")); code != 0 || out != "PASS later\n1 passed, 0 deviate, 0 failed, 1 not yet\n" {
		t.Error(out)
	}
}

func TestToolLists(t *testing.T) {
	const text = `{"type":"x","text":"{\"api\":\"chat\",\"tools\":[\"Bash\",\"Read\"]}","tool_return":"No. Available tools: Read, Bash"}`
	for want, s := range map[string]*Scenario{
		`{"text":"{\"api\":\"chat\",\"tools\":\"<array>\"}","tool_return":"No. Available tools: \"<array>\"","type":"x"}`:        {},
		`{"text":"{\"api\":\"chat\",\"tools\":[\"Bash\",\"Read\"]}","tool_return":"No. Available tools: Read, Bash","type":"x"}`: {Tools: []string{"*"}},
		`{"text":"{\"api\":\"chat\",\"tools\":[\"Bash\"]}","tool_return":"No. Available tools: [\"Bash\"]","type":"x"}`:          {Tools: []string{"Bash", "Edit"}},
	} {
		if got := string(marshal(normal(t, s, text)["a"][0])); got != want {
			t.Errorf("tools %q: %s", s.Tools, got)
		}
	}
}
