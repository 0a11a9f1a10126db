package llm_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mneme/internal/agent"
	"mneme/internal/llm"
)

// pieces sends parts of a stream, flushing each, then does what end says.
func pieces(end func(w http.ResponseWriter, r *http.Request), bodies ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		for _, b := range bodies {
			_, _ = io.WriteString(w, b)
			_ = http.NewResponseController(w).Flush()
		}
		end(w, r)
	}
}

func untilGone(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

func abort(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

// A provider that goes quiet in the middle ends in an error that may be retried
// (case A12 a).
func TestQuietProvider(t *testing.T) {
	for name, h := range map[string]http.HandlerFunc{
		"in the middle":         pieces(untilGone, events(text("a"))),
		"before the first byte": func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body); <-r.Context().Done() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := chat(t, serve(t, h), func(cfg *llm.ChatConfig) { cfg.Idle = 50 * time.Millisecond })
			_, err := collect(t.Context(), c, question())
			var e *llm.Error
			if !errors.As(err, &e) || !e.Retryable || !strings.Contains(e.Message, "sent nothing for 50ms") {
				t.Errorf("got %v", err)
			}
		})
	}
}

// The turn is complete with [DONE], whatever becomes of the connection, and a
// while after a finish reason without it (case A12 b).
func TestSocketStaysOpenAfterTheEnd(t *testing.T) {
	url := serve(t, pieces(untilGone, events(text("a"), fin("stop"), done)))
	start := time.Now()
	parts, err := collect(t.Context(), chat(t, url), question())
	if err != nil || summary(parts).Text != "a" {
		t.Errorf("%v %v", parts, err)
	}
	if took := time.Since(start); took > 3*time.Second {
		t.Errorf("took %s", took)
	}
}

// A slow model takes as long as it likes while something comes; comments count
// (case H11).
func TestSlowProvider(t *testing.T) {
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		rc := http.NewResponseController(w)
		for range 8 {
			_, _ = io.WriteString(w, ": still loading\n\n")
			_ = rc.Flush()
			select {
			case <-time.After(50 * time.Millisecond):
			case <-r.Context().Done():
			}
		}
		_, _ = io.WriteString(w, events(text("a"), fin("stop"), done))
	})
	c := chat(t, url, func(cfg *llm.ChatConfig) { cfg.Idle = 250 * time.Millisecond })
	if parts, err := collect(t.Context(), c, question()); err != nil || summary(parts).Text != "a" {
		t.Errorf("%v %v", parts, err)
	}
}

func TestConnectionBreaks(t *testing.T) {
	_, err := collect(t.Context(), chat(t, serve(t, pieces(abort, events(text("a"))))), question())
	var e *llm.Error
	if !errors.As(err, &e) || !e.Retryable || e.Code != agent.CodeModel {
		t.Errorf("in the middle: %v", err)
	}
	parts, err := collect(t.Context(), chat(t, serve(t, pieces(abort, events(text("a"), fin("stop"))))), question())
	if err != nil || summary(parts).Finish != llm.FinishStop {
		t.Errorf("after the finish reason: %v %v", parts, err)
	}
}

func TestCancelEndsTheRequest(t *testing.T) {
	gone := make(chan struct{})
	url := serve(t, pieces(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done(); close(gone) }, events(text("a"))))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c := chat(t, url)
	var err error
	for _, e := range c.Stream(ctx, question()) {
		cancel()
		err = e
	}
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	<-gone
}

func TestLeavingTheLoopEndsTheRequest(t *testing.T) {
	gone := make(chan struct{})
	url := serve(t, pieces(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done(); close(gone) }, events(text("a"))))
	for range chat(t, url).Stream(t.Context(), question()) {
		break
	}
	<-gone
}

func TestConnectionsAreUsedAgain(t *testing.T) {
	var conns atomic.Int32
	srv := httptest.NewUnstartedServer(stream(events(text("a"), fin("stop"), done)))
	srv.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			conns.Add(1)
		}
	}
	srv.Start()
	t.Cleanup(srv.Close)
	c := chat(t, srv.URL)
	for range 20 {
		if _, err := collect(t.Context(), c, question()); err != nil {
			t.Fatal(err)
		}
	}
	if n := conns.Load(); n != 1 {
		t.Errorf("%d connections for 20 turns", n)
	}
}

