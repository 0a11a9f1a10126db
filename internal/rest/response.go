package rest

import (
	"context"
	"net/http"
	"time"

	"mneme/internal/agent"
	"mneme/internal/runtime"
)

// A lettaResponse is the answer to a send that does not stream.
type lettaResponse struct {
	Messages []variant   `json:"messages"`
	Stop     stopChunk   `json:"stop_reason"`
	Usage    *usageChunk `json:"usage"`
	Logprobs *none       `json:"logprobs"`         // providers do not give them here
	Turns    []none      `json:"turns" null:"yes"` // likewise; always null
}

// collect gathers the answer of a run that has just begun.
func (s *sending) collect(ctx context.Context, w http.ResponseWriter, src *liveSource) error {
	rend := newRenderer(s.view, s.run, false)
	resp := lettaResponse{Messages: []variant{}}
	tick := time.NewTicker(pingEvery)
	defer tick.Stop()
	for {
		select {
		case <-src.ready():
		case <-tick.C:
			if err := src.look(ctx); err != nil {
				return err
			}
			continue
		case <-ctx.Done():
			return s.left(ctx)
		}
		events, err := src.take(ctx)
		if err != nil {
			return err
		}
		for _, ev := range events {
			for _, c := range rend.event(ev) {
				if v, ok := c.(variant); ok {
					resp.Messages = append(resp.Messages, v)
				}
			}
		}
		if rend.ended != nil {
			return resp.finish(w, rend.ended)
		}
	}
}

// left ends a send whose client is gone, or whose server goes down: the run goes on.
func (s *sending) left(ctx context.Context) error {
	err := context.Cause(ctx)
	if asDomain(err) == nil {
		return nil // nobody reads an answer
	}
	// Whoever gave an otid finds the run again; others would begin another one.
	return &httpError{Status: http.StatusServiceUnavailable, Final: s.body.parsed.key == "", RetryAfter: 1,
		Body: detail{"The server is stopping; the run goes on when it is back"}}
}

// finish writes the answer of a run that has ended, or its failure.
func (resp *lettaResponse) finish(w http.ResponseWriter, e *ending) error {
	if e.err != nil {
		return e.err
	}
	resp.Stop = stopChunk{Type: typeStop, Reason: e.stop}
	resp.Usage = e.usage
	return reply(w, resp)
}

// answerStored waits for the end of a run and answers from what is stored.
func (d *Door) answerStored(ctx context.Context, w http.ResponseWriter, r *http.Request, v view, runID string) error {
	run, err := d.awaitEnd(ctx, runID)
	if err != nil {
		if r.Context().Err() != nil {
			return nil
		}
		return err
	}
	resp, e, err := d.response(ctx, v, run)
	if err != nil {
		return err
	}
	return resp.finish(w, e)
}

// response makes the answer of a run that has ended from what is stored of it.
func (d *Door) response(ctx context.Context, v view, run *agent.Run) (*lettaResponse, *ending, error) {
	events, err := d.retell(ctx, run)
	if err != nil {
		return nil, nil, err
	}
	v.Tokens = false
	rend := newRenderer(v, run.ID, false)
	resp := &lettaResponse{Messages: []variant{}}
	for _, ev := range events {
		for _, c := range rend.event(ev) {
			if x, ok := c.(variant); ok {
				resp.Messages = append(resp.Messages, x)
			}
		}
	}
	return resp, rend.ended, nil
}

// awaitEnd waits until a run has ended and its end was published.
func (d *Door) awaitEnd(ctx context.Context, runID string) (*agent.Run, error) {
	run, err := d.store.Run(ctx, runID)
	if err != nil {
		return nil, err
	}
	box := newOutbox(runID, false, false)
	leave := d.rt.Subscribe(agent.Scope{AgentID: run.AgentID, ConversationID: run.ConversationID}, box.put)
	defer leave()
	// Some ends are not published, such as that of an input that left the queue.
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		if run, err = d.store.Run(ctx, runID); err != nil || run.Ended {
			return run, err
		}
		select {
		case <-box.signal:
			box.take()
		case <-tick.C:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// again answers a send whose key is known: with the run that it began the first
// time (spec/rest.md section 6.4).
func (s *sending) again(ctx context.Context, w http.ResponseWriter, r *http.Request, receipt runtime.Receipt) error {
	run, err := s.original(ctx, receipt)
	if err != nil {
		return err
	}
	switch {
	case s.async:
		return s.replyRun(w, r, run.ID, false)
	case !s.streaming:
		return s.d.answerStored(ctx, w, r, s.view, run.ID)
	case run.Spec.Background && !s.d.expired(ctx, run):
		return s.d.streamLog(w, r, run, 0, s.view.Pings)
	}
	return s.d.joinLive(w, r, s.view, run)
}

// original finds the run of an earlier send. One that another door queued has none
// before it begins.
func (s *sending) original(ctx context.Context, receipt runtime.Receipt) (*agent.Run, error) {
	for {
		if receipt.RunID != "" {
			run, err := s.d.store.Run(ctx, receipt.RunID)
			if agent.CodeOf(err) != agent.CodeNotFound {
				return run, err
			}
		}
		run, err := s.d.store.RunByOTID(ctx, s.scope.ConversationID, s.body.parsed.key)
		if err != nil || run != nil {
			return run, err
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// replyRun answers with a run. One that was just made shows as created, even if it
// has begun meanwhile.
func (s *sending) replyRun(w http.ResponseWriter, r *http.Request, id string, made bool) error {
	run, err := s.d.store.Run(r.Context(), id)
	if err != nil {
		return err
	}
	st, err := s.d.runState(r.Context(), run)
	if err != nil {
		return err
	}
	if made {
		st.Status, st.StopReason, st.CompletedAt, st.Metadata.Result = string(agent.RunCreated), nil, stamp{}, nil
	}
	return reply(w, st)
}
