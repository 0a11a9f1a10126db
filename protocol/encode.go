package protocol

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"
)

// Marshal encodes a value as the protocol wants it: no HTML escaping, and
// always valid UTF-8, also where raw bytes are passed on. Types of this
// package should be encoded with it rather than with json.Marshal.
func Marshal(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	b := bytes.TrimSuffix(buf.Bytes(), []byte("\n"))
	if !utf8.Valid(b) {
		b = bytes.ToValidUTF8(b, []byte("\uFFFD"))
	}
	return b, nil
}

const hexDigits = "0123456789abcdef"

// AppendString appends s as a JSON string. Invalid UTF-8 becomes U+FFFD.
func AppendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			if c >= ' ' && c != '"' && c != '\\' {
				i++
				continue
			}
			dst = append(dst, s[start:i]...)
			switch c {
			case '"', '\\':
				dst = append(dst, '\\', c)
			case '\n':
				dst = append(dst, '\\', 'n')
			case '\r':
				dst = append(dst, '\\', 'r')
			case '\t':
				dst = append(dst, '\\', 't')
			default:
				dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
			}
			i++
			start = i
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && size == 1 {
			dst = append(dst, s[start:i]...)
			dst = append(dst, "\uFFFD"...)
			i += size
			start = i
			continue
		}
		i += size
	}
	dst = append(dst, s[start:]...)
	return append(dst, '"')
}

// AppendTime appends a time as a JSON string.
func AppendTime(dst []byte, t time.Time) []byte {
	dst = append(dst, '"')
	dst = t.UTC().AppendFormat(dst, timeLayout)
	return append(dst, '"')
}

// AppendRuntime appends a runtime object.
func AppendRuntime(dst []byte, r Runtime) []byte {
	if r.AgentID == "" {
		dst = append(dst, `{"agent_id":null`...)
	} else {
		dst = append(dst, `{"agent_id":`...)
		dst = AppendString(dst, r.AgentID)
	}
	dst = append(dst, `,"conversation_id":`...)
	dst = AppendString(dst, r.ConversationID)
	return append(dst, '}')
}

// AppendEnvelope appends the frame that one connection gets: body, a complete
// JSON object such as [AppendEvent] makes, plus event_seq, emitted_at and
// idempotency_key. The key is `<typ>:<seq>:<id>`; id names the event and is the
// same for every connection.
func AppendEnvelope(dst, body []byte, typ string, seq int64, at time.Time, id string) []byte {
	dst = append(dst, body[:len(body)-1]...)
	dst = append(dst, `,"event_seq":`...)
	dst = strconv.AppendInt(dst, seq, 10)
	dst = append(dst, `,"emitted_at":`...)
	dst = AppendTime(dst, at)
	dst = append(dst, `,"idempotency_key":"`...)
	dst = append(dst, typ...)
	dst = append(dst, ':')
	dst = strconv.AppendInt(dst, seq, 10)
	dst = append(dst, ':')
	dst = append(dst, id...)
	return append(dst, `"}`...)
}

// A TextDelta is one piece of streamed text, the hot path of every turn.
type TextDelta struct {
	Runtime   Runtime
	ID        string // of the message; all its pieces share it
	Reasoning bool   // a reasoning_message instead of an assistant_message
	Text      string
	Date      time.Time
	RunID     string
	SeqID     int64
	// SubagentID is set for the output of a subagent.
	SubagentID string
}

// AppendTextDelta appends the stream_delta body of a piece of text, ready for
// [AppendEnvelope]. It is AppendEvent of an [AssistantDelta] or
// [ReasoningDelta] without its cost.
func AppendTextDelta(dst []byte, d TextDelta) []byte {
	dst = append(dst, `{"type":"stream_delta","delta":{"message_type":"`...)
	if d.Reasoning {
		dst = append(dst, `reasoning_message","type":"message","id":`...)
	} else {
		dst = append(dst, `assistant_message","type":"message","id":`...)
	}
	dst = AppendString(dst, d.ID)
	dst = append(dst, `,"date":`...)
	dst = AppendTime(dst, d.Date)
	if d.Runtime.AgentID != "" {
		dst = append(dst, `,"agent_id":`...)
		dst = AppendString(dst, d.Runtime.AgentID)
	}
	dst = append(dst, `,"conversation_id":`...)
	dst = AppendString(dst, d.Runtime.ConversationID)
	if d.Reasoning {
		dst = append(dst, `,"reasoning":`...)
		dst = AppendString(dst, d.Text)
	} else {
		dst = append(dst, `,"content":[{"type":"text","text":`...)
		dst = AppendString(dst, d.Text)
		dst = append(dst, `}]`...)
	}
	dst = append(dst, `,"run_id":`...)
	dst = AppendString(dst, d.RunID)
	dst = append(dst, `,"seq_id":`...)
	dst = strconv.AppendInt(dst, d.SeqID, 10)
	dst = append(dst, '}')
	if d.SubagentID != "" {
		dst = append(dst, `,"subagent_id":`...)
		dst = AppendString(dst, d.SubagentID)
	}
	dst = append(dst, `,"runtime":`...)
	dst = AppendRuntime(dst, d.Runtime)
	return append(dst, '}')
}

// AppendCommand appends the frame of a command. A nil requestID leaves it out.
func AppendCommand(dst []byte, requestID *string, cmd Command) ([]byte, error) {
	return AppendFrame(dst, cmd.CommandType(), requestID, cmd)
}

// AppendFrame appends `{"type":typ,"request_id":...,<fields of body>}`. Body
// must encode to an object without these two fields; nil means no fields. A nil
// requestID leaves it out.
func AppendFrame(dst []byte, typ string, requestID *string, body any) ([]byte, error) {
	dst = appendHead(dst, typ, requestID)
	return appendBody(dst, typ, body)
}

// AppendResponse appends a response that succeeded:
// `{"type":typ,"request_id":...,"success":true,<fields of body>}`.
func AppendResponse(dst []byte, typ string, requestID *string, body any) ([]byte, error) {
	dst = appendHead(dst, typ, requestID)
	dst = append(dst, `,"success":true`...)
	return appendBody(dst, typ, body)
}

// AppendFailure appends a response that failed, with the data fields that body
// still has: usually an empty response (see [CommandInfo.NewResponse]).
func AppendFailure(dst []byte, typ string, requestID *string, failure string, body any) ([]byte, error) {
	dst = appendHead(dst, typ, requestID)
	dst = append(dst, `,"success":false,"error":`...)
	dst = AppendString(dst, failure)
	return appendBody(dst, typ, body)
}

func appendHead(dst []byte, typ string, requestID *string) []byte {
	dst = append(dst, `{"type":`...)
	dst = AppendString(dst, typ)
	if requestID != nil {
		dst = append(dst, `,"request_id":`...)
		dst = AppendString(dst, *requestID)
	}
	return dst
}

// appendBody adds the fields of an encoded object and closes the frame.
func appendBody(dst []byte, typ string, body any) ([]byte, error) {
	if body == nil {
		return append(dst, '}'), nil
	}
	b, err := Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", typ, err)
	}
	if len(b) < 2 || b[0] != '{' {
		return nil, fmt.Errorf("encode %s: body is not an object", typ)
	}
	if len(b) > 2 {
		dst = append(dst, ',')
	}
	return append(dst, b[1:]...), nil
}
