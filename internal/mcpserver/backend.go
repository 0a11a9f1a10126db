package mcpserver

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"mneme/internal/memory"
	"mneme/protocol"
)

// A Backend is what the tools need of an App Server. Ids given to it are agent
// ids; names are the tools' business. Errors are *agent.Error (what was asked for
// is wrong or not there) or *Error (what a tool answers with, such as that the
// App Server cannot be reached). It is safe for concurrent use.
type Backend interface {
	// Info says what is behind the tools. It never fails: what cannot be reached
	// is part of the answer.
	Info(ctx context.Context) Info
	// Models is the catalogue as the server gives it, an object.
	Models(ctx context.Context) (*protocol.ListModelsResponse, error)

	// Agents lists all agents in the server's order. Hidden ones are among them
	// where the server shows them at all. Records may be missing.
	Agents(ctx context.Context) ([]Agent, error)
	// Agent reads one agent with its record; CodeNotFound if there is none.
	Agent(ctx context.Context, id string) (*Agent, error)
	CreateAgent(ctx context.Context, body protocol.AgentBody) (*Agent, error)
	UpdateAgent(ctx context.Context, id string, body protocol.AgentBody) (*Agent, error)
	DeleteAgent(ctx context.Context, id string) error

	// Memory is all files of the newest commit, with what the view needs; the rest
	// may be there.
	Memory(ctx context.Context, agentID string, v View) (*Memory, error)
	// MemoryFile reads one file as it is stored; CodeNotFound if there is none.
	MemoryFile(ctx context.Context, agentID, path string) ([]byte, error)
	MemoryHistory(ctx context.Context, agentID, path string) ([]memory.Commit, error)
	Search(ctx context.Context, agentID, query string, topK int) (*SearchResult, error)
	Save(ctx context.Context, agentID string, item memory.Item) (memory.Saved, error)
	DeleteItem(ctx context.Context, agentID, ref string) (memory.Removed, error)
	// WriteFile replaces one memory file; nothing happens if it says so already.
	WriteFile(ctx context.Context, agentID, path, content, message string) error

	// Ask runs a turn that stores nothing, to its end. When ctx ends, so does
	// the turn.
	Ask(ctx context.Context, q Question, h AskHandler) (*Answer, error)

	// Watch calls tell for every change that the server tells of, until stop is
	// called; stop waits for a call that is under way. tell must not block.
	Watch(tell func(Change)) (stop func())
}

// Info says what is behind the tools.
type Info struct {
	Configured bool   // there is an App Server to talk to
	URL        string // of the App Server, without credentials; "" = embedded or none
	Version    string // of the App Server; "" = unknown
	Protocol   int    // of the App Server; 0 = unknown
	Embeddings bool   // the App Server keeps an agent's embedding model
}

// An Agent is what tools look at.
type Agent struct {
	ID          string
	Name        string
	Description string
	Model       string
	Tags        []string
	Hidden      bool
	CreatedAt   time.Time // zero = the server does not tell
	// Record is the agent as the server shows it, a JSON object; nil = ask for it.
	Record json.RawMessage
}

// A View says what is needed of memory files besides path, description and size.
type View int

// The views.
const (
	Paths View = iota // nothing
	Core              // the bodies of core memory
	Dated             // when files were last changed
)

// Memory is the files of one commit.
type Memory struct {
	*memory.Snapshot
	// Times tells when files were last changed, by path; nil = the files do.
	Times map[string]time.Time
}

// updated is when a file was last changed; zero = unknown.
func (m *Memory) updated(f *memory.File) time.Time {
	if m.Times != nil {
		return m.Times[f.Path]
	}
	return f.Updated()
}

// served is the files that are shown, sorted by path.
func (m *Memory) served() []*memory.File {
	return slices.DeleteFunc(slices.Clone(m.Files), func(f *memory.File) bool { return !f.Served() })
}

// A SearchResult is ranked memory of one commit.
type SearchResult struct {
	Mode    string // "lexical" or "hybrid"
	Results []protocol.MemoryHit
	Warning string // why it is not what it could be; "" = nothing to say
}

// A Question is what session_ask asks.
type Question struct {
	AgentID string
	Text    string
}

// An AskHandler follows a turn.
type AskHandler struct {
	// Progress is told what the turn does, such as "thinking". It must not block.
	Progress func(what string)
	// Approve decides on a call that asks; it may wait for a person. An error
	// ends the turn and becomes Ask's.
	Approve func(ctx context.Context, a *Approval) (Decision, error)
}

// An Approval is a call of a turn that waits for a person.
type Approval struct {
	ID       string
	Tool     string
	Question bool // the agent asks the person something; else it wants to run the tool
	Input    json.RawMessage
}

// A Decision answers an Approval.
type Decision struct {
	Allow   bool
	Message string          // of a denial: what the model reads
	Input   json.RawMessage // of an allowance: replaces the input; nil = unchanged
}

// An Answer is how a turn ended.
type Answer struct {
	Reply   string
	Usage   *protocol.Usage // nil = unknown
	Storage Storage
	// Warnings are what the caller should know besides.
	Warnings []string
}

// Storage is the proof of the storage lock (spec/mcp.md section 5.3).
type Storage struct {
	Locked        bool     `json:"locked"`
	CommitBefore  *string  `json:"commit_before"` // nil = no memory yet
	CommitAfter   *string  `json:"commit_after"`
	WritesBlocked int      `json:"writes_blocked"`
	Changed       []string `json:"changed,omitempty"` // paths, if it did not hold
}

// A Change is something that resources show.
type Change struct {
	AgentID string
	// Agent says what became of the agent: created, updated or deleted; "" = its
	// memory changed.
	Agent  string
	Commit string   // of a memory change
	Paths  []string // of a memory change; ["*"] = any
	// All says that anything may have changed: for a while nobody told us.
	All bool
}
