package agent

import (
	"encoding/json"
	"time"
)

// A Door is the way an input came in.
type Door string

// The doors. Schedules and notifications submit inputs as doors do.
const (
	DoorAppServer    Door = "app_server"
	DoorREST         Door = "rest"
	DoorOpenAI       Door = "openai"
	DoorMCP          Door = "mcp"
	DoorSchedule     Door = "schedule"
	DoorNotification Door = "notification"
	DoorChannel      Door = "channel"
)

// IfBusy says what becomes of an input that finds its conversation busy.
type IfBusy string

// The policies.
const (
	BusyQueue  IfBusy = "queue"  // stored, runs in turn; the 101st is refused
	BusyReject IfBusy = "reject" // CodeBusy with the run's id
	BusyWait   IfBusy = "wait"   // waits up to 60 s, then as BusyReject; stored when it starts
)

// OnOrphan says what becomes of a turn when its last watcher has left.
type OnOrphan string

// The policies. The end of the server is nobody's leaving.
const (
	OrphanCancel    OnOrphan = "cancel"     // after a grace of 5 s
	OrphanCancelNow OnOrphan = "cancel_now" // at once
	OrphanKeep      OnOrphan = "keep"
)

// An InputState is where an input stands.
type InputState string

// The states. Only queued inputs can be removed.
const (
	InputQueued    InputState = "queued"
	InputTaken     InputState = "taken"
	InputCancelled InputState = "cancelled"
)

// An Input is what a door submits: one or more messages and how the turn that
// takes them shall behave. It is stored before it is acknowledged.
type Input struct {
	ID             string
	AgentID        string
	ConversationID string
	// Key dedupes: the ids the client gave to its messages, joined; "" = none.
	// Unique per conversation for its life. Digest tells another body under the
	// same key.
	Key      string
	Digest   string
	Door     Door
	Kind     string // queue item kind: message, task_notification, cron_prompt …
	Source   string // user, task_notification, cron, subagent, system, channel
	Messages []InputMessage
	Options  TurnOptions
	IfBusy   IfBusy
	OnOrphan OnOrphan
	// Logged stores the events of its runs (REST background and async).
	Logged bool
	// Run says what the run that it begins shall be; zero = nothing special.
	Run RunSpec
	// Ephemeral turns leave nothing behind: their journal is in memory.
	Ephemeral bool
	// Origin is the connection that sent it; it means nothing after a restart.
	Origin string
	State  InputState
	Paused bool
	// Started says that it was acknowledged as started rather than queued.
	Started   bool
	TurnID    string // the turn that took it
	CreatedAt time.Time
}

// A RunSpec is what a door wants of a run that it starts and follows.
type RunSpec struct {
	ID         string          `json:"id,omitempty"` // given beforehand; "" = the runtime makes it
	Background bool            `json:"background,omitempty"`
	Request    json.RawMessage `json:"request,omitempty"`  // options of the send, as the door wants to find them again
	Callback   string          `json:"callback,omitempty"` // URL to be told of the end
}

// An InputMessage is one message of an input.
type InputMessage struct {
	Role      Role   `json:"role"`
	Parts     []Part `json:"parts"`
	ClientKey string `json:"client_key,omitempty"`
	OTID      string `json:"otid,omitempty"`
	SenderID  string `json:"sender_id,omitempty"`
	Name      string `json:"name,omitempty"`
	// Raw is the content exactly as it was sent, for echoes; nil = render the parts.
	Raw json.RawMessage `json:"raw,omitempty"`
}

// ClientKeys returns the ids that the client gave to the messages.
func (in *Input) ClientKeys() []string {
	var keys []string
	for _, m := range in.Messages {
		if m.ClientKey != "" {
			keys = append(keys, m.ClientKey)
		}
	}
	return keys
}

// TurnOptions are the wishes of an input for the turn that takes it. When
// inputs are merged the first one's hold.
type TurnOptions struct {
	ToolsetBase    string   `json:"toolset_base,omitempty"` // "" = the conversation's preference
	ToolsetInclude []string `json:"toolset_include,omitempty"`
	// Allowlist filters built-in and external tools; nil = no filter, empty = no tools.
	Allowlist          []string  `json:"allowlist"`
	ExternalScopes     []string  `json:"external_scopes,omitempty"`
	ExcludeInteractive bool      `json:"exclude_interactive,omitempty"`
	DropBadImages      bool      `json:"drop_bad_images,omitempty"`
	MaxSteps           int       `json:"max_steps,omitempty"` // 0 = the setting
	Model              string    `json:"model,omitempty"`     // override
	System             *string   `json:"system,omitempty"`    // override
	Addendum           string    `json:"addendum,omitempty"`  // follows the system prompt of this turn; never part of it
	ClientTools        []ToolDef `json:"client_tools,omitempty"`
	// Headless denies what would ask (execution_settings).
	Headless   bool     `json:"headless,omitempty"`
	Disallowed []string `json:"disallowed,omitempty"`
	// Allowed are rules that hold for this turn alone.
	Allowed []string `json:"allowed,omitempty"`
	// WithUsage adds the turn's usage to its end event.
	WithUsage bool `json:"with_usage,omitempty"`
}

// A ToolDef describes a tool to the model.
type ToolDef struct {
	Name        string          `json:"name"`
	Label       string          `json:"label,omitempty"`
	Description string          `json:"description"`
	Parameters  json.RawMessage `json:"parameters"` // JSON Schema
}