func TestAnswerThatIsNotStreamed(t *testing.T) {
	body := `{"id":"x","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"hi","reasoning_content":"hm",
	  "tool_calls":[{"id":"c1","type":"function","function":{"name":"Read","arguments":"{}"}}]},"finish_reason":"tool_calls"}],
	  "usage":{"prompt_tokens":3,"completion_tokens":4}}`
	json := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json; charset=utf-8")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}
	}
	parts, err := collect(t.Context(), chat(t, serve(t, json(200, body))), question())
	want := outcome{Text: "hi", Reasoning: "hm", Field: "reasoning_content", Calls: []agent.CallPart{call("c1", "Read", "{}")},
		Finish: llm.FinishCalls, Usage: agent.Usage{Input: 3, Output: 4, Reported: true}}
	if diff := cmp.Diff(want, summary(parts)); diff != "" || err != nil {
		t.Error(err, diff)
	}
	for _, bad := range []string{`{"broken`, `{}`, `{"error":{"message":"boom"}}`, `{"choices":[{"message":{"content":""}}]}`, `[]`, ``} {
		if parts, err := collect(t.Context(), chat(t, serve(t, json(200, bad))), question()); agent.CodeOf(err) != agent.CodeModel {
			t.Errorf("%s: %v %v", bad, parts, err)
		}
	}
}

func TestRequestHeaders(t *testing.T) {
	var got http.Header
	var path string
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got, path = r.Header.Clone(), r.URL.Path
		stream(events(text("a"), fin("stop"), done))(w, r)
	})
	c := chat(t, url, func(cfg *llm.ChatConfig) { cfg.Key, cfg.Header = "sekret", http.Header{"X-Title": {"mneme"}} })
	if _, err := collect(t.Context(), c, question()); err != nil {
		t.Fatal(err)
	}
	if got.Get("Authorization") != "Bearer sekret" || got.Get("X-Title") != "mneme" || got.Get("Content-Type") != "application/json" || path != "/v1/chat/completions" {
		t.Errorf("%s %v", path, got)
	}
}

// A server that refuses an optional part is asked again without it, once, and
// remembered (case H12).
func TestRefusedFeatures(t *testing.T) {
	type body = map[string]any
	lastUser := func(b body) any {
		msgs := b["messages"].([]any)
		return msgs[len(msgs)-1].(body)["content"]
	}
	assistant := func(b body) body { return b["messages"].([]any)[1].(body) }
	tests := []struct {
		name   string
		says   string
		status int
		bad    func(b body) bool
	}{
		{"stream options", `{"error":{"message":"Unrecognized request argument supplied: stream_options"}}`, 400, func(b body) bool { return b["stream_options"] != nil }},
		{"store", `{"detail":[{"type":"extra_forbidden","loc":["body","store"],"msg":"Extra inputs are not permitted"}]}`, 422, func(b body) bool { _, ok := b["store"]; return ok }},
		{"max_completion_tokens", `{"message":"unknown field max_completion_tokens"}`, 400, func(b body) bool { return b["max_completion_tokens"] != nil || b["max_tokens"] == nil }},
		{"parallel", `"parallel_tool_calls" is not supported`, 400, func(b body) bool { _, ok := b["parallel_tool_calls"]; return ok }},
		{"effort", `reasoning_effort: not supported by this model`, 400, func(b body) bool { return b["reasoning_effort"] != nil }},
		{"reasoning", `property 'reasoning_content' is unsupported`, 400, func(b body) bool { return assistant(b)["reasoning_content"] != nil }},
		{"null content", `messages.1.content: must not be null`, 400, func(b body) bool { c, ok := assistant(b)["content"]; return !ok || c == nil }},
		{"parts", `messages[3].content must be a string`, 400, func(b body) bool { _, ok := lastUser(b).(string); return !ok }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			requests, refused := 0, 0
			url := serve(t, func(w http.ResponseWriter, r *http.Request) {
				var b body
				_ = json.NewDecoder(r.Body).Decode(&b)
				mu.Lock()
				requests++
				bad := tt.bad(b)
				if bad {
					refused++
				}
				mu.Unlock()
				if bad {
					http.Error(w, tt.says, tt.status)
					return
				}
				stream(events(text("a"), fin("stop"), done))(w, r)
			})
			req := question()
			req.MaxOutput = 100
			req.Settings = json.RawMessage(`{"parallel_tool_calls":true,"reasoning_effort":"low"}`)
			req.Messages = []*agent.Message{
				{Role: agent.RoleUser, Parts: []agent.Part{agent.Text("hi")}},
				{Role: agent.RoleAssistant, Parts: []agent.Part{{Kind: agent.PartReasoning, Text: "hm", Field: "reasoning_content"}, {Kind: agent.PartToolCall, Call: &agent.CallPart{ID: "c", Name: "Read", Arguments: "{}"}}}},
				{Role: agent.RoleTool, CallID: "c", Parts: []agent.Part{agent.Text("x")}},
				{Role: agent.RoleUser, Context: "ctx", Parts: []agent.Part{agent.Text("hi")}},
			}
			c := chat(t, url)
			for range 3 {
				if _, err := collect(t.Context(), c, req); err != nil {
					t.Fatal(err)
				}
			}
			if requests != 4 || refused != 1 {
				t.Errorf("%d requests, %d refused", requests, refused)
			}
		})
	}
}

