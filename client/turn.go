package client

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"

	"mneme/protocol"
)

// A Turn is what one input sets off: from the moment it is taken up to
// turn_finished. An input that was queued may share its turn with others, also
// with one that was already running.
type Turn struct {
	runtime *Runtime
	msg     *protocol.CreateMessage
	key     string // client_message_id of the first message; empty = the input has none
	queue   *queue // events for the reader
	acked   chan struct{}
	done    chan struct{}

	// Guarded by the client's mu; result and err may be read once done is
	// closed.
	accepted    bool // the server has acknowledged the input
	disposition protocol.Disposition
	active      bool   // the turn runs, its events are ours
	id          string // turn id, once known
	ended       bool
	result      TurnResult
	err         error
}

// TurnResult says how a turn ended and what it said.
type TurnResult struct {
	TurnID     string
	StopReason protocol.StopReasonValue
	Error      string // the server's text for a turn that failed
	// Messages are the assistant's messages in their order, without those that
	// a retry made void.
	Messages []AssistantMessage
	// Usage sums the steps; ContextTokens is the last step's.
	Usage protocol.Usage
	// Gap says that the connection was lost during the turn: Messages and Usage
	// lack what was sent meanwhile. The conversation has it all.
	Gap bool
	// Finished is the event itself.
	Finished *protocol.TurnFinished
}

// An AssistantMessage is one message of the assistant, put together from its
// pieces.
type AssistantMessage struct {
	ID    string
	RunID string // the step
	Text  string
}

// Text is what the assistant said, its messages separated by blank lines.
func (r TurnResult) Text() string {
	texts := make([]string, 0, len(r.Messages))
	for _, m := range r.Messages {
		if m.Text != "" {
			texts = append(texts, m.Text)
		}
	}
	return strings.Join(texts, "\n\n")
}

// Err is the turn's failure: nil for a turn that ended by itself, else an error
// with the server's text or the stop reason.
func (r TurnResult) Err() error {
	switch {
	case r.StopReason == protocol.StopEndTurn:
		return nil
	case r.Error != "":
		return errors.New(r.Error)
	}
	return errors.New("turn ended: " + string(r.StopReason))
}

// Send sends a user's message and returns when the server has acknowledged it.
func (r *Runtime) Send(ctx context.Context, text string) (*Turn, error) {
	return r.SendInput(ctx, protocol.CreateMessage{Messages: []protocol.InputMessage{protocol.UserMessage(text, "")}})
}

