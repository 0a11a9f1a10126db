package client

import (
	"context"
	"sync"

	"mneme/protocol"
)

// A queue holds the events that a reader has not taken yet. When it is full it
// closes with ErrSlow: the reader still gets what is in it.
type queue struct {
	limit, limitBytes int
	wake              chan struct{} // holds a token while there may be something to do

	mu     sync.Mutex
	events []protocol.Event // guarded by mu
	bytes  int              // of the events' raw frames; guarded by mu
	end    error            // why no more come; guarded by mu
}

func newQueue(limit, limitBytes int) *queue {
	return &queue{limit: limit, limitBytes: limitBytes, wake: make(chan struct{}, 1)}
}

func (q *queue) push(ev protocol.Event) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.end != nil {
		return
	}
	// A single event may be larger than the budget.
	if len(q.events) >= q.limit || len(q.events) > 0 && q.bytes+len(ev.Raw) > q.limitBytes {
		q.end = ErrSlow
	} else {
		q.events = append(q.events, ev)
		q.bytes += len(ev.Raw)
	}
	q.signal()
}

// close ends the queue; the first reason counts.
func (q *queue) close(reason error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.end == nil {
		q.end = reason
		q.signal()
	}
}

// signal leaves a token for a reader. The caller holds mu.
func (q *queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// next waits for an event, or returns the reason why none will come.
func (q *queue) next(ctx context.Context) (protocol.Event, error) {
	for {
		if ev, err, ok := q.take(); ok {
			return ev, err
		}
		select {
		case <-q.wake:
		case <-ctx.Done():
			return protocol.Event{}, context.Cause(ctx)
		}
	}
}

func (q *queue) take() (protocol.Event, error, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.events) == 0 {
		if q.end != nil {
			q.signal() // for other readers
		}
		return protocol.Event{}, q.end, q.end != nil
	}
	ev := q.events[0]
	q.events[0] = protocol.Event{} // let go of its bytes
	q.events = q.events[1:]
	q.bytes -= len(ev.Raw)
	if len(q.events) > 0 || q.end != nil {
		q.signal()
	}
	return ev, nil, true
}
