package runtime

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"mneme/internal/agent"
	"mneme/internal/store"
	"mneme/internal/tool"
)

// An actor is one conversation at work. All fields below the mailbox belong to
// its goroutine, except state, which others may read under its mutex.
type actor struct {
	m     *Manager
	scope agent.Scope
	box   *mailbox

	journal Journal
	eph     *ephemeral // the journal, if it is in memory; else nil
	lease   store.Lease
	agent   *agent.Agent
	conv    *agent.Conversation
	prompt  *agent.Prompt
	history []*agent.Message // what the model may see, in order
	seq     int64            // of the last message

	queue   []*agent.Input
	waiting []*waiter
	dropped []agent.RemovedItem // left the queue since it was last published

	turn        *agent.Turn
	run         *agent.Run
	step        *agent.Step
	calls       []*agent.ToolCall // of step
	asking      *asking           // the model call in flight; nil = none
	phase       *phase            // the tools that run; nil = none
	retry       *time.Timer       // runs before the model is asked again
	compacting  *compacting       // a summary that is being written; nil = none
	compactions int               // for the current step
	lastTokens  int               // what the provider counted for the last request and its answer; 0 = not known
	lastSeq     int64             // the newest message that lastTokens counts
	attempt     int               // failed requests since the last answer
	results     int               // results so far in this step
	usage       agent.Usage       // of the turn
	runUse      agent.Usage       // of the run
	runLen      int               // steps of the run

	lastKeys, turnKeys map[string][]string // client ids by step, of the last and this turn

	pendingCwd *string // takes effect at the turn's end
	toldCwd    string
	toldMode   agent.Mode

	log  eventLog
	dead error // why the actor gives up; nil = it lives
	idle sync.WaitGroup

	// cancelsNow mirrors whether the turn ends at once when its last watcher
	// leaves.
	cancelsNow atomic.Bool
	rules      *tool.Rules // nil = to be read

	mu    sync.Mutex
	state agent.State // guarded by mu
}

func newActor(m *Manager, scope agent.Scope, j Journal) *actor {
	a := &actor{m: m, scope: scope, box: newMailbox(), journal: j, turnKeys: map[string][]string{}}
	a.log.init(a)
	return a
}

// main is the actor's life: load, go on with what was left, serve commands,
// and leave when nothing is to be done.
func (a *actor) main() {
	defer a.m.forget(a)
	if err := a.load(); err != nil {
		a.die(err)
	} else {
		a.resume()
	}
	timer := time.NewTimer(a.m.cfg.Linger)
	defer timer.Stop()
	for a.dead == nil {
		for _, cmd := range a.box.take() {
			if a.dead != nil {
				cmd.fail(a.dead)
				continue
			}
			cmd.run(a)
		}
		if a.dead != nil || a.stopping() && a.resting() && a.box.closeIfEmpty() {
			break
		}
		timer.Reset(a.m.cfg.Linger)
		wake := a.m.wake.Done()
		if a.stopping() {
			wake = nil
			a.stopRetry()
			a.dismissWaiting(errStopping())
			if a.resting() {
				continue
			}
		}
		select {
		case <-a.box.signal:
		case <-wake:
		case <-timer.C:
			if a.resting() && a.eph == nil && a.box.closeIfEmpty() {
				a.leave()
				return
			}
		}
	}
	a.leave()
	a.comeBack()
}

// comeBack has the conversation loaded again after a while when its journal
// could not be written or read: a disk that is full now will not always be, and
// what was accepted must not wait for the next command. Watchers are told.
func (a *actor) comeBack() {
	if agent.CodeOf(a.dead) != agent.CodeInternal || a.eph != nil || a.stopping() {
		return
	}
	if a.conv != nil && a.turn == nil && len(a.queue) == 0 {
		return // nothing waits
	}
	a.m.bus.Publish(&agent.Event{Scope: a.scope, At: time.Now(), Payload: agent.Status{
		Level: "warning", Message: "The state cannot be written at the moment; the conversation goes on as soon as it can",
	}})
	scope := a.scope
	a.m.wg.Go(func() {
		select {
		case <-time.After(reloadDelay):
			a.m.post(scope, command{run: func(*actor) {}, fail: func(error) {}})
		case <-a.m.wake.Done():
		}
	})
}

