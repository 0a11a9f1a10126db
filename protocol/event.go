package protocol

import (
	"encoding/json"
	"fmt"
	"time"
)

// An EventBody is what a server tells without being asked: one of the event
// types of this package. It is encoded without type, runtime and envelope.
type EventBody interface {
	// EventType is the frame's type.
	EventType() string
}

// AppendEvent appends the frame of an event without what differs per
// connection; [AppendEnvelope] adds that. A zero runtime leaves it out, for the
// bare events (spec/app-server-commands.md section 1.4).
func AppendEvent(dst []byte, rt Runtime, body EventBody) ([]byte, error) {
	dst, err := AppendFrame(dst, body.EventType(), nil, body)
	if err != nil || rt == (Runtime{}) {
		return dst, err
	}
	dst = append(dst[:len(dst)-1], `,"runtime":`...)
	return append(AppendRuntime(dst, rt), '}'), nil
}

// An Event is an event frame as a client reads it.
type Event struct {
	Type    string
	Runtime Runtime // zero = the frame has none
	// Seq counts the events of the connection from 1; 0 = a bare event.
	Seq       int64
	EmittedAt time.Time // zero = a bare event
	Key       string    // idempotency_key
	// Body is a pointer to an event type of this package, nil if the type is
	// unknown.
	Body EventBody
	// Raw is the whole frame.
	Raw json.RawMessage
}

// EventInfo describes one event type.
type EventInfo struct {
	New func() EventBody
	// Bare events have no envelope and go only to the connection they concern.
	Bare bool
	Doc  string // one sentence
}

// Events is every event that has a type here. It is read only.
var Events = []EventInfo{
	{New: event[StreamDelta], Doc: "A piece of a turn's output."},
	{New: event[LoopStatusUpdate], Doc: "What the runtime is busy with."},
	{New: event[DeviceStatusUpdate], Doc: "What surrounds the runtime: directory, mode, tools, skills."},
	{New: event[QueueUpdate], Doc: "The inputs that wait, and what left the queue."},
	{New: event[SubagentUpdate], Doc: "The subagents of the runtime."},
	{New: event[ControlRequest], Doc: "A tool call asks for an approval, or the agent asks a question."},
	{New: event[TurnFinished], Doc: "The end of a turn."},
	{New: event[FileOps], Doc: "A tool or a command wrote a file."},
	{New: event[ExternalToolCallRequest], Bare: true, Doc: "A tool of this client is to run."},
	{New: event[MemoryUpdated], Bare: true, Doc: "Memory files changed."},
	{New: event[AgentsChanged], Bare: true, Doc: "An agent changed; sent to connections that watch changes."},
	{New: event[ConversationsChanged], Bare: true, Doc: "A conversation changed; sent to connections that watch changes."},
	{New: event[ErrorEvent], Bare: true, Doc: "Answer to a frame that has no other answer."},
}

// event makes the empty body of an event type.
func event[T any, P interface {
	*T
	EventBody
}]() EventBody {
	return P(new(T))
}

var eventIndex = indexEvents()

func indexEvents() map[string]func() EventBody {
	index := make(map[string]func() EventBody, len(Events))
	for _, e := range Events {
		index[e.New().EventType()] = e.New
	}
	return index
}

// DecodeEvent reads an event frame leniently: unknown fields are ignored and an
// unknown type gives an Event without Body. A known type that cannot be read is
// an error, and the Event still has its Raw.
func DecodeEvent(data []byte) (Event, error) {
	var head struct {
		Type      string   `json:"type"`
		Runtime   *Runtime `json:"runtime"`
		Seq       int64    `json:"event_seq"`
		EmittedAt string   `json:"emitted_at"`
		Key       string   `json:"idempotency_key"`
	}
	ev := Event{Raw: data}
	if err := json.Unmarshal(data, &head); err != nil {
		return ev, fmt.Errorf("read event: %w", err)
	}
	ev.Type, ev.Seq, ev.Key = head.Type, head.Seq, head.Key
	if head.Runtime != nil {
		ev.Runtime = *head.Runtime
	}
	if head.EmittedAt != "" {
		at, err := ParseTime(head.EmittedAt)
		if err != nil {
			return ev, fmt.Errorf("read %s: emitted_at: %w", ev.Type, err)
		}
		ev.EmittedAt = at
	}
	newBody, ok := eventIndex[ev.Type]
	if !ok {
		return ev, nil
	}
	body := newBody()
	if err := json.Unmarshal(data, body); err != nil {
		return ev, fmt.Errorf("read %s: %w", ev.Type, err)
	}
	ev.Body = body
	return ev, nil
}

// A LoopState is what a runtime is busy with.
type LoopState string

// The loop states (spec/app-server-core.md section 5.7).
const (
	SendingAPIRequest       LoopState = "SENDING_API_REQUEST"
	WaitingForAPIResponse   LoopState = "WAITING_FOR_API_RESPONSE"
	RetryingAPIRequest      LoopState = "RETRYING_API_REQUEST"
	ProcessingAPIResponse   LoopState = "PROCESSING_API_RESPONSE"
	ExecutingClientSideTool LoopState = "EXECUTING_CLIENT_SIDE_TOOL"
	ExecutingCommand        LoopState = "EXECUTING_COMMAND"
	WaitingOnApproval       LoopState = "WAITING_ON_APPROVAL"
	WaitingOnInput          LoopState = "WAITING_ON_INPUT"
)

