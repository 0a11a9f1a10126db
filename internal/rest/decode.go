package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"time"

	"mneme/internal/agent"
)

// Limits of request bodies, in bytes. Images travel as base64.
const (
	maxBody = 64 << 20
	// freeBody is read without asking; beyond it bodies share bodyBudget, and
	// whoever finds it used up waits.
	freeBody   = 1 << 20
	bodyBudget = 256 << 20
)

// readBody reads a whole body. release gives its share of the budget back and
// must be called when the bytes are no longer needed; it may be called always.
func (d *Door) readBody(w http.ResponseWriter, r *http.Request) (body []byte, release func(), err error) {
	release = func() {}
	if r.ContentLength > maxBody {
		return nil, release, errTooLarge()
	}
	in := http.MaxBytesReader(w, r.Body, maxBody)
	body, err = io.ReadAll(io.LimitReader(in, freeBody))
	if err != nil || len(body) < freeBody {
		return body, release, bodyFault(err)
	}
	weight := int64(maxBody)
	if r.ContentLength > 0 {
		weight = r.ContentLength
	}
	if err := d.bodies.Acquire(r.Context(), weight); err != nil {
		return nil, release, err
	}
	release = func() { d.bodies.Release(weight) }
	buf := bytes.NewBuffer(body)
	_, err = buf.ReadFrom(in)
	return buf.Bytes(), release, bodyFault(err)
}

func errTooLarge() error {
	return agent.Errorf(agent.CodeTooLarge, "The request body is larger than %d MiB", maxBody>>20)
}

// bodyFault explains why a body could not be read.
func bodyFault(err error) error {
	var large *http.MaxBytesError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &large):
		return errTooLarge()
	case errors.Is(err, context.Canceled):
		return err
	}
	return badRequest("the request body could not be read: %v", err)
}

// decodeBody reads the JSON body of a request. What is not JSON, or does not fit
// T, is 422. A T with a method check() error is asked for its own rules.
func decodeBody[T any](d *Door, w http.ResponseWriter, r *http.Request) (T, error) {
	v, given, err := decodeAny[T](d, w, r)
	if err == nil && !given {
		err = unprocessable("body", "Field required")
	}
	return v, err
}

// decodeOptional is decodeBody for a body that may be missing, empty or null: then
// it is the zero T, of which check is asked as well.
func decodeOptional[T any](d *Door, w http.ResponseWriter, r *http.Request) (T, error) {
	v, _, err := decodeAny[T](d, w, r)
	return v, err
}

// A checker has rules of its own. Its errors should come from unprocessable, with
// a place that begins with "body.".
type checker interface{ check() error }

func decodeAny[T any](d *Door, w http.ResponseWriter, r *http.Request) (v T, given bool, err error) {
	body, release, err := d.readBody(w, r)
	defer release()
	if err != nil {
		return v, false, err
	}
	if text := bytes.TrimSpace(body); len(text) > 0 && string(text) != "null" {
		given = true
		if err := unmarshal(text, &v); err != nil {
			return v, given, err
		}
	}
	if c, ok := any(&v).(checker); ok {
		err = c.check()
	}
	return v, given, err
}

// unmarshal is json.Unmarshal whose errors are 422.
func unmarshal(data []byte, v any) error {
	err := json.Unmarshal(data, v)
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		wrong.Field = wirePath(reflect.TypeOf(v), wrong.Field)
	}
	return unmarshalFault(err)
}

// wirePath drops from a path of fields, as encoding/json reports it, the names of
// embedded structs, which nobody has sent.
func wirePath(t reflect.Type, path string) string {
	var out []string
	for name := range strings.SplitSeq(path, ".") {
		f, embedded, ok := fieldNamed(t, name)
		if !embedded {
			out = append(out, name)
		}
		if ok {
			t = f
		}
	}
	return strings.Join(out, ".")
}

// fieldNamed finds the type of a field of t, or of what t holds, by its name on the
// wire or by the name of the struct that is embedded.
func fieldNamed(t reflect.Type, name string) (field reflect.Type, embedded, ok bool) {
	for t.Kind() != reflect.Struct || reflect.PointerTo(t).Implements(reflect.TypeFor[element]()) {
		switch o, is := reflect.Zero(t).Interface().(element); {
		case is:
			t = o.elem()
		case t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map:
			t = t.Elem()
		default:
			return nil, false, false
		}
	}
	for i := range t.NumField() {
		f := t.Field(i)
		tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if tag == name || tag == "" && f.Anonymous && f.Name == name {
			return f.Type, tag == "", true
		}
	}
	return nil, false, false
}

// unmarshalFault turns an error of json.Unmarshal into a 422 that names the field.
func unmarshalFault(err error) error {
	var wrong *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	var h *httpError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &h):
		return h
	case errors.As(err, &wrong):
		where := "body"
		if wrong.Field != "" {
			where += "." + wrong.Field
		}
		return unprocessable(where, "Input should be %s, not %s", typeName(wrong), wrong.Value)
	case errors.As(err, &syntax):
		return unprocessable("body", "The body is not valid JSON: %s at byte %d", strings.TrimPrefix(syntax.Error(), "json: "), syntax.Offset)
	}
	return unprocessable("body", "The body does not fit: %v", err)
}

