package agent

import (
	"encoding/json"
	"strings"
	"time"
)

// A Role says who a stored message speaks for.
type Role string

// The roles. Notices (memory updates, interruptions, skill texts) are sent to
// the model as user text and listed nowhere; summaries replace what they sum
// up; approvals record a person's answers and are not sent.
const (
	RoleUser      Role = "user"
	RoleAssistant Role = "assistant"
	RoleTool      Role = "tool"
	RoleSystem    Role = "system"
	RoleNotice    Role = "notice"
	RoleSummary   Role = "summary"
	RoleApproval  Role = "approval"
)

// A Message is one stored message: one row, its parts in order. The result of
// one tool call is one message of RoleTool with its step as the group.
type Message struct {
	ID             string
	AgentID        string
	ConversationID string
	// Seq orders the messages of a conversation. It only grows; the runtime
	// assigns it.
	Seq    int64
	Role   Role
	Parts  []Part
	TurnID string
	RunID  string
	StepID string
	// Context is what the harness adds to a user message: sent to the model in
	// front of the parts, listed nowhere.
	Context string
	// ClientKey is the sender's id as given (client_message_id or otid).
	ClientKey string
	OTID      string
	SenderID  string
	Name      string // participant, or the tool's name
	// CopyOf is the message of another conversation that this one stands for in a
	// fork: REST shows both under that id, as one message. "" = none.
	CopyOf string
	// CallID and Status belong to RoleTool.
	CallID string
	Status CallStatus
	Stdout []string
	Stderr []string
	// Interrupted marks the partial text of an aborted or cut step: listed,
	// never sent to the model.
	Interrupted bool
	// Hidden keeps a message out of the model's context (before a summary, or
	// after a reset) while it stays listed.
	Hidden    bool
	Stats     json.RawMessage // of a summary
	CreatedAt time.Time
}

// A PartKind says which fields of a Part count.
type PartKind string

// The kinds of parts.
const (
	PartText      PartKind = "text"
	PartImage     PartKind = "image"
	PartReasoning PartKind = "reasoning"
	PartToolCall  PartKind = "tool_call"
)

// A Part is a piece of a message. Stored as JSON.
type Part struct {
	Kind PartKind `json:"kind"`
	// Text is the text, or the reasoning.
	Text string `json:"text,omitempty"`
	// MediaType and Data (base64) hold an image.
	MediaType string `json:"media_type,omitempty"`
	Data      string `json:"data,omitempty"`
	// Call is a tool call the model made.
	Call *CallPart `json:"call,omitempty"`
	// Field names the provider's field that reasoning came in, to go back on
	// the same one; Signature and Meta are the provider's, opaque to us.
	Field     string          `json:"field,omitempty"`
	Signature string          `json:"signature,omitempty"`
	Meta      json.RawMessage `json:"meta,omitempty"`
}

// A CallPart is a tool call as the model wrote it.
type CallPart struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	// Arguments is the model's raw text, which need not be valid JSON.
	Arguments string `json:"arguments"`
}

// Text returns a text part.
func Text(s string) Part { return Part{Kind: PartText, Text: s} }

// TextOf joins the text parts with newlines.
func TextOf(parts []Part) string {
	var texts []string
	for _, p := range parts {
		if p.Kind == PartText {
			texts = append(texts, p.Text)
		}
	}
	return strings.Join(texts, "\n")
}

// Calls returns the tool calls of a message in order.
func (m *Message) Calls() []CallPart {
	var calls []CallPart
	for _, p := range m.Parts {
		if p.Kind == PartToolCall {
			calls = append(calls, *p.Call)
		}
	}
	return calls
}
