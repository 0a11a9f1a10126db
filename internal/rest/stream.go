package rest

import (
	"context"
	"errors"
	"net/http"
	"time"

	"mneme/internal/agent"
)

// A stream shows one run to one client (spec/rest.md section 5). Events come from
// a source, the renderer makes chunks of them, sse writes them:
//
//   - A run that is not logged is followed live. Its events wait in an outbox of
//     bounded size; a client that lets it fill up gets an error event, the run goes
//     on.
//   - A logged run is read from its log and followed from there. A client that is
//     slow, or comes back, reads the log again.
//
// The end of the server ends a logged stream without a terminal event, so that its
// client comes back for the rest; other streams get an error event.
type stream struct {
	d    *Door
	r    *http.Request
	out  *sse
	rend *renderer
	src  source
	// pings are wanted while nothing happens; comments go out always.
	pings bool
	// skip is the number of the last chunk that the client has already.
	skip int
	// early lets errors that come before the first chunk be ordinary HTTP answers.
	early bool
	sent  int // chunks so far
}

// serve writes the stream until its end. What it returns is an answer to be
// written, since nothing was yet.
func (s *stream) serve() error {
	defer s.out.close()
	tick := time.NewTicker(pingEvery / 2)
	defer tick.Stop()
	ticks := 0
	for {
		select {
		case <-s.src.ready():
			before := s.sent
			done, err := s.advance()
			if done || err != nil {
				return err
			}
			if s.sent != before {
				ticks = 0
				tick.Reset(pingEvery / 2)
			}
		case <-tick.C:
			ticks++
			if time.Duration(ticks)*pingEvery/2 >= silence {
				return s.fail("Nothing happened for 30 minutes; the run goes on")
			}
			if err := s.src.look(s.r.Context()); agent.CodeOf(err) == agent.CodeNotFound {
				return s.fail("The run was deleted")
			} else if err != nil {
				s.d.log.Warn("run not looked at", "run", s.rend.run, "err", err)
			}
			if s.beat(ticks) != nil {
				return nil // the client is gone
			}
		case <-s.r.Context().Done():
			return nil
		case <-s.d.life.Done():
			return s.fail("The server is stopping; the run goes on when it is back")
		}
	}
}

// advance writes what has come. done says that the stream has ended.
func (s *stream) advance() (done bool, err error) {
	events, err := s.src.take(s.r.Context())
	if errors.Is(err, errSlow) {
		return true, s.fail("The client reads too slowly; the run goes on")
	}
	if err != nil {
		return true, s.broken(err)
	}
	for _, ev := range events {
		chunks := s.rend.event(ev)
		if e := s.rend.ended; e != nil && e.err != nil && s.early && s.quiet() && len(chunks) == 2 {
			return true, e.err
		}
		for _, c := range chunks {
			if s.rend.logged && numberOf(c) <= s.skip {
				continue
			}
			s.sent++
			if s.out.add(c) != nil {
				return true, nil
			}
		}
	}
	if s.rend.ended != nil {
		if err := s.ahead(); err != nil {
			return true, err
		}
		_ = s.out.done() // whoever is gone does not miss it
		return true, nil
	}
	if !s.src.current() || s.early && s.quiet() {
		return false, nil
	}
	if err := s.ahead(); err != nil {
		return true, err
	}
	return s.out.flush() != nil, nil
}

// quiet says that nothing was given to the client yet.
func (s *stream) quiet() bool { return !s.out.begun && s.out.buf.Len() == 0 }

// ahead refuses a position that the stream does not have.
func (s *stream) ahead() error {
	if s.skip <= s.rend.last {
		return nil
	}
	return &httpError{Status: http.StatusBadRequest, Final: true, Body: positionError{
		Detail: "POSITION_AHEAD: The stream of this run has no event " + itoa(s.skip) + " yet",
		Latest: &s.rend.last,
	}}
}

// A positionError refuses a position of a stream.
type positionError struct {
	Detail string `json:"detail"`
	Latest *int   `json:"latest,omitempty"`
}

// An expiredError refuses a position that is no longer kept.
type expiredError struct {
	Detail string `json:"detail"`
	Oldest *int   `json:"oldest"`
}