// typeName says in words of JSON what a field wants.
func typeName(e *json.UnmarshalTypeError) string {
	t := e.Type
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == reflect.TypeFor[time.Time]() {
		return "an ISO 8601 date"
	}
	switch kind := t.Kind().String(); {
	case strings.HasPrefix(kind, "int"), strings.HasPrefix(kind, "uint"):
		return "an integer"
	case strings.HasPrefix(kind, "float"):
		return "a number"
	case kind == "bool":
		return "a boolean"
	case kind == "string":
		return "a string"
	case kind == "slice", kind == "array":
		return "an array"
	}
	return "an object"
}

// An optional is a field of a request that tells absent (Set is false), null (Null)
// and a value apart.
type optional[T any] struct {
	Set   bool
	Null  bool
	Value T
}

// UnmarshalJSON implements json.Unmarshaler; it is called for null too.
func (o *optional[T]) UnmarshalJSON(data []byte) error {
	o.Set = true
	if string(data) == "null" {
		o.Null = true
		return nil
	}
	return json.Unmarshal(data, &o.Value)
}

// Ptr is nil for absent and null, else a pointer to the value.
func (o optional[T]) Ptr() *T {
	if !o.Set || o.Null {
		return nil
	}
	return &o.Value
}

// Patch is nil for absent, a pointer to nil for null, else a pointer to a pointer
// to the value: what a patch with two stars wants.
func (o optional[T]) Patch() **T {
	if !o.Set {
		return nil
	}
	p := o.Ptr()
	return &p
}

// Or is the value, or what is given where it is absent or null.
func (o optional[T]) Or(preset T) T {
	if p := o.Ptr(); p != nil {
		return *p
	}
	return preset
}

// writeJSON writes v with a status. Nothing is written if v cannot be encoded.
func writeJSON(w http.ResponseWriter, status int, v any) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return fmt.Errorf("encode the answer: %w", err)
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, err := w.Write(bytes.TrimSuffix(b.Bytes(), []byte("\n")))
	if err != nil {
		return fmt.Errorf("%w: %w", errNotWritten, err)
	}
	return nil
}

// errNotWritten says that the client has the head of an answer and not the rest.
var errNotWritten = errors.New("the answer was not written")

// reply writes v with status 200.
func reply(w http.ResponseWriter, v any) error { return writeJSON(w, http.StatusOK, v) }

// A stamp is a time in an answer: RFC 3339 in UTC with microseconds, or null for
// the zero time (spec/rest.md section 2.3). The date of messages is messageDate.
type stamp time.Time

// MarshalJSON implements json.Marshaler.
func (s stamp) MarshalJSON() ([]byte, error) {
	if time.Time(s).IsZero() {
		return []byte("null"), nil
	}
	return []byte(time.Time(s).UTC().Format(`"2006-01-02T15:04:05.000000Z"`)), nil
}

// messageDate is the date of a message variant: whole seconds and an explicit zone.
func messageDate(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05+00:00") }

// dateLayouts are the forms of dates that are read; without a zone it is UTC.
var dateLayouts = []string{
	time.RFC3339Nano, "2006-01-02T15:04:05.999999999", "2006-01-02 15:04:05.999999999Z07:00",
	"2006-01-02 15:04:05.999999999", "2006-01-02T15:04:05.999999999-0700", "2006-01-02T15:04Z07:00", "2006-01-02T15:04", "2006-01-02",
}

// parseDate reads an ISO 8601 date.
func parseDate(s string) (time.Time, bool) {
	s = strings.TrimSpace(s)
	// An unescaped plus in a query arrives as a space.
	if i := strings.LastIndexByte(s, ' '); i > len("2006-01-02") {
		s = s[:i] + "+" + s[i+1:]
	}
	for _, layout := range dateLayouts {
		if t, err := time.Parse(layout, s); err == nil {
			return t.UTC(), true
		}
	}
	return time.Time{}, false
}

// A date is a time in a request: any ISO 8601, UTC where no zone is given.
type date struct{ time.Time }

// UnmarshalJSON implements json.Unmarshaler.
func (t *date) UnmarshalJSON(data []byte) error {
	var s string
	if err := json.Unmarshal(data, &s); err != nil {
		return err
	}
	var ok bool
	if t.Time, ok = parseDate(s); !ok {
		return wrongType[time.Time](data)
	}
	return nil
}

// wrongType is the error of an UnmarshalJSON that wants a T. The decoder adds the
// path of the field.
func wrongType[T any](data []byte) error {
	kind := "number"
	switch data[0] {
	case '"':
		kind = "string " + quoted(strings.Trim(string(data), `"`))
	case '{':
		kind = "object"
	case '[':
		kind = "array"
	case 't', 'f':
		kind = "bool"
	}
	return &json.UnmarshalTypeError{Value: kind, Type: reflect.TypeFor[T]()}
}

// orEmpty makes a nil list an empty one, so that it shows as [].
func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
