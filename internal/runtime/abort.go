package runtime

import (
	"context"
	"time"

	"mneme/internal/agent"
	"mneme/internal/store"
)

// textInterrupted is what unfinished calls of an aborted turn get as their
// result (spec/harness.md section 1.4).
const textInterrupted = "Interrupted by user"

// noteInterrupted tells the model why its last answer broke off.
const noteInterrupted = "<system-reminder>The user interrupted the active stream.</system-reminder>"

// Abort ends the turn of a conversation, running or parked: the model's request
// and tools are cancelled at once and the turn ends as cancelled. target is ""
// or the id of the turn, its current run or step; aborted is false if no such
// turn is active. ack is called before the end of the turn is published.
func (m *Manager) Abort(ctx context.Context, scope agent.Scope, target string, ack func(aborted bool)) (bool, error) {
	if ack == nil {
		ack = func(bool) {}
	}
	return ask(ctx, m, scope, func(a *actor) (bool, error) {
		if !a.active(target) {
			ack(false)
			return false, nil
		}
		a.abort(true, func() { ack(true) })
		return true, a.dead
	})
}

// active says that target names the turn at work.
func (a *actor) active(target string) bool {
	if a.turn == nil {
		return false
	}
	return target == "" || target == a.turn.ID || target == a.run.ID || target == a.step.ID
}

// abort ends the turn as cancelled. Queued inputs of people are paused if pause
// is set, so that nothing starts behind the back of who pressed stop.
func (a *actor) abort(pause bool, ack func()) {
	c := &store.Change{}
	if a.asking != nil {
		a.addPartial(c, a.asking.cut(ErrAborted))
		a.asking = nil
	}
	if c := a.compacting; c != nil {
		a.compacting = nil
		c.cancel(ErrAborted)
		if c.trigger == TriggerManual { // somebody waits for it
			c.done(nil, agent.Errorf(agent.CodeBusy, "The compaction was interrupted"))
		}
	}
	a.stopRetry()
	if a.phase != nil && a.phase.cancel != nil {
		a.phase.cancel(ErrAborted)
	}
	a.phase = nil
	if a.turn.State == agent.TurnParked {
		a.message(c, agent.RoleApproval).Stats = approvals(a.calls)
	}
	p := &phase{calls: a.openCalls()}
	for _, call := range p.calls {
		r := agent.TextResult(agent.StatusError, textInterrupted)
		if call.State == agent.CallDenied && call.Result != nil {
			r = *call.Result
		}
		a.result(c, call, r)
	}
	a.notice(c, noteInterrupted)
	paused := pause && a.pauseQueue(c)
	a.end(ending{
		stop: agent.StopCancelled, change: c,
		after: func() {
			a.emit(agent.Status{Level: "warning", Message: "Interrupted"})
			if paused {
				a.emitQueue()
			}
			ack()
			a.emitResults(p)
		},
	})
}

// openCalls are the calls of the step that have no stored result.
func (a *actor) openCalls() []*agent.ToolCall {
	if a.step == nil || a.step.State != agent.StepAnswered {
		return nil
	}
	var open []*agent.ToolCall
	for _, call := range a.shownOrder() {
		if call.State != agent.CallDone {
			c := *call // a worker may still hold the old one
			open = append(open, &c)
			for i := range a.calls {
				if a.calls[i] == call {
					a.calls[i] = &c
				}
			}
		}
	}
	return open
}

// pauseQueue pauses queued messages of people.
func (a *actor) pauseQueue(c *store.Change) bool {
	any := false
	for i, in := range a.queue {
		if in.Source == "user" && !in.Paused {
			p := *in
			p.Paused = true
			a.queue[i] = &p
			c.Inputs = append(c.Inputs, &p)
			any = true
		}
	}
	return any
}

// presence is told how many watch a scope. When the last one leaves, the grace
// of its turn begins.
func (m *Manager) presence(scope agent.Scope, watchers int) {
	if scope.ConversationID == "" {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if t := m.leaving[scope]; t != nil {
		t.Stop()
		delete(m.leaving, scope)
	}
	if watchers > 0 || m.closed {
		return
	}
	m.leaving[scope] = time.AfterFunc(m.grace(scope), func() {
		m.mu.Lock()
		delete(m.leaving, scope)
		m.mu.Unlock()
		m.orphaned(scope)
	})
}

// grace is how long the turn of scope may be without watchers. m.mu is held.
func (m *Manager) grace(scope agent.Scope) time.Duration {
	if a := m.actors[scope.ConversationID]; a != nil && a.cancelsNow.Load() {
		return 0
	}
	return m.cfg.OrphanGrace
}

// orphaned ends what nobody watches any more, where it asked for that.
func (m *Manager) orphaned(scope agent.Scope) {
	if m.live(scope.ConversationID) == nil {
		ctx, cancel := context.WithTimeout(context.Background(), commitTimeout)
		defer cancel()
		s, err := m.Status(ctx, scope)
		if err != nil || !s.Processing && len(s.Queue) == 0 {
			return
		}
	}
	m.post(scope, command{run: (*actor).orphan, fail: func(error) {}})
}

func (a *actor) orphan() {
	if a.m.bus.Watchers(a.scope) > 0 {
		return
	}
	if a.eph != nil {
		a.vanish()
		return
	}
	var left []*agent.Input
	for _, in := range a.queue {
		if in.OnOrphan != agent.OrphanKeep {
			left = append(left, in)
		}
	}
	if a.cancelQueued(left) != nil {
		return
	}
	if len(left) > 0 {
		a.emitQueue()
	}
	if a.turn != nil && a.turn.OnOrphan != agent.OrphanKeep {
		a.abort(false, func() {})
	}
}

// expireParked denies, from time to time, calls that have waited for a day in
// turns that nobody watches (spec/harness.md section 3.7).
func (m *Manager) expireParked() {
	tick := time.NewTicker(10 * time.Minute)
	defer tick.Stop()
	for {
		m.denyExpired()
		select {
		case <-tick.C:
		case <-m.wake.Done():
			return
		}
	}
}

func (m *Manager) denyExpired() {
	parked, err := m.cfg.Store.ParkedTurns(m.work)
	if err != nil {
		if m.wake.Err() == nil {
			m.log.Error("parked turns not read", "err", err)
		}
		return
	}
	for _, p := range parked {
		scope := agent.Scope{AgentID: p.Turn.AgentID, ConversationID: p.Turn.ConversationID}
		if m.bus.Watchers(scope) > 0 {
			continue
		}
		for _, call := range p.Calls {
			if time.Since(call.AskedAt) < parkedExpiry {
				continue
			}
			err := m.Answer(m.work, scope, call.ID, Answer{Message: "Nobody answered this request within 24 hours"}, nil)
			if err != nil && agent.CodeOf(err) != agent.CodeNotPending {
				m.log.Error("waiting call not closed", "call", call.ID, "err", err)
			}
		}
	}
}
