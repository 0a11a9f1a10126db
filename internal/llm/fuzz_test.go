package llm

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"mneme/internal/agent"
)

// play decodes a stream and returns its text, reasoning, calls and error.
func play(t *testing.T, body io.Reader, tools []agent.ToolDef) (text, reasoning string, calls []agent.CallPart, err error) {
	t.Helper()
	finished := false
	c := NewChat(ChatConfig{Provider: "x", BaseURL: "http://x/v1", Idle: -1})
	ctx, watch := watchIdle(t.Context(), -1)
	defer watch.stop()
	a := newAnswer(Source{}, &Request{Model: "m", Tools: tools}, func(p Part, err error) bool {
		if finished || err != nil {
			t.Fatalf("part %+v, error %v after the end", p, err)
		}
		switch p.Kind {
		case PartText:
			text += p.Text
		case PartReasoning:
			reasoning += p.Text
		case PartCall:
			calls = append(calls, *p.Call)
		case PartFinish:
			finished = true
		}
		return true
	})
	if err = c.events(ctx, a, &watchedBody{body: body, watch: watch}); err == nil {
		err = a.end()
	}
	if err == nil && !finished {
		t.Fatal("neither an error nor a finish")
	}
	if err != nil {
		_ = a.flush()
	}
	return text, reasoning, calls, err
}

// Whatever a server sends, the decoder ends in a finish or an error, and how
// the bytes are cut into reads makes no difference.
func FuzzStream(f *testing.F) {
	f.Add([]byte(turnStream(2)))
	f.Add([]byte("data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"name\":\"Read\",\"arguments\":{}}}]}}]}\r\n\r\ndata: [DONE]"))
	f.Add([]byte("data: {\"choices\":[{\"delta\":{\"content\":\"<tool_call>{\\\"name\\\":\\\"Read\\\"}</tool_call>\"},\"finish_reason\":\"stop\"}]}\n"))
	f.Add([]byte("data: {\"choices\":[{\"delta\":{\"reasoning_details\":[{\"type\":\"reasoning.text\",\"text\":\"x\"},1,{}]}}]}\n\n"))
	f.Add([]byte("error: {\"message\":1}\n\n{\"error\":[]}\ndata:\ndata: {\ndata: }\n\n"))
	f.Fuzz(func(t *testing.T, body []byte) {
		tools := []agent.ToolDef{{Name: "Read", Parameters: []byte(`{"properties":{"a":{"type":"integer"}}}`)}}
		text, reasoning, calls, err := play(t, bytes.NewReader(body), tools)
		text2, reasoning2, calls2, err2 := play(t, iotest.OneByteReader(bytes.NewReader(body)), tools)
		if text != text2 || reasoning != reasoning2 || len(calls) != len(calls2) || (err == nil) != (err2 == nil) {
			t.Errorf("reads matter: %q %q %v %v, %q %q %v %v", text, reasoning, calls, err, text2, reasoning2, calls2, err2)
		}
		seen := map[string]bool{}
		for _, c := range calls {
			if c.ID == "" || seen[c.ID] {
				t.Errorf("id %q is empty or used twice", c.ID)
			}
			seen[c.ID] = true
		}
	})
}

// A delta means what encoding/json says it means.
func FuzzDelta(f *testing.F) {
	for _, s := range []string{`{"content":"a"}`, `{"content":"\ud83d\ude00\n","reasoning":null}`, `{"content":[{"type":"text","text":"x"},{"text":"y"}]}`,
		`{"reasoning_content":"r","content":null,"role":"assistant"}`, `null`, `{"content":1}`, `{"content":"\xff"}`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, delta string) {
		if strings.ContainsAny(delta, "\r\n") || !json.Valid([]byte(delta)) {
			return
		}
		var ref map[string]any
		if json.Unmarshal([]byte(delta), &ref) != nil {
			return
		}
		for key := range ref {
			switch key {
			case "content", "reasoning_content", "reasoning", "role":
			default:
				return // other fields have other tests
			}
		}
		want := refText(ref["content"])
		wantReasoning, _ := ref["reasoning_content"].(string)
		if wantReasoning == "" {
			wantReasoning, _ = ref["reasoning"].(string)
		}
		if notText(ref["reasoning"]) || notText(ref["reasoning_content"]) || strings.Contains(delta, "thinking") {
			return
		}
		body := `data: {"choices":[{"delta":` + delta + `,"finish_reason":"length"}]}` + "\n\n"
		text, reasoning, _, err := play(t, strings.NewReader(body), nil)
		if err != nil || text != want || reasoning != wantReasoning {
			t.Errorf("%s: text %q, want %q; reasoning %q, want %q (%v)", delta, text, want, reasoning, wantReasoning, err)
		}
	})
}

func notText(v any) bool {
	_, ok := v.(string)
	return v != nil && !ok
}

// refText is the text of a content field, decoded without types.
func refText(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case []any:
		out := ""
		for _, p := range v {
			if m, ok := p.(map[string]any); ok {
				s, _ := m["text"].(string)
				out += s
			}
		}
		return out
	}
	return ""
}
