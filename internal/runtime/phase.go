package runtime

import (
	"context"
	"reflect"
	"slices"
	"time"

	"mneme/internal/agent"
	"mneme/internal/store"
	"mneme/internal/tool"
)

// A phase is the running of one step's tools. Its workers ask the actor before
// each start, so that "started" is stored first, and hand in each result.
type phase struct {
	calls  []*agent.ToolCall // in the order in which they are shown
	left   int               // runnable calls without a result
	cancel context.CancelCauseFunc
}

// execute runs what may run of the current step and settles the rest.
func (a *actor) execute() {
	if a.stopping() {
		return // the verdicts are in the journal
	}
	p := &phase{calls: a.shownOrder()}
	var run []tool.Scheduled
	var running []*agent.ToolCall
	var ids []string
	tools, err := a.tools()
	if err != nil {
		a.fail(modelError(err), false)
		return
	}
	env := a.env()
	for _, call := range p.calls {
		if call.State != agent.CallAllowed || call.Result != nil {
			continue
		}
		ids = append(ids, call.ID)
		running = append(running, call)
		run = append(run, tool.Scheduled{
			Tool: tool.Find(tools, call.Name), Known: tool.Names(tools),
			Call: &tool.Call{
				ID: call.ID, Name: call.Name, Input: call.Input, Env: env, Host: a.m, Output: a.output(p, call),
			},
		})
	}
	p.left = len(run)
	a.phase = p
	a.emitLoop(agent.LoopExecuting, []string{a.step.ID}, ids)
	a.emitDevice(func(*agent.State) {})
	if p.left == 0 {
		a.finishPhase(p, &store.Change{})
		return
	}
	ctx, cancel := context.WithCancelCause(a.m.work)
	p.cancel = cancel
	a.idle.Go(func() {
		defer cancel(nil)
		if a.eph != nil {
			if err := a.eph.write(ctx); err != nil {
				a.m.log.Error("memory files not written out", "agent", a.scope.AgentID, "err", err)
			}
		}
		// What fails here has made the actor give up, or is the actor's own doing.
		_ = tool.Run(ctx, run,
			func(i int) error { return a.inActor(func(a *actor) error { return a.startCall(p, running[i]) }) },
			func(i int, r agent.ToolResult) error {
				return a.inActor(func(a *actor) error { return a.endCall(p, running[i], r) })
			})
		a.post(func(a *actor) {
			if a.phase == p { // stopped half-way by the end of the server
				a.phase = nil
			}
		})
	})
}

// shownOrder is the order in which clients see the calls of a step: allowed by
// the rules, allowed by a person, denied.
func (a *actor) shownOrder() []*agent.ToolCall {
	rank := func(c *agent.ToolCall) int {
		switch {
		case c.State == agent.CallDenied:
			return 2
		case !c.Auto:
			return 1
		}
		return 0
	}
	calls := slices.Clone(a.calls)
	slices.SortStableFunc(calls, func(x, y *agent.ToolCall) int { return rank(x) - rank(y) })
	return calls
}

// inActor runs f in the actor on behalf of a worker and waits for it.
func (a *actor) inActor(f func(*actor) error) error {
	ch := make(chan error, 1)
	ok := a.box.put(command{
		run:  func(a *actor) { ch <- f(a) },
		fail: func(err error) { ch <- err },
	})
	if !ok {
		return ErrShutdown
	}
	return <-ch
}

// output reports a tool's live output while its phase lasts.
func (a *actor) output(p *phase, call *agent.ToolCall) func(stdout, stderr []string) {
	ev := a.event(nil)
	return func(stdout, stderr []string) {
		live := *ev
		live.At, live.Payload = time.Now(), agent.CallOutput{CallID: call.ID, Stdout: stdout, Stderr: stderr}
		a.post(func(a *actor) {
			if a.phase == p && call.State == agent.CallStarted {
				a.log.emit(&live)
			}
		})
	}
}

// startCall stores that a call is about to run. After this it is never run
// again.
func (a *actor) startCall(p *phase, call *agent.ToolCall) error {
	if a.phase != p {
		return ErrAborted
	}
	if a.m.work.Err() != nil {
		return ErrShutdown
	}
	call.State = agent.CallStarted
	if err := a.commit(&store.Change{Calls: []*agent.ToolCall{call}}); err != nil {
		return err
	}
	started := *call
	a.emit(agent.CallRunning{Call: &started})
	return nil
}