// SendInput sends messages with all that can be said about their turn. Without
// a client_message_id the first message gets one.
//
// An id that the conversation has seen before is the server's to judge: with the
// same content it acknowledges again and runs nothing, so the turn of that
// acknowledgement may never end for this caller.
func (r *Runtime) SendInput(ctx context.Context, msg protocol.CreateMessage) (*Turn, error) {
	msg.Messages = slices.Clone(msg.Messages)
	if len(msg.Messages) > 0 && msg.Messages[0].ClientMessageID == "" {
		msg.Messages[0].ClientMessageID = newID("cm")
	}
	c := r.client
	t := &Turn{
		runtime: r,
		msg:     &msg,
		queue:   newQueue(c.opts.Buffer, queueBytes),
		acked:   make(chan struct{}),
		done:    make(chan struct{}),
	}
	if len(msg.Messages) > 0 {
		t.key = msg.Messages[0].ClientMessageID
	}
	l, err := t.register(ctx)
	if err != nil {
		return nil, err
	}
	if err := t.send(ctx, l); err != nil {
		c.mu.Lock()
		t.fail(err) // unless the link is gone and the input waits for the next
		c.mu.Unlock()
	}
	select {
	case <-t.acked:
	case <-ctx.Done():
		c.mu.Lock()
		t.fail(context.Cause(ctx)) // unless the acknowledgement has come meanwhile
		c.mu.Unlock()
		<-t.acked
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !t.accepted {
		return nil, t.err
	}
	return t, nil
}

// register adds the turn to its runtime while a connection is up: from then on
// the loss of the connection is known to it.
func (t *Turn) register(ctx context.Context) (*link, error) {
	c := t.runtime.client
	for {
		l, err := c.acquire(ctx)
		if err != nil {
			return nil, err
		}
		c.mu.Lock()
		if err := t.runtime.broken; err != nil {
			c.mu.Unlock()
			return nil, err
		}
		current := c.link == l
		if current {
			t.runtime.turns = append(t.runtime.turns, t)
		}
		c.mu.Unlock()
		if current {
			return l, nil
		}
	}
}

// send sends the input on a connection. A nil error says that the
// acknowledgement, or the loss of the connection, will be seen elsewhere.
func (t *Turn) send(ctx context.Context, l *link) error {
	c := t.runtime.client
	p := newCall("input")
	p.settle = func() {
		var ack protocol.InputAccepted
		if err := protocol.DecodeResponse(p.frames[0], &ack); err != nil {
			t.fail(err)
			return
		}
		t.acknowledge(&ack)
	}
	id, ok := c.expect(l, p)
	if !ok {
		return nil // the turn is registered, so the loss was not lost on it
	}
	frame, err := protocol.AppendCommand(nil, &id, &protocol.Input{Runtime: t.runtime.id, Payload: t.msg})
	if err == nil {
		err = l.send(ctx, frame)
		if err != nil && l.ctx.Err() != nil {
			return nil // likewise
		}
	}
	if err != nil {
		c.forget(id)
	}
	return err
}

// acknowledge takes the server's word about the input. The caller holds mu.
func (t *Turn) acknowledge(ack *protocol.InputAccepted) {
	if t.ended || t.accepted {
		return
	}
	if !ack.Accepted {
		t.fail(&ServerError{Command: "input", Message: ack.Error})
		return
	}
	t.accepted, t.disposition = true, ack.Disposition
	if ack.Disposition != protocol.Queued {
		t.active, t.id = true, ack.TurnID
	}
	close(t.acked)
}

// recoverable reports whether the turn may outlive its connection: an input
// that the server has not acknowledged can be sent again if it has a key, and
// unless it was itself what the server closed the connection for.
func (t *Turn) recoverable(cause error) bool {
	if t.accepted {
		return true
	}
	var lost *ConnectionError
	tooBig := errors.As(cause, &lost) && lost.Code == 1009
	return t.key != "" && !tooBig
}

// fail ends the turn without a result; nothing happens if it has ended. The
// caller holds mu.
func (t *Turn) fail(err error) {
	if t.ended {
		return
	}
	t.err = err
	t.end(err)
}

// errTurnEnd closes the event queue of a turn that ended as it should.
var errTurnEnd = errors.New("turn has ended")

func (t *Turn) end(reason error) {
	t.ended = true
	r := t.runtime
	r.turns = slices.DeleteFunc(r.turns, func(o *Turn) bool { return o == t })
	if !t.accepted {
		close(t.acked)
	}
	t.queue.close(reason)
	close(t.done)
}

// observe takes an event of the runtime. The caller holds mu.
func (t *Turn) observe(ev protocol.Event) {
	if !t.accepted {
		return
	}
	if !t.active {
		t.active = t.begins(ev)
	}
	if removed(ev, t.key) == "cancelled" && !t.active {
		t.fail(ErrRemoved)
		return
	}
	if !t.active {
		return
	}
	if !t.owns(ev) {
		return
	}
	t.queue.push(ev)
	switch b := ev.Body.(type) {
	case *protocol.LoopStatusUpdate:
		if t.id == "" {
			t.id = b.LoopStatus.TurnID
		}
	case *protocol.StreamDelta:
		if b.SubagentID == "" {
			t.result.add(b)
		}
	case *protocol.TurnFinished:
		if t.id == "" || b.TurnID == t.id {
			t.result.TurnID, t.result.StopReason, t.result.Error = b.TurnID, b.StopReason, b.Error
			t.result.Finished = b
			t.end(errTurnEnd)
		}
	}
}

// owns reports whether an event of the runtime is this turn's. A server that
// tells turn ids runs one turn at a time. A stock one can run two at once, when
// an input comes just after a turn's end; then the step tells them apart.
func (t *Turn) owns(ev protocol.Event) bool {
	run := ""
	switch b := ev.Body.(type) {
	case *protocol.StreamDelta:
		if b.SubagentID == "" {
			run = b.Delta.Head().RunID
		}
	case *protocol.TurnFinished:
		run = b.RunID
	}
	if run == "" || t.key == "" || t.id != "" {
		return true
	}
	keys, known := t.runtime.scope.loop.ClientMessageIDsByRunID[run]
	return !known || slices.Contains(keys, t.key)
}

// begins reports whether an event shows that a queued input has been taken:
// it is echoed, leaves the queue, or is named by the running step.
func (t *Turn) begins(ev protocol.Event) bool {
	if t.key == "" {
		// Without a key the input cannot be told from others: the next turn is
		// taken for its own.
		loop, ok := ev.Body.(*protocol.LoopStatusUpdate)
		return ok && loop.LoopStatus.Status == protocol.SendingAPIRequest
	}
	switch b := ev.Body.(type) {
	case *protocol.StreamDelta:
		d, ok := b.Delta.(*protocol.UserDelta)
		return ok && b.SubagentID == "" && d.OTID == t.key
	case *protocol.QueueUpdate:
		return removed(ev, t.key) == "dequeued"
	case *protocol.LoopStatusUpdate:
		return runs(b.LoopStatus, t.key)
	}
	return false
}

// removed is how the input with a key left the queue, "" if it did not.
func removed(ev protocol.Event, key string) string {
	if b, ok := ev.Body.(*protocol.QueueUpdate); ok && key != "" {
		for _, gone := range b.Removed {
			if gone.ClientMessageID == key {
				return gone.Disposition
			}
		}
	}
	return ""
}

// runs reports whether an active step answers the input with the key.
func runs(loop protocol.LoopStatus, key string) bool {
	return key != "" && slices.ContainsFunc(loop.ActiveRunIDs, func(run string) bool {
		return slices.Contains(loop.ClientMessageIDsByRunID[run], key)
	})
}

// add takes a delta of the turn.
func (r *TurnResult) add(s *protocol.StreamDelta) {
	switch d := s.Delta.(type) {
	case *protocol.AssistantDelta:
		text := d.Content.Text()
		for i := range slices.Backward(r.Messages) {
			if r.Messages[i].ID == d.ID {
				r.Messages[i].Text += text
				return
			}
		}
		r.Messages = append(r.Messages, AssistantMessage{ID: d.ID, RunID: d.RunID, Text: text})
	case *protocol.RetryDelta:
		// The step is asked again: what it said is void.
		run := d.RunID
		if run == "" && len(r.Messages) > 0 {
			run = r.Messages[len(r.Messages)-1].RunID
		}
		r.Messages = slices.DeleteFunc(r.Messages, func(m AssistantMessage) bool { return m.RunID == run })
	case *protocol.UsageDelta:
		r.Usage.PromptTokens += d.PromptTokens
		r.Usage.CompletionTokens += d.CompletionTokens
		r.Usage.TotalTokens += d.TotalTokens
		r.Usage.CachedInputTokens += d.CachedInputTokens
		r.Usage.CacheWriteTokens += d.CacheWriteTokens
		r.Usage.ReasoningTokens += d.ReasoningTokens
		r.Usage.ContextTokens = d.ContextTokens
	}
}

// ID is the turn's id. It is empty while it is unknown: a stock server tells it
// only at the end.
func (t *Turn) ID() string {
	t.runtime.client.mu.Lock()
	defer t.runtime.client.mu.Unlock()
	if t.id == "" {
		return t.result.TurnID
	}
	return t.id
}

// Disposition says whether the input started a turn at once or was queued.
func (t *Turn) Disposition() protocol.Disposition {
	t.runtime.client.mu.Lock()
	defer t.runtime.client.mu.Unlock()
	return t.disposition
}

// Key is the client_message_id of the input's first message.
func (t *Turn) Key() string { return t.key }

// Events ranges over the events of the turn up to turn_finished, from its
// beginning: they are kept until they are read, within the bounds of the queue.
// An error comes last: why the turn cannot be followed any more (see
// [Turn.Wait]), ErrSlow, or the context's. One reader gets each event once.
//
// After a reconnection a control request that is still pending comes again.
func (t *Turn) Events(ctx context.Context) iter.Seq2[protocol.Event, error] {
	return func(yield func(protocol.Event, error) bool) {
		for {
			ev, err := t.queue.next(ctx)
			if err == errTurnEnd {
				return
			}
			if !yield(ev, err) || err != nil {
				return
			}
		}
	}
}

// Wait waits for the end of the turn. A turn that failed has a result and no
// error here; see [TurnResult.Err]. The error says why the end is unknown:
// ErrConnectionLost, ErrTurnLost, ErrRemoved, ErrClosed, or the context's.
func (t *Turn) Wait(ctx context.Context) (TurnResult, error) {
	select {
	case <-t.done:
		return t.result, t.err
	case <-ctx.Done():
		return TurnResult{}, context.Cause(ctx)
	}
}