// LoopStatusUpdate is update_loop_status: a snapshot.
type LoopStatusUpdate struct {
	LoopStatus LoopStatus `json:"loop_status"`
}

// EventType returns "update_loop_status".
func (*LoopStatusUpdate) EventType() string { return "update_loop_status" }

// LoopStatus says where a runtime's turn is.
type LoopStatus struct {
	Status               LoopState    `json:"status"`
	ActiveRunIDs         List[string] `json:"active_run_ids"`
	ExecutingToolCallIDs List[string] `json:"executing_tool_call_ids"`
	// ClientMessageIDsByRunID maps steps to the client ids they answer.
	ClientMessageIDsByRunID map[string][]string `json:"client_message_ids_by_run_id,omitempty"`
	// TurnID is a mneme extension, set while a turn runs.
	TurnID string `json:"turn_id,omitempty"`
}

// QueueUpdate is update_queue: a snapshot, and what left since the last one.
type QueueUpdate struct {
	Queue   List[QueueItem]    `json:"queue"`
	Removed List[QueueRemoval] `json:"removed"`
}

// EventType returns "update_queue".
func (*QueueUpdate) EventType() string { return "update_queue" }

// A QueueItem is an input that waits (spec/app-server-core.md section 4.4).
type QueueItem struct {
	ID              string  `json:"id"`
	ClientMessageID string  `json:"client_message_id"`
	Kind            string  `json:"kind"`   // message, task_notification, cron_prompt, approval_result, overlay_action, mod_continue
	Source          string  `json:"source"` // user, task_notification, cron, subagent, system, channel
	Content         Content `json:"content"`
	EnqueuedAt      string  `json:"enqueued_at"`
	Paused          bool    `json:"paused,omitempty"`
}

// A QueueRemoval is an item that left the queue.
type QueueRemoval struct {
	ClientMessageID string `json:"client_message_id"`
	Disposition     string `json:"disposition"` // "dequeued" or "cancelled"
}

// SubagentUpdate is update_subagent_state: a snapshot of the runtime's
// subagents (spec/app-server-core.md section 5.10).
type SubagentUpdate struct {
	Subagents List[Subagent] `json:"subagents"`
}

// EventType returns "update_subagent_state".
func (*SubagentUpdate) EventType() string { return "update_subagent_state" }

// A Subagent is one subagent.
type Subagent struct {
	SubagentID           string                 `json:"subagent_id"`
	SubagentType         string                 `json:"subagent_type"`
	Description          string                 `json:"description"`
	Prompt               *string                `json:"prompt,omitempty"`
	Status               string                 `json:"status"` // pending, running, completed, error
	AgentURL             *string                `json:"agent_url"`
	ConversationID       *string                `json:"conversation_id"`
	Model                *string                `json:"model,omitempty"`
	IsBackground         *bool                  `json:"is_background,omitempty"`
	Silent               *bool                  `json:"silent,omitempty"`
	ToolCallID           *string                `json:"tool_call_id,omitempty"`
	ParentAgentID        *string                `json:"parent_agent_id,omitempty"`
	ParentConversationID *string                `json:"parent_conversation_id,omitempty"`
	StartTime            int64                  `json:"start_time"` // ms
	ToolCalls            List[SubagentToolCall] `json:"tool_calls"`
	TotalTokens          int                    `json:"total_tokens"`
	DurationMS           int64                  `json:"duration_ms"`
	Error                *string                `json:"error,omitempty"`
}

// A SubagentToolCall is a call that a subagent made.
type SubagentToolCall struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	Args string `json:"args"`
}

// ControlRequest asks the subscribers of a runtime for an approval or an answer
// (spec/app-server-core.md section 4.5). It is answered by an
// [ApprovalResponse] with its request id.
type ControlRequest struct {
	RequestID      string     `json:"request_id"`
	Request        CanUseTool `json:"request"`
	AgentID        *string    `json:"agent_id"` // the runtime again
	ConversationID string     `json:"conversation_id"`
}

// EventType returns "control_request".
func (*ControlRequest) EventType() string { return "control_request" }

// CanUseTool is the question of a [ControlRequest].
type CanUseTool struct {
	Subtype               string                     `json:"subtype"` // "can_use_tool"
	ToolName              string                     `json:"tool_name"`
	Input                 Object                     `json:"input"` // parsed arguments
	ToolCallID            string                     `json:"tool_call_id"`
	PermissionSuggestions List[PermissionSuggestion] `json:"permission_suggestions"`
	BlockedPath           *string                    `json:"blocked_path"`
	Diffs                 []Diff                     `json:"diffs,omitempty"` // of tools that write files
}

// A PermissionSuggestion is a rule that an answer may store.
type PermissionSuggestion struct {
	ID   string `json:"id"`
	Text string `json:"text"`
}

