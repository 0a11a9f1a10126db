package roster

import (
	"encoding/json"
	"time"

	"mneme/internal/agent"
)

// A BlockSpec says what a new block shall be. Of a new agent it becomes the memory
// file system/<label>.md.
type BlockSpec struct {
	Label       string
	Value       string
	Description *string // nil or empty = "Memory block <label>"
	Limit       *int    // characters; nil = the default of memory
	ReadOnly    bool
	// What is in the row alone.
	Hidden   *bool
	Tags     []string
	Metadata json.RawMessage // JSON object; nil or null = none
	Extra    json.RawMessage // likewise
}

// An AgentSpec says what a new agent shall be. What a door defaults (such as a
// name, or the tag git-memory-enabled) it fills in before.
type AgentSpec struct {
	Name        string // empty = "Agent"
	Description *string
	System      string
	// Model is a handle. Empty, "auto" and "letta/*" are stored as "auto", so
	// that the agent follows the configured default. It need not exist.
	Model         string
	ModelSettings map[string]json.RawMessage
	ContextLimit  int // tokens; 0 = the model's own
	MaxTokens     int // of one answer; 0 = the provider's default
	ParallelCalls *bool
	Tags          []string
	Hidden        *bool
	Compaction    json.RawMessage // nil or null = never set
	// AnyCompaction accepts the four modes that REST stores; without it only
	// "all" and "sliding_window" are.
	AnyCompaction bool
	Metadata      json.RawMessage
	Toolset       string // empty = "auto"
	Blocks        []BlockSpec
	BlockIDs      []string // blocks to attach
	ForeignID     string   // id in the system that the agent is imported from

	// What only REST gives: attached tools by name, their rules (an array) and
	// further fields (an object).
	Tools     []string
	ToolRules json.RawMessage
	Extra     json.RawMessage
	// Compiled gives its own conversation a system message at once. Without it the
	// first turn does.
	Compiled bool
	// Initial are messages that its own conversation begins with, after the system
	// message. Role and Parts count.
	Initial []agent.InputMessage
}

// An AgentPatch changes an agent. A nil field is left as it is; for a field
// with two stars, a pointer to nil clears it.
type AgentPatch struct {
	Name        *string
	System      *string
	Description **string
	// Model, if it differs from the stored one, resets the settings to the
	// model's own defaults and the context limit to 0.
	Model *string
	// ModelSettings are merged into the stored ones; a null value removes its
	// key. With a new model they are what the defaults are laid over.
	ModelSettings map[string]json.RawMessage
	ContextLimit  *int
	MaxTokens     *int
	ParallelCalls *bool
	Tags          *[]string // the whole list
	Hidden        **bool
	Compaction    *json.RawMessage // null clears
	AnyCompaction bool
	Metadata      *json.RawMessage // null clears
	Toolset       *string
	BlockIDs      *[]string        // all blocks that it shall have
	Tools         *[]string        // the whole list
	ToolRules     *json.RawMessage // the whole array; null clears
	// Extra are merged into the stored ones; a null value removes its key.
	Extra map[string]json.RawMessage
}

// A ConversationSpec says what a new conversation shall be.
type ConversationSpec struct {
	AgentID       string
	Summary       *string
	Model         *string         // nil = the agent's
	ModelSettings json.RawMessage // object; nil or null = never set
	ContextLimit  int             // tokens; 0 = the agent's
	MaxTokens     int             // 0 = the agent's
	Hidden        *bool
	Tags          []string
	ForeignID     string
	Description   *string // REST only
	// Compiled gives it a system message at once. Without it the first turn does.
	Compiled bool
}

// A ConversationPatch changes a conversation, by the rules of AgentPatch.
type ConversationPatch struct {
	// Archived true keeps the time of an earlier archiving.
	Archived      *bool
	Summary       **string
	Model         **string
	ModelSettings *json.RawMessage // the whole object; null clears
	LastMessageAt *time.Time
	ContextLimit  *int
	MaxTokens     *int
	Hidden        **bool
	Tags          *[]string
	Description   **string
}