// stopping says that the server is going down.
func (a *actor) stopping() bool { return a.m.wake.Err() != nil }

// resting says that no worker is out and nothing is about to happen.
func (a *actor) resting() bool {
	return a.asking == nil && a.compacting == nil && a.phase == nil && a.retry == nil && len(a.waiting) == 0
}

// dismissWaiting sends away the inputs that wait to be stored.
func (a *actor) dismissWaiting(reason error) {
	for _, w := range a.waiting {
		w.finish(Receipt{}, reason)
	}
	a.waiting = nil
}

// stopCompacting gives up a summary that is being written.
func (a *actor) stopCompacting(cause error) {
	if c := a.compacting; c != nil {
		a.compacting = nil
		c.cancel(cause)
		c.done(nil, errStopping())
	}
}

// stopRetry forgets a retry that is due; the open step is in the journal.
func (a *actor) stopRetry() {
	if a.retry != nil {
		a.retry.Stop()
		a.retry = nil
	}
}

// leave ends the actor: workers are stopped and waited for, the lease is given
// back, and letters that came too late are answered.
func (a *actor) leave() {
	if a.asking != nil {
		a.asking.cut(ErrShutdown)
	}
	if a.phase != nil && a.phase.cancel != nil {
		a.phase.cancel(ErrShutdown)
	}
	a.stopCompacting(ErrShutdown)
	a.stopRetry()
	reason := a.dead
	if reason == nil {
		reason = errStopping()
	}
	a.dismissWaiting(reason)
	for _, cmd := range a.box.close() {
		cmd.fail(reason)
	}
	a.idle.Wait()
	if a.lease.ConversationID != "" {
		ctx, cancel := context.WithTimeout(context.Background(), commitTimeout)
		defer cancel()
		if err := a.journal.Release(ctx, a.lease); err != nil && agent.CodeOf(err) != agent.CodeLeaseLost {
			a.m.log.Warn("lease not released", "conversation", a.scope.ConversationID, "err", err)
		}
	}
}

// die gives the actor up: the journal holds the truth, and the next command
// loads it afresh.
func (a *actor) die(err error) {
	if a.dead != nil {
		return
	}
	a.dead = err
	if code := agent.CodeOf(err); code != agent.CodeNotFound {
		a.m.log.Error("conversation given up", "conversation", a.scope.ConversationID, "err", err)
	}
}

// load reads the conversation under a fresh lease.
func (a *actor) load() error {
	ctx, cancel := context.WithTimeout(context.Background(), commitTimeout)
	defer cancel()
	lease, err := a.journal.Acquire(ctx, a.scope.ConversationID)
	if err != nil {
		return err
	}
	a.lease = lease
	snap, err := a.journal.Load(ctx, a.scope.ConversationID)
	if err != nil {
		return err
	}
	a.turn, a.run, a.step, a.calls, a.results = nil, nil, nil, nil, 0
	a.turnKeys, a.rules, a.pendingCwd, a.lastTokens = map[string][]string{}, nil, nil, 0
	a.usage, a.runUse, a.runLen = agent.Usage{}, agent.Usage{}, 0
	a.agent, a.conv, a.prompt = snap.Agent, snap.Conversation, snap.Prompt
	a.scope = agent.Scope{AgentID: snap.Agent.ID, ConversationID: snap.Conversation.ID}
	a.history, a.seq = snap.Context, snap.LastSeq
	a.queue = snap.Queue
	for _, s := range snap.Steps {
		if len(s.ClientKeys) > 0 {
			a.turnKeys[s.ID] = s.ClientKeys
		}
	}
	if snap.Turn != nil {
		a.loadTurn(snap)
	}
	a.toldCwd, a.toldMode = a.cwd(), a.mode()
	a.mu.Lock()
	a.state = a.m.stateOf(snap)
	a.mu.Unlock()
	return nil
}

