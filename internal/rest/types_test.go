package rest_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
)

// samples are values of each type of JSON.
var samples = map[string]any{
	"string": "x", "integer": 5, "number": 1.5, "boolean": true, "object": map[string]any{"a": 1}, "array": []any{"x"},
}

// typesOf lists the types that a schema takes; nil = any.
func typesOf(s *openapi3.Schema) []string {
	if s.Type != nil {
		return s.Type.Slice()
	}
	var all []string
	for _, one := range s.AnyOf {
		all = append(all, typesOf(one.Value)...)
	}
	return all
}

// TestWrongTypes sends each field of each body with each wrong type of JSON: it is
// refused, and the field is named.
func TestWrongTypes(t *testing.T) {
	r := start(t, nil)
	id := r.agent(map[string]any{"memory_blocks": []any{map[string]any{"label": "human", "value": "x"}}})
	conv := r.conversation(id)
	block := r.block("free", "x")
	for _, c := range []struct {
		method, template, path string
		body                   map[string]any // what else is needed
	}{
		{"POST", "/v1/agents", "/v1/agents/", nil},
		{"PATCH", "/v1/agents/{agent_id}", "/v1/agents/" + id, nil},
		{"POST", "/v1/blocks", "/v1/blocks/", map[string]any{"label": "x", "value": "x"}},
		{"PATCH", "/v1/blocks/{block_id}", "/v1/blocks/" + block, nil},
		{"PATCH", "/v1/agents/{agent_id}/core-memory/blocks/{block_label}", "/v1/agents/" + id + "/core-memory/blocks/human", nil},
		{"POST", "/v1/conversations", "/v1/conversations/?agent_id=" + id, nil},
		{"PATCH", "/v1/conversations/{conversation_id}", "/v1/conversations/" + conv, nil},
		{"POST", "/v1/conversations/{conversation_id}/recompile", "/v1/conversations/" + conv + "/recompile", nil},
		{"POST", "/v1/agents/{agent_id}/messages", "/v1/agents/" + id + "/messages", map[string]any{"input": "hi"}},
		{"POST", "/v1/conversations/{conversation_id}/messages", "/v1/conversations/" + conv + "/messages", map[string]any{"input": "hi"}},
		{"POST", "/v1/agents/{agent_id}/messages/async", "/v1/agents/" + id + "/messages/async", map[string]any{"input": "hi"}},
		{"POST", "/v1/messages/search", "/v1/messages/search", map[string]any{"query": "x"}},
	} {
		op := described(t, r).Paths.Value(c.template).GetOperation(c.method)
		schema := op.RequestBody.Value.Content.Get("application/json").Schema.Value
		if len(schema.Properties) == 0 {
			t.Fatalf("%s %s has no fields", c.method, c.template)
		}
		for name, property := range schema.Properties {
			allowed := typesOf(property.Value)
			if len(allowed) == 0 {
				continue
			}
			for kind, sample := range samples {
				if slices.Contains(allowed, kind) || kind == "integer" && slices.Contains(allowed, "number") {
					continue
				}
				body := map[string]any{}
				for k, v := range c.body {
					body[k] = v
				}
				body[name] = sample
				resp := r.do(c.method, c.path, body)
				if resp.Status != 422 || !strings.Contains(string(resp.Body), "body."+name) {
					t.Errorf("%s %s with %s = %v: %d %s", c.method, c.template, name, sample, resp.Status, resp.Body)
				}
			}
		}
	}
	// Nothing came of all that.
	if list := r.do("GET", "/v1/agents/", nil).list(); len(list) != 1 {
		t.Errorf("%d agents", len(list))
	}
	if list := r.do("GET", "/v1/runs/", nil).list(); len(list) != 0 {
		t.Errorf("%d runs", len(list))
	}
}
