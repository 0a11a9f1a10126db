package tool_test

import (
	"context"
	"encoding/json"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/jsonschema-go/jsonschema"

	"mneme/internal/agent"
	"mneme/internal/tool"
)

func named(name, from string) *tool.Tool {
	return &tool.Tool{Def: agent.ToolDef{Name: name, Description: from}, External: from,
		Run: func(context.Context, *tool.Call) agent.ToolResult { return agent.ToolResult{} }}
}

func TestSelect(t *testing.T) {
	r := newRig(t)
	box := tool.NewBox(r.tools...)
	def := []string{"AskUserQuestion", "Bash", "Edit", "TaskStop", "memory", "Read", "Write"}
	for _, c := range []struct {
		name string
		sel  tool.Selection
		want []string
	}{
		{"auto", tool.Selection{Preference: "auto"}, def},
		{"no preference", tool.Selection{}, def},
		{"default", tool.Selection{Preference: "default"}, def},
		{"none", tool.Selection{Preference: "none"}, []string{}},
		{"base over preference", tool.Selection{Preference: "default", Base: "none"}, []string{}},
		{"letta", tool.Selection{Preference: "letta"}, []string{"AskUserQuestion", "memory", "TaskStop", "Read", "Edit", "Write"}},
		{"include", tool.Selection{Preference: "none", Include: []string{"Grep", "Bash", "Grep"}}, []string{"Grep", "Bash"}},
		{"include again", tool.Selection{Preference: "default", Include: []string{"Bash", "Glob"}}, append(slices.Clone(def), "Glob")},
		{"allowlist loads", tool.Selection{Preference: "auto", Allowlist: []string{"Read", "Grep", "Glob"}}, []string{"Read", "Grep", "Glob"}},
		{"allowlist empty", tool.Selection{Preference: "auto", Allowlist: []string{}, External: []*tool.Tool{named("x", "c")}}, []string{}},
		{"allowlist unknown", tool.Selection{Preference: "auto", Allowlist: []string{"Read", "Nope"}}, []string{"Read"}},
		{"allowlist external", tool.Selection{Preference: "auto", Allowlist: []string{"x", "Bash"}, External: []*tool.Tool{named("x", "c"), named("y", "c")}}, []string{"Bash", "x"}},
		{"allowlist keeps client tools", tool.Selection{Allowlist: []string{"Read"}, Client: []*tool.Tool{named("mine", "client")}}, []string{"Read", "mine"}},
		{"not interactive", tool.Selection{Preference: "auto", ExcludeInteractive: true}, def[1:]},
		{"external stay without toolset", tool.Selection{Preference: "none", External: []*tool.Tool{named("x", "c")}}, []string{"x"}},
		{"read-only", tool.Selection{Preference: "auto", Include: []string{"Grep"}, ReadOnly: true, Attached: []*tool.Tool{named("w", "attached")}, External: []*tool.Tool{named("x", "c")}},
			[]string{"AskUserQuestion", "Read", "Grep", "x"}},
	} {
		got, err := box.Select(c.sel)
		if diff := cmp.Diff(c.want, tool.Names(got)); diff != "" || err != nil {
			t.Errorf("%s (-want +got), %v:\n%s", c.name, err, diff)
		}
	}

	// On a clash: client over external over attached over toolset.
	sel := tool.Selection{
		Preference: "default",
		Attached:   []*tool.Tool{named("Bash", "attached"), named("Read", "attached"), named("a", "attached")},
		External:   []*tool.Tool{named("Read", "external"), named("Write", "external"), named("a", "external"), named("a", "later")},
		Client:     []*tool.Tool{named("Write", "client"), named("b", "client")},
	}
	got, err := box.Select(sel)
	if err != nil {
		t.Fatal(err)
	}
	from := map[string]string{}
	for _, tl := range got {
		if from[tl.Def.Name] != "" {
			t.Errorf("%s is there twice", tl.Def.Name)
		}
		from[tl.Def.Name] = tl.External + "."
	}
	want := map[string]string{"AskUserQuestion": ".", "Edit": ".", "TaskStop": ".", "memory": ".",
		"Bash": "attached.", "Read": "external.", "a": "later.", "Write": "client.", "b": "client."}
	if diff := cmp.Diff(want, from); diff != "" {
		t.Errorf("origins (-want +got):\n%s", diff)
	}

	_, err = box.Select(tool.Selection{Include: []string{"Read", "Nope"}})
	if err == nil || err.Error() != "Unknown bundled client tool: Nope" || agent.CodeOf(err) != agent.CodeInvalid {
		t.Errorf("unknown include: %v", err)
	}
	if _, err = box.Select(tool.Selection{Base: "bogus"}); agent.CodeOf(err) != agent.CodeInvalid {
		t.Errorf("unknown base: %v", err)
	}
}

func TestSets(t *testing.T) {
	var ids []string
	for _, s := range tool.Sets() {
		ids = append(ids, s.ID)
		if s.DisplayName == "" || s.Label == "" || s.Description == "" {
			t.Errorf("%s lacks a text: %+v", s.ID, s)
		}
	}
	if diff := cmp.Diff([]string{"auto", "letta", "none", "default", "codex"}, ids); diff != "" {
		t.Errorf("ids (-want +got):\n%s", diff)
	}
	for given, want := range map[string]string{"auto": "auto", "default": "default", "codex": "codex", "letta": "letta", "none": "none", "codex_snake": "codex", "gemini": "auto", "bogus": "", "": ""} {
		if id, ok := tool.ParseSet(given); id != want || ok != (want != "") {
			t.Errorf("ParseSet(%q) = %q, %v", given, id, ok)
		}
	}
	for id, name := range map[string]string{"default": "Claude", "codex": "Codex", "letta": "Letta", "none": "None"} {
		if s, ok := tool.FindSet(id); !ok || s.DisplayName != name {
			t.Errorf("FindSet(%q) = %+v, %v", id, s, ok)
		}
	}
}

// Every built-in tool has a schema that is valid and closed, whose required
// parameters are those that are checked, and a description that is worth the
// tokens.
func TestDefinitions(t *testing.T) {
	r := newRig(t)
	seen := map[string]bool{}
	for _, tl := range r.tools {
		name := tl.Def.Name
		if seen[name] {
			t.Errorf("%s is there twice", name)
		}
		seen[name] = true
		var s jsonschema.Schema
		if err := json.Unmarshal(tl.Def.Parameters, &s); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if _, err := s.Resolve(nil); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if s.Type != "object" || s.AdditionalProperties == nil || s.AdditionalProperties.Not == nil {
			t.Errorf("%s: the schema is open: %s", name, tl.Def.Parameters)
		}
		if diff := cmp.Diff(tl.Required, s.Required); diff != "" {
			t.Errorf("%s: required (-checked +schema):\n%s", name, diff)
		}
		for _, p := range tl.Required {
			if s.Properties[p] == nil {
				t.Errorf("%s: required %s is no property", name, p)
			}
		}
		if n := len(tl.Def.Description); n < 30 || n > 1200 {
			t.Errorf("%s: a description of %d characters", name, n)
		}
		if tl.Run == nil {
			t.Errorf("%s cannot run", name)
		}
	}
	for _, name := range []string{"AskUserQuestion", "Bash", "Edit", "Glob", "Grep", "KillBash", "Read", "TaskStop", "Write", "memory"} {
		if !seen[name] {
			t.Errorf("%s is missing", name)
		}
	}
	if got := tool.Builtin(tool.Kit{Shells: r.shells}); tool.Find(got, "memory") != nil {
		t.Error("a memory tool without memory")
	}
}
