package client

import (
	"context"
	"encoding/json"
	"iter"

	"mneme/protocol"
)

// Disconnected is a client event: the connection was lost and will be dialled
// again. Events that the server sends from now on until [Reconnected] are not
// seen. Its type is "client.disconnected".
type Disconnected struct{ Err error }

// EventType returns "client.disconnected".
func (*Disconnected) EventType() string { return "client.disconnected" }

// Reconnected is a client event: there is a connection again, and the runtimes
// were started again. Its type is "client.reconnected".
type Reconnected struct{ Attempts int } // dials that it took

// EventType returns "client.reconnected".
func (*Reconnected) EventType() string { return "client.reconnected" }

// receive takes one message of a connection. It runs in the connection's read
// loop, so frames are handled in their order.
func (c *Client) receive(l *link, data []byte) {
	var head struct {
		Type      string `json:"type"`
		RequestID any    `json:"request_id"`
	}
	if err := json.Unmarshal(data, &head); err != nil || head.Type == "" {
		c.log.Warn("server sent a frame that cannot be used", "error", err, "bytes", len(data))
		return
	}
	if id, ok := head.RequestID.(string); ok && c.answered(id, head.Type, data) {
		return
	}
	ev, err := protocol.DecodeEvent(data)
	if err != nil {
		c.log.Warn("server sent an event that cannot be read", "error", err)
		ev.Type = head.Type
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.observe(ev); r != nil {
		if req, ok := ev.Body.(*protocol.ExternalToolCallRequest); ok {
			c.runTool(l, r, req)
		}
	}
	for s := range c.subs {
		if s.wants(&ev) {
			s.queue.push(ev)
		}
	}
}

// answered gives a frame to the call that waits for it.
func (c *Client) answered(id, typ string, data []byte) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	p, ok := c.pending[id]
	if ok && typ == "error" {
		delete(c.pending, id)
		p.fail(p.refusal(data))
		return true
	}
	if !ok || p.response != "" && p.response != typ {
		return false
	}
	if !p.take(data) {
		return true
	}
	delete(c.pending, id)
	if p.settle != nil {
		p.settle()
	}
	close(p.done)
	return true
}

// announce tells a client event to everybody.
func (c *Client) announce(body protocol.EventBody) {
	ev := protocol.Event{Type: body.EventType(), Body: body}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.runtimes {
		for _, t := range r.turns {
			t.queue.push(ev)
		}
	}
	for s := range c.subs {
		s.queue.push(ev) // whatever else they want
	}
}

// A scope is what is known of a runtime from its latest snapshots.
type scope struct {
	loop    protocol.LoopStatus
	queue   []protocol.QueueItem
	pending []protocol.PendingControl
}

// observe brings the runtime of an event up to date. It returns the runtime,
// nil if the client has not started it. The caller holds mu.
func (c *Client) observe(ev protocol.Event) *Runtime {
	if ev.Runtime == (protocol.Runtime{}) {
		return nil
	}
	s := c.scopes[ev.Runtime]
	if s == nil {
		if c.starting == 0 {
			return nil
		}
		s = new(scope)
		c.scopes[ev.Runtime] = s
	}
	s.observe(ev)
	r := c.runtimes[ev.Runtime]
	if r != nil {
		r.observe(ev)
	}
	return r
}

func (s *scope) observe(ev protocol.Event) {
	switch b := ev.Body.(type) {
	case *protocol.LoopStatusUpdate:
		s.loop = b.LoopStatus
	case *protocol.QueueUpdate:
		s.queue = b.Queue
	case *protocol.DeviceStatusUpdate:
		s.pending = b.DeviceStatus.PendingControlRequests
	case *protocol.ControlRequest:
		for _, p := range s.pending {
			if p.RequestID == b.RequestID {
				return
			}
		}
		s.pending = append(s.pending[:len(s.pending):len(s.pending)],
			protocol.PendingControl{RequestID: b.RequestID, Request: b.Request})
	}
}

// A Subscription is a queue of events: of every frame that is not the response
// of a call. Types without a Go type have their Raw only.
type Subscription struct {
	client *Client
	wants  func(*protocol.Event) bool
	queue  *queue
}

// Subscribe starts a subscription to all events. The server sends those of the
// runtimes that this connection has started or named.
func (c *Client) Subscribe() *Subscription {
	return c.subscribeTo(func(*protocol.Event) bool { return true })
}

// subscribe starts a subscription to the events of a runtime.
func (c *Client) subscribe(rt protocol.Runtime) *Subscription {
	return c.subscribeTo(func(ev *protocol.Event) bool { return ev.Runtime == rt })
}

func (c *Client) subscribeTo(wants func(*protocol.Event) bool) *Subscription {
	s := &Subscription{client: c, wants: wants, queue: newQueue(c.opts.Buffer, queueBytes)}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended != nil {
		s.queue.close(c.ended)
		return s
	}
	c.subs[s] = struct{}{}
	return s
}

// Close ends the subscription. What is in its queue can still be read.
func (s *Subscription) Close() {
	s.client.mu.Lock()
	delete(s.client.subs, s)
	s.client.mu.Unlock()
	s.queue.close(ErrClosed)
}

// Next waits for the next event. The error is ErrSlow, the reason why the
// client ended, ErrClosed after Close, or the context's; only after the
// context's can it be called again.
func (s *Subscription) Next(ctx context.Context) (protocol.Event, error) {
	ev, err := s.queue.next(ctx)
	if err != nil && ctx.Err() == nil {
		s.Close()
	}
	return ev, err
}

// Events ranges over the events until the subscription ends; the last pair has
// the error of [Subscription.Next]. Leaving the loop does not end the
// subscription.
func (s *Subscription) Events(ctx context.Context) iter.Seq2[protocol.Event, error] {
	return func(yield func(protocol.Event, error) bool) {
		for {
			ev, err := s.Next(ctx)
			if !yield(ev, err) || err != nil {
				return
			}
		}
	}
}
