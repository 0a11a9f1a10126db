package runtime

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"reflect"
	"slices"
	"time"

	"mneme/internal/agent"
	"mneme/internal/store"
)

// A Receipt says what became of an input.
type Receipt struct {
	InputID   string
	Started   bool // its turn began; else it is queued
	Duplicate bool // the key was known: this is the original's receipt
	TurnID    string
	// RunID is the run that takes the input: begun just now, or, of a repeated
	// key or a queued input, the one that took it or was given to it; "" = none yet.
	RunID  string
	StepID string // set if started just now
}

// A waiter is an input that is not stored until it starts (agent.BusyWait).
type waiter struct {
	in    *agent.Input
	ack   func(Receipt)
	reply chan<- submitted
	timer *time.Timer
	gone  <-chan struct{} // closed when the sender has given up
}

type submitted struct {
	receipt Receipt
	err     error
}

func (w *waiter) finish(r Receipt, err error) {
	w.timer.Stop()
	w.reply <- submitted{r, err}
}

// Submit stores an input and begins its turn, or queues it. ack, which may be
// nil, is called as soon as the input is stored and before any event that
// follows from it is published; it must not block.
//
// Errors: CodeNotFound, CodeBusy and CodeParked (Ref is the run), CodeQueueFull,
// CodeConflict (a known key with another body), CodeInvalid, CodeShutdown.
func (m *Manager) Submit(ctx context.Context, in *agent.Input, ack func(Receipt)) (Receipt, error) {
	if err := prepare(in); err != nil {
		return Receipt{}, err
	}
	if ack == nil {
		ack = func(Receipt) {}
	}
	scope := agent.Scope{AgentID: in.AgentID, ConversationID: in.ConversationID}
	ch := make(chan submitted, 1)
	m.post(scope, command{
		run:  func(a *actor) { a.submit(in, ack, ch, ctx.Done()) },
		fail: func(err error) { ch <- submitted{err: err} },
	})
	select {
	case s := <-ch:
		return s.receipt, s.err
	case <-ctx.Done():
		return Receipt{}, context.Cause(ctx)
	}
}

// prepare fills in what a door may leave out.
func prepare(in *agent.Input) error {
	in.ID = agent.NewID("q")
	in.Kind = orDefault(in.Kind, "message")
	in.Source = orDefault(in.Source, "user")
	in.IfBusy = orDefault(in.IfBusy, agent.BusyQueue)
	in.OnOrphan = orDefault(in.OnOrphan, agent.OrphanKeep)
	in.CreatedAt = time.Now()
	if in.Run.ID == "" && (in.Run.Background || len(in.Run.Request) > 0 || in.Run.Callback != "") {
		in.Run.ID = agent.NewID("run")
	}
	for i := range in.Messages {
		msg := &in.Messages[i]
		switch msg.Role {
		case agent.RoleUser, agent.RoleSystem, agent.RoleNotice, agent.RoleAssistant:
		default:
			return agent.Invalid("messages.role", "messages[%d].role must be user, system or assistant", i)
		}
	}
	if in.Key != "" && in.Digest == "" {
		body, err := json.Marshal(in.Messages)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(body)
		in.Digest = hex.EncodeToString(sum[:])
	}
	return nil
}

func (a *actor) submit(in *agent.Input, ack func(Receipt), reply chan<- submitted, gone <-chan struct{}) {
	if known, err := a.known(in); known != nil || err != nil {
		if err == nil {
			ack(*known)
			reply <- submitted{receipt: *known}
			return
		}
		reply <- submitted{err: err}
		return
	}
	in.AgentID, in.ConversationID = a.scope.AgentID, a.scope.ConversationID
	if a.stopping() {
		reply <- submitted{err: errStopping()}
		return
	}
	if a.turn == nil && a.compacting == nil && len(a.waiting) == 0 {
		a.unpause()
		r, err := a.beginWith(in, ack)
		reply <- submitted{r, err}
		return
	}
	switch in.IfBusy {
	case agent.BusyReject:
		reply <- submitted{err: a.busyError()}
	case agent.BusyWait:
		w := &waiter{in: in, ack: ack, reply: reply, gone: gone}
		w.timer = time.AfterFunc(busyWait, func() { a.post(func(a *actor) { a.waitedTooLong(w) }) })
		a.waiting = append(a.waiting, w)
	default:
		r, err := a.enqueue(in, ack)
		reply <- submitted{r, err}
	}
}