func TestRefusalThatCannotBeMet(t *testing.T) {
	requests := 0
	url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		requests++
		http.Error(w, `stream_options and store are bad`, 400)
	})
	_, err := collect(t.Context(), chat(t, url), question())
	if agent.CodeOf(err) != agent.CodeModel || requests != 2 {
		t.Errorf("%d requests, %v", requests, err)
	}
}

func TestStatusErrors(t *testing.T) {
	tests := []struct {
		status   int
		body     string
		header   http.Header
		code     agent.Code
		retry    bool
		overflow bool
		after    time.Duration
		says     []string
	}{
		{status: 401, body: `{"error":{"message":"Incorrect API key provided"}}`, code: agent.CodeModelConfig, says: []string{"API key", "`mneme connect lmstudio`"}},
		{status: 403, code: agent.CodeModelConfig, says: []string{"API key", "403"}},
		{status: 402, code: agent.CodeModelConfig, says: []string{"credit"}},
		{status: 404, body: "404 page not found", code: agent.CodeModelConfig, says: []string{"no model", "base URL", "/v1"}},
		{status: 307, header: http.Header{"Location": {"http://elsewhere/"}}, code: agent.CodeModelConfig, says: []string{"http://elsewhere/", "base URL"}},
		{status: 400, body: `{"error":{"message":"Invalid   request\n here"}}`, code: agent.CodeModel, says: []string{`"Invalid request here"`, "settings"}},
		{status: 400, body: `{"error":{"code":"context_length_exceeded","message":"x"}}`, code: agent.CodeModelOverflow, overflow: true, says: []string{"compact"}},
		{status: 400, body: `prompt is too long: 210000 tokens > 200000 maximum`, code: agent.CodeModelOverflow, overflow: true},
		{status: 413, code: agent.CodeModelOverflow, overflow: true},
		{status: 422, body: `{"message":"bad field"}`, code: agent.CodeModel, says: []string{"bad field"}},
		{status: 408, code: agent.CodeModel, retry: true},
		{status: 409, code: agent.CodeModel, retry: true},
		{status: 425, code: agent.CodeModel, retry: true},
		{status: 429, code: agent.CodeModelRateLimit, retry: true, header: http.Header{"Retry-After": {"7"}}, after: 7 * time.Second, says: []string{"rate"}},
		{status: 429, body: `{"error":{"code":"insufficient_quota"}}`, code: agent.CodeModelRateLimit, retry: true, header: http.Header{"Retry-After": {"1.5"}}, after: 1500 * time.Millisecond},
		{status: 429, code: agent.CodeModelRateLimit, retry: true, header: http.Header{"Retry-After": {"nonsense"}}},
		{status: 500, body: "context window", code: agent.CodeModel, retry: true, says: []string{"500", "try again"}},
		{status: 503, code: agent.CodeModel, retry: true, header: http.Header{"Retry-After": {"-3"}}},
		{status: 529, code: agent.CodeModel, retry: true},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprint(tt.status, " ", clipped(tt.body)), func(t *testing.T) {
			t.Parallel()
			url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				for k, v := range tt.header {
					w.Header()[k] = v
				}
				w.WriteHeader(tt.status)
				_, _ = io.WriteString(w, tt.body)
			})
			_, err := collect(t.Context(), chat(t, url), question())
			var e *llm.Error
			if !errors.As(err, &e) {
				t.Fatalf("got %v", err)
			}
			if e.Status != tt.status || e.Code != tt.code || e.Retryable != tt.retry || e.Overflow != tt.overflow || e.RetryAfter != tt.after || e.Detail != tt.body {
				t.Errorf("%+v", *e)
			}
			for _, s := range append(tt.says, "LM Studio") {
				if !strings.Contains(e.Message, s) {
					t.Errorf("%q is missing in: %s", s, e.Message)
				}
			}
			if strings.Count(e.Message, "\n") > 0 || !strings.HasSuffix(e.Message, ".") {
				t.Errorf("not one sentence: %q", e.Message)
			}
			var plain *agent.Error
			if !errors.As(err, &plain) || plain.Message != e.Message {
				t.Errorf("errors.As to the plain error gives %v", plain)
			}
		})
	}
}

