package llm

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mneme/internal/agent"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func msg(role agent.Role, parts ...agent.Part) *agent.Message {
	return &agent.Message{Role: role, Parts: parts}
}

func callOf(id, name, args string) agent.Part {
	return agent.Part{Kind: agent.PartToolCall, Call: &agent.CallPart{ID: id, Name: name, Arguments: args}}
}

func resultOf(id string, parts ...agent.Part) *agent.Message {
	return &agent.Message{Role: agent.RoleTool, CallID: id, Parts: parts}
}

func thoughts(field, text string) agent.Part {
	return agent.Part{Kind: agent.PartReasoning, Field: field, Text: text}
}

var image = agent.Part{Kind: agent.PartImage, MediaType: "image/jpeg", Data: "aGk="}

// Requests as they are sent (spec/harness.md section 1.1).
func TestEncode(t *testing.T) {
	signed := func(model string) json.RawMessage {
		return json.RawMessage(`{"model":"` + model + `","details":[{"type":"reasoning.encrypted","data":"AA==" , "x":1}]}`)
	}
	user := msg(agent.RoleUser, agent.Text("hi"))
	tests := []struct {
		name  string
		with  feature
		cache string
		req   Request
	}{
		{"plain", allFeatures, "", Request{
			Model: "vendor/m:free", System: "Be \"kind\".\n\t\x01 é 日本 \u2028 </s>", MaxOutput: 32000,
			Messages: []*agent.Message{user},
			Tools:    []agent.ToolDef{{Name: "Read", Description: "Reads.", Parameters: json.RawMessage(`{"type":"object","additionalProperties":false}`)}, {Name: "Now"}},
		}},
		{"settings", allFeatures, "conv-1", Request{
			Model: "m", Messages: []*agent.Message{user}, Tools: []agent.ToolDef{{Name: "T"}},
			Settings: json.RawMessage(`{"provider_type":"openai","temperature":0.5,"top_p":null,"max_output_tokens":77,"parallel_tool_calls":true,"reasoning":{"reasoning_effort":"max"},
			  "response_format":{"type":"json_object"},"tool_choice":"required","verbosity":"low","context_window_limit":5,"strict":true}`),
		}},
		{"settings without tools", allFeatures, "", Request{
			Model: "gpt-6-x", Messages: []*agent.Message{user},
			Settings: json.RawMessage(`{"parallel_tool_calls":false,"tool_choice":"auto","effort":"max","max_tokens":9}`),
		}},
		{"settings that are no object", allFeatures, "", Request{Model: "m", Messages: []*agent.Message{user}, Settings: json.RawMessage(`[1]`)}},
		{"user parts", allFeatures, "", Request{Model: "m", Messages: []*agent.Message{
			{Role: agent.RoleUser, Context: "<system-reminder>x</system-reminder>", Parts: []agent.Part{agent.Text("a"), agent.Text(""), image, agent.Text("b")}},
			{Role: agent.RoleUser, Context: "only context"},
			msg(agent.RoleUser, agent.Text("")),
			msg(agent.RoleUser, agent.Part{Kind: agent.PartImage, Data: "AA=="}),
			msg(agent.RoleNotice, agent.Text("<memory_update/>")),
			msg(agent.RoleSummary, agent.Text(`{"type":"system_alert"}`)),
		}}},
		{"tools", allFeatures, "", Request{Model: "m", Tools: []agent.ToolDef{{Name: "mcp.read"}}, Messages: []*agent.Message{
			user,
			msg(agent.RoleAssistant, thoughts("reasoning_content", "I th"), thoughts("reasoning_content", "ink"), agent.Text("Let me"), agent.Text(" see."),
				callOf("c1", "Read", `{"a": 1}`), callOf("c2", "Bash", "")),
			resultOf("c2", agent.Text("second first")),
			msg(agent.RoleNotice, agent.Text("a notice between")),
			resultOf("c1", agent.Text(""), image),
			resultOf("nobody", agent.Text("orphan")),
			msg(agent.RoleAssistant, callOf("c3", "mcp.read", `{"cut": "of`), callOf("c4", "bad name!", `[1]`), callOf("c5", "", `null`)),
			resultOf("c3", agent.Text("")),
			resultOf("c1", agent.Text("again")),
			msg(agent.RoleAssistant, agent.Text("done")),
		}}},
		{"hidden and interrupted", allFeatures, "", Request{Model: "m", Messages: []*agent.Message{
			{Role: agent.RoleUser, Hidden: true, Parts: []agent.Part{agent.Text("before the summary")}},
			msg(agent.RoleSystem, agent.Text("compiled")),
			user,
			{Role: agent.RoleAssistant, Interrupted: true, Parts: []agent.Part{agent.Text("partial")}},
			msg(agent.RoleAssistant, thoughts("reasoning", "nothing but thoughts")),
			msg(agent.RoleApproval, agent.Text("yes")),
			msg(agent.RoleUser, agent.Text("go on")),
			msg(agent.RoleAssistant, agent.Text("trailing")),
			{Role: agent.RoleAssistant, Interrupted: true, Parts: []agent.Part{agent.Text("cut")}},
		}}},
		{"reasoning fields", allFeatures, "", Request{Model: "m", Messages: []*agent.Message{
			user,
			msg(agent.RoleAssistant, thoughts("reasoning_text", "c"), thoughts("", "a"), thoughts("reasoning", "b"), thoughts("content", "not sent"),
				agent.Part{Kind: agent.PartReasoning, Field: "reasoning_details", Meta: signed("m")}, agent.Text("x")),
			user,
			msg(agent.RoleAssistant, agent.Part{Kind: agent.PartReasoning, Field: "reasoning_details", Meta: signed("other")}, agent.Text("x")),
			user,
			msg(agent.RoleAssistant, agent.Part{Kind: agent.PartReasoning, Meta: json.RawMessage(`"foreign"`)}, agent.Text("x")),
			user,
		}}},
		{"a server that lacks everything", 0, "", Request{Model: "m", MaxOutput: 5, Settings: json.RawMessage(`{"parallel_tool_calls":true,"effort":"low"}`), Messages: []*agent.Message{
			{Role: agent.RoleUser, Context: "ctx", Parts: []agent.Part{agent.Text("a"), agent.Text("b")}},
			msg(agent.RoleAssistant, thoughts("reasoning", "x"), callOf("c", "T", "{}")),
			resultOf("c", agent.Text("r")),
			{Role: agent.RoleUser, Context: "ctx", Parts: []agent.Part{image}},
		}, Tools: []agent.ToolDef{{Name: "T"}}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before, err := json.Marshal(tt.req.Messages)
			if err != nil {
				t.Fatal(err)
			}
			body, _ := encodeRequest(&tt.req, tt.with, tt.cache)
			var got bytes.Buffer
			if err := json.Indent(&got, body, "", " "); err != nil {
				t.Fatalf("%v: %s", err, body)
			}
			got.WriteByte('\n')
			file := filepath.Join("testdata", strings.ReplaceAll(tt.name, " ", "-")+".json")
			if *update {
				if err := os.WriteFile(file, got.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got.String()); diff != "" {
				t.Error(diff)
			}
			if after, _ := json.Marshal(tt.req.Messages); !bytes.Equal(before, after) {
				t.Error("the messages were changed")
			}
		})
	}
}

// A request is always valid, whatever the history holds: every call has one
// result right behind it, no result is without a call, and the end is no
// assistant message without calls.
func FuzzHistory(f *testing.F) {
	f.Add([]byte("uactctau"))
	f.Add([]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 200, 33, 97})
	f.Fuzz(func(t *testing.T, script []byte) {
		var msgs []*agent.Message
		ids := []string{"a", "b", "c"}
		for i, c := range script[:min(len(script), 200)] {
			id := ids[int(c>>4)%len(ids)]
			switch c % 8 {
			case 0:
				msgs = append(msgs, &agent.Message{Role: agent.RoleUser, Context: string(script[i:]), Parts: []agent.Part{agent.Text(id)}})
			case 1:
				msgs = append(msgs, msg(agent.RoleAssistant, agent.Text(id)))
			case 2:
				msgs = append(msgs, msg(agent.RoleAssistant, callOf(id, id, string(script[i:]))))
			case 3:
				msgs = append(msgs, msg(agent.RoleAssistant, callOf("a", "x", "{}"), callOf("b", "y", "{}")))
			case 4:
				msgs = append(msgs, resultOf(id, agent.Text(id), image))
			case 5:
				msgs = append(msgs, msg(agent.RoleNotice, agent.Text(id)))
			case 6:
				msgs = append(msgs, &agent.Message{Role: agent.RoleAssistant, Interrupted: true, Parts: []agent.Part{callOf(id, "x", "")}})
			case 7:
				msgs = append(msgs, resultOf(id))
			}
		}
		body, _ := encodeRequest(&Request{Model: "m", Messages: msgs}, allFeatures, "")
		checkHistory(t, body)
	})
}

