package mcpserver

import (
	"container/list"
	"context"
	"errors"
	"iter"
	"sync"
	"time"
)

// The bounds of stored events (spec/mcp.md section 1.2).
const (
	eventLife     = 5 * time.Minute
	sessionEvents = 1000
	sessionBytes  = 4 << 20
	storeBytes    = 64 << 20 // of all sessions together
)

// events keeps what was sent on the streams of legacy sessions, so that a client
// whose connection broke can have the rest. It implements mcp.EventStore. What is
// too old or too much goes, the oldest first: a client that comes too late for it
// is told so.
type events struct {
	// streamLife is for how long a stream that holds nothing is remembered: longer
	// than any call takes, so that its next event still gets the right place.
	streamLife time.Duration

	mu       sync.Mutex
	order    *list.List // of *event, oldest first
	opened   *list.List // of *storedStream, oldest first
	bytes    int
	sessions map[string]*storedSession
}

type storedSession struct {
	streams map[string]*storedStream
	order   *list.List // of *event of this session, oldest first
	bytes   int
}

type storedStream struct {
	session, id string
	events      []*event
	first       int // index of events[0] within the stream
	opened      time.Time
	place       *list.Element
}

type event struct {
	session, stream string
	data            []byte
	at              time.Time
	global, local   *list.Element
}

func newEvents(longestCall time.Duration) *events {
	return &events{
		streamLife: longestCall + eventLife, order: list.New(), opened: list.New(), sessions: map[string]*storedSession{},
	}
}

// Open implements mcp.EventStore.
func (s *events) Open(_ context.Context, sessionID, streamID string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stream(sessionID, streamID)
	return nil
}

// stream finds or makes a stream. mu is held.
func (s *events) stream(sessionID, streamID string) *storedStream {
	sess := s.sessions[sessionID]
	if sess == nil {
		sess = &storedSession{streams: map[string]*storedStream{}, order: list.New()}
		s.sessions[sessionID] = sess
	}
	st := sess.streams[streamID]
	if st == nil {
		st = &storedStream{session: sessionID, id: streamID, opened: time.Now()}
		st.place = s.opened.PushBack(st)
		sess.streams[streamID] = st
	}
	return st
}

// Append implements mcp.EventStore.
func (s *events) Append(_ context.Context, sessionID, streamID string, data []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.expire(now)
	st, sess := s.stream(sessionID, streamID), s.sessions[sessionID]
	e := &event{session: sessionID, stream: streamID, data: data, at: now}
	e.global, e.local = s.order.PushBack(e), sess.order.PushBack(e)
	st.events = append(st.events, e)
	s.bytes += len(data)
	sess.bytes += len(data)
	for sess.order.Len() > 1 && (sess.order.Len() > sessionEvents || sess.bytes > sessionBytes) {
		s.remove(sess.order.Front().Value.(*event))
	}
	for s.order.Len() > 1 && s.bytes > storeBytes {
		s.remove(s.order.Front().Value.(*event))
	}
	return nil
}

// expire removes what is too old. mu is held.
func (s *events) expire(now time.Time) {
	for front := s.order.Front(); front != nil; front = s.order.Front() {
		e := front.Value.(*event)
		if now.Sub(e.at) < eventLife {
			break
		}
		s.remove(e)
	}
	for front := s.opened.Front(); front != nil; front = s.opened.Front() {
		st := front.Value.(*storedStream)
		if now.Sub(st.opened) < s.streamLife {
			break
		}
		if len(st.events) == 0 && st.id != "" {
			s.removeStream(st)
			continue
		}
		st.opened = now
		s.opened.MoveToBack(front)
	}
}

// remove takes away the first event of its stream. mu is held.
func (s *events) remove(e *event) {
	sess := s.sessions[e.session]
	st := sess.streams[e.stream]
	s.order.Remove(e.global)
	sess.order.Remove(e.local)
	s.bytes -= len(e.data)
	sess.bytes -= len(e.data)
	st.events = st.events[1:]
	st.first++
}

// removeStream takes away a stream and what it holds. mu is held.
func (s *events) removeStream(st *storedStream) {
	for len(st.events) > 0 {
		s.remove(st.events[0])
	}
	s.opened.Remove(st.place)
	delete(s.sessions[st.session].streams, st.id)
}

var (
	errNoStream = errors.New("unknown stream")
	errTooLate  = errors.New("the events after this one are no longer stored")
)

// After implements mcp.EventStore.
func (s *events) After(_ context.Context, sessionID, streamID string, index int) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		rest, err := s.after(sessionID, streamID, index)
		if err != nil {
			yield(nil, err)
			return
		}
		for _, data := range rest {
			if !yield(data, nil) {
				return
			}
		}
	}
}

func (s *events) after(sessionID, streamID string, index int) ([][]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire(time.Now())
	sess := s.sessions[sessionID]
	if sess == nil || sess.streams[streamID] == nil {
		return nil, errNoStream
	}
	st := sess.streams[streamID]
	from := index + 1 - st.first
	switch {
	case from < 0:
		return nil, errTooLate
	case from > len(st.events):
		return nil, errNoStream // an id that was never given
	}
	var rest [][]byte
	for _, e := range st.events[from:] {
		rest = append(rest, e.data)
	}
	return rest, nil
}

// forget drops a stream that was answered whole.
func (s *events) forget(sessionID, streamID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sess := s.sessions[sessionID]; sess != nil && streamID != "" && sess.streams[streamID] != nil {
		s.removeStream(sess.streams[streamID])
	}
}

// SessionClosed implements mcp.EventStore.
func (s *events) SessionClosed(_ context.Context, sessionID string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sess := s.sessions[sessionID]; sess != nil {
		for _, st := range sess.streams {
			s.removeStream(st)
		}
		delete(s.sessions, sessionID)
	}
	return nil
}
