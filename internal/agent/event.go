package agent

import (
	"encoding/json"
	"time"
)

// An Event is one neutral thing that happened in a runtime. Doors render it;
// the payload decides what it is. Events of one scope are published in order
// by one goroutine at a time; a subscriber must not block.
type Event struct {
	// N is unique and growing within the process; with the process's random
	// boot id it makes the stable event id that all connections see.
	N     uint64
	Scope Scope
	// Seq is the event's place in the log of its run, from 1; 0 = not stored.
	Seq int64
	// TurnID, RunID, StepID and MessageID are empty where they do not apply.
	TurnID    string
	RunID     string
	StepID    string
	MessageID string
	At        time.Time
	// Origin is the connection whose command caused the event.
	Origin  string
	Payload Payload
}

// A Payload is one of the event types of this file.
type Payload interface{ Kind() string }

// LoopStatus is what a runtime is busy with, in the wire's words
// (spec/app-server-core.md section 5.7).
type LoopStatus string

// The loop states.
const (
	LoopIdle       LoopStatus = "WAITING_ON_INPUT"
	LoopSending    LoopStatus = "SENDING_API_REQUEST"
	LoopWaiting    LoopStatus = "WAITING_FOR_API_RESPONSE"
	LoopProcessing LoopStatus = "PROCESSING_API_RESPONSE"
	LoopExecuting  LoopStatus = "EXECUTING_CLIENT_SIDE_TOOL"
	LoopCommand    LoopStatus = "EXECUTING_COMMAND"
	LoopApproval   LoopStatus = "WAITING_ON_APPROVAL"
)

// State is a snapshot of a runtime. Its slices belong to the receiver's reading
// only: nobody changes them.
type State struct {
	Scope     Scope
	Own       bool // the conversation is the agent's own ("default")
	Loop      LoopStatus
	TurnID    string
	Steps     []string // active step ids, at most one
	Executing []string // call ids that run
	// StepKeys maps the steps of the current and the last turn to the client's
	// ids they answer.
	StepKeys   map[string][]string
	Processing bool
	Queue      []QueueItem
	Pending    []*ToolCall // waiting calls, oldest first; Pending[0] is the one shown

	Mode              Mode
	Cwd               string
	CwdRevision       int
	ToolsetPreference string
	Toolset           string   // resolved by the last turn; "" = none ran yet
	LoadedTools       []string // likewise
	MemoryDir         string
	Background        []Background
}

// A QueueItem is one waiting input.
type QueueItem struct {
	ID         string
	ClientKey  string // of its first message, made by the server where none was given
	Kind       string
	Source     string
	Content    []Part
	Raw        json.RawMessage // content as sent; nil = render Content
	EnqueuedAt time.Time
	Paused     bool
}

// A Background is one process that outlived its tool call.
type Background struct {
	ID        string
	Command   string
	StartedAt time.Time
	Status    string // running, completed, failed
	ExitCode  *int
}

// A RemovedItem tells what became of a queue item.
type RemovedItem struct {
	ClientKey   string
	Disposition string // dequeued or cancelled
}

