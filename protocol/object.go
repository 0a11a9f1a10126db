package protocol

import (
	"encoding/json"
	"fmt"
	"iter"
	"math"
	"slices"
	"strconv"
	"strings"
)

// maxMembers bounds how many fields an object with named fields may have, so
// that a frame of 100 MiB cannot make an index many times its size. Objects
// that are passed on whole, such as a tool's parameters, are not counted.
const maxMembers = 4096

const tooManyFields = "object has too many fields"

// A member is one field of a JSON object: the key with its quotes, the value.
type member struct{ key, value []byte }

// splitObject lists the members of a JSON object that is known to be valid.
// It is false if there are more than maxMembers.
func splitObject(raw []byte) ([]member, bool) {
	var ms []member
	i := skipSpace(raw, 1)
	for raw[i] != '}' {
		if len(ms) == maxMembers {
			return nil, false
		}
		keyEnd := skipValue(raw, i)
		key := raw[i:keyEnd]
		i = skipSpace(raw, skipSpace(raw, keyEnd)+1) // the colon
		end := skipValue(raw, i)
		ms = append(ms, member{key, raw[i:end]})
		i = skipSpace(raw, end)
		if raw[i] == ',' {
			i = skipSpace(raw, i+1)
		}
	}
	return ms, true
}

// elements yields the elements of a JSON array that is known to be valid.
func elements(raw []byte) iter.Seq2[int, []byte] {
	return func(yield func(int, []byte) bool) {
		i := skipSpace(raw, 1)
		for n := 0; raw[i] != ']'; n++ {
			end := skipValue(raw, i)
			if !yield(n, raw[i:end]) {
				return
			}
			i = skipSpace(raw, end)
			if raw[i] == ',' {
				i = skipSpace(raw, i+1)
			}
		}
	}
}

func skipSpace(raw []byte, i int) int {
	for raw[i] == ' ' || raw[i] == '\n' || raw[i] == '\t' || raw[i] == '\r' {
		i++
	}
	return i
}

// skipValue returns the index after the JSON value that starts at i.
func skipValue(raw []byte, i int) int {
	switch raw[i] {
	case '"':
		return skipString(raw, i)
	case '{', '[':
		depth := 0
		for {
			switch raw[i] {
			case '"':
				i = skipString(raw, i)
				continue
			case '{', '[':
				depth++
			case '}', ']':
				depth--
			}
			i++
			if depth == 0 {
				return i
			}
		}
	}
	for i < len(raw) && !strings.ContainsRune(",]} \n\t\r", rune(raw[i])) {
		i++
	}
	return i
}

func skipString(raw []byte, i int) int {
	for i++; raw[i] != '"'; i++ {
		if raw[i] == '\\' {
			i++
		}
	}
	return i + 1
}

// unquote decodes a JSON string that is known to be valid.
func unquote(raw []byte) string {
	body := raw[1 : len(raw)-1]
	if !slices.Contains(body, '\\') {
		return string(body)
	}
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return string(body) // unreachable: the frame was checked
	}
	return s
}

// kindOf names the kind of a JSON value for error messages.
func kindOf(raw []byte) string {
	switch raw[0] {
	case '"':
		return "a string"
	case '{':
		return "an object"
	case '[':
		return "an array"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	}
	return "a number"
}

// A problem is the first thing found wrong with a frame; it is shared by the
// objects of one frame.
type problem struct{ err error }

// An object reads the fields of one JSON object by name. Methods whose name
// starts with "opt" accept that the field is missing. After the first problem
// the results mean nothing.
type object struct {
	path    string // dotted, for messages
	members []member
	problem *problem
	// nullOmits treats a null field as a missing one: the bodies of agents and
	// conversations, where clients send null for "not set".
	nullOmits bool
}

func (o *object) fail(name, format string, args ...any) {
	if o.problem.err != nil {
		return
	}
	field := o.path + "." + name
	o.problem.err = &DecodeError{Code: InvalidField, Field: field, Message: field + " " + fmt.Sprintf(format, args...)}
}

