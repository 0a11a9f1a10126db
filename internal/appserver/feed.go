package appserver

import (
	"bytes"
	"context"
	"slices"
	"sync"

	"mneme/internal/agent"
	"mneme/protocol"
)

// A feed is the door's subscription to one conversation while a connection
// watches it. Its handler runs in the goroutine that publishes.
type feed struct {
	door  *Door
	scope agent.Scope
	rt    protocol.Runtime // as clients know the scope
	leave func()           // ends the subscription; set before anybody can leave

	mu     sync.Mutex // guards the rest and the subscriptions; held for moments only
	subs   []*subscription
	render renderer
	// execution is the headless mode of the runtime; nil = none.
	execution *protocol.ExecutionSettings
}

// A subscription is one connection's place in a feed. Its fields are guarded by
// the feed's mutex.
type subscription struct {
	conn *conn
	feed *feed
	// full is false for a connection that only serves external tools to the
	// conversation: it gets nothing but their calls. The runtime takes it for a
	// watcher like any other.
	full bool
	// While replays is not 0 frames are held back, so that the snapshot of a
	// replay, which may be older, cannot overtake them.
	replays int
	held    []*frame
	heldLen int
	// loop and device are the last ones that went out: repeats are left out.
	loop, device []byte
}

// handle takes one event to the connections.
func (f *feed) handle(ev *agent.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.subs) == 0 {
		return // left already: an event may still be on its way
	}
	if p, ok := ev.Payload.(agent.ExternalCall); ok {
		f.callTool(p)
		return
	}
	frames, err := f.render.event(ev)
	if err != nil {
		f.door.log.Error("encode event", "kind", ev.Payload.Kind(), "err", err)
		return
	}
	if len(frames) == 0 {
		return
	}
	joined, _ := ev.Payload.(agent.InputJoined)
	for _, s := range f.subs {
		// Whoever sent a message that started at once has its acknowledgement.
		if s.full && !(joined.Direct && s.conn.id == ev.Origin) {
			s.deliver(frames)
		}
	}
}

// callTool asks the owner of an external tool to run it.
func (f *feed) callTool(p agent.ExternalCall) {
	fr, err := externalCall(f.rt, p)
	if err != nil {
		f.door.log.Error("encode external tool call", "err", err)
		return
	}
	for _, s := range f.subs {
		if s.conn.id == p.To {
			s.deliver([]*frame{fr})
		}
	}
}

// deliver hands frames on, or keeps them for the end of a replay.
func (s *subscription) deliver(frames []*frame) {
	for _, fr := range frames {
		switch {
		case s.replays > 0 && s.heldLen >= overflowAt:
			s.conn.tooSlow()
		case s.replays > 0:
			s.held = append(s.held, fr)
			s.heldLen += fr.cost()
		case !s.repeats(fr):
			s.conn.send(fr)
		}
	}
}

// repeats says that the connection has exactly this already, and notes it.
func (s *subscription) repeats(fr *frame) bool {
	var last *[]byte
	switch fr.snapshot {
	case snapLoop:
		last = &s.loop
	case snapDevice:
		last = &s.device
	default:
		return false
	}
	if bytes.Equal(*last, fr.body) {
		return true
	}
	*last = fr.body
	return false
}

// hold begins a replay. The function that it returns ends it: the snapshot goes
// out, then what was held back meanwhile. Only its first call counts.
func (s *subscription) hold() (replay func(snapshot []*frame)) {
	s.feed.mu.Lock()
	s.replays++
	s.feed.mu.Unlock()
	done := false
	return func(snapshot []*frame) {
		if !done {
			done = true
			s.release(snapshot)
		}
	}
}

func (s *subscription) release(snapshot []*frame) {
	s.feed.mu.Lock()
	defer s.feed.mu.Unlock()
	for _, fr := range snapshot {
		s.repeats(fr) // notes it; a replay repeats by purpose
		s.conn.send(fr)
	}
	if s.replays--; s.replays > 0 {
		return
	}
	held := s.held
	s.held, s.heldLen = nil, 0
	s.deliver(held)
}

