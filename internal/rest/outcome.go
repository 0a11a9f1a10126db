package rest

import (
	"cmp"
	"strconv"

	"mneme/internal/agent"
)

// outcome is how a run ended in this door's words: the stop reason, and the
// failure if it is one (spec/rest.md sections 3 and 5.5).
func outcome(stop agent.StopReason, e *agent.Error) (reason string, failure *agent.Error) {
	switch stop {
	case agent.StopError, agent.StopModelError, agent.StopInvalidResponse, agent.StopOverflow:
	default:
		return string(stop), nil
	}
	if e == nil {
		e = agent.Errorf(agent.CodeInternal, textUnknown)
	}
	switch e.Code {
	case agent.CodeModelOverflow:
		return string(agent.StopOverflow), e
	case agent.CodeModel, agent.CodeModelRateLimit, agent.CodeModelConfig:
		if stop == agent.StopError {
			stop = agent.StopModelError
		}
	}
	return string(stop), e
}

// errorOf is the failure of a run as its stream, its metadata and its steps show
// it (spec/rest.md section 5.5).
func errorOf(runID string, e *agent.Error) *errorChunk {
	c := &errorChunk{Type: typeError, RunID: runID, ErrorType: "internal_error", Message: e.Message}
	if detail := cmp.Or(e.Detail, e.Message); detail != "" {
		c.Detail = &detail
	}
	switch e.Code {
	case agent.CodeModelOverflow:
		c.ErrorType = string(agent.StopOverflow)
	case agent.CodeModel, agent.CodeModelRateLimit, agent.CodeModelConfig, agent.CodeModelLength:
		kind, said := modelErrorType(e)
		switch kind {
		case "llm_timeout", "llm_rate_limit", "llm_authentication":
			c.ErrorType = kind
		default:
			// Streams know no other kinds; the message says more.
			c.ErrorType = "llm_error"
		}
		c.Message = said
		if c.ErrorType == "llm_error" {
			c.Message = e.Message
		}
	}
	return c
}

func itoa(n int) string { return strconv.Itoa(n) }
