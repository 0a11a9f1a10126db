package appserver

import (
	"encoding/json"
	"net/http"

	"mneme/internal/agent"
	"mneme/protocol"
)

func (r *renderer) stepFailed(ev *agent.Event, p agent.StepFailed) ([]*frame, error) {
	loop := &protocol.LoopErrorDelta{
		DeltaHead: r.lifeHead(ev), Message: p.Error.Message, StopReason: protocol.StopLLMAPIError,
		APIError: apiError(ev, p.Error),
	}
	if loop.APIError.ErrorType != "llm_error" {
		loop.StopReason = protocol.StopError
	}
	frames, err := r.one(ev, &protocol.StreamDelta{Delta: loop})
	if err != nil {
		return nil, err
	}
	e := &protocol.ErrorDelta{
		DeltaHead: r.streamHead(ev, r.id("error", ev)),
		Message:   p.Error.Message, Detail: detail(p.Error), ErrorType: errorType(p.Error), Retryable: p.Error.Retryable,
	}
	second, err := r.one(ev, &protocol.StreamDelta{Delta: e})
	if err != nil {
		return nil, err
	}
	stop, err := r.stopReason(ev, p.StopReason)
	r.failed = p.Error
	return append(append(frames, second...), stop...), err
}

// turnFinished renders the end of a turn: a failure is told once more, after
// it, as the reference does.
func (r *renderer) turnFinished(ev *agent.Event, p agent.TurnFinished) ([]*frame, error) {
	end := &protocol.TurnFinished{TurnID: ev.TurnID, StopReason: protocol.StopReasonValue(p.StopReason), RunID: ev.StepID}
	if e := p.Ephemeral; e != nil {
		end.WritesBlocked = &e.WritesBlocked
		if e.MemoryCommit != "" {
			end.MemoryCommit = &e.MemoryCommit
		}
	}
	if p.Error != nil {
		end.Error = p.Error.Message
	}
	if p.WithUsage {
		u := usageOf(p.Usage)
		end.Usage = &u
	}
	frames, err := r.one(ev, end)
	if err != nil {
		return nil, err
	}
	if p.Error != nil {
		d := &protocol.LoopErrorDelta{
			DeltaHead: r.lifeHead(ev), Message: p.Error.Message,
			StopReason: protocol.StopReasonValue(p.StopReason), IsTerminal: true,
		}
		if r.failed != nil {
			d.APIError = apiError(ev, r.failed)
		}
		more, err := r.one(ev, &protocol.StreamDelta{Delta: d})
		if err != nil {
			return nil, err
		}
		frames = append(frames, more...)
	}
	if r.dequeued {
		more, err := r.snapshot(ev, snapQueue, queueUpdate(r.queue, nil))
		if err != nil {
			return nil, err
		}
		frames = append(frames, more...)
	}
	r.failed, r.dequeued = nil, false
	return frames, nil
}

// retry renders that the model is asked again. A step of which something was
// shown is void, and another is asked in its place.
func (r *renderer) retry(ev *agent.Event, p agent.Retrying) ([]*frame, error) {
	return r.one(ev, &protocol.StreamDelta{Delta: r.retryDelta(ev, p)})
}

func (r *renderer) retryDelta(ev *agent.Event, p agent.Retrying) protocol.Delta {
	if len(p.Voided) == 0 && p.Reason != "restart" {
		data, err := json.Marshal(map[string]any{
			"attempt": p.Attempt, "max_attempts": p.Max, "delay_ms": p.Delay.Milliseconds(), "message": p.Message,
		})
		if err != nil {
			data = nil // numbers and a string always encode
		}
		return &protocol.EventDelta{DeltaHead: r.streamHead(ev, r.id("event", ev)), Kind: "retry", Data: data}
	}
	head := r.lifeHead(ev)
	if r.step != "" {
		head.RunID = r.step // the step whose text is void; the event is of the next
	}
	return &protocol.RetryDelta{
		DeltaHead: head, Message: p.Message, Reason: p.Reason, StepID: ev.StepID,
		Attempt: p.Attempt, MaxAttempts: p.Max, DelayMS: p.Delay.Milliseconds(),
	}
}

// errorType is what clients call the kind of a model error: a request that the
// provider does not take, apart from credentials and limits, is an error of the
// setup here.
func errorType(e *agent.Error) string {
	switch e.Status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusRequestTimeout, http.StatusTooManyRequests:
	default:
		if e.Status >= 400 && e.Status < 500 {
			return "local_backend_error"
		}
	}
	return "llm_error"
}

func apiError(ev *agent.Event, e *agent.Error) *protocol.APIError {
	return &protocol.APIError{
		MessageType: "error_message", Message: e.Message, ErrorType: errorType(e), RunID: ev.StepID, Detail: detail(e),
	}
}

func detail(e *agent.Error) string {
	if e.Detail != "" {
		return e.Detail
	}
	return e.Message
}