func clipped(s string) string { return s[:min(len(s), 30)] }

func TestRetryAfterAsDate(t *testing.T) {
	h := http.Header{"Retry-After": {time.Now().Add(30 * time.Second).UTC().Format(http.TimeFormat)}}
	e := llm.StatusError(llm.Source{}, 503, h, nil)
	if e.RetryAfter < 25*time.Second || e.RetryAfter > 30*time.Second {
		t.Errorf("got %s", e.RetryAfter)
	}
}

func TestLongErrorBody(t *testing.T) {
	e := llm.StatusError(llm.Source{Provider: "x", Model: "m"}, 400, nil, []byte(strings.Repeat("日", 5000)+"\xff"))
	if len(e.Detail) > 2048 || !strings.HasSuffix(e.Detail, "日…") || len(e.Message) > 500 {
		t.Errorf("detail of %d bytes, message %q", len(e.Detail), e.Message)
	}
}

// Providers that cannot be reached give one sentence with the address and the
// command to change it (case L06).
func TestUnreachable(t *testing.T) {
	closed := httptest.NewServer(nil)
	closed.Close()
	tlsServer := httptest.NewUnstartedServer(nil)
	tlsServer.Config.ErrorLog = log.New(io.Discard, "", 0)
	tlsServer.StartTLS()
	t.Cleanup(tlsServer.Close)
	plain := serve(t, stream(""))
	for name, tt := range map[string]struct{ url, says string }{
		"refused":            {closed.URL, "cannot be reached"},
		"unknown host":       {"http://no-such-host.invalid", "host name"},
		"untrusted":          {tlsServer.URL, "certificate"},
		"no TLS on the port": {"https" + strings.TrimPrefix(plain, "http"), "TLS"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := collect(t.Context(), chat(t, tt.url), question())
			var e *llm.Error
			if !errors.As(err, &e) || !e.Retryable || e.Status != 0 || e.Code != agent.CodeModel {
				t.Fatalf("got %#v", err)
			}
			for _, s := range []string{tt.says, tt.url + "/v1", "`mneme connect lmstudio`"} {
				if !strings.Contains(e.Message, s) {
					t.Errorf("%q is missing in %q (%s)", s, e.Message, e.Detail)
				}
			}
		})
	}
}

func TestRetryDelay(t *testing.T) {
	retry := &llm.Error{Plain: agent.Error{Retryable: true}}
	for _, tt := range []struct {
		err     error
		attempt int
		want    time.Duration
		ok      bool
	}{
		{retry, 1, time.Second, true},
		{retry, 2, 2 * time.Second, true},
		{retry, 3, 4 * time.Second, true},
		{retry, 4, 0, false},
		{retry, 0, 0, false},
		{fmt.Errorf("step: %w", retry), 1, time.Second, true},
		{&llm.Error{Plain: agent.Error{Retryable: true}, RetryAfter: 20 * time.Second}, 3, 20 * time.Second, true},
		{&llm.Error{Plain: agent.Error{Retryable: true}, RetryAfter: time.Hour}, 1, time.Minute, true},
		{&llm.Error{RetryAfter: time.Second}, 1, 0, false},
		{context.Canceled, 1, 0, false},
		{context.DeadlineExceeded, 1, 0, false},
		{errors.New("other"), 1, 0, false},
		{nil, 1, 0, false},
	} {
		if got, ok := llm.RetryDelay(tt.err, tt.attempt); got != tt.want || ok != tt.ok {
			t.Errorf("%v after %d: %s %v", tt.err, tt.attempt, got, ok)
		}
	}
}
