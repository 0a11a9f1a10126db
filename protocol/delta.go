package protocol

import (
	"encoding/json"
	"fmt"
)

// StreamDelta is stream_delta: a piece of a turn's output.
type StreamDelta struct {
	Delta Delta
	// SubagentID is set for the output of a subagent. Its stop_reason says
	// nothing about the runtime's own turn.
	SubagentID string
	// Raw is the delta as read; nil for one made here.
	Raw json.RawMessage
}

// EventType returns "stream_delta".
func (*StreamDelta) EventType() string { return "stream_delta" }

// A Delta is what a [StreamDelta] holds: one of the delta types of this
// package, which are encoded with their message_type and, if they come from the
// model's stream, with type "message" (spec/app-server-core.md section 5.8).
type Delta interface {
	// MessageType is the wire's message_type.
	MessageType() string
	// Head returns the fields that most deltas share.
	Head() *DeltaHead
}

// DeltaHead holds the fields that most deltas share. Empty ones are left out.
type DeltaHead struct {
	ID             string `json:"id,omitempty"`
	Date           string `json:"date,omitempty"`
	AgentID        string `json:"agent_id,omitempty"`
	ConversationID string `json:"conversation_id,omitempty"`
	RunID          string `json:"run_id,omitempty"` // mneme: the step
	SeqID          int64  `json:"seq_id,omitempty"` // counts from 1 per run
}

// Head returns h.
func (h *DeltaHead) Head() *DeltaHead { return h }

// MarshalJSON writes the fields of the frame.
func (s *StreamDelta) MarshalJSON() ([]byte, error) {
	dst := append([]byte(nil), `{"delta":`...)
	dst, err := appendDelta(dst, s.Delta)
	if err != nil {
		return nil, err
	}
	if s.SubagentID != "" {
		dst = append(dst, `,"subagent_id":`...)
		dst = AppendString(dst, s.SubagentID)
	}
	return append(dst, '}'), nil
}

func appendDelta(dst []byte, d Delta) ([]byte, error) {
	if other, ok := d.(*OtherDelta); ok && other.Raw != nil {
		return append(dst, other.Raw...), nil
	}
	dst = append(dst, `{"message_type":`...)
	dst = AppendString(dst, d.MessageType())
	if _, ok := d.(interface{ ofStream() }); ok {
		dst = append(dst, `,"type":"message"`...)
	}
	return appendBody(dst, d.MessageType(), d)
}

// UnmarshalJSON reads the frame's fields; an unknown message_type gives an
// [OtherDelta].
func (s *StreamDelta) UnmarshalJSON(data []byte) error {
	var v struct {
		Delta      json.RawMessage `json:"delta"`
		SubagentID string          `json:"subagent_id"`
	}
	if err := json.Unmarshal(data, &v); err != nil {
		return err
	}
	var head struct {
		MessageType string `json:"message_type"`
	}
	if err := json.Unmarshal(v.Delta, &head); err != nil {
		return fmt.Errorf("delta: %w", err)
	}
	d := newDelta(head.MessageType)
	if err := json.Unmarshal(v.Delta, d); err != nil {
		return fmt.Errorf("delta %s: %w", head.MessageType, err)
	}
	if other, ok := d.(*OtherDelta); ok {
		other.Type, other.Raw = head.MessageType, v.Delta
	}
	*s = StreamDelta{Delta: d, SubagentID: v.SubagentID, Raw: v.Delta}
	return nil
}

// Deltas makes an empty one of every delta type. It is read only.
var Deltas = []func() Delta{
	func() Delta { return new(AssistantDelta) },
	func() Delta { return new(ReasoningDelta) },
	func() Delta { return new(UserDelta) },
	func() Delta { return new(ToolCallDelta) },
	func() Delta { return new(ToolReturnDelta) },
	func() Delta { return new(UsageDelta) },
	func() Delta { return new(StopReasonDelta) },
	func() Delta { return new(ErrorDelta) },
	func() Delta { return new(EventDelta) },
	func() Delta { return new(SummaryDelta) },
	func() Delta { return new(ClassificationDelta) },
	func() Delta { return new(ToolStartDelta) },
	func() Delta { return new(ToolEndDelta) },
	func() Delta { return new(StatusDelta) },
	func() Delta { return new(RetryDelta) },
	func() Delta { return new(LoopErrorDelta) },
	func() Delta { return new(CommandStartDelta) },
	func() Delta { return new(CommandEndDelta) },
	func() Delta { return &CommandStartDelta{Plain: true} },
	func() Delta { return &CommandEndDelta{Plain: true} },
}

var deltaIndex = indexDeltas()

func indexDeltas() map[string]func() Delta {
	index := make(map[string]func() Delta, len(Deltas))
	for _, d := range Deltas {
		index[d().MessageType()] = d
	}
	return index
}