// find returns the raw value of a field. Of several fields of one name the
// last counts, as in JavaScript.
func (o *object) find(name string) ([]byte, bool) {
	for _, m := range slices.Backward(o.members) {
		if string(m.key[1:len(m.key)-1]) == name || slices.Contains(m.key, '\\') && unquote(m.key) == name {
			return m.value, true
		}
	}
	return nil, false
}

// get is find, except that nullOmits hides a null.
func (o *object) get(name string) ([]byte, bool) {
	raw, ok := o.find(name)
	if ok && o.nullOmits && raw[0] == 'n' {
		return nil, false
	}
	return raw, ok
}

func (o *object) has(name string) bool {
	_, ok := o.get(name)
	return ok
}

func (o *object) isNull(name string) bool {
	raw, ok := o.find(name)
	return ok && raw[0] == 'n'
}

// maybeStr returns the field if it is there and a string; nothing is a problem.
func (o *object) maybeStr(name string) (string, bool) {
	raw, ok := o.get(name)
	if !ok || raw[0] != '"' {
		return "", false
	}
	return unquote(raw), true
}

// need returns the raw value of a required field of the kind that starts with
// one of the bytes in first.
func (o *object) need(name, first, want string) []byte {
	raw, ok := o.get(name)
	if !ok {
		o.fail(name, "is required and must be %s", want)
		return nil
	}
	if strings.IndexByte(first, raw[0]) < 0 {
		o.fail(name, "must be %s, not %s", want, kindOf(raw))
		return nil
	}
	return raw
}

func (o *object) str(name string) string {
	raw := o.need(name, `"`, "a string")
	if raw == nil {
		return ""
	}
	return unquote(raw)
}

func (o *object) nonEmpty(name string) string {
	s := o.str(name)
	if s == "" {
		o.fail(name, "must be a non-empty string")
	}
	return s
}

func (o *object) optStr(name string) *string {
	if !o.has(name) {
		return nil
	}
	s := o.str(name)
	return &s
}

// nullableStr reads a string that may be null or missing.
func (o *object) nullableStr(name string) Optional[string] {
	if o.isNull(name) {
		return Null[string]()
	}
	if s := o.optStr(name); s != nil {
		return Some(*s)
	}
	return Optional[string]{}
}

func (o *object) boolean(name string) bool {
	raw := o.need(name, "tf", "a boolean")
	return raw != nil && raw[0] == 't'
}

func (o *object) optBool(name string) *bool {
	if !o.has(name) {
		return nil
	}
	b := o.boolean(name)
	return &b
}

// integer reads a number; a fraction is cut off, as the reference does.
func (o *object) integer(name string) int {
	raw := o.need(name, "-0123456789", "a number")
	if raw == nil {
		return 0
	}
	f, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || math.Abs(f) > 1<<53 {
		o.fail(name, "must be a number between -2^53 and 2^53")
		return 0
	}
	return int(f)
}

func (o *object) optInt(name string) *int {
	if !o.has(name) {
		return nil
	}
	n := o.integer(name)
	return &n
}

func (o *object) list(name string) []byte { return o.need(name, "[", "an array") }

// strings reads an array of strings; the result is never nil.
func (o *object) strings(name string) []string {
	raw := o.need(name, "[", "an array of strings")
	if raw == nil {
		return nil
	}
	out := []string{}
	for i, e := range elements(raw) {
		if e[0] != '"' {
			o.fail(name+"["+strconv.Itoa(i)+"]", "must be a string, not %s", kindOf(e))
			return nil
		}
		out = append(out, unquote(e))
	}
	return out
}

// optStrings reads an array of strings; nil means that it is missing.
func (o *object) optStrings(name string) []string {
	if !o.has(name) {
		return nil
	}
	return o.strings(name)
}

