package rest

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"mneme/internal/agent"
)

// A detail is the usual body of an error.
type detail struct {
	Detail string `json:"detail"`
}

// A validation is the body of a 422. Detail is a text, not a list.
type validation struct {
	Detail   string   `json:"detail"`
	TraceID  string   `json:"trace_id"`
	Examples []string `json:"examples,omitempty"`
}

// A modelError is the body of a failure of the model's provider.
type modelError struct {
	Error modelFailure `json:"error"`
}

type modelFailure struct {
	Type    string  `json:"type"`
	Message string  `json:"message"`
	Detail  *string `json:"detail"`
}

// A busy is the body of a 409 that names the run in the way.
type busy struct {
	Detail string  `json:"detail"`
	RunID  *string `json:"run_id,omitempty"`
}

// An httpError is an answer that is fixed already: status and JSON body.
type httpError struct {
	Status int
	Body   any
	// Final tells clients not to try again (x-should-retry: false).
	Final bool
	// RetryAfter is the number of seconds after which trying again may help;
	// 0 = nothing is said.
	RetryAfter int
}

func (e *httpError) Error() string { return fmt.Sprintf("status %d: %+v", e.Status, e.Body) }

// badRequest is a 400 for an argument that our own logic refuses.
func badRequest(format string, args ...any) error {
	return &httpError{Status: http.StatusBadRequest, Body: detail{"INVALID_ARGUMENT: " + fmt.Sprintf(format, args...)}, Final: true}
}

// unprocessable is a 422 that names where in the request the fault is:
// body.messages.0.role, query.limit, path.agent_id.
func unprocessable(where, format string, args ...any) error {
	text := fmt.Sprintf(format, args...)
	if where != "" {
		text = where + ": " + text
	}
	return &httpError{Status: http.StatusUnprocessableEntity, Body: validation{Detail: text}}
}

// notFound is a 404 that says what was not found.
func notFound(format string, args ...any) error {
	return &httpError{Status: http.StatusNotFound, Body: detail{fmt.Sprintf(format, args...)}}
}

// conflict is a 409 that trying again does not heal.
func conflict(format string, args ...any) error {
	return &httpError{Status: http.StatusConflict, Body: detail{"CONFLICT: " + fmt.Sprintf(format, args...)}, Final: true}
}

// busyConflict is the 409 of a conversation that is at work (spec/rest.md
// section 2.6); runID may be empty.
func busyConflict(runID string) error {
	b := busy{Detail: "CONFLICT: Cannot send a new message: Another request is currently being processed for this conversation. Please wait for it to complete."}
	if runID != "" {
		b.Detail = "CONFLICT: Cannot send a new message: Another request (run_id=" + runID +
			") is currently being processed for this conversation. Please wait for it to complete."
		b.RunID = &runID
	}
	return &httpError{Status: http.StatusConflict, Body: b, Final: true}
}

// The texts that clients look for (spec/rest.md section 2.6).
const (
	textParked     = "CONFLICT: Cannot send a new message: The agent is waiting for approval on a tool call. Please approve or deny the pending request before continuing."
	textNotPending = "Cannot process approval response: No tool call is currently awaiting approval. Please send a regular message to interact with the agent."
	textUnknown    = "An unknown error occurred"
)

// writeError writes the answer to a request that failed. It is the only place
// that maps errors to statuses.
func (d *Door) writeError(w http.ResponseWriter, r *http.Request, err error) {
	if gone(r, err) {
		return
	}
	e := asHTTP(err)
	if e.Status == http.StatusInternalServerError {
		d.log.Error("request failed", "method", r.Method, "path", r.URL.Path, "request", w.Header().Get("X-Request-Id"), "err", err)
	}
	if e.Final {
		w.Header().Set("x-should-retry", "false")
	}
	if e.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(e.RetryAfter))
	}
	if err := writeJSON(w, e.Status, e.Body); err != nil {
		d.log.Debug("answer not written", "err", err)
	}
}