func newDelta(messageType string) Delta {
	if make, ok := deltaIndex[messageType]; ok {
		return make()
	}
	return new(OtherDelta)
}

// AssistantDelta is a piece of what the model says. All pieces of one message
// share its id; the text is incremental.
type AssistantDelta struct {
	DeltaHead
	Content Content `json:"content"`
}

// MessageType returns "assistant_message".
func (*AssistantDelta) MessageType() string { return "assistant_message" }
func (*AssistantDelta) ofStream()           {}

// ReasoningDelta is a piece of what the model thinks.
type ReasoningDelta struct {
	DeltaHead
	Reasoning string `json:"reasoning"`
}

// MessageType returns "reasoning_message".
func (*ReasoningDelta) MessageType() string { return "reasoning_message" }
func (*ReasoningDelta) ofStream()           {}

// UserDelta echoes a user's message, whole.
type UserDelta struct {
	DeltaHead
	Content     Content `json:"content"`
	OTID        string  `json:"otid"` // the client_message_id
	CreatedByID string  `json:"created_by_id,omitempty"`
}

// MessageType returns "user_message".
func (*UserDelta) MessageType() string { return "user_message" }
func (*UserDelta) ofStream()           {}

// ToolCallDelta is a call that the model asks for, also one that needs no
// approval; its arguments are complete.
type ToolCallDelta struct {
	DeltaHead
	ToolCall ToolCall `json:"tool_call"`
}

// MessageType returns "approval_request_message".
func (*ToolCallDelta) MessageType() string { return "approval_request_message" }
func (*ToolCallDelta) ofStream()           {}

// ToolReturnDelta is a tool's result, or its whole output so far while it runs.
type ToolReturnDelta struct {
	DeltaHead
	Status      string           `json:"status"` // "success" or "error"
	ToolCallID  string           `json:"tool_call_id"`
	ToolReturn  Content          `json:"tool_return"`
	ToolReturns List[ToolReturn] `json:"tool_returns"`
}

// MessageType returns "tool_return_message".
func (*ToolReturnDelta) MessageType() string { return "tool_return_message" }
func (*ToolReturnDelta) ofStream()           {}

// A ToolReturn is one result of a [ToolReturnDelta].
type ToolReturn struct {
	ToolCallID string   `json:"tool_call_id"`
	Status     string   `json:"status"`
	ToolReturn Content  `json:"tool_return"`
	Stdout     []string `json:"stdout,omitzero"` // lines
	Stderr     []string `json:"stderr,omitzero"`
}

// Usage counts the tokens of a step, or of a turn.
type Usage struct {
	PromptTokens      int `json:"prompt_tokens"`
	CompletionTokens  int `json:"completion_tokens"`
	TotalTokens       int `json:"total_tokens"`
	CachedInputTokens int `json:"cached_input_tokens"`
	CacheWriteTokens  int `json:"cache_write_tokens"`
	ReasoningTokens   int `json:"reasoning_tokens"`
	ContextTokens     int `json:"context_tokens"`
}

// UsageDelta tells what a step used.
type UsageDelta struct {
	DeltaHead
	Usage
}

// MessageType returns "usage_statistics".
func (*UsageDelta) MessageType() string { return "usage_statistics" }
func (*UsageDelta) ofStream()           {}

// StopReasonDelta ends a step. It is not the end of a turn: [TurnFinished] is.
type StopReasonDelta struct {
	DeltaHead
	StopReason StopReasonValue `json:"stop_reason"`
}

// MessageType returns "stop_reason".
func (*StopReasonDelta) MessageType() string { return "stop_reason" }
func (*StopReasonDelta) ofStream()           {}

// ErrorDelta tells that a model request failed; a retry may follow.
type ErrorDelta struct {
	DeltaHead
	Message   string `json:"message"`
	Detail    string `json:"detail"`
	ErrorType string `json:"error_type"`
	Retryable bool   `json:"retryable"`
}

// MessageType returns "error_message".
func (*ErrorDelta) MessageType() string { return "error_message" }
func (*ErrorDelta) ofStream()           {}

// EventDelta tells of a retry within a step or of a compaction.
type EventDelta struct {
	DeltaHead
	Kind string `json:"event_type"` // "retry" or "compaction"
	Data Object `json:"event_data"`
}

// MessageType returns "event_message".
func (*EventDelta) MessageType() string { return "event_message" }
func (*EventDelta) ofStream()           {}

// SummaryDelta is the summary that a compaction made.
type SummaryDelta struct {
	DeltaHead
	Summary         string           `json:"summary"`
	CompactionStats *CompactionStats `json:"compaction_stats,omitempty"`
}

// MessageType returns "summary_message".
func (*SummaryDelta) MessageType() string { return "summary_message" }
func (*SummaryDelta) ofStream()           {}

