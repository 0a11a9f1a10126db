package protocol

import (
	"bytes"
	"encoding/json"
	"time"
)

// A Runtime names one conversation of one agent. It is comparable, so it can
// be a map key.
type Runtime struct {
	AgentID        string // empty = null on the wire: a conversation without agent
	ConversationID string // "default" = the agent's own conversation
}

// MarshalJSON writes an empty AgentID as null.
func (r Runtime) MarshalJSON() ([]byte, error) { return AppendRuntime(nil, r), nil }

// UnmarshalJSON reads a null agent_id as "".
func (r *Runtime) UnmarshalJSON(data []byte) error {
	var v struct {
		AgentID        *string `json:"agent_id"`
		ConversationID string  `json:"conversation_id"`
	}
	if err := json.Unmarshal(data, &v); err != nil {
		return err
	}
	*r = Runtime{ConversationID: v.ConversationID}
	if v.AgentID != nil {
		r.AgentID = *v.AgentID
	}
	return nil
}

// List is a slice that is written as [] when nil: the wire has no null lists.
type List[T any] []T

// MarshalJSON writes nil as [].
func (l List[T]) MarshalJSON() ([]byte, error) {
	if l == nil {
		return []byte("[]"), nil
	}
	return Marshal([]T(l))
}

// Object is a JSON object kept as it is. It is written as {} when nil.
type Object json.RawMessage

// MarshalJSON returns the bytes, or {} for nil.
func (o Object) MarshalJSON() ([]byte, error) {
	if o == nil {
		return []byte("{}"), nil
	}
	return o, nil
}

// UnmarshalJSON keeps a copy of the bytes; null becomes nil.
func (o *Object) UnmarshalJSON(data []byte) error {
	if string(data) == "null" {
		*o = nil
		return nil
	}
	*o = append((*o)[:0:0], data...)
	return nil
}

// Optional is a field that may be missing, null or set. The zero value is
// missing; use it with the tag option omitzero.
type Optional[T any] struct {
	Set   bool // the field is there, perhaps as null
	Value *T   // nil = null
}

// Some is a field that is set.
func Some[T any](v T) Optional[T] { return Optional[T]{Set: true, Value: &v} }

// Null is a field that is null.
func Null[T any]() Optional[T] { return Optional[T]{Set: true} }

// OrNull is a field that is set, or null for a nil pointer.
func OrNull[T any](v *T) Optional[T] { return Optional[T]{Set: true, Value: v} }

// IsZero reports whether the field is missing.
func (o Optional[T]) IsZero() bool { return !o.Set }

// MarshalJSON writes the value or null.
func (o Optional[T]) MarshalJSON() ([]byte, error) {
	if o.Value == nil {
		return []byte("null"), nil
	}
	return Marshal(*o.Value)
}

// UnmarshalJSON reads a field that is there.
func (o *Optional[T]) UnmarshalJSON(data []byte) error {
	*o = Optional[T]{Set: true}
	if bytes.Equal(data, []byte("null")) {
		return nil
	}
	o.Value = new(T)
	return json.Unmarshal(data, o.Value)
}

const timeLayout = "2006-01-02T15:04:05.000Z"

// FormatTime writes a time as the protocol does: ISO 8601 in UTC with
// milliseconds.
func FormatTime(t time.Time) string { return t.UTC().Format(timeLayout) }

// ParseTime reads a time of the protocol, or any RFC 3339 time.
func ParseTime(s string) (time.Time, error) { return time.Parse(time.RFC3339Nano, s) }

// Map is a map that is written as {} when nil.
type Map[V any] map[string]V

// MarshalJSON writes nil as {}.
func (m Map[V]) MarshalJSON() ([]byte, error) {
	if m == nil {
		return []byte("{}"), nil
	}
	return Marshal(map[string]V(m))
}
