package agent

import (
	"encoding/json"
	"time"
)

// A StopReason says why a step, run or turn ended. The values are the wire's
// (spec/app-server-core.md section 5.7).
type StopReason string

// The stop reasons.
const (
	StopEndTurn          StopReason = "end_turn"
	StopRequiresApproval StopReason = "requires_approval"
	StopCancelled        StopReason = "cancelled"
	StopError            StopReason = "error"
	StopModelError       StopReason = "llm_api_error"
	StopMaxSteps         StopReason = "max_steps"
	StopMaxTokens        StopReason = "max_tokens_exceeded"
	StopToolRule         StopReason = "tool_rule"
	StopInvalidResponse  StopReason = "invalid_llm_response"
	StopOverflow         StopReason = "context_window_overflow_in_system_prompt"
)

// A TurnState is where a turn stands.
type TurnState string

// The states. A parked turn is rows only: no goroutine serves it.
const (
	TurnRunning TurnState = "running"
	TurnParked  TurnState = "parked"
	TurnEnded   TurnState = "ended"
)

// A Turn goes from taking inputs to its end.
type Turn struct {
	ID             string
	AgentID        string
	ConversationID string
	State          TurnState
	Door           Door
	OnOrphan       OnOrphan
	Logged         bool
	Origin         string // connection of the first input
	Options        TurnOptions
	// Mergeable says that queued inputs may join it after a tool phase.
	Mergeable  bool
	Steps      int // model calls so far
	StopReason StopReason
	Error      *Error
	StartedAt  time.Time
	EndedAt    time.Time
}

// A Run is the stretch of a turn between two human answers.
type Run struct {
	ID             string
	TurnID         string
	AgentID        string
	ConversationID string
	Door           Door
	Spec           RunSpec // as the door wanted it; its ID is empty
	Ended          bool
	StopReason     StopReason // "" while it goes on
	Error          *Error
	CreatedAt      time.Time
	StartedAt      time.Time // zero = its input still waits in the queue
	FirstTokenAt   time.Time // zero = none came
	EndedAt        time.Time
}

// A RunStatus is what REST calls the state of a run (spec/rest.md section 3).
type RunStatus string

// The statuses. A created run waits in the queue.
const (
	RunCreated   RunStatus = "created"
	RunRunning   RunStatus = "running"
	RunCompleted RunStatus = "completed"
	RunFailed    RunStatus = "failed"
	RunCancelled RunStatus = "cancelled"
)

// Status tells how the run stands.
func (r *Run) Status() RunStatus {
	if !r.Ended {
		if r.StartedAt.IsZero() {
			return RunCreated
		}
		return RunRunning
	}
	switch r.StopReason {
	case StopEndTurn, StopMaxSteps, StopToolRule, StopRequiresApproval:
		return RunCompleted
	case StopCancelled:
		return RunCancelled
	}
	return RunFailed
}

// A StepState is where a step stands.
type StepState string

// The states: asked but without an answer, answered with calls unsettled,
// settled, and given up (its text is void, another step asks again).
const (
	StepOpen     StepState = "open"
	StepAnswered StepState = "answered"
	StepDone     StepState = "done"
	StepVoid     StepState = "void"
)

// A Step is one model call and the tool calls it asked for.
type Step struct {
	ID             string
	RunID          string
	TurnID         string
	AgentID        string
	ConversationID string
	N              int // 1-based within the turn
	State          StepState
	// MessageID is given to the answer before it is asked for, so that streamed
	// pieces and the stored message agree.
	MessageID  string
	Model      string
	StopReason StopReason
	Usage      Usage
	Error      *Error // of a step that failed
	// ClientKeys are the client's ids of the inputs that this step answers.
	ClientKeys []string
	StartedAt  time.Time
	EndedAt    time.Time
	// Feedback (positive or negative, "" = none) and Tags are what people noted of
	// it; the journal never writes them.
	Feedback string
	Tags     []string
}

// Usage counts tokens as the provider reported them.
type Usage struct {
	Input      int `json:"input"` // prompt, cached ones included
	Output     int `json:"output"`
	CacheRead  int `json:"cache_read,omitempty"`
	CacheWrite int `json:"cache_write,omitempty"`
	Reasoning  int `json:"reasoning,omitempty"`
	// Reported is false where the provider said nothing.
	Reported bool `json:"reported,omitempty"`
}

// Total is input plus output.
func (u Usage) Total() int { return u.Input + u.Output }

// Add sums two usages.
func (u Usage) Add(v Usage) Usage {
	return Usage{
		Input: u.Input + v.Input, Output: u.Output + v.Output,
		CacheRead: u.CacheRead + v.CacheRead, CacheWrite: u.CacheWrite + v.CacheWrite,
		Reasoning: u.Reasoning + v.Reasoning, Reported: u.Reported || v.Reported,
	}
}

// A CallState is where a tool call stands.
type CallState string

// The states. Started is committed before the tool runs: a call that is found
// started without a result after a crash is never run again.
const (
	CallProposed CallState = "proposed" // the model asked
	CallWaiting  CallState = "waiting"  // a person or client must answer
	CallAllowed  CallState = "allowed"  // may run
	CallDenied   CallState = "denied"   // will not run; Result holds the reason
	CallStarted  CallState = "started"  // running, or it was when the server died
	CallDone     CallState = "done"     // has a result
)

// A CallKind says who must answer a waiting call.
type CallKind string

// The kinds.
const (
	CallPermission CallKind = "permission"
	CallQuestion   CallKind = "question"
	CallClientTool CallKind = "client_tool"
)

// A CallStatus is the outcome of a tool.
type CallStatus string

// The outcomes.
const (
	StatusSuccess CallStatus = "success"
	StatusError   CallStatus = "error"
)

// A ToolCall is one call of a step through its whole life.
type ToolCall struct {
	ID             string // unique within the conversation's context
	StepID         string
	TurnID         string
	AgentID        string
	ConversationID string
	MessageID      string // the assistant message that made it
	Index          int    // order within the step
	Name           string
	Arguments      string          // the model's raw text
	Input          json.RawMessage // parsed, or as a person changed it; nil = not valid JSON
	State          CallState
	Kind           CallKind // of a call that waits or waited
	// Auto tells a decision of the rules from one of a person.
	Auto        bool
	Suggestions []Suggestion
	Diffs       json.RawMessage
	Result      *ToolResult // nil until denied or done
	// Order counts results in the order they came within the step.
	Order     int
	CreatedAt time.Time
	AskedAt   time.Time // zero = never waited
	DoneAt    time.Time
}

// A Suggestion is a rule that a person may save with an answer.
type Suggestion struct {
	ID    string `json:"id"`
	Text  string `json:"text"`
	Rule  string `json:"rule"`
	Scope string `json:"scope"` // "project" or "session"
}

// A ToolResult is what a tool gave back.
type ToolResult struct {
	Parts  []Part     `json:"parts"` // text and images; never empty
	Status CallStatus `json:"status"`
	Stdout []string   `json:"stdout,omitempty"`
	Stderr []string   `json:"stderr,omitempty"`
}

// TextResult makes a result of one text.
func TextResult(status CallStatus, text string) ToolResult {
	return ToolResult{Status: status, Parts: []Part{Text(text)}}
}