func checkHistory(t *testing.T, body []byte) {
	t.Helper()
	var req struct {
		Messages []struct {
			Role    string
			Content any
			CallID  string `json:"tool_call_id"`
			Calls   []struct {
				ID       string
				Function struct{ Name, Arguments string }
			} `json:"tool_calls"`
		}
	}
	if err := json.Unmarshal(body, &req); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	var open []string
	for i, m := range req.Messages {
		if m.Role != "tool" && len(open) > 0 {
			t.Fatalf("message %d comes while calls %v are open: %s", i, open, body)
		}
		switch m.Role {
		case "tool":
			at := -1
			for j, id := range open {
				if id == m.CallID {
					at = j
				}
			}
			if at < 0 {
				t.Fatalf("result %d has no call: %s", i, body)
			}
			open = append(open[:at:at], open[at+1:]...)
			if s, _ := m.Content.(string); s == "" {
				t.Fatalf("result %d is empty: %s", i, body)
			}
		case "assistant":
			if i == len(req.Messages)-1 {
				t.Fatalf("the assistant speaks last: %s", body)
			}
			for _, c := range m.Calls {
				open = append(open, c.ID)
				var args map[string]any
				if json.Unmarshal([]byte(c.Function.Arguments), &args) != nil || c.Function.Name == "" {
					t.Fatalf("call %q with arguments %q", c.Function.Name, c.Function.Arguments)
				}
			}
		}
	}
	if len(open) > 0 {
		t.Fatalf("calls %v have no result: %s", open, body)
	}
}

// Strings are what encoding/json makes of them.
func FuzzAppendString(f *testing.F) {
	for _, s := range []string{"", "a\"\\\n\r\t\x00\x1f\x7f", "é日本😀\u2028\ufeff", "\xff\xc3(\xe2\x82", "</script>&"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := appendString(nil, s)
		want, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		var a, b string
		if err := json.Unmarshal(got, &a); err != nil {
			t.Fatalf("%q: %v", got, err)
		}
		if err := json.Unmarshal(want, &b); err != nil || a != b {
			t.Errorf("%q, want %q", a, b)
		}
	})
}