// The payloads. Those marked "wire order" exist so that doors can keep the
// order of frames that clients know.
type (
	// LoopChanged: the loop status changed. The state is complete.
	LoopChanged struct{ State State }
	// DeviceChanged: processing, mode, directory, toolset or pending calls
	// changed.
	DeviceChanged struct{ State State }
	// QueueChanged: the queue changed; Removed lists what left since the last one.
	QueueChanged struct {
		Queue   []QueueItem
		Removed []RemovedItem
	}

	// TurnStarted: a turn took its first inputs.
	TurnStarted struct{ Door Door }
	// InputJoined: a user message joined the history. Direct ones were sent by
	// Event.Origin a moment ago, which needs no echo; others were queued.
	InputJoined struct {
		Message *Message
		Direct  bool
		Raw     json.RawMessage // content as sent
	}
	// StepStarted: the model is about to be asked.
	StepStarted struct{ N int }
	// TextDelta and ReasoningDelta: the next piece of part Part of the answer.
	TextDelta struct {
		Part int
		Text string
	}
	ReasoningDelta struct {
		Part int
		Text string
	}
	// CallMade: the model asked for a tool; its arguments are complete.
	CallMade struct{ Call CallPart }
	// AnswerStored: the model's answer is stored.
	AnswerStored struct {
		Message    *Message
		Usage      Usage
		StopReason StopReason
	}
	// CallsClassified: the rules have spoken on all calls of the step.
	CallsClassified struct{ Allowed, Denied, Ask []string }
	// CallAsked: a call waits for its answer. Shown one at a time.
	CallAsked struct{ Call *ToolCall }
	// CallSettled: a waiting call was answered or withdrawn.
	CallSettled struct{ Call *ToolCall }
	// CallRunning: the tool is about to run; this is stored already.
	CallRunning struct{ Call *ToolCall }
	// CallOutput: the whole output so far of a running tool.
	CallOutput struct {
		CallID         string
		Stdout, Stderr []string
	}
	// CallEnded: the tool has finished, or will not run (wire order: all ends of
	// a step precede its results).
	CallEnded struct{ Call *ToolCall }
	// CallReturned: the result is stored.
	CallReturned struct {
		Call    *ToolCall
		Message *Message
	}
	// ExternalCall: the connection To shall run a tool of its own.
	ExternalCall struct {
		To, RequestID, ScopeID string
		Call                   *ToolCall
	}
	// FileChanged: a file tool wrote a file.
	FileChanged struct{ Path, Content string }
	// Retrying: the model will be asked again. Voided lists messages whose
	// streamed text no longer counts.
	Retrying struct {
		Reason  string // llm_api_error, restart
		Message string
		Attempt int
		Max     int
		Delay   time.Duration
		Voided  []string
	}
	// Compacting: older messages are about to be summed up.
	Compacting struct {
		Trigger string // manual, context_window_limit, context_window_overflow
		Tokens  int    // estimate of what the context takes
		Window  int
	}
	// Compacted: the summary is stored; its message has the numbers.
	Compacted struct{ Message *Message }
	// StepFailed: the model call failed for good.
	StepFailed struct {
		Error      *Error
		StopReason StopReason
	}
	// Status: a short note for people, such as "Interrupted".
	Status struct{ Level, Message string }
	// RunEnded: a run ended, by the turn's end or by parking.
	RunEnded struct {
		StopReason StopReason
		Error      *Error
		Usage      Usage
		Steps      int
	}
	// TurnFinished: always the last event of a turn, once.
	TurnFinished struct {
		StopReason StopReason
		Error      *Error
		Usage      Usage
		WithUsage  bool
		Ephemeral  *EphemeralEnd `json:",omitempty"` // nil = the turn was stored
	}
	// MemoryChanged: a commit changed the agent's memory. Its scope has no
	// conversation.
	MemoryChanged struct {
		Commit string
		Paths  []string
	}
	// Changed: what lists and files of any agent show is no longer so. Its scope
	// is empty.
	Changed struct {
		AgentID        string
		ConversationID string // "" = the agent itself, or its memory
		Change         Change
		// Commit and Paths are of a commit to the agent's memory; "*" = any path.
		Commit string
		Paths  []string
	}
)

func (LoopChanged) Kind() string     { return "loop_changed" }
func (DeviceChanged) Kind() string   { return "device_changed" }
func (QueueChanged) Kind() string    { return "queue_changed" }
func (TurnStarted) Kind() string     { return "turn_started" }
func (InputJoined) Kind() string     { return "input_joined" }
func (StepStarted) Kind() string     { return "step_started" }
func (TextDelta) Kind() string       { return "text_delta" }
func (ReasoningDelta) Kind() string  { return "reasoning_delta" }
func (CallMade) Kind() string        { return "call_made" }
func (AnswerStored) Kind() string    { return "answer_stored" }
func (CallsClassified) Kind() string { return "calls_classified" }
func (CallAsked) Kind() string       { return "call_asked" }
func (CallSettled) Kind() string     { return "call_settled" }
func (CallRunning) Kind() string     { return "call_running" }
func (CallOutput) Kind() string      { return "call_output" }
func (CallEnded) Kind() string       { return "call_ended" }
func (CallReturned) Kind() string    { return "call_returned" }
func (ExternalCall) Kind() string    { return "external_call" }
func (FileChanged) Kind() string     { return "file_changed" }
func (Retrying) Kind() string        { return "retrying" }
func (Compacting) Kind() string      { return "compacting" }
func (Compacted) Kind() string       { return "compacted" }
func (StepFailed) Kind() string      { return "step_failed" }
func (Status) Kind() string          { return "status" }
func (RunEnded) Kind() string        { return "run_ended" }
func (TurnFinished) Kind() string    { return "turn_finished" }
func (MemoryChanged) Kind() string   { return "memory_changed" }
func (Changed) Kind() string         { return "changed" }

// A Change says what became of something.
type Change string

// The changes.
const (
	ChangeCreated   Change = "created"
	ChangeUpdated   Change = "updated"
	ChangeDeleted   Change = "deleted"
	ChangeCommitted Change = "committed" // the memory of the agent
)

// An EphemeralEnd is what is to be said at the end of a turn that leaves nothing
// behind.
type EphemeralEnd struct {
	WritesBlocked int    // calls that would have written
	MemoryCommit  string // where the agent's memory is now; "" = nothing was written yet
}
