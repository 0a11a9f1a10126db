package tool

import (
	"context"
	_ "embed"
	"fmt"
	"strings"
	"time"

	"mneme/internal/agent"
)

//go:embed conversation_search.md
var conversationSearchText string

const (
	defaultFinds = 10
	maxFinds     = 50
	maxFindText  = 1500 // characters that are shown of one message
)

// A MessageQuery says which messages of an agent are looked for.
type MessageQuery struct {
	Text     string       // "" = the newest
	Roles    []agent.Role // empty = what was said by people and the agent
	From, To time.Time    // both included; zero = open
	Limit    int
}

// Messages finds what was said.
type Messages interface {
	// FindMessages finds messages of all conversations of an agent, the best first,
	// but none of the turn that asks.
	FindMessages(ctx context.Context, scope agent.Scope, q MessageQuery) ([]*agent.Message, error)
}

type conversationArgs struct {
	Query     string   `json:"query"`
	Roles     []string `json:"roles"`
	Limit     *number  `json:"limit"`
	StartDate string   `json:"start_date"`
	EndDate   string   `json:"end_date"`
}

func conversationSearchTool(m Messages) *Tool {
	t := define("conversation_search", conversationSearchText, `
		"query":{"type":"string","description":"A question, or words to look for"},
		"roles":{"type":"array","items":{"type":"string","enum":["user","assistant","tool"]},"description":"Whose messages count (default: user and assistant)"},
		"limit":{"type":"integer","description":"How many messages at most (default 10, at most 50)"},
		"start_date":{"type":"string","description":"Earliest date or time, ISO 8601, such as 2026-03-29 or 2026-03-29T10:00:00Z"},
		"end_date":{"type":"string","description":"Latest date or time, likewise; a date includes its whole day"}`)
	t.Class, t.ReadOnly = Parallel, true
	t.Run = func(ctx context.Context, c *Call) agent.ToolResult {
		var in conversationArgs
		if r, ok := decode(c, &in); !ok {
			return r
		}
		q, err := in.query()
		if err != nil {
			return errResult(ctx, err)
		}
		found, err := m.FindMessages(ctx, c.Env.Scope, q)
		if err != nil {
			return errResult(ctx, err)
		}
		return success(showFinds(found))
	}
	return t
}

// query checks the arguments.
func (in *conversationArgs) query() (q MessageQuery, err error) {
	q = MessageQuery{Text: in.Query, Limit: defaultFinds}
	if in.Limit != nil {
		q.Limit = min(max(int(*in.Limit), 1), maxFinds)
	}
	for _, role := range in.Roles {
		switch r := agent.Role(role); r {
		case agent.RoleUser, agent.RoleAssistant, agent.RoleTool:
			q.Roles = append(q.Roles, r)
		default:
			return q, agent.Invalid("roles", "roles may hold user, assistant and tool, not %q.", role)
		}
	}
	if q.From, err = parseDate("start_date", in.StartDate, false); err != nil {
		return q, err
	}
	q.To, err = parseDate("end_date", in.EndDate, true)
	return q, err
}

// parseDate reads a date or a time; without a zone it is UTC. last makes a date the
// end of its day.
func parseDate(name, s string, last bool) (time.Time, error) {
	s = strings.TrimSpace(s)
	if s == "" {
		return time.Time{}, nil
	}
	if day, err := time.Parse(time.DateOnly, s); err == nil {
		if last {
			day = day.AddDate(0, 0, 1).Add(-time.Nanosecond)
		}
		return day, nil
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02T15:04", time.DateTime, "2006-01-02 15:04"} {
		if at, err := time.Parse(layout, s); err == nil {
			return at.UTC(), nil
		}
	}
	return time.Time{}, agent.Invalid(name, "%s is %q; use a form such as 2026-03-29 or 2026-03-29T10:00:00Z.", name, s)
}

// showFinds is what the model sees of the messages.
func showFinds(found []*agent.Message) string {
	if len(found) == 0 {
		return "No message was found. Other words may find one; nothing found does not mean that it was never said."
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d messages, the best match first:\n", len(found))
	for _, m := range found {
		text := agent.TextOf(m.Parts)
		if text == "" {
			for _, p := range m.Parts {
				if p.Kind == agent.PartReasoning {
					text = "(thought) " + p.Text
				}
			}
		}
		cut := firstChars(text, maxFindText)
		if cut != text {
			cut += " …"
		}
		who := string(m.Role)
		if m.Name != "" {
			who += " " + m.Name
		}
		fmt.Fprintf(&b, "\n[%s] %s: %s\n", m.CreatedAt.UTC().Format("2006-01-02 15:04 UTC"), who, strings.TrimSpace(cut))
	}
	return strings.TrimSuffix(b.String(), "\n")
}
