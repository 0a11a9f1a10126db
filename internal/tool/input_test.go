package tool_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"mneme/internal/agent"
	"mneme/internal/memory"
	"mneme/internal/tool"
)

func TestParseInput(t *testing.T) {
	for raw, want := range map[string]string{
		`{"a":1}`:                         `{"a":1}`,
		"  {\"a\":1}\n":                   `{"a":1}`,
		"":                                `{}`,
		"   ":                             `{}`,
		`{}`:                              `{}`,
		`"{\"a\":1}"`:                     `{"a":1}`,
		"```json\n{\"a\":1}\n```":         `{"a":1}`,
		"{\"a\":\"x\ny\tz\"}":             `{"a":"x\u000ay\u0009z"}`,
		`{"a":[1,2,],}`:                   `{"a":[1,2]}`,
		`{"a":"keep, ] this",}`:           `{"a":"keep, ] this"}`,
		`{"a":"quote \" , }"}`:            `{"a":"quote \" , }"}`,
		`{"command": "ls`:                 "", // cut
		`{"file_path":"x","content":"hal`: "",
		`{"a":1`:                          "",
		`{"a":1}{"b":2}`:                  "",
		`null`:                            "",
		`[1]`:                             "",
		`7`:                               "",
		`"text"`:                          "",
		`ls -la`:                          "",
		`{'a':1}`:                         "",
		"```":                             "",
		`{"a":"\`:                         "",
		"{,}":                             "{}",
	} {
		if got := string(tool.ParseInput(raw)); got != want {
			t.Errorf("ParseInput(%q) = %q, want %q", raw, got, want)
		}
	}
}

func FuzzParseInput(f *testing.F) {
	for _, s := range []string{`{"a":1}`, `{"a":[1,],}`, "{\"a\":\"\n\"}", `"{}"`, "```json\n{}\n```", `{"a":"\u00`, `{"a":"x\`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		got := tool.ParseInput(raw)
		if got == nil {
			if trimmed := strings.TrimSpace(raw); trimmed == "" || json.Valid([]byte(trimmed)) && trimmed[0] == '{' {
				t.Errorf("refused %q", raw)
			}
			return
		}
		var m map[string]json.RawMessage
		if err := json.Unmarshal(got, &m); err != nil || m == nil {
			t.Errorf("ParseInput(%q) = %q is no object: %v", raw, got, err)
		}
	})
}

func TestMissingParameters(t *testing.T) {
	r := newRig(t)
	const dropped = ". The tool call arrived with empty arguments, which usually means they were dropped in transit rather than" +
		" omitted by you. Do not resend an identical call - re-issue it with the arguments restructured (e.g. write long payloads to a file first)."
	for _, c := range []struct{ name, raw, want string }{
		{"Bash", `{}`, "Bash tool missing required parameters: command, description. Received parameters: " + dropped},
		{"Bash", `{"command":"ls"}`, "Bash tool missing required parameter: description. Received parameters: command"},
		{"Bash", `{"command":"ls`, "Bash tool missing required parameters: command, description. Received parameters: " + dropped},
		{"Bash", `{"timeout":5,"command":null,"description":"x"}`, "Bash tool missing required parameter: command. Received parameters: timeout, command, description"},
		{"Write", `{"file_path":"x","content":"half a fi`, "Write tool missing required parameters: file_path, content. Received parameters: " + dropped},
		{"AskUserQuestion", `{}`, "AskUserQuestion tool missing required parameter: questions. Received parameters: " + dropped},
	} {
		for _, mode := range []agent.Mode{agent.ModeStandard, agent.ModeUnrestricted, agent.ModeStrict} {
			r.env.Mode = mode
			d := r.decide(c.name, tool.ParseInput(c.raw))
			if d.Verdict != tool.Deny || d.Reason != c.want {
				t.Errorf("%s(%s) in %s: %s %q, want deny %q", c.name, c.raw, mode, d.Verdict, d.Reason, c.want)
			}
		}
	}
	free := &tool.Tool{Def: agent.ToolDef{Name: "free"}, Run: tool.Find(r.tools, "Read").Run}
	if d := tool.Decide(free, r.call("free", nil)); d.Verdict != tool.Deny || d.Reason == "" {
		t.Errorf("arguments that are no JSON, for a tool that needs none: %+v", d)
	}
}

func TestNotFound(t *testing.T) {
	r := newRig(t)
	res := r.run("NoSuchTool", in("x", 1))
	text := agent.TextOf(res.Parts)
	if res.Status != bad || !strings.HasPrefix(text, `Tool not found: NoSuchTool. Available tools: ["AskUserQuestion","Bash",`) {
		t.Errorf("%s %q", res.Status, text)
	}
	want := agent.TextResult(bad, `Tool not found: Bash. Available tools: ["Read"]`)
	if diff := cmp.Diff(want, tool.NotFound("Bash", []string{"Read"})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := agent.TextOf(tool.NotFound("X", nil).Parts); got != "Tool not found: X. Available tools: []" {
		t.Errorf("got %q", got)
	}
}

func TestClamp(t *testing.T) {
	long := strings.Repeat("ä", 40_000)
	got := tool.Clamp(agent.TextResult(good, long)).Parts[0].Text
	if n := utf8.RuneCountInString(got); n != 32_000 || !strings.HasSuffix(got, "\n[Output truncated: showing 32,000 of 40,000 characters.]") {
		t.Errorf("%d characters, end %q", n, got[len(got)-70:])
	}
	exact := strings.Repeat("ä", 32_000)
	if tool.Clamp(agent.TextResult(good, exact)).Parts[0].Text != exact {
		t.Error("a text at the limit was cut")
	}
	if got := tool.Clamp(agent.TextResult(bad, "a\x00b\xff")).Parts[0].Text; got != "a\uFFFDb\uFFFD" {
		t.Errorf("got %q", got)
	}
	image := agent.Part{Kind: agent.PartImage, MediaType: "image/png", Data: strings.Repeat("A", 50_000)}
	want := agent.ToolResult{Status: good, Parts: []agent.Part{image}}
	if diff := cmp.Diff(want, tool.Clamp(want)); diff != "" {
		t.Errorf("image (-want +got):\n%s", diff)
	}
	if got := tool.Clamp(agent.ToolResult{}); got.Status != good || len(got.Parts) != 1 || got.Parts[0].Text == "" {
		t.Errorf("empty result: %+v", got)
	}
}

func TestAsk(t *testing.T) {
	r := newRig(t)
	question := func(q string) map[string]any {
		return map[string]any{"question": q, "header": "Pick", "multiSelect": false, "options": []any{}}
	}
	for _, c := range []struct {
		input  []any
		status agent.CallStatus
		want   string
	}{
		{[]any{"questions", []any{question("Which one?")}, "answers", map[string]any{"Which one?": "A"}}, good,
			`User has answered your questions: "Which one?"="A". You can now continue with the user's answers in mind.`},
		{[]any{"questions", []any{question("Q2"), question("Q1")}, "answers", map[string]any{"Q1": "x", "Q2": []any{"a", "b"}, "Extra": "y"}}, good,
			`User has answered your questions: "Q2"="a, b", "Q1"="x", "Extra"="y". You can now continue with the user's answers in mind.`},
		{[]any{"questions", []any{question("Q")}}, bad, "The user did not answer."},
		{[]any{"questions", "Q"}, bad, "Invalid arguments for AskUserQuestion: questions must not be a string"},
	} {
		if status, text := r.do("AskUserQuestion", c.input...); status != c.status || text != c.want {
			t.Errorf("got %s %q, want %s %q", status, text, c.status, c.want)
		}
	}
}

func TestMemoryTool(t *testing.T) {
	r := newRig(t)
	r.steps([]step{
		{"memory", []any{"command", "create", "reason", "r", "file_path", "system/human.md", "description", "d", "file_text", ""}, good, "Memory create committed locally (0123456)."},
		{"memory", []any{"command", "insert", "reason", "r", "file_path", "a", "insert_line", 3, "insert_text", "t"}, good, "Memory insert committed locally (0123456)."},
		{"memory", []any{"command", "rename", "reason", "r", "old_path", "a", "new_path", "b"}, good, "Memory rename committed locally (0123456)."},
		{"memory", []any{"command", "delete", "reason", "r"}, bad, "memory delete needs file_path"},
		{"memory", []any{"command", "str_replace", "reason", "r", "file_path", "a", "old_string", nil}, bad, "memory str_replace needs old_string and new_string"},
		{"memory", []any{"command", "view", "reason", "r"}, bad, "Unknown memory command \"view\". …"},
	})
	line := 3
	want := []memory.Op{
		{Command: "create", Reason: "r", FilePath: "system/human.md", Description: "d"},
		{Command: "insert", Reason: "r", FilePath: "a", InsertLine: &line, InsertText: "t"},
		{Command: "rename", Reason: "r", OldPath: "a", NewPath: "b"},
	}
	if diff := cmp.Diff(want, r.memory.ops); diff != "" {
		t.Errorf("operations (-want +got):\n%s", diff)
	}
	r.memory.err = agent.Errorf(agent.CodeNotFound, "There is no such file.")
	r.steps([]step{{"memory", []any{"command", "delete", "reason", "r", "file_path", "x"}, bad, "There is no such file."}})
	r.memory.err = errors.New("disk")
	r.steps([]step{{"memory", []any{"command", "delete", "reason", "r", "file_path", "x"}, bad, "disk"}})
}
