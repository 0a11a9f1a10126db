package protocol

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode/utf8"
)

// An ErrorCode classifies a [DecodeError]; it is the code of an `error` frame.
type ErrorCode string

// The codes of [DecodeError].
const (
	InvalidJSON  ErrorCode = "invalid_json"  // the message is not JSON
	InvalidFrame ErrorCode = "invalid_frame" // JSON, but not an object with a type
	UnknownType  ErrorCode = "unknown_type"  // no command has this type
	InvalidField ErrorCode = "invalid_field" // a field is missing or has a wrong value; Field names it
)

// A DecodeError says what is wrong with a frame.
type DecodeError struct {
	Code    ErrorCode
	Field   string // dotted path from the command's type, such as "runtime_start.mode"; may be empty
	Message string // one sentence that names the field and what would be right
}

func (e *DecodeError) Error() string { return e.Message }

// A Frame is a message of which only the header has been read. It aliases the
// bytes given to [Parse]; they must not change while it is in use.
type Frame struct {
	Type string
	// RequestID is nil when the frame has none, or one that is not a string.
	RequestID *string
	// Runtime is nil when the frame has none, or one that is not valid.
	Runtime *Runtime
	// Raw is the whole frame, valid UTF-8.
	Raw json.RawMessage

	members []member
}

// Parse reads the header of a frame: its type, request_id and runtime. The
// error is a *DecodeError with code InvalidJSON or InvalidFrame. Invalid UTF-8
// is replaced by U+FFFD, as a text decoder would.
func Parse(data []byte) (Frame, error) {
	if !utf8.Valid(data) {
		data = bytes.ToValidUTF8(data, []byte("\uFFFD"))
	}
	if !json.Valid(data) {
		return Frame{}, &DecodeError{Code: InvalidJSON, Message: "frame is not valid JSON: " + syntaxText(data)}
	}
	raw := bytes.TrimSpace(data)
	if raw[0] != '{' {
		return Frame{}, &DecodeError{Code: InvalidFrame, Message: "frame must be a JSON object, not " + kindOf(raw)}
	}
	members, ok := splitObject(raw)
	if !ok {
		return Frame{}, &DecodeError{Code: InvalidFrame, Message: tooManyFields}
	}
	f := Frame{Raw: raw, members: members}
	o := object{path: "frame", members: members, problem: new(problem)}
	typ, ok := o.get("type")
	if !ok {
		return f, &DecodeError{Code: InvalidFrame, Field: "type", Message: "frame must have a type"}
	}
	if typ[0] != '"' {
		return f, &DecodeError{Code: InvalidFrame, Field: "type", Message: "type must be a string, not " + kindOf(typ)}
	}
	f.Type = unquote(typ)
	if id, ok := o.get("request_id"); ok && id[0] == '"' {
		s := unquote(id)
		f.RequestID = &s
	}
	if _, ok := o.get("runtime"); ok {
		rt := o.runtime("runtime", false)
		if o.problem.err == nil {
			f.Runtime = &rt
		}
	}
	return f, nil
}

// syntaxText says where JSON text stops being JSON.
func syntaxText(data []byte) string {
	if len(bytes.TrimSpace(data)) == 0 {
		return "it is empty"
	}
	var v json.RawMessage
	if err := json.Unmarshal(data, &v); err != nil {
		return err.Error()
	}
	return "syntax error"
}

// Decode reads the command that the frame holds. The error is a *DecodeError,
// or a *PayloadError for an `input` whose runtime is valid but whose payload is
// not. A frame with an error can still be answered: its Type and RequestID are
// known.
func (f Frame) Decode() (Command, error) {
	info, ok := Lookup(f.Type)
	if !ok {
		return nil, &DecodeError{Code: UnknownType, Field: "type", Message: fmt.Sprintf("unknown command type %q", clip(f.Type))}
	}
	o := &object{path: f.Type, members: f.members, problem: new(problem)}
	info.RequestID.check(o)
	switch info.Runtime {
	case RuntimeAny:
		o.runtime("runtime", false)
	case RuntimeWithAgent:
		o.runtime("runtime", true)
	}
	if o.problem.err != nil {
		return nil, o.problem.err
	}
	var cmd Command
	if info.New == nil {
		cmd = &Later{Type: f.Type, Raw: f.Raw}
	} else {
		cmd = info.New()
		cmd.decode(o)
	}
	if o.problem.err != nil {
		return nil, o.problem.err
	}
	return cmd, nil
}

// DecodeCommand is [Parse] followed by [Frame.Decode].
func DecodeCommand(data []byte) (Frame, Command, error) {
	f, err := Parse(data)
	if err != nil {
		return f, nil, err
	}
	cmd, err := f.Decode()
	return f, cmd, err
}

// A Command is the body of a frame that a client sends, without its type and
// request_id. The types of this package are the only ones; [Later] carries any
// other.
type Command interface {
	// CommandType is the frame's type.
	CommandType() string
	decode(o *object)
}

// A Request is a command that is answered by a response of type R.
type Request[R any] interface {
	Command
	// NewResponse makes an empty response to decode into.
	NewResponse() *R
}

// Later is a command without a typed body: one that this server does not build
// yet, or one of another server.
type Later struct {
	Type string
	// Raw holds the fields. Of a received command it is the whole frame; its
	// type and request_id are not written again.
	Raw json.RawMessage
}

// CommandType returns the frame's type.
func (c *Later) CommandType() string { return c.Type }

func (*Later) decode(*object) {}

// MarshalJSON writes the fields of Raw without type and request_id.
func (c *Later) MarshalJSON() ([]byte, error) {
	raw := bytes.TrimSpace(c.Raw)
	if len(raw) == 0 {
		return []byte("{}"), nil
	}
	if !json.Valid(raw) || raw[0] != '{' {
		return nil, fmt.Errorf("%s: fields are not a JSON object", c.Type)
	}
	members, ok := splitObject(raw)
	if !ok {
		return nil, fmt.Errorf("%s: %s", c.Type, tooManyFields)
	}
	out := []byte{'{'}
	for _, m := range members {
		if name := unquote(m.key); name == "type" || name == "request_id" {
			continue
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(append(out, m.key...), ':'), m.value...)
	}
	return append(out, '}'), nil
}

// clip shortens text that came from outside and goes into an error message.
func clip(s string) string {
	const most = 100
	if len(s) <= most {
		return s
	}
	end := most
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + "…"
}