// endCall stores the result of a call. The last one goes on with the turn.
func (a *actor) endCall(p *phase, call *agent.ToolCall, r agent.ToolResult) error {
	if a.phase != p {
		return ErrAborted
	}
	if a.m.work.Err() != nil && r.Status == agent.StatusError {
		r = agent.TextResult(agent.StatusError, textLost) // it was stopped, not aborted
	}
	c := &store.Change{}
	a.result(c, call, r)
	p.left--
	if p.left == 0 {
		a.finishPhase(p, c)
		return a.dead
	}
	return a.commit(c)
}

// result writes a call's result and its message into c.
func (a *actor) result(c *store.Change, call *agent.ToolCall, r agent.ToolResult) {
	a.results++
	call.State, call.Result, call.Order, call.DoneAt = agent.CallDone, &r, a.results, time.Now()
	msg := a.message(c, agent.RoleTool)
	msg.Name, msg.CallID, msg.Status = call.Name, call.ID, r.Status
	msg.Parts, msg.Stdout, msg.Stderr = r.Parts, r.Stdout, r.Stderr
	c.Calls = append(c.Calls, call)
}

// finishPhase ends a step: everything without a result gets one, queued inputs
// join, and the next step opens, all in one commit.
func (a *actor) finishPhase(p *phase, c *store.Change) {
	a.phase = nil
	for _, call := range p.calls {
		if call.State != agent.CallDone {
			a.result(c, call, *call.Result)
		}
	}
	a.step.State, a.step.EndedAt = agent.StepDone, time.Now()
	limit := orDefault(a.turn.Options.MaxSteps, a.m.cfg.MaxSteps)
	if a.turn.Steps >= limit {
		c.Steps = append(c.Steps, a.step)
		a.end(ending{stop: agent.StopMaxSteps, change: c, before: func() { a.emitResults(p) }})
		return
	}
	if a.exits(p.calls) {
		c.Steps = append(c.Steps, a.step)
		a.end(ending{stop: agent.StopToolRule, change: c, before: func() { a.emitResults(p) }})
		return
	}
	done := a.step
	var joined []joinedMessage
	keys := done.ClientKeys
	if ins := a.joinable(); len(ins) > 0 {
		joined = a.join(ins, c)
		keys = append(slices.Clone(keys), keysOf(ins)...)
	}
	if err := a.refreshPrompt(c); err != nil {
		a.m.log.Warn("memory notice skipped", "conversation", a.scope.ConversationID, "err", err)
	}
	a.newStep(c, keys)
	c.Steps = append(c.Steps, done)
	next := a.step
	err := a.commitThen(c, func() {
		a.step = done // the results belong to it
		a.emitResults(p)
		a.emitJoined(joined, false)
		if len(joined) > 0 {
			a.emitQueue()
		}
		a.emitLoop(agent.LoopSending, []string{done.ID}, nil)
		a.step = next
	})
	if err != nil {
		return
	}
	a.noteKeys(false)
	a.ask()
}

// joinable is what of the queue may join the running turn: what came with the
// answers to its calls, and, where the turn allows it, inputs that want the
// same of it.
func (a *actor) joinable() []*agent.Input {
	var ins []*agent.Input
	for _, in := range a.queue {
		mine := in.Kind == kindFollowUp && in.TurnID == a.turn.ID
		if !mine && (!a.turn.Mergeable || in.Paused || !mergeable(in) || !reflect.DeepEqual(in.Options, a.turn.Options)) {
			break
		}
		ins = append(ins, in)
	}
	return ins
}

// emitResults publishes ends and results of a step's calls (wire order: all
// ends precede the results).
func (a *actor) emitResults(p *phase) {
	for _, call := range p.calls {
		ended := *call
		a.emit(agent.CallEnded{Call: &ended})
	}
	for _, call := range p.calls {
		ended := *call
		var msg *agent.Message
		for _, m := range slices.Backward(a.history) {
			if m.Role == agent.RoleTool && m.CallID == call.ID {
				msg = m
				break
			}
		}
		a.emit(agent.CallReturned{Call: &ended, Message: msg})
	}
}
