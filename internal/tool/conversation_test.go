package tool_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mneme/internal/agent"
	"mneme/internal/tool"
)

// A log answers with its messages, whatever is asked.
type log struct {
	scope    agent.Scope
	query    tool.MessageQuery
	messages []*agent.Message
	err      error
}

func (l *log) FindMessages(_ context.Context, scope agent.Scope, q tool.MessageQuery) ([]*agent.Message, error) {
	l.scope, l.query = scope, q
	return l.messages, l.err
}

func TestConversationSearch(t *testing.T) {
	at := func(s string) time.Time {
		v, err := time.Parse(time.RFC3339Nano, s)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	r, l := newRig(t), &log{}
	r.tools = tool.Builtin(tool.Kit{Messages: l})
	for _, c := range []struct {
		name string
		args []any
		want tool.MessageQuery
	}{
		{"plain", []any{"query", "dogs"}, tool.MessageQuery{Text: "dogs", Limit: 10}},
		{"nothing", nil, tool.MessageQuery{Limit: 10}},
		{"all", []any{"query", "q", "roles", []string{"user", "tool"}, "limit", "7", "start_date", "2026-03-29", "end_date", "2026-03-29"},
			tool.MessageQuery{Text: "q", Roles: []agent.Role{agent.RoleUser, agent.RoleTool}, Limit: 7, From: at("2026-03-29T00:00:00Z"), To: at("2026-03-29T23:59:59.999999999Z")}},
		{"times", []any{"start_date", "2026-03-29T10:00:00+02:00", "end_date", " 2026-03-29 10:30 "},
			tool.MessageQuery{Limit: 10, From: at("2026-03-29T08:00:00Z"), To: at("2026-03-29T10:30:00Z")}},
		{"large limit", []any{"limit", 5000}, tool.MessageQuery{Limit: 50}},
		{"no limit", []any{"limit", 0}, tool.MessageQuery{Limit: 1}},
	} {
		if status, text := r.do("conversation_search", c.args...); status != agent.StatusSuccess || !strings.HasPrefix(text, "No message was found.") {
			t.Errorf("%s: %s %s", c.name, status, text)
		}
		if diff := cmp.Diff(c.want, l.query); diff != "" || l.scope != r.env.Scope {
			t.Errorf("%s: %s", c.name, diff)
		}
	}
	for _, c := range []struct {
		args []any
		want string
	}{
		{[]any{"roles", []string{"system"}}, `roles may hold user, assistant and tool, not "system".`},
		{[]any{"start_date", "yesterday"}, `start_date is "yesterday"`},
		{[]any{"end_date", "2026-02-30"}, `end_date is "2026-02-30"`},
		{[]any{"query", 7}, "Invalid arguments"},
	} {
		if status, text := r.do("conversation_search", c.args...); status != agent.StatusError || !strings.Contains(text, c.want) {
			t.Errorf("%v: %s", c.args, text)
		}
	}
	l.messages = []*agent.Message{
		{Role: agent.RoleUser, Name: "Bo", Parts: []agent.Part{agent.Text("My dog is Rex.\n")}, CreatedAt: at("2026-03-29T10:00:30+02:00")},
		{Role: agent.RoleAssistant, Parts: []agent.Part{{Kind: agent.PartReasoning, Text: "hm"}}, CreatedAt: at("2026-03-29T11:00:00Z")},
		{Role: agent.RoleAssistant, Parts: []agent.Part{{Kind: agent.PartReasoning, Text: "hm"}, agent.Text(strings.Repeat("ä", 2000))}, CreatedAt: at("2026-03-29T11:00:00Z")},
	}
	want := "3 messages, the best match first:\n\n[2026-03-29 08:00 UTC] user Bo: My dog is Rex.\n\n[2026-03-29 11:00 UTC] assistant: (thought) hm\n\n" +
		"[2026-03-29 11:00 UTC] assistant: " + strings.Repeat("ä", 1500) + " …"
	if _, text := r.do("conversation_search", "query", "dog"); text != want {
		t.Error(cmp.Diff(want, text))
	}
	l.err = errors.New("the database is away")
	if status, text := r.do("conversation_search", "query", "dog"); status != agent.StatusError || text != "the database is away" {
		t.Errorf("%s %s", status, text)
	}
}
