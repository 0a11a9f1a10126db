package llm

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"mneme/internal/agent"
)

// turnStream is a turn of n tokens as providers send it.
func turnStream(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `data: {"id":"chatcmpl-9f3bd1","object":"chat.completion.chunk","created":1700000000,"model":"mock-1","system_fingerprint":"fp_44709d6fcb","choices":[{"index":0,"delta":{"content":" tok%d"},"logprobs":null,"finish_reason":null}]}`+"\n\n", i)
	}
	b.WriteString(`data: {"id":"chatcmpl-9f3bd1","object":"chat.completion.chunk","created":1700000000,"model":"mock-1","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\n")
	b.WriteString(`data: {"id":"chatcmpl-9f3bd1","object":"chat.completion.chunk","created":1700000000,"model":"mock-1","choices":[],"usage":{"prompt_tokens":100,"completion_tokens":50,"total_tokens":150}}` + "\n\n")
	b.WriteString("data: [DONE]\n\n")
	return b.String()
}

func BenchmarkDecodeToken(b *testing.B) {
	stream := turnStream(1000)
	c := NewChat(ChatConfig{Provider: "x", BaseURL: "http://x/v1", Idle: -1})
	req := &Request{Model: "m", Tools: []agent.ToolDef{{Name: "Read"}}}
	b.ReportAllocs()
	for n := 0; n < b.N; n += 1000 {
		a := newAnswer(Source{}, req, func(Part, error) bool { return true })
		_, watch := watchIdle(b.Context(), -1)
		if err := c.events(b.Context(), a, &watchedBody{body: strings.NewReader(stream), watch: watch}); err != nil {
			b.Fatal(err)
		}
		watch.stop()
	}
}

// BenchmarkTurn is one 50-token turn against a server in this process, its work
// included.
func BenchmarkTurn(b *testing.B) {
	stream := strings.SplitAfter(turnStream(50), "\n\n")
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		for _, e := range stream {
			_, _ = io.WriteString(w, e)
			_ = http.NewResponseController(w).Flush()
		}
	}))
	defer srv.Close()
	c := NewChat(ChatConfig{Provider: "x", BaseURL: srv.URL + "/v1"})
	defer c.Close()
	req := &Request{Model: "m", System: strings.Repeat("memory ", 2000),
		Messages: []*agent.Message{{Role: agent.RoleUser, Parts: []agent.Part{agent.Text("hi")}}},
		Tools:    []agent.ToolDef{{Name: "Read", Description: strings.Repeat("text ", 400), Parameters: []byte(`{"type":"object"}`)}}}
	b.ReportAllocs()
	for b.Loop() {
		n := 0
		for _, err := range c.Stream(b.Context(), req) {
			if err != nil {
				b.Fatal(err)
			}
			n++
		}
		if n != 52 {
			b.Fatalf("%d parts", n)
		}
	}
}

func BenchmarkEncode(b *testing.B) {
	req := &Request{Model: "m", System: strings.Repeat("memory line\n", 1000)}
	for i := range 100 {
		req.Messages = append(req.Messages,
			&agent.Message{Role: agent.RoleUser, Parts: []agent.Part{agent.Text(strings.Repeat("question \"q\"\n", 20))}},
			&agent.Message{Role: agent.RoleAssistant, Parts: []agent.Part{{Kind: agent.PartToolCall, Call: &agent.CallPart{ID: fmt.Sprint("c", i), Name: "Read", Arguments: `{"file_path":"/tmp/x"}`}}}},
			&agent.Message{Role: agent.RoleTool, CallID: fmt.Sprint("c", i), Parts: []agent.Part{agent.Text(strings.Repeat("line of a file\n", 40))}})
	}
	b.ReportAllocs()
	for b.Loop() {
		body, _ := encodeRequest(req, allFeatures, "")
		b.SetBytes(int64(len(body)))
	}
}
