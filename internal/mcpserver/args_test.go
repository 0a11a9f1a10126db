package mcpserver_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"mneme/internal/llm"
	"mneme/internal/llm/fake"
)

func TestBadArguments(t *testing.T) {
	r := start(t, nil)
	r.agent("vole")
	long := strings.Repeat("é", 3000)
	for _, tt := range []struct {
		tool string
		args string
		says string
	}{
		{"agent_get", `{}`, "agent_id"},
		{"agent_get", `{"agent_id":"  "}`, "agent_id"},
		{"agent_get", `{"agent_id":7}`, "agent_id"},
		{"agent_get", `{"agent_id":null}`, "agent_id"},
		{"agent_get", `{"agent_id":"vole","nope":1}`, `"nope"`},
		{"agent_get", `[]`, "object"},
		{"agent_get", `"vole"`, "object"},
		{"agent_create", `{"name":"a\u0007b"}`, "name"},
		{"agent_create", `{"name":"` + long[:500] + `"}`, "name"},
		{"agent_create", `{"tags":"a"}`, "tags"},
		{"agent_create", `{"tags":["` + strings.Repeat("x", 65) + `"]}`, "tags[0]"},
		{"agent_create", `{"tags":[" "]}`, "tags[0]"},
		{"agent_create", `{"tags":[1]}`, "tags[0]"},
		{"agent_create", `{"persona":"` + strings.Repeat("x", 64<<10+1) + `"}`, "persona"},
		{"agent_list", `{"limit":0}`, "limit"},
		{"agent_list", `{"limit":1001}`, "limit"},
		{"agent_list", `{"limit":1.5}`, "limit"},
		{"agent_list", `{"limit":true}`, "limit"},
		{"agent_list", `{"order":"up"}`, "order"},
		{"agent_update", `{"agent_id":"vole"}`, "Nothing to change"},
		{"agent_update", `{"agent_id":"vole","persona":"x"}`, "creation"},
		{"agent_update", `{"agent_id":"vole","human":"x"}`, "creation"},
		{"agent_update", `{"agent_id":"vole","name":" "}`, "name"},
		{"agent_update", `{"agent_id":"vole","contextWindowLimit":999}`, "contextWindowLimit"},
		{"agent_update", `{"agent_id":"vole","modelSettings":[1]}`, "modelSettings"},
		{"agent_update", `{"agent_id":"vole","hidden":"true"}`, "hidden"},
		{"memory_save", `{"agent_id":"vole","text":" \n"}`, "text"},
		{"memory_save", `{"agent_id":"vole"}`, "text"},
		{"memory_save", `{"agent_id":"vole","text":"` + strings.Repeat("x", 64<<10+1) + `"}`, "text"},
		{"memory_search", `{"agent_id":"vole","query":""}`, "query"},
		{"memory_search", `{"agent_id":"vole","query":"` + long + `"}`, "query"},
		{"memory_search", `{"agent_id":"vole","query":"x","top_k":21}`, "top_k"},
		{"memory_delete", `{"agent_id":"vole","id":""}`, "id"},
		{"session_ask", `{"agent_id":"vole","message":"  "}`, "message"},
		{"models_list", `{"x":1}`, `"x"`},
		{"bridge_health", `{"x":1}`, `"x"`},
	} {
		o := r.tool(tt.tool, json.RawMessage(tt.args))
		if o.code() != "invalid_request" || !strings.Contains(o.Error.Message, tt.says) {
			t.Errorf("%s%.80s: %.200s; want invalid_request about %s", tt.tool, tt.args, o.raw, tt.says)
		}
	}
	if _, m := r.send("tools/call", map[string]any{"name": "nope", "arguments": map[string]any{}}); m.Error == nil || m.Error.Code != -32602 {
		t.Errorf("an unknown tool: %+v", m)
	}
}