// ClassificationDelta says which calls of a step are allowed, denied or ask.
type ClassificationDelta struct {
	DeltaHead
	AutoAllowedToolCallIDs List[string] `json:"auto_allowed_tool_call_ids"`
	AutoDeniedToolCallIDs  List[string] `json:"auto_denied_tool_call_ids"`
	UserInputToolCallIDs   List[string] `json:"user_input_tool_call_ids"`
}

// MessageType returns "approval_classification_end".
func (*ClassificationDelta) MessageType() string { return "approval_classification_end" }

// ToolStartDelta tells that an approved call starts.
type ToolStartDelta struct {
	DeltaHead
	ToolCallID string `json:"tool_call_id"`
	ToolName   string `json:"tool_name"`
	ToolArgs   string `json:"tool_args"` // JSON text
}

// MessageType returns "client_tool_start".
func (*ToolStartDelta) MessageType() string { return "client_tool_start" }

// ToolEndDelta tells that a call has ended.
type ToolEndDelta struct {
	DeltaHead
	ToolCallID string `json:"tool_call_id"`
	Status     string `json:"status"` // "success" or "error"
}

// MessageType returns "client_tool_end".
func (*ToolEndDelta) MessageType() string { return "client_tool_end" }

// StatusDelta is a line for the user.
type StatusDelta struct {
	DeltaHead
	Message string `json:"message"`
	Level   string `json:"level"` // info, success or warning
}

// MessageType returns "status".
func (*StatusDelta) MessageType() string { return "status" }

// RetryDelta tells that the model is asked again: what came under the step's
// earlier message id is void.
type RetryDelta struct {
	DeltaHead
	Message       string `json:"message"`
	Reason        string `json:"reason"` // a stop reason, or "restart"
	Attempt       int    `json:"attempt"`
	MaxAttempts   int    `json:"max_attempts"`
	DelayMS       int64  `json:"delay_ms"`
	RetryKind     string `json:"retry_kind,omitempty"`
	Provider      string `json:"provider,omitempty"`
	FromTransport string `json:"from_transport,omitempty"`
	ToTransport   string `json:"to_transport,omitempty"`
	ErrorCode     string `json:"error_code,omitempty"`
	StepID        string `json:"step_id,omitempty"`
}

// MessageType returns "retry".
func (*RetryDelta) MessageType() string { return "retry" }

// LoopErrorDelta reports an error of the loop. Only a terminal one is the
// turn's failure.
type LoopErrorDelta struct {
	DeltaHead
	Message    string          `json:"message"`
	StopReason StopReasonValue `json:"stop_reason"`
	IsTerminal bool            `json:"is_terminal"`
	APIError   *APIError       `json:"api_error,omitempty"`
}

// MessageType returns "loop_error".
func (*LoopErrorDelta) MessageType() string { return "loop_error" }

// APIError is the structured form of a provider's error.
type APIError struct {
	MessageType string `json:"message_type"` // "error_message"
	Message     string `json:"message"`
	ErrorType   string `json:"error_type"`
	RunID       string `json:"run_id,omitempty"`
	Detail      string `json:"detail"`
}

// CommandStartDelta tells that a slash command starts.
type CommandStartDelta struct {
	DeltaHead
	Plain     bool   `json:"-"` // command_start instead of slash_command_start
	CommandID string `json:"command_id"`
	Input     string `json:"input"` // such as "/compact all"
}

// MessageType returns "slash_command_start", or "command_start" if Plain.
func (d *CommandStartDelta) MessageType() string {
	if d.Plain {
		return "command_start"
	}
	return "slash_command_start"
}

// CommandEndDelta tells that a slash command has ended.
type CommandEndDelta struct {
	DeltaHead
	Plain        bool   `json:"-"` // command_end instead of slash_command_end
	CommandID    string `json:"command_id"`
	Input        string `json:"input"`
	Output       string `json:"output"`
	Success      bool   `json:"success"`
	DimOutput    *bool  `json:"dim_output,omitempty"`
	Preformatted *bool  `json:"preformatted,omitempty"`
}

// MessageType returns "slash_command_end", or "command_end" if Plain.
func (d *CommandEndDelta) MessageType() string {
	if d.Plain {
		return "command_end"
	}
	return "slash_command_end"
}

// OtherDelta is a delta of a type that this package does not know.
type OtherDelta struct {
	DeltaHead
	Type string          `json:"-"`
	Raw  json.RawMessage `json:"-"` // the whole delta
}

// MessageType returns the wire's message_type.
func (d *OtherDelta) MessageType() string { return d.Type }

// Text returns the text of a delta of an assistant's or a reasoning message,
// "" for any other.
func (s *StreamDelta) Text() string {
	switch d := s.Delta.(type) {
	case *AssistantDelta:
		return d.Content.Text()
	case *ReasoningDelta:
		return d.Reasoning
	}
	return ""
}