// lastDevice is the device status that went out last, nil for none.
func (s *subscription) lastDevice() []byte {
	s.feed.mu.Lock()
	defer s.feed.mu.Unlock()
	return s.device
}

// watch finds or makes the connection's place in the feed of a scope.
func (d *Door) watch(c *conn, scope agent.Scope, rt protocol.Runtime, full bool) *subscription {
	d.mu.Lock()
	defer d.mu.Unlock()
	f := d.feeds[scope]
	if f == nil {
		f = &feed{door: d, scope: scope, rt: rt}
		f.render = renderer{feed: f}
		d.feeds[scope] = f
		f.leave = d.rt.Subscribe(scope, f.handle)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if i := slices.IndexFunc(f.subs, func(s *subscription) bool { return s.conn == c }); i >= 0 {
		f.subs[i].full = f.subs[i].full || full
		return f.subs[i]
	}
	s := &subscription{conn: c, feed: f, full: full}
	f.subs = append(f.subs, s)
	return s
}

// unwatch gives a place up; a feed without places ends.
func (d *Door) unwatch(s *subscription) {
	f := s.feed
	d.mu.Lock()
	f.mu.Lock()
	before := len(f.subs)
	f.subs = slices.DeleteFunc(f.subs, func(o *subscription) bool { return o == s })
	empty := len(f.subs) == 0 && before > 0
	f.mu.Unlock()
	if empty {
		delete(d.feeds, f.scope)
	}
	d.mu.Unlock()
	if empty {
		f.leave()
	}
}

// subscribe subscribes the connection to a runtime named by a client. The error
// says why there is no such runtime.
func (c *conn) subscribe(ctx context.Context, rt protocol.Runtime) (*subscription, error) {
	return c.join(ctx, rt, true)
}

func (c *conn) join(ctx context.Context, rt protocol.Runtime, full bool) (*subscription, error) {
	c.mu.Lock()
	s := c.subs[rt]
	c.mu.Unlock()
	if s == nil {
		ag, conv, err := c.door.resolve(ctx, rt)
		if err != nil {
			return nil, err
		}
		return c.enter(rt, ag, conv, full), nil
	}
	if full {
		s.feed.mu.Lock()
		s.full = true
		s.feed.mu.Unlock()
	}
	return s, nil
}

// enter subscribes to a resolved runtime; named is how the client called it.
func (c *conn) enter(named protocol.Runtime, ag *agent.Agent, conv *agent.Conversation, full bool) *subscription {
	scope := agent.Scope{AgentID: ag.ID, ConversationID: conv.ID}
	s := c.door.watch(c, scope, wireRuntime(conv), full)
	c.mu.Lock()
	c.subs[named] = s
	c.subs[s.feed.rt] = s
	c.mu.Unlock()
	c.door.watchMemory(c, ag.ID)
	return s
}

// leaveAll ends everything that the connection has with runtimes.
func (c *conn) leaveAll() {
	c.door.rt.Disconnect(c.id)
	c.mu.Lock()
	subs := c.subs
	c.subs = nil
	c.mu.Unlock()
	seen := map[*subscription]bool{}
	for _, s := range subs {
		if !seen[s] {
			seen[s] = true
			c.door.unwatch(s)
		}
	}
	c.door.unwatchMemory(c)
	c.door.watchChanges(c, false)
}

// wireRuntime names a conversation as this door shows it.
func wireRuntime(conv *agent.Conversation) protocol.Runtime {
	return protocol.Runtime{AgentID: conv.AgentID, ConversationID: conv.WireID()}
}

// resolve finds the rows of a runtime.
func (d *Door) resolve(ctx context.Context, rt protocol.Runtime) (*agent.Agent, *agent.Conversation, error) {
	if rt.AgentID == "" {
		return nil, nil, agent.Errorf(agent.CodeNotFound, "Conversations without an agent are not available on this server")
	}
	if e, ok := d.rt.Ephemeral(rt.ConversationID); ok && e.Agent.ID == rt.AgentID {
		return e.Agent, e.Conversation, nil
	}
	return d.roster.Resolve(ctx, rt.AgentID, rt.ConversationID)
}
