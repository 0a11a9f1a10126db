package protocol

import (
	"bytes"
	"encoding/json"
)

// DecodeResponse reads the fields of a response frame leniently into v, a
// pointer to a response type. It says nothing about success: see
// [ReadOutcome].
func DecodeResponse(data []byte, v any) error { return json.Unmarshal(data, v) }

// An Outcome is what every response says about how the command went.
type Outcome struct {
	OK bool
	// Error is the text of a failure. It may be empty: some responses just say
	// success false.
	Error string
}

// ReadOutcome reads success (or accepted) and error of a response. A response
// without either has succeeded.
func ReadOutcome(data []byte) (Outcome, error) {
	var v struct {
		Success  *bool           `json:"success"`
		Accepted *bool           `json:"accepted"`
		Error    json.RawMessage `json:"error"`
	}
	if err := json.Unmarshal(data, &v); err != nil {
		return Outcome{}, err
	}
	out := Outcome{OK: true}
	switch {
	case v.Success != nil:
		out.OK = *v.Success
	case v.Accepted != nil:
		out.OK = *v.Accepted
	}
	if len(v.Error) == 0 || bytes.Equal(v.Error, []byte("null")) {
		return out, nil
	}
	var structured struct {
		Message string `json:"message"`
	}
	if json.Unmarshal(v.Error, &out.Error) != nil && json.Unmarshal(v.Error, &structured) == nil {
		out.Error = structured.Message
	}
	return out, nil
}