// loadTurn takes up the turn at work.
func (a *actor) loadTurn(snap *store.Snapshot) {
	a.turn, a.run, a.calls = snap.Turn, snap.Run, snap.Calls
	if n := len(snap.Steps); n > 0 {
		a.step = snap.Steps[n-1]
	}
	for _, c := range a.calls {
		a.results = max(a.results, c.Order)
	}
	for _, s := range snap.Steps {
		a.usage = a.usage.Add(s.Usage)
		if s.RunID == a.run.ID {
			a.runUse, a.runLen = a.runUse.Add(s.Usage), a.runLen+1
		}
	}
}

// commit writes one step of the journal. On failure the actor gives up.
func (a *actor) commit(c *store.Change) error {
	ctx, cancel := context.WithTimeout(context.Background(), commitTimeout)
	defer cancel()
	logged := a.log.take()
	for _, e := range logged {
		if e.row.Kind != "" {
			c.Events = append(c.Events, e.row)
		}
	}
	if err := a.journal.Commit(ctx, a.lease, c); err != nil {
		a.die(err)
		return err
	}
	a.log.publish(logged)
	return nil
}

// commitThen commits c and publishes what emits emits. Of a logged run that is
// part of the same commit: whatever is stored is in the log too.
func (a *actor) commitThen(c *store.Change, emits func()) error {
	if a.log.active() {
		emits() // held back by the log until the commit
		return a.commit(c)
	}
	if err := a.commit(c); err != nil {
		return err
	}
	emits()
	return nil
}

// post sends the actor a letter from one of its workers.
func (a *actor) post(f func(*actor)) {
	a.box.put(command{run: f, fail: func(error) {}})
}

// event makes an event of the current turn.
func (a *actor) event(p agent.Payload) *agent.Event {
	ev := &agent.Event{Scope: a.scope, At: time.Now(), Payload: p}
	if a.turn != nil {
		ev.TurnID = a.turn.ID
	}
	if a.run != nil {
		ev.RunID = a.run.ID
	}
	if a.step != nil {
		ev.StepID, ev.MessageID = a.step.ID, a.step.MessageID
	}
	return ev
}

// emit publishes a payload as an event of the current turn.
func (a *actor) emit(p agent.Payload) { a.log.emit(a.event(p)) }

// set changes the state that others see and returns it.
func (a *actor) set(f func(*agent.State)) agent.State {
	a.mu.Lock()
	defer a.mu.Unlock()
	f(&a.state)
	return a.state
}

// snapshot returns the state.
func (a *actor) snapshot() agent.State { return a.set(func(*agent.State) {}) }

// emitLoop publishes a new loop status. steps are the active step ids.
func (a *actor) emitLoop(status agent.LoopStatus, steps, executing []string) {
	s := a.set(func(s *agent.State) { s.Loop, s.Steps, s.Executing = status, steps, executing })
	a.emit(agent.LoopChanged{State: s})
}

// emitDevice publishes the device state after f changed it.
func (a *actor) emitDevice(f func(*agent.State)) {
	a.emit(agent.DeviceChanged{State: a.set(f)})
}

// noteKeys records which client ids the current step answers: those of the
// current and the last turn are kept, by step id.
func (a *actor) noteKeys(newTurn bool) {
	if newTurn {
		a.lastKeys, a.turnKeys = a.turnKeys, map[string][]string{}
	}
	if len(a.step.ClientKeys) > 0 {
		a.turnKeys[a.step.ID] = a.step.ClientKeys
	}
	all := maps.Clone(a.lastKeys)
	if all == nil {
		all = map[string][]string{}
	}
	maps.Copy(all, a.turnKeys)
	a.set(func(s *agent.State) { s.StepKeys = all })
}
