// Package tool holds what agents can do besides talking: the Tool type, the
// built-in tools, the toolsets that group them and the permission rules that
// decide whether a call may run, must be asked for, or is refused.
//
// A tool is two neighbours, name.go and name.md: the code, and the description
// the model reads. What the model can put right itself (a missing file, a text
// that does not match) is a result with status error, never a Go error.
//
// Permissions are decided on structure: shell commands on their parse tree,
// paths on their resolved form (spec/harness.md section 3). Nothing here knows
// of turns or doors; what a tool may ask of the runtime is the Host interface.
package tool

import (
	"context"
	"encoding/json"
	"log/slog"

	"mneme/internal/agent"
)

// A Class says which calls of one step may run at the same time
// (spec/harness.md section 1.5).
type Class uint8

// The classes. Per-file calls wait for serial calls made before them and the
// other way round, so that a write and the shell that reads it keep their order.
const (
	Serial   Class = iota // one after another, in call order
	Parallel              // any number at once
	PerFile               // one at a time per file
)

// A Tool is something the model can call.
type Tool struct {
	Def      agent.ToolDef
	Required []string // parameters that must be there
	Class    Class
	// Interactive tools always go to a person: the call waits with kind question.
	Interactive bool
	// External names the connection that runs the tool; "" = not external.
	External string
	// ReadOnly tools change nothing; ephemeral turns have no others.
	ReadOnly bool
	// Approval is for tools that are not built in; the mode table has the others.
	Approval Approval
	// Run does it. nil = a client tool: the turn parks until its result comes.
	// ctx ends on abort and shutdown; Run must return soon after.
	Run func(ctx context.Context, c *Call) agent.ToolResult
}

// An Approval says whether a tool asks first, where no rule speaks and the mode
// leaves it open.
type Approval uint8

// The approvals. Whatever they say, unrestricted asks for nothing and strict
// for everything.
const (
	ApprovalByMode   Approval = iota // the table of spec/harness.md section 3.2
	ApprovalNever                    // tools attached to the agent
	ApprovalRequired                 // those with a requires_approval rule
)

// A Call is one running call.
type Call struct {
	ID    string
	Name  string
	Input json.RawMessage // a JSON object; nil = the model's text was none, see ParseInput
	Env   *Env
	// Output reports all output so far, at most every 100 ms; may be nil.
	Output func(stdout, stderr []string)
	// Host is the runtime behind the call; nil in tests that need none.
	Host Host
}

// An Env is where a turn's calls run. It is fixed for one tool phase.
type Env struct {
	Scope     agent.Scope
	WireConv  string // the conversation's id as clients know it
	AgentName string
	Cwd       string // absolute
	MemoryDir string // the agent's memory repository; may not exist yet
	// MemoryRoot holds the repositories of all agents: those of others are off limits.
	MemoryRoot string
	// OutputDir takes the full text of cut outputs and logs of background commands.
	OutputDir string
	SkillDirs []string
	Mode      agent.Mode
	Rules     *Rules // nil = none
	// Confined tools read in Cwd and MemoryDir only, in every mode.
	Confined bool
	// Headless denies what would ask.
	Headless bool
	// Disallowed are deny rules of the turn.
	Disallowed []string
	// BaseEnv is the environment of commands, "K=V" as os.Environ; nil = the process's.
	BaseEnv []string
	// Log hears of panics in tools; nil = nobody does.
	Log *slog.Logger
}

// A Host is what a tool may ask of the runtime.
type Host interface {
	// Enqueue queues a notification for the conversation: it starts a turn, or
	// joins the running one.
	Enqueue(ctx context.Context, scope agent.Scope, kind, text string) error
	// FileChanged tells watchers that a file tool wrote path.
	FileChanged(scope agent.Scope, path, content string)
	// SetBackground replaces the list of a conversation's background processes.
	SetBackground(scope agent.Scope, list []agent.Background)
}

// A Verdict is what the rules say about a call.
type Verdict string

// The verdicts.
const (
	Allow Verdict = "allow"
	Deny  Verdict = "deny"
	Ask   Verdict = "ask"
)

// A Decision is a verdict with its reasons.
type Decision struct {
	Verdict Verdict
	// Reason is the text the model sees when the call is denied.
	Reason string
	// Rule names what decided, for logs: a rule as written, "mode", "read-only",
	// "place", "default" and the like.
	Rule string
	// Suggestions and Diffs are for the person who is asked.
	Suggestions []agent.Suggestion
	Diffs       json.RawMessage // JSON array as spec/harness.md section 3.6; nil = none
}
