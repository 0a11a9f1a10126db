package mcpserver

import (
	"context"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// sessions are those of the legacy era (spec/mcp.md section 1.2). The SDK keeps
// what belongs to the protocol; here is whose they are and when they end: by
// DELETE, when idle for too long, when there are too many, and with the server.
type sessions struct {
	ttl  time.Duration
	most int
	// ended is called once a session is over.
	ended func(*session)
	life  context.Context
	work  *counter

	mu    sync.Mutex
	byID  map[string]*session
	fresh int // being initialised
}

// A session is one client of the legacy era.
type session struct {
	principal string
	life      context.Context // ends with the session
	stop      context.CancelCauseFunc

	// Guarded by the sessions' mu:
	id        string // "" = not initialised yet
	version   string // negotiated
	ss        *mcp.ServerSession
	busy      int // requests under way
	streams   int // GET streams open
	used      time.Time
	cancelled map[string]bool // ids of requests that the client has cancelled
}

type sessionKey struct{}

// sessionOf is the session that a request belongs to; nil outside of one.
func sessionOf(ctx context.Context) *session {
	s, _ := ctx.Value(sessionKey{}).(*session)
	return s
}

// open makes room for a session that is about to be initialised; nil = there is
// none. The caller must settle it.
func (s *sessions) open(principal string) *session {
	s.mu.Lock()
	var gone *session
	if len(s.byID)+s.fresh >= s.most {
		if gone = s.oldest(); gone == nil {
			s.mu.Unlock()
			return nil
		}
		delete(s.byID, gone.id)
	}
	s.fresh++
	s.mu.Unlock()
	if gone != nil {
		s.close(gone)
	}
	sess := &session{principal: principal, used: time.Now(), cancelled: map[string]bool{}}
	sess.life, sess.stop = context.WithCancelCause(context.Background())
	return sess
}

// oldest is the session that was idle for longest; one that only listens goes
// after those that do not even do that. nil = all are busy. mu is held.
func (s *sessions) oldest() *session {
	var best *session
	for _, o := range s.byID {
		if o.busy > 0 {
			continue
		}
		if best == nil || (o.streams == 0) != (best.streams == 0) && o.streams == 0 ||
			(o.streams == 0) == (best.streams == 0) && o.used.Before(best.used) {
			best = o
		}
	}
	return best
}

// begun is called when a session was initialised, before its client knows.
func (s *sessions) begun(ctx context.Context, ss *mcp.ServerSession, version string) {
	sess := sessionOf(ctx)
	if sess == nil || ss.ID() == "" {
		return // stateless, or stdio
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	sess.id, sess.ss, sess.version = ss.ID(), ss, version
	s.byID[sess.id] = sess
}

// settle ends the making of a session, whatever came of it.
func (s *sessions) settle(sess *session) {
	s.mu.Lock()
	s.fresh--
	sess.used = time.Now()
	failed := sess.id == ""
	s.mu.Unlock()
	if failed {
		sess.stop(errSessionEnded)
	}
}

// enter finds a session for a request of a caller and keeps it from expiring
// until leave; nil = there is none, or it is another caller's.
func (s *sessions) enter(id, principal string, stream bool) *session {
	s.mu.Lock()
	sess := s.byID[id]
	if sess == nil || sess.principal != principal {
		s.mu.Unlock()
		return nil
	}
	if s.expired(sess, time.Now()) {
		delete(s.byID, id)
		s.mu.Unlock()
		s.close(sess)
		return nil
	}
	if stream {
		sess.streams++
	} else {
		sess.busy++
	}
	s.mu.Unlock()
	return sess
}

func (s *sessions) leave(sess *session, stream bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if stream {
		sess.streams--
	} else {
		sess.busy--
	}
	sess.used = time.Now()
}

func (s *sessions) expired(sess *session, now time.Time) bool {
	return sess.busy == 0 && sess.streams == 0 && now.Sub(sess.used) >= s.ttl
}

// version is what a session has negotiated.
func (s *sessions) versionOf(sess *session) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return sess.version
}

// cancel notes that the client no longer wants the answer to a request.
func (s *sessions) cancel(sess *session, requestID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(sess.cancelled) < 1000 {
		sess.cancelled[requestID] = true
	}
}

// wanted says whether the client still wants the answer to a request.
func (s *sessions) wanted(sess *session, requestID string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !sess.cancelled[requestID]
}

// answered forgets a cancellation.
func (s *sessions) answered(sess *session, requestID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(sess.cancelled, requestID)
}

// remove ends a session of a caller; false if there is none.
func (s *sessions) remove(id, principal string) bool {
	s.mu.Lock()
	sess := s.byID[id]
	if sess == nil || sess.principal != principal {
		s.mu.Unlock()
		return false
	}
	delete(s.byID, id)
	s.mu.Unlock()
	s.close(sess)
	return true
}

// close ends what a session does and lets the SDK close it, which waits for its
// requests. It was taken out of the table before.
func (s *sessions) close(sess *session) {
	sess.stop(errSessionEnded)
	s.work.run(func() {
		sess.ss.Close() //nolint:errcheck // nobody is left to tell
		s.ended(sess)
	})
}

func (s *sessions) closeAll() {
	s.mu.Lock()
	all := s.byID
	s.byID = map[string]*session{}
	s.mu.Unlock()
	for _, sess := range all {
		s.close(sess)
	}
}

// watch ends idle sessions until the server's life ends.
func (s *sessions) watch() {
	tick := time.NewTicker(max(min(s.ttl/4, time.Minute), time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-s.life.Done():
			return
		}
		var idle []*session
		s.mu.Lock()
		for id, sess := range s.byID {
			if s.expired(sess, time.Now()) {
				delete(s.byID, id)
				idle = append(idle, sess)
			}
		}
		s.mu.Unlock()
		for _, sess := range idle {
			s.close(sess)
		}
	}
}

// size is how many sessions there are.
func (s *sessions) size() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.byID)
}
