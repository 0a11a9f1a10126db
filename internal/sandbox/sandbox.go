// Package sandbox runs shell commands for agents: `bash -c` in a process group
// of its own, without a terminal, with limits on time, output and number.
//
// A Shells starts every command and keeps those that outlive their call. A
// command is in the foreground while Run waits for it: at most the yield time
// (10 s), after which it goes on in the background under an id such as bash_3.
// What a finished command left running (`server &`) is adopted under an id as
// well, so that it can be seen and stopped. Close kills and reaps everything.
//
//	Run -> process -> leader (start, wait), two readers -> pump -> recorder
//
// The leader goroutine keeps its thread until the command has ended, because
// Linux ties the parent-death signal to the thread. Readers hand chunks to the
// pump, which alone writes the log file; the recorder keeps the head and the
// tail of both streams in bounded memory. The log holds both streams as they
// came, is written only once it is needed (output too long for memory, or a
// background command), and stops growing at 64 MiB.
//
// A command that starts a session of its own (setsid) leaves the group and
// cannot be tracked; it loses its output pipe when the command ends.
package sandbox

import (
	"errors"
	"time"

	"mneme/internal/agent"
)

// The limits of spec/harness.md sections 2.2, 2.3 and 2.5.
const (
	YieldAfter    = 10 * time.Second // a foreground command goes to the background
	MaxBackground = 32               // running at once in one Shells
	keepFinished  = 5 * time.Minute  // finished entries stay listed
	liveEvery     = 100 * time.Millisecond
	liveChars     = 30_000
	headBytes     = 128 << 10 // kept in memory of the start of each stream
	tailBytes     = 128 << 10 // and of its end
	spillBytes    = 256 << 10 // of both streams, then the log goes to disk
	logBytes      = 64 << 20  // the log file stops growing
	stopGrace     = 2 * time.Second
	drainGrace    = 200 * time.Millisecond
	buryLimit     = time.Second
	adoptPoll     = time.Second
)

// What Run and Stop refuse.
var (
	ErrClosed  = errors.New("sandbox: closed")
	ErrTooMany = errors.New("too many background processes")
)

// A Command is what to run.
type Command struct {
	Scope agent.Scope
	Text  string   // for bash -c
	Dir   string   // working directory, absolute
	Env   []string // complete environment, see Environ; nil = empty
	// Timeout ends the command: SIGTERM to the group, SIGKILL two seconds
	// later. 0 = none.
	Timeout time.Duration
	// ForegroundOnly lifts the timeout when the command goes to the background.
	ForegroundOnly bool
	// Background returns at once; otherwise the command yields after YieldAfter.
	Background bool
	// LogDir takes the log file, made when needed; "" = the system's temporary
	// directory.
	LogDir string
	// Output gets all output so far (non-blank lines, the last 30,000
	// characters), at most every 100 ms and once more at the end. It is called
	// by Run itself, never after Run has returned; may be nil.
	Output func(stdout, stderr []string)
	// Done is called once when a background command has ended by itself or by
	// its timeout: not after Stop or Close, nor for adopted leftovers. May be nil.
	Done func(Finished)
	// Changed is called with the conversation's list after each change of it
	// that concerns this command. May be nil.
	Changed func([]agent.Background)
}

// A Result is what became of a command when Run returned.
type Result struct {
	// Background is the id under which the command goes on; "" = it has ended.
	Background string
	// Leftover is the id of adopted processes of a command that has ended.
	Leftover string
	// Log is the file of the whole output, "" while everything is in memory.
	// See Result.Save.
	Log      string
	ExitCode int // 128+n for signal n
	TimedOut bool
	Aborted  bool // ctx ended or the Shells closed
	Stdout   Capture
	Stderr   Capture
	Elapsed  time.Duration

	record *recorder
}

// Save makes sure that the whole output is in a file and returns its path.
func (r *Result) Save() (string, error) {
	if r.Log != "" || r.record == nil {
		return r.Log, nil
	}
	path, err := r.record.save()
	if err != nil {
		return "", err
	}
	r.Log = path
	return path, nil
}

// Finished tells how a background command ended.
type Finished struct {
	ID       string
	Command  string
	ExitCode int
	TimedOut bool
	Log      string
	Stdout   Capture
	Stderr   Capture
	Elapsed  time.Duration
}