// known returns the receipt of an earlier input with the same key.
func (a *actor) known(in *agent.Input) (*Receipt, error) {
	if in.Key == "" {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), commitTimeout)
	defer cancel()
	old, err := a.journal.InputByKey(ctx, a.scope.ConversationID, in.Key)
	if err != nil {
		return nil, err
	}
	if old == nil {
		return nil, a.partlyKnown(ctx, in)
	}
	if old.Digest != in.Digest {
		return nil, &agent.Error{
			Code: agent.CodeConflict, Field: "client_message_id", Ref: old.TurnID,
			Message: "This client_message_id was used before with other content; use a new one",
		}
	}
	r := &Receipt{InputID: old.ID, Started: old.Started, Duplicate: true, TurnID: old.TurnID, RunID: old.Run.ID}
	return r, nil
}

// partlyKnown refuses a send over REST of which one message was sent before, in
// other company: each otid belongs to one run (spec/rest.md section 6.4).
func (a *actor) partlyKnown(ctx context.Context, in *agent.Input) error {
	if in.Door != agent.DoorREST || a.eph != nil {
		return nil
	}
	for _, otid := range in.ClientKeys() {
		run, err := a.m.cfg.Store.RunByOTID(ctx, a.scope.ConversationID, otid)
		if err != nil && agent.CodeOf(err) != agent.CodeNotFound {
			return err
		}
		if run != nil {
			return &agent.Error{Code: agent.CodeConflict, Field: "otid", Ref: run.ID,
				Message: "The otid " + otid + " was used before in another send; use a new one"}
		}
	}
	return nil
}

func (a *actor) busyError() error {
	if a.turn != nil && a.turn.State == agent.TurnParked {
		return &agent.Error{Code: agent.CodeParked, Ref: a.run.ID,
			Message: "The conversation waits for the answer to an approval request"}
	}
	if a.turn == nil {
		return agent.Errorf(agent.CodeBusy, "The conversation is being compacted")
	}
	e := &agent.Error{Code: agent.CodeBusy, Message: "Another turn of this conversation is running"}
	if a.run != nil {
		e.Ref = a.run.ID
	}
	return e
}

// dropWaiting takes out of the waiting inputs those at the head that must not
// begin a turn: their sender has given up, or has sent the same again and that
// one has begun.
func (a *actor) dropWaiting() {
	for len(a.waiting) > 0 {
		w := a.waiting[0]
		select {
		case <-w.gone:
			a.waiting = a.waiting[1:]
			w.finish(Receipt{}, context.Canceled)
			continue
		default:
		}
		known, err := a.known(w.in)
		if known == nil && err == nil {
			return
		}
		a.waiting = a.waiting[1:]
		if err != nil {
			w.finish(Receipt{}, err)
			continue
		}
		w.ack(*known)
		w.finish(*known, nil)
	}
}

func (a *actor) waitedTooLong(w *waiter) {
	if i := slices.Index(a.waiting, w); i >= 0 {
		a.waiting = slices.Delete(a.waiting, i, i+1)
		w.finish(Receipt{}, a.busyError())
	}
}

// beginWith begins a turn with an input that found the conversation idle. What
// an abort left in the queue goes first, merged with it where that is allowed.
func (a *actor) beginWith(in *agent.Input, ack func(Receipt)) (Receipt, error) {
	if len(a.queue) >= maxQueue {
		a.next() // makes room
		return a.enqueue(in, ack)
	}
	if len(a.queue) > 0 {
		r, err := a.enqueue(in, ack)
		if err == nil {
			a.next()
		}
		return r, err
	}
	in.Started = true
	return a.begin([]*agent.Input{in}, true, ack)
}

// enqueue stores an input behind the others.
func (a *actor) enqueue(in *agent.Input, ack func(Receipt)) (Receipt, error) {
	if len(a.queue) >= maxQueue {
		return Receipt{}, agent.Errorf(agent.CodeQueueFull, "Input was rejected by the queue")
	}
	in.State = agent.InputQueued
	c := &store.Change{Inputs: []*agent.Input{in}}
	if in.Run.ID != "" {
		c.Runs = []*agent.Run{a.runFor(in)} // it can be looked at while it waits
	}
	if err := a.commit(c); err != nil {
		return Receipt{}, err
	}
	a.queue = append(a.queue, in)
	r := Receipt{InputID: in.ID, RunID: in.Run.ID}
	ack(r)
	a.emitQueue()
	return r, nil
}

// runFor is the run of an input that waits for its turn.
func (a *actor) runFor(in *agent.Input) *agent.Run {
	spec := in.Run
	spec.ID = ""
	return &agent.Run{
		ID: in.Run.ID, AgentID: a.agent.ID, ConversationID: a.conv.ID, Door: in.Door, Spec: spec,
		CreatedAt: in.CreatedAt,
	}
}

