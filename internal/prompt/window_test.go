package prompt_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"mneme/internal/agent"
	"mneme/internal/prompt"
)

func text(role agent.Role, s string) *agent.Message {
	return &agent.Message{ID: "message-" + s, Role: role, Parts: []agent.Part{agent.Text(s)}}
}

// calls is an assistant message that says s and makes calls.
func calls(s string, ids ...string) *agent.Message {
	m := &agent.Message{ID: "message-" + s, Role: agent.RoleAssistant, StepID: "step-" + s}
	if s != "" {
		m.Parts = append(m.Parts, agent.Text(s))
	}
	for _, id := range ids {
		m.Parts = append(m.Parts, agent.Part{Kind: agent.PartToolCall, Call: &agent.CallPart{ID: id, Name: "Read", Arguments: "{}"}})
	}
	return m
}

func result(id, s string) *agent.Message {
	return &agent.Message{Role: agent.RoleTool, CallID: id, Name: "Read", Status: agent.StatusSuccess, Parts: []agent.Part{agent.Text(s)}}
}

// show is a window in short.
func show(messages []*agent.Message) string {
	var b strings.Builder
	for _, m := range messages {
		fmt.Fprintf(&b, "%s", m.Role)
		if m.CallID != "" {
			fmt.Fprintf(&b, " %s %s", m.CallID, m.Status)
		}
		for _, p := range m.Parts {
			if p.Call != nil {
				fmt.Fprintf(&b, " (%s)", p.Call.ID)
			} else {
				fmt.Fprintf(&b, " %q", p.Text)
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func with(m *agent.Message, change func(*agent.Message)) *agent.Message {
	change(m)
	return m
}

func TestWindow(t *testing.T) {
	hidden := func(m *agent.Message) { m.Hidden = true }
	interrupted := func(m *agent.Message) { m.Interrupted = true }
	for _, tc := range []struct {
		name    string
		history []*agent.Message
		want    string
	}{
		{"empty", nil, ""},
		{"kinds", []*agent.Message{
			text(agent.RoleSystem, "s"), text(agent.RoleUser, "u"), text(agent.RoleApproval, "ap"),
			text(agent.RoleAssistant, "a"), text(agent.RoleNotice, "n"), with(text(agent.RoleUser, "h"), hidden), with(text(agent.RoleAssistant, "i"), interrupted),
		}, "user \"u\"\nassistant \"a\"\nnotice \"n\"\n"},
		{"completion order", []*agent.Message{
			text(agent.RoleUser, "u"), calls("a", "1", "2", "3"), result("2", "r2"), result("3", "r3"), result("1", "r1"),
		}, "user \"u\"\nassistant \"a\" (1) (2) (3)\ntool 2 success \"r2\"\ntool 3 success \"r3\"\ntool 1 success \"r1\"\n"},
		{"what came between moves behind", []*agent.Message{
			text(agent.RoleUser, "u"), calls("", "1", "2"), result("1", "r1"), text(agent.RoleNotice, "n"), text(agent.RoleUser, "v"), result("2", "r2"),
		}, "user \"u\"\nassistant (1) (2)\ntool 1 success \"r1\"\ntool 2 success \"r2\"\nnotice \"n\"\nuser \"v\"\n"},
		{"missing results", []*agent.Message{
			text(agent.RoleUser, "u"), calls("a", "1", "2"), result("2", "r2"), text(agent.RoleUser, "v"),
		}, "user \"u\"\nassistant \"a\" (1) (2)\ntool 2 success \"r2\"\ntool 1 error \"Interrupted by user\"\nuser \"v\"\n"},
		{"orphans and doubles", []*agent.Message{
			result("0", "r0"), text(agent.RoleUser, "u"), calls("a", "1"), result("1", "r1"), result("1", "again"), result("9", "r9"),
		}, "user \"u\"\nassistant \"a\" (1)\ntool 1 success \"r1\"\n"},
		{"a result of an interrupted step", []*agent.Message{
			text(agent.RoleUser, "u"), with(calls("a", "1"), interrupted), result("1", "r1"), text(agent.RoleNotice, "n"),
		}, "user \"u\"\nnotice \"n\"\n"},
		{"a hidden result", []*agent.Message{
			text(agent.RoleUser, "u"), calls("a", "1"), with(result("1", "r1"), hidden),
		}, "user \"u\"\nassistant \"a\" (1)\ntool 1 error \"Interrupted by user\"\n"},
		{"one id in two steps", []*agent.Message{
			text(agent.RoleUser, "u"), calls("a", "1"), result("1", "r1"), calls("b", "1"), result("1", "r2"),
		}, "user \"u\"\nassistant \"a\" (1)\ntool 1 success \"r1\"\nassistant \"b\" (1)\ntool 1 success \"r2\"\n"},
		{"one id twice in a step", []*agent.Message{
			text(agent.RoleUser, "u"), calls("a", "1", "1", ""), result("1", "r1"),
		}, "user \"u\"\nassistant \"a\" (1)\ntool 1 success \"r1\"\n"},
		{"the assistant's word at the end", []*agent.Message{
			text(agent.RoleUser, "u"), text(agent.RoleAssistant, "a"), text(agent.RoleAssistant, "b"),
		}, "user \"u\"\n"},
		{"empty messages", []*agent.Message{
			text(agent.RoleUser, ""), {Role: agent.RoleUser}, calls(""), with(text(agent.RoleUser, ""), func(m *agent.Message) { m.Context = "c" }),
		}, "user \"\"\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, show(prompt.Window(tc.history))); diff != "" {
				t.Errorf("window (-want +got):\n%s", diff)
			}
		})
	}
}

// The newest summary comes first, in its packed form; older ones are in it.
func TestWindowSummary(t *testing.T) {
	history := []*agent.Message{
		text(agent.RoleSummary, "old"), text(agent.RoleUser, "u"), text(agent.RoleAssistant, "a"),
		text(agent.RoleUser, "v"), text(agent.RoleSummary, "new"),
	}
	got := prompt.Window(history)
	if len(got) != 4 || got[0].Role != agent.RoleSummary || got[0].ID != "message-new" {
		t.Fatalf("window is\n%s", show(got))
	}
	if s := got[0].Parts[0].Text; !strings.Contains(s, "new") || strings.Contains(s, "old") {
		t.Errorf("summary is %q", s)
	}
	if history[4].Parts[0].Text != "new" {
		t.Error("the stored summary was changed")
	}
}

// Any history becomes a sequence that every provider accepts, and is not touched.
func TestWindowIsValid(t *testing.T) {
	id := rapid.SampledFrom([]string{"", "1", "2", "3"})
	message := rapid.Custom(func(t *rapid.T) *agent.Message {
		m := &agent.Message{
			Role: rapid.SampledFrom([]agent.Role{agent.RoleUser, agent.RoleAssistant, agent.RoleAssistant, agent.RoleTool, agent.RoleTool,
				agent.RoleSystem, agent.RoleNotice, agent.RoleSummary, agent.RoleApproval}).Draw(t, "role"),
			Hidden:      rapid.IntRange(0, 5).Draw(t, "hidden") == 0,
			Interrupted: rapid.IntRange(0, 5).Draw(t, "interrupted") == 0,
		}
		if rapid.Bool().Draw(t, "speaks") {
			m.Parts = append(m.Parts, agent.Text(rapid.SampledFrom([]string{"", "x"}).Draw(t, "text")))
		}
		switch m.Role {
		case agent.RoleTool:
			m.CallID = id.Draw(t, "call")
		case agent.RoleAssistant:
			for _, call := range rapid.SliceOfN(id, 0, 3).Draw(t, "calls") {
				m.Parts = append(m.Parts, agent.Part{Kind: agent.PartToolCall, Call: &agent.CallPart{ID: call, Name: "t"}})
			}
		}
		return m
	})
	rapid.Check(t, func(t *rapid.T) {
		history := rapid.SliceOfN(message, 0, 14).Draw(t, "history")
		before, _ := json.Marshal(history)
		window := prompt.Window(history)
		if after, _ := json.Marshal(history); string(before) != string(after) {
			t.Fatal("the history was changed")
		}
		checkSequence(t, window)
		// Nothing that may be sent is lost.
		for _, m := range history {
			switch m.Role {
			case agent.RoleUser, agent.RoleNotice:
				sent := false
				for _, w := range window {
					sent = sent || w == m
				}
				if want := !m.Hidden && !m.Interrupted && agent.TextOf(m.Parts) != ""; sent != want {
					t.Fatalf("message %+v sent: %v", m, sent)
				}
			}
		}
		for i, m := range window {
			if m.Role == agent.RoleSummary && i > 0 {
				t.Fatalf("summary at %d:\n%s", i, show(window))
			}
		}
	})
}

// checkSequence fails unless each call has one result, directly behind its
// message, and nothing else is a result.
func checkSequence(t *rapid.T, window []*agent.Message) {
	due := map[string]bool{}
	for i, m := range window {
		if m.Hidden || m.Interrupted {
			t.Fatalf("message %d must not be sent:\n%s", i, show(window))
		}
		if m.Role == agent.RoleTool {
			if !due[m.CallID] {
				t.Fatalf("message %d answers no call:\n%s", i, show(window))
			}
			delete(due, m.CallID)
			continue
		}
		if len(due) > 0 {
			t.Fatalf("message %d comes before all results:\n%s", i, show(window))
		}
		switch m.Role {
		case agent.RoleUser, agent.RoleNotice, agent.RoleSummary:
		case agent.RoleAssistant:
			for _, c := range m.Calls() {
				if due[c.ID] || c.ID == "" {
					t.Fatalf("message %d has a call twice:\n%s", i, show(window))
				}
				due[c.ID] = true
			}
		default:
			t.Fatalf("message %d has role %s", i, m.Role)
		}
	}
	if len(due) > 0 {
		t.Fatalf("results are missing:\n%s", show(window))
	}
	if n := len(window); n > 0 && window[n-1].Role == agent.RoleAssistant {
		t.Fatalf("the assistant has the last word:\n%s", show(window))
	}
}

func TestEstimate(t *testing.T) {
	m := &agent.Message{Role: agent.RoleUser, Context: strings.Repeat("c", 40), Parts: []agent.Part{
		agent.Text(strings.Repeat("t", 400)),
		{Kind: agent.PartImage, Data: strings.Repeat("x", 100_000)},
		{Kind: agent.PartToolCall, Call: &agent.CallPart{ID: "1", Name: "Read", Arguments: strings.Repeat("a", 36)}},
	}}
	if got := prompt.EstimateMessage(m); got != 4+1200+480/4 {
		t.Errorf("message is %d tokens", got)
	}
	tools := []agent.ToolDef{{Name: "Read", Description: strings.Repeat("d", 32), Parameters: json.RawMessage(`{}  `)}}
	if got := prompt.Estimate(strings.Repeat("s", 60), tools, []*agent.Message{m, m}); got != 25+2*1324 {
		t.Errorf("request is %d tokens", got)
	}
	for window, want := range map[int]int{128_000: 111_616, 8_000: 6_400, 4: 3, 1_000_000: 983_616} {
		if got := prompt.Threshold(window); got != want {
			t.Errorf("threshold of %d is %d, want %d", window, got, want)
		}
	}
	if !prompt.Fits(6400, 8000) || prompt.Fits(6401, 8000) || !prompt.Fits(1<<40, 0) {
		t.Error("Fits is wrong at the threshold")
	}
}
