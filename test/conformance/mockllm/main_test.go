package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func parse(t *testing.T, api, body string) request {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal([]byte(body), &m); err != nil {
		t.Fatal(err)
	}
	return parseRequest(api, m)
}

func TestSegments(t *testing.T) {
	const text = "<system-reminder>SAY no</system-reminder>\nTHINK a\nCALL X {}\nCALL Y {}\nSAY one\nTHEN SAY two"
	if n := len(parseScript(text)); n != 3 {
		t.Fatalf("%d segments, want 3", n)
	}
	user := `{"role":"user","content":[{"type":"text","text":"CALL X {}\nCALL X {}\nECHO_LAST_TOOL_RESULT"}]}`
	for _, c := range []struct{ api, body, want string }{
		{"chat", `{"tools":[{"function":{"name":"X"}}],"messages":[` + user + `]}`, "XX"},
		{"chat", `{"tools":[{"function":{"name":"X"}}],"messages":[` + user + `,{"role":"assistant","tool_calls":[]},{"role":"tool","content":"r1"},{"role":"tool","content":"r2"},{"role":"user","content":"<system-reminder>SAY no</system-reminder>"},{"role":"user","content":"<memory_update>SAY no</memory_update>"}]}`, "r2"},
		{"anthropic", `{"tools":[{"name":"X"}],"messages":[` + user + `,{"role":"assistant","content":[]},{"role":"user","content":[{"type":"tool_result","content":[{"type":"text","text":"r3"}]}]}]}`, "r3"},
		{"responses", `{"tools":[{"name":"X"}],"input":[` + user + `,{"type":"function_call"},{"type":"function_call"},{"type":"function_call_output","output":"r4"}]}`, "r4"},
		{"chat", `{"messages":[{"role":"user","content":"hi"}]}`, "echo: hi"},
	} {
		got := ""
		for _, e := range new(player).plan(parse(t, c.api, c.body)).events {
			if e.kind == "call" {
				got += e.name
			} else {
				got += e.text
			}
		}
		if got != c.want {
			t.Errorf("%s: got %q, want %q", c.api, got, c.want)
		}
	}
}

func TestErrorTimes(t *testing.T) {
	srv := httptest.NewServer((&server{}).complete("chat"))
	defer srv.Close()
	for i, want := range []int{429, 429, 200, 429} {
		resp, err := http.Post(srv.URL, "application/json",
			strings.NewReader(`{"messages":[{"role":"user","content":"ERROR 429 times=2 retry-after=3\nSAY ok"}]}`))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("request %d: status %d, want %d", i+1, resp.StatusCode, want)
		}
	}
}

func post(t *testing.T, path, body string) (int, string, error) {
	t.Helper()
	srv := httptest.NewServer((&server{models: []string{"m"}}).routes())
	defer srv.Close()
	resp, err := http.Post(srv.URL+path, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b), err
}

func TestFormats(t *testing.T) {
	const user = `{"role":"user","content":"THINK hm\nSAY one two\nCALL X {\"a\":1}"}`
	for _, c := range []struct{ path, list, text, call, end string }{
		{"/v1/chat/completions", "messages", `"content":" two"`, `"name":"X"`, "data: [DONE]"},
		{"/messages", "messages", `"text":" two"`, `"partial_json":"{\"a\":1}"`, "event: message_stop"},
		{"/v1/responses", "input", `"delta":" two"`, `"name":"X"`, "event: response.completed"},
	} {
		for _, streaming := range []bool{true, false} {
			body := fmt.Sprintf(`{"model":"m","stream":%v,"tools":[{"name":"X"}],%q:[%s]}`, streaming, c.list, user)
			want := []string{c.text, c.call, c.end}
			if !streaming {
				want = []string{`"one two"`, `"X"`, `hm`}
			}
			status, out, err := post(t, c.path, body)
			if status != 200 || err != nil {
				t.Errorf("%s: status %d, %v", c.path, status, err)
			}
			for _, w := range want {
				if !strings.Contains(out, w) {
					t.Errorf("%s stream=%v: no %s in\n%s", c.path, streaming, w, out)
				}
			}
		}
	}
}

func TestBrokenAnswers(t *testing.T) {
	for _, streaming := range []string{"true", "false"} {
		body := `{"stream":` + streaming + `,"messages":[{"role":"user","content":"SAY a\n%s"}]}`
		if _, out, err := post(t, "/v1/chat/completions", strings.ReplaceAll(body, "%s", "MALFORMED")); err != nil || !strings.Contains(out, `{"broken`) {
			t.Errorf("MALFORMED, stream=%s: %q, %v", streaming, out, err)
		}
	}
	body := `{"stream":true,"messages":[{"role":"user","content":"SAY a\nDROP_MID_STREAM"}]}`
	if _, out, err := post(t, "/v1/chat/completions", body); err == nil || !strings.Contains(out, `"content":"a"`) {
		t.Errorf("DROP_MID_STREAM: %q, %v", out, err)
	}
}
