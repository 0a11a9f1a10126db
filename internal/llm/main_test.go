package llm_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"go.uber.org/goleak"

	"mneme/internal/agent"
	"mneme/internal/llm"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve starts a provider.
func serve(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return srv.URL
}

// stream answers every request with the bytes of one event stream.
func stream(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, body)
	}
}

// chat is a client of a provider whose base URL ends in /v1.
func chat(t *testing.T, url string, change ...func(*llm.ChatConfig)) *llm.Chat {
	t.Helper()
	cfg := llm.ChatConfig{Provider: "lmstudio", Label: "LM Studio", BaseURL: url + "/v1"}
	for _, f := range change {
		f(&cfg)
	}
	c := llm.NewChat(cfg)
	t.Cleanup(c.Close)
	return c
}

// question is a request with the tools Read and Bash on offer.
func question() *llm.Request {
	return &llm.Request{
		Model:    "m",
		Messages: []*agent.Message{{Role: agent.RoleUser, Parts: []agent.Part{agent.Text("hi")}}},
		Tools: []agent.ToolDef{
			{Name: "Read", Description: "reads", Parameters: []byte(`{"type":"object","properties":{"file_path":{"type":"string"},"limit":{"type":"integer"}}}`)},
			{Name: "Bash", Description: "runs", Parameters: []byte(`{"type":"object","properties":{"command":{"type":"string"}}}`)},
		},
	}
}

// collect runs a request to its end.
func collect(ctx context.Context, m llm.Model, req *llm.Request) (parts []llm.Part, err error) {
	for p, e := range m.Stream(ctx, req) {
		if e != nil {
			return parts, e
		}
		parts = append(parts, p)
	}
	return parts, nil
}

// An outcome is an answer in short.
type outcome struct {
	Text      string
	Reasoning string
	Field     string
	Calls     []agent.CallPart
	Finish    llm.Finish
	Usage     agent.Usage
}

func summary(parts []llm.Part) outcome {
	var o outcome
	for _, p := range parts {
		switch p.Kind {
		case llm.PartText:
			o.Text += p.Text
		case llm.PartReasoning:
			o.Reasoning += p.Text
			if p.Text != "" {
				o.Field = p.Field
			}
		case llm.PartCall:
			o.Calls = append(o.Calls, *p.Call)
		case llm.PartUsage:
			o.Usage = p.Usage
		case llm.PartFinish:
			o.Finish = p.Finish
		}
	}
	return o
}