// emitQueue publishes the queue and what left it since the last time.
func (a *actor) emitQueue() {
	items := make([]agent.QueueItem, 0, len(a.queue))
	for _, in := range a.queue {
		items = append(items, queueItem(in))
	}
	removed := a.dropped
	a.dropped = nil
	a.set(func(s *agent.State) { s.Queue = items })
	a.emit(agent.QueueChanged{Queue: items, Removed: removed})
}

func queueItem(in *agent.Input) agent.QueueItem {
	item := agent.QueueItem{
		ID: in.ID, Kind: in.Kind, Source: in.Source, EnqueuedAt: in.CreatedAt, Paused: in.Paused,
		ClientKey: inputKey(in),
	}
	if len(in.Messages) > 0 {
		item.Content, item.Raw = in.Messages[0].Parts, in.Messages[0].Raw
	}
	return item
}

// inputKey is the id under which clients know a queued input.
func inputKey(in *agent.Input) string {
	if len(in.Messages) > 0 && in.Messages[0].ClientKey != "" {
		return in.Messages[0].ClientKey
	}
	if in.Source == "user" {
		return "cm-submit-" + in.ID[len("q-"):]
	}
	return "cm-" + in.ID
}

// unpause releases what an abort has paused. It is stored with the next change
// of those inputs; until then a restart shows them paused, which loses nothing.
func (a *actor) unpause() int {
	n := 0
	for i, in := range a.queue {
		if in.Paused {
			free := *in
			free.Paused = false
			a.queue[i] = &free
			n++
		}
	}
	return n
}

// mergeable says that an input may share a turn with others
// (spec/app-server-core.md section 4.4).
func mergeable(in *agent.Input) bool {
	switch in.Door {
	case agent.DoorAppServer, agent.DoorSchedule, agent.DoorNotification:
		return true
	}
	return false
}

// batch is the longest run of inputs at the head of the queue that may become
// one turn. Each must want the same of it: what one input forbids, another must
// not bring in.
func (a *actor) batch() []*agent.Input {
	var out []*agent.Input
	for _, in := range a.queue {
		if in.Paused {
			break
		}
		if len(out) > 0 {
			head := out[0]
			if !mergeable(head) || !mergeable(in) || in.Origin != head.Origin ||
				!reflect.DeepEqual(in.Options, head.Options) {
				break
			}
		}
		out = append(out, in)
	}
	return out
}

// RemoveQueued takes an input out of the queue. found is false if it is not
// there (any more); the queue is published either way.
func (m *Manager) RemoveQueued(ctx context.Context, scope agent.Scope, itemID string, ack func(found bool)) (bool, error) {
	return ask(ctx, m, scope, func(a *actor) (bool, error) {
		i := slices.IndexFunc(a.queue, func(in *agent.Input) bool { return in.ID == itemID })
		if i < 0 {
			ack(false)
			a.emitQueue()
			return false, nil
		}
		if err := a.cancelQueued([]*agent.Input{a.queue[i]}); err != nil {
			return false, err
		}
		ack(true)
		a.emitQueue()
		return true, nil
	})
}

// cancelQueued stores that inputs will not run and takes them out of the queue.
func (a *actor) cancelQueued(ins []*agent.Input) error {
	if len(ins) == 0 {
		return nil
	}
	c := &store.Change{}
	for _, in := range ins {
		gone := *in
		gone.State = agent.InputCancelled
		c.Inputs = append(c.Inputs, &gone)
		if in.Run.ID != "" {
			run := a.runFor(in)
			run.Ended, run.StopReason, run.EndedAt = true, agent.StopCancelled, time.Now()
			c.Runs = append(c.Runs, run)
		}
		a.dropped = append(a.dropped, agent.RemovedItem{ClientKey: inputKey(in), Disposition: "cancelled"})
	}
	if err := a.commit(c); err != nil {
		return err
	}
	a.queue = slices.DeleteFunc(slices.Clone(a.queue), func(in *agent.Input) bool { return slices.Contains(ins, in) })
	return nil
}

// ResumeQueue releases paused inputs and begins their turn. It returns how many
// there were.
func (m *Manager) ResumeQueue(ctx context.Context, scope agent.Scope, ack func(resumed int)) (int, error) {
	return ask(ctx, m, scope, func(a *actor) (int, error) {
		n := a.unpause()
		if n > 0 {
			if err := a.commit(&store.Change{Inputs: a.queue}); err != nil {
				return 0, err
			}
		}
		ack(n)
		a.emitQueue()
		if a.turn == nil {
			a.next()
		}
		return n, nil
	})
}
