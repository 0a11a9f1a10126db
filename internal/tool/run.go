package tool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"

	"mneme/internal/agent"
)

// Scheduled is a call that may run.
type Scheduled struct {
	Tool *Tool // nil = no such tool: the result says so and names the Known ones
	// Known are the names of the turn's tools.
	Known []string
	Call  *Call
}

func (s Scheduled) class() Class {
	if s.Tool == nil {
		return Serial
	}
	return s.Tool.Class
}

// Run runs the calls of one step and waits for all of them.
//
// A call waits for those earlier calls that it must not overtake and otherwise
// runs at once: serial calls keep their order; per-file calls keep their order
// against serial calls, against per-file calls of the same file, and against
// parallel calls that name the same file.
//
// For every call start(i) is called right before the tool runs; if it fails the
// call does not run, no other call starts, and the running ones are cancelled
// with the error as cause. done(i, result) is called once for every call whose
// start succeeded, in the order of their ends; an error from it is treated
// alike. Both are called one at a time, on the goroutine that called Run, so
// they may write journals without locks. Results are clamped. A panic in a tool
// is an error result, told to Env.Log.
//
// When ctx ends no more calls start; the running ones return soon, with
// Interrupted if they were cut short, and their done is called. Run returns the
// first error of start or done, else the cause of ctx if it kept a call from
// starting, else nil.
func Run(ctx context.Context, calls []Scheduled,
	start func(i int) error, done func(i int, r agent.ToolResult) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	events := make(chan event)
	var workers sync.WaitGroup
	launch(ctx, calls, events, &workers)

	var failure error
	skipped := false
	fail := func(err error) {
		if failure == nil {
			failure = err
			cancel(err)
		}
	}
	for left := len(calls); left > 0; {
		ev := <-events
		switch {
		case ev.result != nil:
			left--
			if err := done(ev.i, *ev.result); err != nil {
				fail(err)
			}
		case ctx.Err() != nil:
			left--
			skipped = true
			ev.reply <- false
		default:
			err := start(ev.i)
			if err != nil {
				left--
				fail(err)
			}
			ev.reply <- err == nil
		}
	}
	workers.Wait() // they have nothing left to do but end
	if failure == nil && skipped {
		failure = context.Cause(ctx)
	}
	return failure
}

// maxAtOnce bounds the tools of a step that run here at the same time. Those of
// connections only wait, and do not count.
const maxAtOnce = 16

// An event is what a call's goroutine has to say: that it wants to start, with a
// reply whether it may, or its result.
type event struct {
	i      int
	result *agent.ToolResult
	reply  chan bool
}

// launch starts one goroutine per call. Each waits for the calls it must not
// overtake and for a place, asks whether it may start, and hands in its result.
func launch(ctx context.Context, calls []Scheduled, events chan<- event, workers *sync.WaitGroup) {
	after := order(calls)
	places := make(chan struct{}, maxAtOnce)
	ended := make([]chan struct{}, len(calls))
	for i := range calls {
		ended[i] = make(chan struct{})
	}
	for i, c := range calls {
		workers.Go(func() {
			defer close(ended[i])
			for _, j := range after[i] {
				<-ended[j]
			}
			if c.Tool == nil || c.Tool.External == "" {
				places <- struct{}{}
				defer func() { <-places }()
			}
			reply := make(chan bool)
			events <- event{i: i, reply: reply}
			if <-reply {
				r := runOne(ctx, c)
				events <- event{i: i, result: &r}
			}
		})
	}
}

// order lists for every call the earlier ones that it waits for.
func order(calls []Scheduled) [][]int {
	files := make([]string, len(calls))
	for i, c := range calls {
		files[i] = fileOf(c.Call)
	}
	after := make([][]int, len(calls))
	for i, b := range calls {
		for j, a := range calls[:i] {
			if conflict(a.class(), b.class(), files[j], files[i]) {
				after[i] = append(after[i], j)
			}
		}
	}
	return after
}

func conflict(a, b Class, fileA, fileB string) bool {
	switch {
	case a == Serial && b == Serial:
		return true
	case a == PerFile || b == PerFile:
		if a == Serial || b == Serial {
			return true
		}
		return fileA == fileB // unknown files count as the same one
	}
	return false
}

// fileOf is the real path a file tool works on, "" if the call names none.
func fileOf(c *Call) string {
	var in struct {
		FilePath string `json:"file_path"`
	}
	if json.Unmarshal(c.Input, &in) != nil || in.FilePath == "" || c.Env == nil {
		return ""
	}
	path, err := c.Env.path(in.FilePath)
	if err != nil {
		return ""
	}
	return realPath(path)
}

func runOne(ctx context.Context, s Scheduled) (r agent.ToolResult) {
	defer func() {
		if v := recover(); v != nil {
			if env := s.Call.Env; env != nil && env.Log != nil {
				env.Log.ErrorContext(ctx, "tool panicked", "tool", s.Call.Name, "call", s.Call.ID,
					"panic", v, "stack", string(debug.Stack()))
			}
			r = failf("Error executing tool: %v", v)
		}
	}()
	switch {
	case s.Tool == nil:
		return NotFound(s.Call.Name, s.Known)
	case s.Tool.Run == nil:
		return failf("Error executing tool: %s runs at the client", s.Call.Name)
	}
	return Clamp(s.Tool.Run(ctx, s.Call))
}

// errResult is what the model sees of an error: the abort if it was one.
func errResult(ctx context.Context, err error) agent.ToolResult {
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return Interrupted()
	}
	return agent.TextResult(agent.StatusError, fmt.Sprint(err))
}