// stringMap reads an object whose values are all strings; never nil.
func (o *object) stringMap(name string) map[string]string {
	c := o.child(name)
	out := make(map[string]string, len(c.members))
	for _, m := range c.members {
		if m.value[0] != '"' {
			c.fail(unquote(m.key), "must be a string, not %s", kindOf(m.value))
			break
		}
		out[unquote(m.key)] = unquote(m.value)
	}
	return out
}

// raw reads an object as raw JSON.
func (o *object) raw(name string) Object { return Object(o.need(name, "{", "an object")) }

func (o *object) optRaw(name string) Object {
	if !o.has(name) {
		return nil
	}
	return o.raw(name)
}

// nullableRaw reads an object that may be null or missing.
func (o *object) nullableRaw(name string) Optional[Object] {
	if o.isNull(name) {
		return Null[Object]()
	}
	if !o.has(name) {
		return Optional[Object]{}
	}
	return Some(o.raw(name))
}

// child reads an object whose fields are read by name.
func (o *object) child(name string) *object {
	raw := o.need(name, "{", "an object")
	if raw == nil {
		return o.sub(name, nil)
	}
	return o.sub(name, raw)
}

// sub makes the reader of a nested object from its raw bytes; nil bytes make
// an empty one.
func (o *object) sub(name string, raw []byte) *object {
	c := &object{path: o.path + "." + name, problem: o.problem, nullOmits: o.nullOmits}
	if raw == nil {
		return c
	}
	ms, ok := splitObject(raw)
	if !ok {
		o.fail(name, "has too many fields")
	}
	c.members = ms
	return c
}

// objects yields readers for the elements of an array of objects.
func (o *object) objects(name string) iter.Seq[*object] {
	return func(yield func(*object) bool) {
		raw := o.need(name, "[", "an array of objects")
		if raw == nil {
			return
		}
		for i, e := range elements(raw) {
			at := name + "[" + strconv.Itoa(i) + "]"
			if e[0] != '{' {
				o.fail(at, "must be an object, not %s", kindOf(e))
				return
			}
			if !yield(o.sub(at, e)) || o.problem.err != nil {
				return
			}
		}
	}
}

// runtime reads a runtime: a non-empty conversation_id, and an agent_id that
// is a non-empty string or, unless withAgent, null.
func (o *object) runtime(name string, withAgent bool) Runtime {
	return o.child(name).runtimeFields(withAgent)
}

func (c *object) runtimeFields(withAgent bool) Runtime {
	var rt Runtime
	rt.ConversationID = c.nonEmpty("conversation_id")
	switch {
	case withAgent:
		rt.AgentID = c.nonEmpty("agent_id")
	case !c.isNull("agent_id"):
		if raw, ok := c.get("agent_id"); !ok || raw[0] != '"' || len(raw) == 2 {
			c.fail("agent_id", "must be a non-empty string or null")
		} else {
			rt.AgentID = unquote(raw)
		}
	}
	if c.has("acting_user_id") {
		c.str("acting_user_id")
	}
	return rt
}

// oneOf reads a string that is one of a few.
func oneOf[T ~string](o *object, name string, allowed []T) T {
	want := "one of " + joined(allowed)
	if len(allowed) == 1 {
		want = strconv.Quote(string(allowed[0]))
	}
	raw := o.need(name, `"`, want)
	if raw == nil {
		return ""
	}
	v := T(unquote(raw))
	if !slices.Contains(allowed, v) {
		o.fail(name, "must be %s, not %q", want, clip(string(v)))
	}
	return v
}

// optOneOf is oneOf for a field that may be missing, which gives "".
func optOneOf[T ~string](o *object, name string, allowed []T) T {
	if !o.has(name) {
		return ""
	}
	return oneOf(o, name, allowed)
}

func joined[T ~string](list []T) string {
	var b strings.Builder
	for i, v := range list {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(string(v))
	}
	return b.String()
}
