package mcpserver

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"mneme/internal/agent"
)

// A Code is error.code of a tool's answer (spec/mcp.md section 4).
type Code string

// The codes.
const (
	CodeInvalidRequest   Code = "invalid_request"
	CodeConfirmation     Code = "confirmation_required"
	CodeAgentNotFound    Code = "agent_not_found"
	CodeAgentAmbiguous   Code = "agent_ambiguous"
	CodeItemNotFound     Code = "memory_item_not_found"
	CodeItemAmbiguous    Code = "memory_item_ambiguous"
	CodeReadOnly         Code = "memory_read_only"
	CodeMemoryConflict   Code = "memory_conflict"
	CodeStorageLocked    Code = "storage_locked"
	CodeApprovalRequired Code = "approval_required"
	CodeModelError       Code = "model_error"
	CodeTurnTimeout      Code = "turn_timeout"
	CodeTimeout          Code = "bridge_timeout"
	CodeNotConfigured    Code = "not_configured"
	CodeUnreachable      Code = "bridge_unreachable"
	CodeUnauthorized     Code = "bridge_unauthorized"
	CodeRefused          Code = "bridge_error"
	CodeCancelled        Code = "cancelled"
	CodeInternal         Code = "internal_error"
)

// codes lists all of them, for the output schemas.
var codes = []Code{
	CodeInvalidRequest, CodeConfirmation, CodeAgentNotFound, CodeAgentAmbiguous, CodeItemNotFound, CodeItemAmbiguous,
	CodeReadOnly, CodeMemoryConflict, CodeStorageLocked, CodeApprovalRequired, CodeModelError, CodeTurnTimeout,
	CodeTimeout, CodeNotConfigured, CodeUnreachable, CodeUnauthorized, CodeRefused, CodeCancelled, CodeInternal,
}

// An Error is a tool's answer that says what went wrong, in a sentence for the
// model.
type Error struct {
	Code    Code
	Message string
	// Candidates are the agents that a reference fits, as "name (id)".
	Candidates []string
	// Err is what happened, for the log; it is never shown.
	Err error
}

func (e *Error) Error() string { return e.Message }

// Unwrap gives what happened.
func (e *Error) Unwrap() error { return e.Err }

func fault(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

func invalid(format string, args ...any) *Error { return fault(CodeInvalidRequest, format, args...) }

// errTurnTimeout and errCancelled are causes with which the context of a call ends.
var (
	errTurnTimeout    = errors.New("the turn took too long")
	errRequestTimeout = errors.New("the App Server took too long")
	errClientGone     = errors.New("the client has cancelled the call")
	errSessionEnded   = errors.New("the session has ended")
	errStopping       = errors.New("the server is stopping")
)

// explain turns what went wrong in a call into a tool's answer. noun is what a
// CodeNotFound of the backend is about.
func explain(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	switch {
	case errors.Is(err, errTurnTimeout):
		return &Error{Code: CodeTurnTimeout, Message: "The turn did not end in time and was aborted.", Err: err}
	case errors.Is(err, errRequestTimeout), errors.Is(err, context.DeadlineExceeded):
		return &Error{Code: CodeTimeout, Message: "The App Server did not answer in time; what was asked may have been done.", Err: err}
	case errors.Is(err, errClientGone), errors.Is(err, errSessionEnded), errors.Is(err, context.Canceled):
		return &Error{Code: CodeCancelled, Message: "The call was cancelled.", Err: err}
	case errors.Is(err, errStopping):
		return &Error{Code: CodeCancelled, Message: "The server is stopping.", Err: err}
	}
	var known *agent.Error
	if !errors.As(err, &known) {
		return &Error{Code: CodeInternal, Message: "Something went wrong in the server.", Err: err}
	}
	return &Error{Code: codeOf(known.Code), Message: line(known.Message), Err: err}
}

// codeOf maps the codes of the domain.
func codeOf(c agent.Code) Code {
	switch c {
	case agent.CodeInvalid, agent.CodeTooLarge, agent.CodeConflict:
		return CodeInvalidRequest
	case agent.CodeMemoryConflict:
		return CodeMemoryConflict
	case agent.CodeReadOnly:
		return CodeReadOnly
	case agent.CodeModel, agent.CodeModelConfig, agent.CodeModelRateLimit, agent.CodeModelOverflow, agent.CodeModelLength:
		return CodeModelError
	case agent.CodeNotFound, agent.CodeAmbiguous, agent.CodeBusy, agent.CodeParked, agent.CodeQueueFull,
		agent.CodeNotPending, agent.CodeNotBuilt, agent.CodeLeaseLost, agent.CodeShutdown:
		return CodeRefused
	case agent.CodeUnauthorized:
		return CodeUnauthorized
	}
	return CodeInternal
}

// agentGone makes a CodeNotFound of the backend the agent's: the agent was
// resolved a moment ago, so it was deleted meanwhile.
func agentGone(err error) error {
	if agent.CodeOf(err) == agent.CodeNotFound {
		return &Error{Code: CodeAgentNotFound, Message: line(err.Error()), Err: err}
	}
	return err
}

// line makes a text one plain line.
func line(s string) string { return strings.Join(strings.Fields(s), " ") }