// beat shows that the stream lives: by a comment, every other time by a ping.
func (s *stream) beat(n int) error {
	if n%2 == 0 && s.pings {
		if err := s.out.add(s.rend.keepAlive(time.Now())); err != nil {
			return err
		}
		return s.out.flush()
	}
	return s.out.comment()
}

// fail ends a stream before the end of its run.
func (s *stream) fail(why string) error {
	if s.quiet() {
		return agent.Errorf(agent.CodeShutdown, "%s", why)
	}
	if s.rend.logged {
		_ = s.out.flush() // without an end: the client resumes
		return nil
	}
	return s.abort(&errorChunk{Type: typeError, RunID: s.rend.run, ErrorType: "stream_incomplete", Message: why, Detail: &why})
}

// broken ends a stream that cannot be read.
func (s *stream) broken(err error) error {
	if s.quiet() || gone(s.r, err) {
		return err
	}
	s.d.log.Error("stream broken", "run", s.rend.run, "err", err)
	if s.rend.logged {
		_ = s.out.flush()
		return nil
	}
	return s.abort(&errorChunk{Type: typeError, RunID: s.rend.run, ErrorType: "internal_error", Message: textUnknown})
}

func (s *stream) abort(c *errorChunk) error {
	if s.out.add(c) == nil {
		_ = s.out.done()
	}
	return nil
}

// streamLive shows a run that is not logged from its beginning. src was made before
// the run was.
func (d *Door) streamLive(w http.ResponseWriter, r *http.Request, v view, src *liveSource) error {
	s := &stream{d: d, r: r, out: newSSE(w, false), rend: newRenderer(v, src.run, false), src: src, pings: v.Pings, early: !v.Pings}
	if v.Pings {
		if s.out.add(s.rend.ping(time.Now())) != nil || s.out.flush() != nil {
			return nil
		}
	}
	return s.serve()
}

// streamLog shows a logged run from behind the chunk number after. The view is that
// of the send that made the run, since it numbers the chunks.
func (d *Door) streamLog(w http.ResponseWriter, r *http.Request, run *agent.Run, after int, pings bool) error {
	src := d.follow(agent.Scope{AgentID: run.AgentID, ConversationID: run.ConversationID}, run.ID)
	defer src.close()
	v := requestOf(run).View
	s := &stream{d: d, r: r, out: newSSE(w, true), rend: newRenderer(v, run.ID, true), src: src, pings: pings, skip: after}
	if v.Pings {
		ping := s.rend.ping(run.CreatedAt)
		if after < 1 && s.out.add(ping) != nil {
			return nil
		}
	}
	return s.serve()
}

// joinLive shows a run that has begun and is not logged: what is stored of it as
// whole variants, then what follows.
func (d *Door) joinLive(w http.ResponseWriter, r *http.Request, v view, run *agent.Run) error {
	src := d.watch(agent.Scope{AgentID: run.AgentID, ConversationID: run.ConversationID}, run.ID, v.Tokens)
	defer src.close()
	run, told, err := d.history(r.Context(), run.ID)
	if err != nil {
		return err
	}
	s := &stream{d: d, r: r, out: newSSE(w, false), rend: newRenderer(v, run.ID, false), src: src, pings: v.Pings}
	if v.Pings {
		_ = s.out.add(s.rend.ping(time.Now()))
	}
	s.rend.joinLate(nil)
	shown := map[string]bool{}
	for _, ev := range told {
		for _, c := range s.rend.event(ev) {
			if s.out.add(c) != nil {
				return nil
			}
		}
		switch p := ev.Payload.(type) {
		case agent.AnswerStored:
			shown[p.Message.ID] = true
		case agent.CallReturned:
			shown[p.Call.StepID] = true
		}
	}
	if s.rend.ended != nil {
		_ = s.out.done()
		return nil
	}
	for _, c := range s.rend.settle() {
		_ = s.out.add(c)
	}
	s.rend.joinLate(shown)
	if s.out.flush() != nil {
		return nil
	}
	return s.serve()
}

// history reads a run as it is now and its events as they are stored.
func (d *Door) history(ctx context.Context, runID string) (*agent.Run, []*agent.Event, error) {
	run, err := d.store.Run(ctx, runID)
	if err != nil {
		return nil, nil, err
	}
	told, err := d.retell(ctx, run)
	return run, told, err
}
