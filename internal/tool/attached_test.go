package tool_test

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mneme/internal/agent"
	"mneme/internal/memory"
	"mneme/internal/tool"
)

// restNames are the tools that exist from the start (spec/rest.md section 11.1).
var restNames = []string{
	"archival_memory_insert", "archival_memory_search", "conversation_search", "core_memory_append", "core_memory_replace",
	"fetch_webpage", "memory", "memory_apply_patch", "memory_insert", "memory_replace", "memory_rethink", "run_code", "send_message", "web_search",
}

func TestAttachable(t *testing.T) {
	mem := memory.New(t.TempDir(), memory.Options{})
	defer mem.Close()
	full := tool.NewBox(tool.Builtin(tool.Kit{Memory: mem, Blocks: mem, Messages: &log{}})...)
	works := map[string]bool{"conversation_search": true, "memory_insert": true, "memory_replace": true, "memory": true, "fetch_webpage": true, "web_search": true}
	var names []string
	seen := map[string]bool{}
	id := regexp.MustCompile(`^tool-[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	for _, info := range full.Attachable() {
		names = append(names, info.Name)
		if info.Built != works[info.Name] {
			t.Errorf("%s: built is %v", info.Name, info.Built)
		}
		if !id.MatchString(info.ID) || seen[info.ID] || full.NameOfID(info.ID) != info.Name {
			t.Errorf("%s has the id %s of %q", info.Name, info.ID, full.NameOfID(info.ID))
		}
		seen[info.ID] = true
		var schema map[string]any
		if err := json.Unmarshal(info.Parameters, &schema); err != nil || info.Description == "" || info.Type == "" || len(info.Tags) == 0 {
			t.Errorf("%+v: %v", info, err)
		}
	}
	if diff := cmp.Diff(restNames, names); diff != "" {
		t.Error(diff)
	}
	// An id is the same in every build, or clients could not keep it.
	if got := tool.AttachedID("memory"); got != "tool-718794df-e617-4b8e-b703-14daadec1acd" {
		t.Errorf("the id of memory is %s", got)
	}
	if full.NameOfID("tool-none") != "" || len(full.AttachedInfo([]string{"none"})) != 0 {
		t.Error("an unknown tool is known")
	}

	// By name alone: they answer, and no toolset has them.
	empty := tool.NewBox()
	for _, at := range empty.Attached(restNames) {
		r := at.Run(t.Context(), &tool.Call{Name: at.Def.Name, Input: json.RawMessage("{}")})
		if r.Status != agent.StatusError || agent.TextOf(r.Parts) != "The tool "+at.Def.Name+" is not available on this server." {
			t.Errorf("%s: %+v", at.Def.Name, r)
		}
	}
	all, err := empty.Select(tool.Selection{Base: tool.SetCodex, Allowlist: restNames})
	if err != nil || len(all) != 0 {
		t.Errorf("%v, %v", tool.Names(all), err)
	}
	if _, err := empty.Select(tool.Selection{Include: []string{"run_code"}}); agent.CodeOf(err) != agent.CodeInvalid {
		t.Errorf("run_code was included: %v", err)
	}
	if len(tool.BaseTools()) != 3 {
		t.Error("base tools")
	}
}

// withMemory gives a rig the core memory of its agent.
func withMemory(t *testing.T, files ...memory.FileChange) (*rig, *memory.Memory) {
	t.Helper()
	r := newRig(t)
	mem := memory.New(t.TempDir(), memory.Options{})
	t.Cleanup(func() { mem.Close() })
	if len(files) > 0 {
		if _, _, err := mem.Write(t.Context(), memory.Author{}, agentID, files, "init"); err != nil {
			t.Fatal(err)
		}
	}
	r.tools = tool.Builtin(tool.Kit{Blocks: mem})
	return r, mem
}

func memoryFile(path, text string) memory.FileChange {
	return memory.FileChange{Path: path, Content: []byte(text), Force: true}
}

func TestBlockTools(t *testing.T) {
	const front = "---\ndescription: d\n---\n"
	for _, c := range []struct {
		name, tool string
		args       []any
		body       string // before
		want       string // after; "" = as before
		text       string // part of the result
	}{
		{"append", "memory_insert", []any{"new_string", "c"}, "a\nb", "a\nb\nc", "now says:\na\nb\nc"},
		{"append to a last line", "memory_insert", []any{"new_string", "c", "insert_line", -1}, "a\nb\n", "a\nb\nc\n", ""},
		{"into nothing", "memory_insert", []any{"new_string", "c"}, "", "c", ""},
		{"at the beginning", "memory_insert", []any{"new_string", "x\ny", "insert_line", 0}, "a\nb", "x\ny\na\nb", ""},
		{"after a line", "memory_insert", []any{"new_string", "x", "insert_line", "1"}, "a\nb", "a\nx\nb", ""},
		{"path as label", "memory_insert", []any{"label", "system/human.md", "new_string", "x"}, "a", "a\nx", "Memory block human changed"},
		{"beyond", "memory_insert", []any{"new_string", "x", "insert_line", 3}, "a\nb", "", "insert_line is 3; the block has 2 lines, so use 0 to 2, or -1 for the end."},
		{"before", "memory_insert", []any{"new_string", "x", "insert_line", -2}, "a", "", "insert_line is -2"},
		{"no such block", "memory_insert", []any{"label", "persona", "new_string", "x"}, "a", "", `There is no memory block "persona". There are: human, locked.`},
		{"bad label", "memory_insert", []any{"label", "../x", "new_string", "x"}, "a", "", `block label "../x"`},
		{"read-only", "memory_insert", []any{"label", "locked", "new_string", "x"}, "a", "", `The memory block "locked" is read-only.`},
		{"too long", "memory_insert", []any{"new_string", strings.Repeat("x", 100_001)}, "a", "", "the limit is 100000"},
		{"replace", "memory_replace", []any{"old_string", "b", "new_string", "c\nd"}, "a\nb", "a\nc\nd", "now says:\na\nc\nd"},
		{"delete", "memory_replace", []any{"old_string", "\nb", "new_string", ""}, "a\nb", "a", ""},
		{"all of it", "memory_replace", []any{"old_string", "a", "new_string", ""}, "a", "-", ""},
		{"not there", "memory_replace", []any{"old_string", "z", "new_string", "c"}, "a", "", "does not hold this text"},
		{"twice", "memory_replace", []any{"old_string", "a", "new_string", "c"}, "a a", "", "holds this text 2 times"},
		{"front matter is not text", "memory_replace", []any{"old_string", "description", "new_string", "c"}, "a", "", "does not hold"},
		{"nothing", "memory_replace", []any{"old_string", "", "new_string", "c"}, "a", "", "must not be empty"},
		{"the same", "memory_replace", []any{"old_string", "a", "new_string", "a"}, "a", "", "Nothing to change"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r, mem := withMemory(t, memoryFile("system/human.md", front+c.body), memoryFile("system/locked.md", "---\nread_only: true\n---\nx"), memoryFile("notes.md", "n"))
			status, text := r.do(c.tool, append([]any{"label", "human"}, c.args...)...)
			if !strings.Contains(text, c.text) || (status == agent.StatusError) != (c.want == "") {
				t.Errorf("%s: %q", status, text)
			}
			snap, err := mem.Snapshot(t.Context(), agentID, "")
			if err != nil {
				t.Fatal(err)
			}
			want := map[string]string{"": c.body, "-": ""}
			body, special := want[c.want]
			if !special {
				body = c.want
			}
			if got := snap.File("system/human.md").Text; got != front+body {
				t.Errorf("the file is %q", got)
			}
		})
	}
	r, _ := withMemory(t)
	if _, text := r.do("memory_replace", "label", "human", "old_string", "a", "new_string", "b"); !strings.HasSuffix(text, "There are none.") {
		t.Errorf("without memory: %s", text)
	}
}