// Clients send null, "", [] and {} for what they leave out, and numbers as texts
// (bug report I09).
func TestEmptyOptionalArguments(t *testing.T) {
	r := start(t, fake.NewFunc(func(*llm.Request) fake.Answer { return fake.Answer{fake.Text("yes")} }))
	id := r.agent("vole")
	required := map[string]map[string]any{
		"agent_create": {}, "agent_get": {"agent_id": id}, "agent_list": {}, "agent_lookup": {},
		"agent_update": {"agent_id": id, "name": "vole"}, "agent_delete": {"agent_id": id, "confirm": true},
		"models_list": {}, "bridge_health": {}, "memory_save": {"agent_id": id, "text": "a fact"},
		"memory_search": {"agent_id": id, "query": "fact"}, "memory_get": {"agent_id": id}, "memory_delete": {"agent_id": id, "id": "a fact"},
		"session_ask": {"agent_id": id, "message": "well?"},
	}
	_, m := r.send("tools/list", nil)
	var list struct {
		Tools []struct {
			Name        string             `json:"name"`
			InputSchema *jsonschema.Schema `json:"inputSchema"`
		} `json:"tools"`
	}
	if err := json.Unmarshal(m.Result, &list); err != nil {
		t.Fatal(err)
	}
	if len(list.Tools) != 13 {
		t.Fatalf("%d tools", len(list.Tools))
	}
	for _, tool := range list.Tools {
		if tool.Name == "agent_delete" {
			continue // has none that are optional
		}
		args := required[tool.Name]
		resolved, err := tool.InputSchema.Resolve(nil)
		if err != nil {
			t.Fatalf("%s: %v", tool.Name, err)
		}
		if err := resolved.Validate(mapped(t, args)); err != nil {
			t.Errorf("%s: good arguments do not fit the schema: %v", tool.Name, err)
		}
		if tool.Name == "memory_delete" {
			continue // changes what it needs
		}
		for name := range tool.InputSchema.Properties {
			if _, needed := args[name]; needed {
				continue
			}
			for _, empty := range []string{`null`, `""`, `[]`, `{}`} {
				with := maps.Clone(args)
				with[name] = json.RawMessage(empty)
				if o := r.tool(tool.Name, with); !o.OK {
					t.Errorf("%s with %s=%s: %s", tool.Name, name, empty, o.raw)
				}
			}
		}
	}
	if o := r.must("agent_list", map[string]any{"limit": "2"}); o.meta["letta/total"] == nil {
		t.Errorf("a number as text: %s", o.raw)
	}
}

// mapped is a value as JSON has it.
func mapped(t testing.TB, v any) any {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var out any
	if err := json.Unmarshal(raw, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestDefinitions(t *testing.T) {
	r := start(t, nil)
	_, m := r.send("tools/list", nil)
	var list struct {
		Tools []struct {
			Name, Title, Description string
			Annotations              struct {
				ReadOnlyHint, DestructiveHint, IdempotentHint, OpenWorldHint *bool
				Title                                                        string
			}
		}
	}
	if err := json.Unmarshal(m.Result, &list); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"agent_create ----", "agent_get r-i-", "agent_list r-i-", "agent_lookup r-i-", "agent_update --i-", "agent_delete -d--",
		"models_list r-i-", "bridge_health r-i-", "memory_save --i-", "memory_search r-i-", "memory_get r-i-", "memory_delete -di-", "session_ask r--o",
	}
	for i, tool := range list.Tools {
		hint := func(b *bool, letter string) string {
			if b == nil {
				return "?"
			}
			if *b {
				return letter
			}
			return "-"
		}
		a := tool.Annotations
		got := fmt.Sprint(tool.Name, " ", hint(a.ReadOnlyHint, "r"), hint(a.DestructiveHint, "d"), hint(a.IdempotentHint, "i"), hint(a.OpenWorldHint, "o"))
		if got != want[i] || tool.Title == "" || tool.Description == "" || a.Title == "" {
			t.Errorf("tool %d is %q %+v; want %q", i, got, tool, want[i])
		}
	}
}