// asHTTP finds status and body of an error.
func asHTTP(err error) *httpError {
	var h *httpError
	if errors.As(err, &h) {
		return h
	}
	var e *agent.Error
	if !errors.As(err, &e) {
		return &httpError{Status: http.StatusInternalServerError, Body: detail{textUnknown}}
	}
	plain := func(status int, text string) *httpError {
		h := &httpError{Status: status, Body: detail{text}, Final: !e.Retryable}
		if e.Retryable {
			h.RetryAfter = 1
		}
		return h
	}
	switch e.Code {
	case agent.CodeInvalid:
		return plain(http.StatusBadRequest, "INVALID_ARGUMENT: "+e.Message)
	case agent.CodeNotFound:
		return &httpError{Status: http.StatusNotFound, Body: detail{e.Message}}
	case agent.CodeBusy:
		return busyConflict(e.Ref).(*httpError)
	case agent.CodeParked:
		return plain(http.StatusConflict, textParked)
	case agent.CodeNotPending:
		return plain(http.StatusBadRequest, textNotPending)
	case agent.CodeConflict, agent.CodeQueueFull:
		return plain(http.StatusConflict, "CONFLICT: "+e.Message)
	case agent.CodeMemoryConflict:
		return plain(http.StatusConflict, "CONFLICT: memory_conflict: "+e.Message)
	case agent.CodeUnauthorized:
		return &httpError{Status: http.StatusUnauthorized, Body: detail{"Unauthorized"}}
	case agent.CodeTooLarge:
		return plain(http.StatusRequestEntityTooLarge, e.Message)
	case agent.CodeNotBuilt:
		return plain(http.StatusNotImplemented, e.Message)
	case agent.CodeLeaseLost, agent.CodeShutdown:
		return &httpError{Status: http.StatusServiceUnavailable, Body: detail{e.Message}, RetryAfter: 1}
	case agent.CodeModelOverflow:
		return plain(http.StatusBadRequest, "CONTEXT_WINDOW_EXCEEDED: "+e.Message)
	case agent.CodeModel, agent.CodeModelConfig, agent.CodeModelRateLimit, agent.CodeModelLength:
		return modelHTTP(e)
	}
	return &httpError{Status: http.StatusInternalServerError, Body: detail{textUnknown}}
}

// modelHTTP is the answer to a failure of the model's provider.
func modelHTTP(e *agent.Error) *httpError {
	kind, text := modelErrorType(e)
	status := map[string]int{
		"llm_bad_request": http.StatusBadRequest, "llm_authentication": http.StatusUnauthorized,
		"llm_insufficient_credits": http.StatusPaymentRequired, "llm_rate_limit": http.StatusTooManyRequests,
		"llm_timeout": http.StatusGatewayTimeout, "llm_overloaded": http.StatusServiceUnavailable,
	}[kind]
	f := modelFailure{Type: kind, Message: text, Detail: new(cmp.Or(e.Detail, e.Message))}
	return &httpError{
		Status: cmp.Or(status, http.StatusInternalServerError), Body: modelError{f},
		Final: kind == "llm_bad_request" || kind == "llm_authentication" || kind == "llm_insufficient_credits",
	}
}

// modelErrorType names a failure of the provider, and says it in one sentence
// (spec/rest.md sections 2.6 and 5.5).
func modelErrorType(e *agent.Error) (kind, message string) {
	switch {
	case e.Code == agent.CodeModelRateLimit || e.Status == http.StatusTooManyRequests:
		return "llm_rate_limit", "Rate limit exceeded for LLM model provider. Please wait before making another request."
	case e.Status == http.StatusUnauthorized || e.Status == http.StatusForbidden:
		return "llm_authentication", "Authentication failed with the LLM model provider."
	case e.Status == http.StatusPaymentRequired:
		return "llm_insufficient_credits", "The LLM model provider reports insufficient credits."
	case e.Status == http.StatusRequestTimeout || e.Status == http.StatusGatewayTimeout:
		return "llm_timeout", "The LLM model provider did not answer in time."
	case e.Status == http.StatusServiceUnavailable || e.Status == 529:
		return "llm_overloaded", "The LLM model provider is overloaded. Please try again later."
	case e.Status >= 400 && e.Status < 500 || e.Code == agent.CodeModelConfig:
		return "llm_bad_request", e.Message
	}
	return "llm_error", "An error occurred with the LLM request."
}
