package llm_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mneme/internal/agent"
	"mneme/internal/llm"
)

// Signed reasoning goes back to its model as it came, texts joined, and to no
// other model (case H09).
func TestReasoningDetails(t *testing.T) {
	body := events(
		d(`{"reasoning":"Let ","reasoning_details":[{"type":"reasoning.text","text":"Let ","index":0,"format":"f"}]}`),
		d(`{"reasoning":"me","reasoning_details":[{"type":"reasoning.text","text":"me","index":0,"signature":null}]}`),
		d(`{"reasoning_details":[{"type":"reasoning.text","index":0,"signature":"c2ln"}]}`),
		d(`{"reasoning_details":[{"type":"reasoning.summary","summary":"In short","index":1},{"type":"reasoning.encrypted","data":"AA==","id":"r1","extra":[1, 2]}]}`),
		text("hi"), fin("stop"), done)
	var sent []map[string]any
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		var req map[string]any
		_ = json.NewDecoder(r.Body).Decode(&req)
		sent = append(sent, req)
		stream(body)(w, r)
	})
	c := chat(t, url)
	req := question()
	parts, err := collect(t.Context(), c, req)
	if err != nil {
		t.Fatal(err)
	}
	if got := summary(parts); got.Reasoning != "Let meIn short" || got.Text != "hi" {
		t.Errorf("%+v", got)
	}
	// Stored as a runtime stores it.
	m := &agent.Message{Role: agent.RoleAssistant}
	metas := 0
	for _, p := range parts {
		switch p.Kind {
		case llm.PartReasoning:
			m.Parts = append(m.Parts, agent.Part{Kind: agent.PartReasoning, Text: p.Text, Field: p.Field, Meta: p.Meta})
			if p.Meta != nil {
				metas++
			}
		case llm.PartText:
			m.Parts = append(m.Parts, agent.Text(p.Text))
		}
	}
	if metas != 1 {
		t.Errorf("%d parts with metadata", metas)
	}
	req.Messages = append(req.Messages, m, req.Messages[0])
	for _, model := range []string{"m", "other"} {
		req.Model = model
		if _, err := collect(t.Context(), c, req); err != nil {
			t.Fatal(err)
		}
	}
	assistant := func(i int) map[string]any { return sent[i]["messages"].([]any)[1].(map[string]any) }
	var want any
	if err := json.Unmarshal([]byte(`[{"type":"reasoning.text","text":"Let me","signature":"c2ln","format":"f","index":0},
		{"type":"reasoning.summary","summary":"In short","index":1},{"type":"reasoning.encrypted","data":"AA==","id":"r1","extra":[1,2]}]`), &want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, assistant(1)["reasoning_details"]); diff != "" {
		t.Error(diff)
	}
	if assistant(1)["reasoning"] != "Let me" {
		t.Errorf("%v", assistant(1))
	}
	if _, ok := assistant(2)["reasoning_details"]; ok {
		t.Errorf("signed reasoning of another model is sent: %v", assistant(2))
	}
}

// A long signature must not be half kept.
func TestHugeReasoningDetails(t *testing.T) {
	var b strings.Builder
	for range 3 {
		b.WriteString(events(d(`{"reasoning_details":[{"type":"reasoning.encrypted","data":"` + strings.Repeat("A", 1<<19) + `"}]}`)))
	}
	b.WriteString(events(text("hi"), fin("stop"), done))
	parts, err := collect(t.Context(), chat(t, serve(t, stream(b.String()))), question())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range parts {
		if p.Meta != nil {
			t.Errorf("%d bytes of metadata", len(p.Meta))
		}
	}
}

// An answer is bounded however it comes.
func TestHugeAnswer(t *testing.T) {
	piece := "data: " + d(`{"tool_calls":[{"index":0,"id":"c","function":{"name":"Read","arguments":"`+strings.Repeat("x", 1<<20)+`"}}]}`) + "\n\n"
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for r.Context().Err() == nil {
			if _, err := io.WriteString(w, piece); err != nil {
				return
			}
		}
	})
	_, err := collect(t.Context(), chat(t, url), question())
	if agent.CodeOf(err) != agent.CodeModel || !strings.Contains(err.Error(), "8 MiB") {
		t.Errorf("%v", err)
	}
}