// A Diff previews what a tool will write.
type Diff struct {
	Mode     string     `json:"mode"` // advanced, fallback or unpreviewable
	FileName string     `json:"fileName"`
	Hunks    []DiffHunk `json:"hunks,omitzero"` // of mode advanced
	Reason   string     `json:"reason,omitempty"`
}

// A DiffHunk is a run of changed lines with their context.
type DiffHunk struct {
	OldStart int            `json:"oldStart"`
	OldLines int            `json:"oldLines"`
	NewStart int            `json:"newStart"`
	NewLines int            `json:"newLines"`
	Lines    List[DiffLine] `json:"lines"`
}

// A DiffLine is one line of a hunk.
type DiffLine struct {
	Type    string `json:"type"` // add, remove or context
	Content string `json:"content"`
}

// StopReasonValue says why a turn or a step ended (spec/app-server-core.md
// section 5.7).
type StopReasonValue string

// The stop reasons.
const (
	StopEndTurn             StopReasonValue = "end_turn"
	StopError               StopReasonValue = "error"
	StopLLMAPIError         StopReasonValue = "llm_api_error"
	StopInvalidLLMResponse  StopReasonValue = "invalid_llm_response"
	StopInvalidToolCall     StopReasonValue = "invalid_tool_call"
	StopMaxSteps            StopReasonValue = "max_steps"
	StopMaxTokensExceeded   StopReasonValue = "max_tokens_exceeded"
	StopNoToolCall          StopReasonValue = "no_tool_call"
	StopToolRule            StopReasonValue = "tool_rule"
	StopCancelled           StopReasonValue = "cancelled"
	StopInsufficientCredits StopReasonValue = "insufficient_credits"
	StopRequiresApproval    StopReasonValue = "requires_approval"
	StopContextOverflow     StopReasonValue = "context_window_overflow_in_system_prompt"
)

// TurnFinished ends a turn. It is the only event that every ended turn has.
type TurnFinished struct {
	TurnID     string          `json:"turn_id"`
	StopReason StopReasonValue `json:"stop_reason"`
	RunID      string          `json:"run_id,omitempty"`
	Error      string          `json:"error,omitempty"`
	Usage      *Usage          `json:"usage,omitempty"` // of headless turns
	// What follows is set for ephemeral runtimes only.
	WritesBlocked *int    `json:"writes_blocked,omitempty"`
	MemoryCommit  *string `json:"memory_commit,omitempty"`
}

// EventType returns "turn_finished".
func (*TurnFinished) EventType() string { return "turn_finished" }

// ExternalToolCallRequest asks the connection that registered a tool to run it.
// It has no envelope; the answer is an [ExternalToolCallResponse] with the same
// request id.
type ExternalToolCallRequest struct {
	RequestID  string  `json:"request_id"`
	ScopeID    *string `json:"scope_id,omitempty"` // of scoped tools
	ToolCallID string  `json:"tool_call_id"`
	ToolName   string  `json:"tool_name"`
	Input      Object  `json:"input"`
}

// EventType returns "external_tool_call_request".
func (*ExternalToolCallRequest) EventType() string { return "external_tool_call_request" }

// FileOps tells that a tool or a command wrote a file.
type FileOps struct {
	Path            string       `json:"path"`
	CGEntries       List[Object] `json:"cg_entries"`
	Ops             List[Object] `json:"ops"`
	Source          string       `json:"source"` // "agent"
	DocumentContent *string      `json:"document_content,omitempty"`
}

// EventType returns "file_ops".
func (*FileOps) EventType() string { return "file_ops" }

// MemoryUpdated tells that memory files changed.
type MemoryUpdated struct {
	AffectedPaths List[string] `json:"affected_paths"` // ["*"] = everything
	Timestamp     int64        `json:"timestamp"`      // ms
	AgentID       string       `json:"agent_id,omitempty"`
	Commit        string       `json:"commit,omitempty"`
}

// EventType returns "memory_updated".
func (*MemoryUpdated) EventType() string { return "memory_updated" }

// AgentsChanged is a change event (see [WatchChanges]).
type AgentsChanged struct {
	AgentID   string `json:"agent_id"`
	Change    string `json:"change"`    // created, updated or deleted
	Timestamp int64  `json:"timestamp"` // ms
}

// EventType returns "agents_changed".
func (*AgentsChanged) EventType() string { return "agents_changed" }

// ConversationsChanged is a change event (see [WatchChanges]).
type ConversationsChanged struct {
	AgentID        string `json:"agent_id"`
	ConversationID string `json:"conversation_id"`
	Change         string `json:"change"`    // created, updated or deleted
	Timestamp      int64  `json:"timestamp"` // ms
}

// EventType returns "conversations_changed".
func (*ConversationsChanged) EventType() string { return "conversations_changed" }

// ErrorEvent answers a frame that has no other answer: one that is not a
// command, or a bad one without request_id. Only mneme sends it.
type ErrorEvent struct {
	Code  string `json:"code"` // an ErrorCode, or another code of the server
	Error string `json:"error"`
}

// EventType returns "error".
func (*ErrorEvent) EventType() string { return "error" }
