package runtime

import (
	"encoding/json"
	"sync"
	"time"

	"mneme/internal/agent"
	"mneme/internal/store"
)

const (
	logDelay     = 10 * time.Millisecond // how long events of logged runs are gathered
	logRetention = 24 * time.Hour
)

// An eventLog publishes an actor's events. Those of a logged turn are first
// written to the run's log, at most 10 ms later, and published after the
// commit: nobody ever holds a position that the log does not have.
type eventLog struct {
	a *actor

	mu        sync.Mutex // guards the rest; emit is called by workers too
	on        bool
	seq       int64
	run       string
	pending   []loggedEvent
	scheduled bool
}

type loggedEvent struct {
	ev  *agent.Event
	row store.RunEvent // Kind "" = published in order, but not stored
}

func (l *eventLog) init(a *actor) { l.a = a }

// start begins logging for run, whose log holds seq entries; off ends it.
func (l *eventLog) start(run string, seq int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.on, l.run, l.seq = true, run, seq
}

func (l *eventLog) off() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.on = false
}

func (l *eventLog) emit(ev *agent.Event) {
	l.mu.Lock()
	if !l.on {
		l.mu.Unlock()
		l.a.m.bus.Publish(ev)
		return
	}
	defer l.mu.Unlock()
	le := loggedEvent{ev: ev}
	switch ev.Payload.(type) {
	case agent.LoopChanged, agent.DeviceChanged, agent.QueueChanged:
		// States of the moment: a log of them has no use.
	default:
		if data, err := json.Marshal(ev.Payload); err == nil {
			l.seq++
			le.row = store.RunEvent{
				RunID: l.run, Seq: l.seq, Kind: ev.Payload.Kind(), Data: data,
				At: ev.At, Expires: ev.At.Add(logRetention),
			}
		}
	}
	l.pending = append(l.pending, le)
	if !l.scheduled {
		l.scheduled = true
		time.AfterFunc(logDelay, func() { l.a.post((*actor).flushLog) })
	}
}

// take hands out what waits to be stored and published.
func (l *eventLog) take() (events []loggedEvent) {
	l.mu.Lock()
	defer l.mu.Unlock()
	events, l.pending = l.pending, nil
	l.scheduled = false
	return events
}

func (l *eventLog) publish(events []loggedEvent) {
	for _, e := range events {
		l.a.m.bus.Publish(e.ev)
	}
}

// flushLog commits and publishes what the log has gathered.
func (a *actor) flushLog() {
	a.log.mu.Lock()
	n := len(a.log.pending)
	a.log.mu.Unlock()
	if n > 0 {
		a.commit(&store.Change{})
	}
}
