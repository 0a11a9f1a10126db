package mcpserver_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// names lists agent_name of the agents of a list.
func names(t testing.TB, o outcome) []string {
	t.Helper()
	var list []struct {
		Name string `json:"agent_name"`
	}
	if err := json.Unmarshal(o.Data, &list); err != nil {
		t.Fatal(err)
	}
	out := []string{}
	for _, a := range list {
		out = append(out, a.Name)
	}
	return out
}

func TestAgents(t *testing.T) {
	eachMode(t, nil, func(t *testing.T, r *rig) {
		made := r.must("agent_create", map[string]any{
			"name": "vole", "description": "digs", "persona": "I dig.", "human": "Owns a garden.", "tags": []string{"a", "b"},
		})
		id := made.text(t, "agent_id")
		if made.text(t, "agent_name") != "vole" || made.get(t, "agent") == nil {
			t.Errorf("created %s", made.raw)
		}
		got := r.must("agent_get", map[string]any{"agent_id": "VOLE"})
		if got.text(t, "agent_id") != id || got.text(t, "agent_name") != "vole" || got.text(t, "description") != "digs" || got.text(t, "id") != id {
			t.Errorf("got %s", got.raw)
		}
		memory := r.must("memory_get", map[string]any{"agent_id": id})
		var contents struct {
			Blocks []struct{ Label, Value, Path string }
			Commit string
		}
		if err := json.Unmarshal(memory.Data, &contents); err != nil {
			t.Fatal(err)
		}
		want := []struct{ Label, Value, Path string }{
			{"human", "Owns a garden.", "system/human.md"}, {"persona", "I dig.", "system/persona.md"},
		}
		if diff := cmp.Diff(want, contents.Blocks); diff != "" || len(contents.Commit) != 40 {
			t.Errorf("memory: %s\n%s", diff, memory.raw)
		}

		unnamed := r.must("agent_create", map[string]any{"name": ""})
		if unnamed.text(t, "agent_name") == "" {
			t.Errorf("a nameless agent: %s", unnamed.raw)
		}
		updated := r.must("agent_update", map[string]any{"agent_id": "vole", "name": "mole", "tags": []string{"c"}, "description": nil})
		if updated.text(t, "agent_id") != id || updated.text(t, "agent_name") != "mole" || updated.get(t, "description") != nil {
			t.Errorf("updated %s", updated.raw)
		}
		if tags := fmt.Sprint(updated.get(t, "tags")); !strings.Contains(tags, "c") || strings.Contains(tags, "a ") || !strings.Contains(tags, "git-memory-enabled") {
			t.Errorf("tags are %s; want c and what the server put there", tags)
		}
		if o := r.tool("agent_get", map[string]any{"agent_id": "vole"}); o.code() != "agent_not_found" {
			t.Errorf("the old name still works: %s", o.raw)
		}

		for _, confirm := range []any{"true", 1, nil, false, "yes", []any{true}} {
			if o := r.tool("agent_delete", map[string]any{"agent_id": "mole", "confirm": confirm}); o.code() != "confirmation_required" {
				t.Errorf("confirm %v: %s", confirm, o.raw)
			}
		}
		if o := r.tool("agent_delete", map[string]any{"agent_id": "nobody"}); o.code() != "confirmation_required" {
			t.Errorf("confirm is looked at first: %s", o.raw)
		}
		deleted := r.must("agent_delete", map[string]any{"agent_id": "mole", "confirm": true})
		if deleted.text(t, "agent_name") != "mole" || deleted.get(t, "deleted") != true {
			t.Errorf("deleted %s", deleted.raw)
		}
		if o := r.tool("agent_delete", map[string]any{"agent_id": id, "confirm": true}); o.code() != "agent_not_found" {
			t.Errorf("deleted twice: %s", o.raw)
		}
		for _, name := range []string{"memory_get", "agent_get"} {
			if o := r.tool(name, map[string]any{"agent_id": id}); o.code() != "agent_not_found" {
				t.Errorf("%s after the deletion: %s", name, o.raw)
			}
		}
	})
}

func TestListAgents(t *testing.T) {
	eachMode(t, nil, func(t *testing.T, r *rig) {
		if o := r.must("agent_list", nil); string(o.Data) != "[]" {
			t.Errorf("no agents: %s", o.raw)
		}
		for i := range 5 {
			r.must("agent_create", map[string]any{"name": fmt.Sprintf("agent %d", i), "tags": []string{fmt.Sprint("even", i%2 == 0), "all"}})
			time.Sleep(2 * time.Millisecond) // times on the wire have milliseconds
		}
		r.must("agent_update", map[string]any{"agent_id": "agent 4", "hidden": true})
		for _, tt := range []struct {
			args map[string]any
			want []string
		}{
			{map[string]any{}, []string{"agent 3", "agent 2", "agent 1", "agent 0"}},
			{map[string]any{"order": "asc"}, []string{"agent 0", "agent 1", "agent 2", "agent 3"}},
			{map[string]any{"limit": 2}, []string{"agent 3", "agent 2"}},
			{map[string]any{"limit": "1", "order": "asc"}, []string{"agent 0"}},
			{map[string]any{"query": "AGENT 1"}, []string{"agent 1"}},
			{map[string]any{"name": "Agent 2"}, []string{"agent 2"}},
			{map[string]any{"name": "agent"}, []string{}},
			{map[string]any{"tags": []string{"eventrue", "all"}}, []string{"agent 2", "agent 0"}},
			{map[string]any{"tags": []string{"eventrue"}, "query": "gent 0"}, []string{"agent 0"}},
		} {
			if diff := cmp.Diff(tt.want, names(t, r.must("agent_list", tt.args))); diff != "" {
				t.Errorf("agent_list%v: %s", tt.args, diff)
			}
		}
		o := r.must("agent_list", map[string]any{"limit": 3})
		if o.meta["letta/total"] != 4.0 || o.meta["letta/truncated"] != true {
			t.Errorf("side facts %v", o.meta)
		}
		found := r.must("agent_lookup", map[string]any{"name": "GENT"})
		var list []map[string]any
		if err := json.Unmarshal(found.Data, &list); err != nil {
			t.Fatal(err)
		}
		if len(list) != 4 || list[0]["name"] != "agent 0" || len(list[0]) != 4 {
			t.Errorf("lookup: %s", found.raw)
		}
	})
}

