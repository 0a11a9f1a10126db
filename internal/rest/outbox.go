package rest

import (
	"sync"

	"mneme/internal/agent"
)

// Bounds of outboxes, in bytes of text; an event counts at least eventCost.
const (
	// A reader of a run that is not logged is dropped beyond this.
	maxOutbox = 16 << 20
	// A reader of a logged run is sent to the log beyond this.
	maxTail = 24 << 10

	eventCost = 256
	maxDelta  = 4 << 10 // how long deltas grow when they wait
)

// An outbox holds the events of one run until the reader's goroutine takes them.
// The runtime puts them in from its own goroutine and never waits: deltas that
// nobody has taken yet are joined, and beyond a bound the events are dropped. What
// then happens is the reader's business: the events of a logged run are in its
// log, other streams end with an error.
type outbox struct {
	run    string
	deltas bool // the reader wants the pieces of answers
	logged bool

	signal chan struct{} // holds one token while something is there

	mu     sync.Mutex // guards the rest
	events []*agent.Event
	size   int
	lost   bool // events were dropped since the last take
	hint   bool // an input left the queue: the run may never begin
}

func newOutbox(run string, deltas, logged bool) *outbox {
	return &outbox{run: run, deltas: deltas, logged: logged, signal: make(chan struct{}, 1)}
}

// put is called for every event of the conversation.
func (o *outbox) put(ev *agent.Event) {
	if q, ok := ev.Payload.(agent.QueueChanged); ok && o.logged && len(q.Removed) > 0 {
		o.mu.Lock()
		o.hint = true
		o.mu.Unlock()
		o.wake()
		return
	}
	if ev.RunID != o.run || !o.shows(ev) {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	defer o.wake()
	if o.lost {
		return
	}
	if o.logged || !o.join(ev) {
		o.events = append(o.events, ev)
		o.size += cost(ev)
	}
	limit := maxOutbox
	if o.logged {
		limit = maxTail
	}
	if o.size > limit {
		o.events, o.size, o.lost = nil, 0, true
	}
}

func (o *outbox) wake() {
	select {
	case o.signal <- struct{}{}:
	default:
	}
}

// shows says whether a stream may show the event. Of a logged run every stored
// event counts, since their places have no gaps.
func (o *outbox) shows(ev *agent.Event) bool {
	if o.logged {
		return ev.Seq > 0
	}
	switch ev.Payload.(type) {
	case agent.TextDelta, agent.ReasoningDelta, agent.CallMade:
		return o.deltas
	case agent.StepStarted, agent.AnswerStored, agent.CallsClassified, agent.CallReturned, agent.Retrying,
		agent.Compacting, agent.Compacted, agent.RunEnded:
		return true
	}
	return false
}

// join adds a delta to the last one that waits, if it goes on with the same part.
func (o *outbox) join(ev *agent.Event) bool {
	if len(o.events) == 0 {
		return false
	}
	last := o.events[len(o.events)-1]
	if last.MessageID != ev.MessageID {
		return false
	}
	joined := *last // the events belong to everybody
	switch p := ev.Payload.(type) {
	case agent.TextDelta:
		q, ok := last.Payload.(agent.TextDelta)
		if !ok || q.Part != p.Part || len(q.Text) > maxDelta {
			return false
		}
		joined.Payload = agent.TextDelta{Part: q.Part, Text: q.Text + p.Text}
		o.size += len(p.Text)
	case agent.ReasoningDelta:
		q, ok := last.Payload.(agent.ReasoningDelta)
		if !ok || q.Part != p.Part || len(q.Text) > maxDelta {
			return false
		}
		joined.Payload = agent.ReasoningDelta{Part: q.Part, Text: q.Text + p.Text}
		o.size += len(p.Text)
	default:
		return false
	}
	o.events[len(o.events)-1] = &joined
	return true
}

// take hands out what is there; lost says that events were dropped, which come
// after those that were taken before and before whatever is taken next.
func (o *outbox) take() (events []*agent.Event, lost bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	events, lost = o.events, o.lost
	o.events, o.size, o.lost = nil, 0, false
	return events, lost
}

// hinted says whether an input has left the queue since the last time.
func (o *outbox) hinted() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	hint := o.hint
	o.hint = false
	return hint
}

// cost is about what an event holds in memory.
func cost(ev *agent.Event) int {
	n := eventCost
	switch p := ev.Payload.(type) {
	case agent.TextDelta:
		n += len(p.Text)
	case agent.ReasoningDelta:
		n += len(p.Text)
	case agent.CallMade:
		n += len(p.Call.Arguments)
	case agent.CallOutput:
		for _, s := range p.Stdout {
			n += len(s)
		}
		for _, s := range p.Stderr {
			n += len(s)
		}
	case agent.AnswerStored:
		n += messageCost(p.Message)
	case agent.CallReturned:
		n += messageCost(p.Message)
	case agent.InputJoined:
		n += messageCost(p.Message)
	}
	return n
}

func messageCost(m *agent.Message) int {
	if m == nil {
		return 0
	}
	n := eventCost
	for _, p := range m.Parts {
		n += len(p.Text) + len(p.Data)
		if p.Call != nil {
			n += len(p.Call.Arguments)
		}
	}
	return n
}
