// Package agent holds the domain types that every other package speaks:
// agents, conversations, messages, inputs, turns, runs, steps, tool calls,
// events and errors. It imports only the standard library and does no I/O.
//
// The life of one exchange:
//
//	input -> turn -> run -> step
//
// An Input is what a door submits. A Turn goes from taking inputs to its end.
// A Run is the stretch of a turn between two human answers: it ends with the
// turn, or when the turn parks on an approval, a question or a client tool; the
// answer opens the next run of the same turn. A Step is one model call and the
// tool calls it asked for. Every row is committed before its effect can be
// seen, so that the last row of a conversation tells how to go on after a
// crash.
//
// Ids are `<prefix>-<uuid4>`, made once and shown by every door. Times are UTC
// with nanoseconds.
package agent

import (
	"encoding/json"
	"time"
)

// DefaultTenant is the tenant of everything until tokens carry one.
const DefaultTenant = "default"

// An Agent is a persona with memory and a model. Its memory is not here: it is
// a git repository of its own, see internal/memory.
type Agent struct {
	ID          string
	Name        string
	Description *string // nil = never set
	System      string  // raw system prompt; may be empty
	// Model is a handle "provider/model". "auto" follows the configured default.
	Model         string
	ModelSettings json.RawMessage // JSON object, never nil once stored
	ContextLimit  int             // tokens; 0 = the model's own
	Tags          []string
	Hidden        *bool           // nil = never set
	Compaction    json.RawMessage // settings object; nil = never set
	Metadata      json.RawMessage // REST only; nil = never set
	// Toolset is what conversations of this agent start with: "auto" for agents
	// made over the App Server, "none" for those made over REST.
	Toolset string
	// Tools are the names of the tools attached to it over REST, in order, and
	// ToolRules the rules for them as they were given (spec/rest.md section 11.1).
	Tools     []string
	ToolRules json.RawMessage // JSON array; nil = none
	// Extra holds what only REST knows and shows again, a JSON object; nil = none.
	Extra     json.RawMessage
	ForeignID string // id in the system it was imported from
	CreatedAt time.Time
	UpdatedAt time.Time
	LastRunAt time.Time // end of the last turn; zero = none yet
}

// Autoclear says that each turn of the agent begins with the system message alone;
// what was said before stays listed. It is one of the fields that REST sets in Extra
// (spec/rest.md section 4).
func (a *Agent) Autoclear() bool {
	var x struct {
		Autoclear bool `json:"message_buffer_autoclear"`
	}
	return len(a.Extra) > 0 && json.Unmarshal(a.Extra, &x) == nil && x.Autoclear
}

// A Conversation is one thread of messages of one agent. Every agent has
// exactly one with Own set: shown as "default" by the App Server and as null
// over REST.
type Conversation struct {
	ID            string
	AgentID       string
	Own           bool
	Summary       *string
	ArchivedAt    time.Time // zero = not archived
	Hidden        *bool
	Tags          []string
	Model         *string         // overrides the agent's
	ModelSettings json.RawMessage // nil = never set
	ContextLimit  int             // tokens; 0 = the agent's
	Description   *string         // REST only
	ForeignID     string

	Mode    Mode   // "" = the server's default
	Cwd     string // "" = the boot directory
	Toolset string // preference; "" = the agent's
	// Rules are the permission rules allowed for the rest of this conversation.
	Rules []string

	CreatedAt     time.Time
	UpdatedAt     time.Time
	LastMessageAt time.Time // zero = no message yet
}

// DefaultConversation is the name of an agent's own conversation on the wire
// of the App Server.
const DefaultConversation = "default"

// WireID is the conversation's id as the App Server shows it.
func (c *Conversation) WireID() string {
	if c.Own {
		return DefaultConversation
	}
	return c.ID
}

// A Mode says which tool calls ask a person first (spec/harness.md section 3.2).
type Mode string

// The four permission modes.
const (
	ModeStandard     Mode = "standard"
	ModeAcceptEdits  Mode = "acceptEdits"
	ModeUnrestricted Mode = "unrestricted"
	ModeStrict       Mode = "strict"
)

// ParseMode accepts the four modes and their legacy names
// (spec/app-server-core.md section 8.2). ok is false for anything else.
func ParseMode(s string) (m Mode, ok bool) {
	switch s {
	case "standard", "default":
		return ModeStandard, true
	case "acceptEdits":
		return ModeAcceptEdits, true
	case "unrestricted", "bypassPermissions", "fullAccess":
		return ModeUnrestricted, true
	case "strict":
		return ModeStrict, true
	}
	return "", false
}

// A Scope names one runtime: one conversation of one agent, by stored ids.
type Scope struct {
	AgentID        string
	ConversationID string
}

// A Prompt is one compiled system prompt of a conversation. It is fixed until
// recompile, compaction, reset or a change of the agent's system text.
type Prompt struct {
	ConversationID string
	Text           string
	RawHash        string // sha256 of the raw system text it was compiled from
	// Revision is the memory commit it shows; "" = no memory yet. NoticedAt is
	// the newest revision the model has been told of.
	Revision  string
	NoticedAt string
	CreatedAt time.Time
}