func TestResolve(t *testing.T) {
	eachMode(t, nil, func(t *testing.T, r *rig) {
		ids := map[string]string{}
		for _, name := range []string{"dhruba", "dhruba-2", "Écureuil", "twin", "Twin", "same", "same"} {
			ids[name] = r.agent(name)
		}
		for ref, want := range map[string]string{
			"dhruba": "dhruba", " DHRUBA ": "dhruba", "ruba-2": "dhruba-2", "E\u0301CUREUIL": "Écureuil", "twin": "twin", "Twin": "Twin",
			ids["dhruba"]: "dhruba",
		} {
			o := r.must("agent_get", map[string]any{"agent_id": ref})
			if o.text(t, "agent_id") != ids[want] {
				t.Errorf("%q is %s, want %s", ref, o.text(t, "agent_name"), want)
			}
		}
		o := r.tool("agent_get", map[string]any{"agent_id": "TWIN"})
		if o.code() != "agent_ambiguous" || !strings.Contains(o.Error.Message, ids["twin"]) || fmt.Sprint(o.meta["letta/candidates"]) == "<nil>" {
			t.Errorf("two names in another case: %s %v", o.raw, o.meta)
		}
		if o := r.tool("agent_get", map[string]any{"agent_id": "same"}); o.code() != "agent_ambiguous" {
			t.Errorf("one name twice: %s", o.raw)
		}
		if o := r.tool("agent_get", map[string]any{"agent_id": "hrub"}); o.code() != "agent_ambiguous" {
			t.Errorf("a part of two names: %s", o.raw)
		}
		o = r.tool("agent_get", map[string]any{"agent_id": "dhrubo"})
		if o.code() != "agent_not_found" || !strings.Contains(o.Error.Message, "dhruba") {
			t.Errorf("a mistyped name: %s", o.raw)
		}
		if o := r.tool("agent_get", map[string]any{"agent_id": "agent-nope"}); o.code() != "agent_not_found" {
			t.Errorf("an id that is none: %s", o.raw)
		}
		r.must("agent_update", map[string]any{"agent_id": "dhruba-2", "hidden": true})
		if o := r.tool("agent_get", map[string]any{"agent_id": "ruba-2"}); o.code() != "agent_not_found" {
			t.Errorf("a part of a hidden agent's name: %s", o.raw)
		}
		if o := r.must("agent_get", map[string]any{"agent_id": ids["dhruba-2"]}); o.text(t, "agent_name") != "dhruba-2" {
			t.Errorf("a hidden agent's id: %s", o.raw)
		}
		if !r.stock {
			if o := r.must("agent_get", map[string]any{"agent_id": "dhruba-2"}); o.text(t, "agent_name") != "dhruba-2" {
				t.Errorf("a hidden agent's name: %s", o.raw)
			}
		}
	})
}

func TestUnknownModelIsAWarning(t *testing.T) {
	r := start(t, nil, "DEFAULT_EMBEDDING", "openai/ada")
	o := r.must("agent_create", map[string]any{"name": "x", "model": "nope/none"})
	if w := fmt.Sprint(o.meta["letta/warnings"]); !strings.Contains(w, "nope/none") {
		t.Errorf("warnings %v", o.meta)
	}
	// The embedding model is kept, and that it cannot be used is no error.
	r.must("memory_save", map[string]any{"agent_id": "x", "text": "a fact"})
	o = r.must("memory_search", map[string]any{"agent_id": "x", "query": "fact"})
	if o.text(t, "mode") != "lexical" || o.meta["letta/warnings"] == nil {
		t.Errorf("search without the embedding model: %s %v", o.raw, o.meta)
	}
	o = r.must("agent_update", map[string]any{"agent_id": "x", "model": "nope/other"})
	if w := fmt.Sprint(o.meta["letta/warnings"]); !strings.Contains(w, "nope/other") {
		t.Errorf("warnings %v", o.meta)
	}
	o = r.must("agent_update", map[string]any{"agent_id": "x", "model": "mneme/offline"})
	if o.meta["letta/warnings"] != nil {
		t.Errorf("warnings %v", o.meta)
	}
}

func TestCreationDefaults(t *testing.T) {
	r := start(t, nil, "DEFAULT_MODEL", "mneme/offline", "DEFAULT_PERSONA", "calm", "DEFAULT_HUMAN", "somebody", "DEFAULT_LIST_LIMIT", "1")
	id := r.agent("x")
	if m := r.must("memory_get", map[string]any{"agent_id": id}); !strings.Contains(m.raw, "calm") || !strings.Contains(m.raw, "somebody") {
		t.Errorf("memory %s", m.raw)
	}
	own := r.must("agent_create", map[string]any{"persona": "wild"}).text(t, "agent_id")
	if m := r.must("memory_get", map[string]any{"agent_id": own}); !strings.Contains(m.raw, "wild") || strings.Contains(m.raw, "calm") {
		t.Errorf("memory %s", m.raw)
	}
	if n := len(names(t, r.must("agent_list", nil))); n != 1 {
		t.Errorf("%d agents listed by default", n)
	}
}
