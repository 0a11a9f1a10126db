package agent

import (
	"errors"
	"fmt"
)

// A Code classifies an error for every door; each door maps it to its own
// dialect once (a failed response, an HTTP status, an MCP error).
type Code string

// The codes. What is not an *Error is CodeInternal.
const (
	CodeInvalid        Code = "invalid"          // the caller's input is wrong; Field names where
	CodeNotFound       Code = "not_found"        //
	CodeConflict       Code = "conflict"         // clashes with what is stored (key reuse, duplicate name)
	CodeBusy           Code = "busy"             // the conversation has a running turn
	CodeParked         Code = "parked"           // the conversation waits for an approval
	CodeQueueFull      Code = "queue_full"       //
	CodeNotPending     Code = "not_pending"      // the call was answered already, or never asked
	CodeMemoryConflict Code = "memory_conflict"  // uncommitted edits, or a text that no longer matches
	CodeAmbiguous      Code = "ambiguous"        // several things fit what was named
	CodeReadOnly       Code = "read_only"        // what shall change is marked as read-only
	CodeUnauthorized   Code = "unauthorized"     //
	CodeTooLarge       Code = "too_large"        //
	CodeNotBuilt       Code = "not_built"        // known, but not offered by this server
	CodeLeaseLost      Code = "lease_lost"       // another process owns the conversation
	CodeShutdown       Code = "shutdown"         // the server is stopping
	CodeModelConfig    Code = "model_config"     // no such model or provider, or a refused key: a setting to change
	CodeModel          Code = "model"            // the provider failed after all tries
	CodeModelRateLimit Code = "model_rate_limit" // the provider's limit, after all tries
	CodeModelOverflow  Code = "model_overflow"   // the prompt exceeds the model's window
	CodeModelLength    Code = "model_length"     // the answer hit the output limit
	CodeInternal       Code = "internal"         //
)

// An Error is one plain sentence for the user with a machine-readable code.
type Error struct {
	Code    Code   `json:"code"`
	Message string `json:"message"`
	// Field names the offending input field, if one is to blame.
	Field string `json:"field,omitempty"`
	// Detail holds what a provider said, for logs and structured error objects.
	Detail string `json:"detail,omitempty"`
	// Status is the HTTP status a model provider answered with, 0 = none.
	Status int `json:"status,omitempty"`
	// Ref is the id that the error is about, such as the run that is busy.
	Ref string `json:"ref,omitempty"`
	// Retryable says that the same request may succeed later.
	Retryable bool `json:"retryable,omitempty"`
}

func (e *Error) Error() string { return e.Message }

// Errorf makes an *Error with a formatted message.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Invalid makes a CodeInvalid error that names the field.
func Invalid(field, format string, args ...any) *Error {
	return &Error{Code: CodeInvalid, Field: field, Message: fmt.Sprintf(format, args...)}
}

// CodeOf returns the code of the first *Error in err's chain, CodeInternal if
// there is none, and "" for nil.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return CodeInternal
}
