package store

import (
	"time"

	"mneme/internal/agent"
)

// A Lease is the right to write one conversation. Every Commit carries it; a
// process that lost its lease writes nothing.
type Lease struct {
	ConversationID string
	Owner          string // the process, stable over restarts of the same state
	Epoch          int64  // grows with every change of hands
	Expires        time.Time
}

// A Change is one step of a turn's journal: all its rows are written in one
// transaction or none is. Rows are upserts by id, except for messages, which
// are inserted, or updated where the id exists already.
type Change struct {
	Inputs   []*agent.Input
	Turns    []*agent.Turn
	Runs     []*agent.Run
	Steps    []*agent.Step
	Messages []*agent.Message
	Calls    []*agent.ToolCall
	// HideThrough takes all messages up to that position out of the model's
	// context; 0 = none. It happens before Messages are written.
	HideThrough  int64
	Events       []RunEvent
	Conversation *agent.Conversation // settings and times
	Prompt       *agent.Prompt       // nil = unchanged
	// RunEnded is set at a turn's end: the agent's LastRunAt.
	RunEnded time.Time
}

// A RunEvent is one entry of a logged run.
type RunEvent struct {
	RunID   string
	Seq     int64 // from 1 within the run
	Kind    string
	Data    []byte // JSON of the event
	At      time.Time
	Expires time.Time
}

// A Snapshot is what a runtime needs to go on with a conversation.
type Snapshot struct {
	Agent        *agent.Agent
	Conversation *agent.Conversation
	Prompt       *agent.Prompt     // nil = not compiled yet
	Turn         *agent.Turn       // running or parked; nil = none
	Run          *agent.Run        // the turn's last
	Steps        []*agent.Step     // of that turn, or of the last ended one
	Calls        []*agent.ToolCall // of the turn's last step
	Queue        []*agent.Input    // queued, in arrival order
	// Context is what the model may see: messages that are not hidden, in order,
	// interrupted ones and approvals included.
	Context []*agent.Message
	LastSeq int64
}
