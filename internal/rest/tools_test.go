package rest_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// toolsOf are the names of an agent's tools, as the agent shows them.
func toolsOf(ag map[string]any) []string {
	names := []string{}
	for _, t := range ag["tools"].([]any) {
		names = append(names, text(t.(map[string]any)["name"]))
	}
	return names
}

// TestAttachedTools: by name, by id and the base tools (spec/rest.md section 11.1).
func TestAttachedTools(t *testing.T) {
	r := start(t, nil)
	base := "conversation_search memory_insert memory_replace"
	create := func(body map[string]any) map[string]any {
		t.Helper()
		return r.do("POST", "/v1/agents/", body).fits().object()
	}
	ag := create(map[string]any{})
	if got := strings.Join(toolsOf(ag), " "); got != base {
		t.Errorf("an agent has the tools %s, want %s", got, base)
	}
	all := strings.Fields(`conversation_search archival_memory_insert archival_memory_search send_message core_memory_append
		core_memory_replace memory memory_insert memory_replace memory_rethink memory_apply_patch run_code web_search fetch_webpage`)
	ag = create(map[string]any{"tools": all, "include_base_tools": true})
	if diff := cmp.Diff(all, toolsOf(ag)); diff != "" {
		t.Error(diff)
	}
	byName := map[string]string{}
	for _, tool := range ag["tools"].([]any) {
		tool := tool.(map[string]any)
		byName[text(tool["name"])] = text(tool["id"])
		schema := tool["json_schema"].(map[string]any)
		if schema["name"] != tool["name"] || schema["parameters"] == nil || tool["description"] == "" || tool["return_char_limit"] != 50000.0 {
			t.Errorf("%v", tool)
		}
	}
	for name, want := range map[string]string{"web_search": "letta_builtin", "memory": "letta_memory_core", "conversation_search": "letta_core"} {
		for _, tool := range ag["tools"].([]any) {
			if tool := tool.(map[string]any); tool["name"] == name && tool["tool_type"] != want {
				t.Errorf("%s is of type %v, want %s", name, tool["tool_type"], want)
			}
		}
	}
	// As the official command line makes its agents.
	ag = create(map[string]any{"tools": []string{"web_search", "fetch_webpage"}, "include_base_tools": false, "include_base_tool_rules": false})
	if got := fmt.Sprint(toolsOf(ag)); got != "[web_search fetch_webpage]" {
		t.Errorf("tools %s", got)
	}
	path := "/v1/agents/" + text(ag["id"])
	if got := toolsOf(r.get(path + "?include=agent.tools")); len(got) != 2 {
		t.Errorf("tools %v", got)
	}
	if got := toolsOf(r.get(path)); len(got) != 0 {
		t.Errorf("tools %v unasked", got)
	}
	ag = create(map[string]any{"tool_ids": []string{byName["memory"], byName["memory"]}, "tools": []string{"memory"}, "include_base_tools": false})
	if got := fmt.Sprint(toolsOf(ag)); got != "[memory]" {
		t.Errorf("tools %s", got)
	}
	// Lists replace.
	ag = r.patch(path, map[string]any{"tool_ids": []string{byName["run_code"], byName["web_search"]}})
	if got := fmt.Sprint(toolsOf(ag)); got != "[run_code web_search]" {
		t.Errorf("tools %s", got)
	}
	if got := toolsOf(r.patch(path, map[string]any{"tool_ids": []string{}})); len(got) != 0 {
		t.Errorf("tools %v", got)
	}
	r.do("POST", "/v1/agents/", map[string]any{"tools": []string{"memory", "hammer", "Bash"}}).want(400, "Tools not found by name: hammer, Bash")
	r.do("POST", "/v1/agents/", map[string]any{"tool_ids": []string{"tool-" + someID}}).want(404, "tool-"+someID)
	r.do("PATCH", path, map[string]any{"tool_ids": []string{"tool-" + someID}}).want(404, "tool-"+someID)
	r.do("PATCH", path, map[string]any{"tool_ids": []string{"hammer"}}).want(422, "body.tool_ids.0")
}
