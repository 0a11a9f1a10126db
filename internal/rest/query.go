package rest

import (
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// decodeQuery fills a struct from the query of a request. Its fields carry tags:
//
//	query:"name"      the parameter; embedded structs are gone through
//	default:"50"      what an absent one stands for
//	min:"0" max:"9"   bounds of a number
//	enum:"a,b"        the words that are allowed
//	doc:"…"           for /openapi.json
//
// Types: string, int, bool, time.Time, pointers to them (nil = absent) and lists of
// strings or ints, which come as repeated keys, as name[] or with commas. Unknown
// parameters are ignored; a wrong value is 422. A struct with a method
// check() error is asked for its own rules.
func decodeQuery[T any](r *http.Request) (T, error) {
	var v T
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return v, unprocessable("query", "%v", err)
	}
	for _, f := range queryFields(reflect.TypeFor[T]()) {
		if err := f.set(reflect.ValueOf(&v).Elem().FieldByIndex(f.Index), q); err != nil {
			return v, unprocessable("query."+f.param, "%v", err)
		}
	}
	if c, ok := any(&v).(checker); ok {
		return v, c.check()
	}
	return v, nil
}

// A queryField is a field of a struct that stands for a parameter.
type queryField struct {
	reflect.StructField
	param string
}

// queryFields lists the parameters of a struct, those of embedded ones included.
func queryFields(t reflect.Type) (out []queryField) {
	for _, f := range reflect.VisibleFields(t) {
		if name := f.Tag.Get("query"); name != "" {
			out = append(out, queryField{f, name})
		}
	}
	return out
}

func (f queryField) set(v reflect.Value, q url.Values) error {
	values := slices.Concat(q[f.param], q[f.param+"[]"])
	if f.Type.Kind() == reflect.Slice {
		for _, text := range values {
			for part := range strings.SplitSeq(text, ",") {
				if part = strings.TrimSpace(part); part == "" {
					continue
				}
				item := reflect.New(f.Type.Elem()).Elem()
				if err := f.scalar(item, part); err != nil {
					return err
				}
				v.Set(reflect.Append(v, item))
			}
		}
		return nil
	}
	text := f.Tag.Get("default")
	// An empty value is how some clients send "none".
	if len(values) > 0 && values[len(values)-1] != "" {
		text = values[len(values)-1]
	}
	if text == "" {
		return nil
	}
	if f.Type.Kind() == reflect.Pointer {
		v.Set(reflect.New(f.Type.Elem()))
		v = v.Elem()
	}
	return f.scalar(v, text)
}

func (f queryField) scalar(v reflect.Value, text string) error {
	switch v.Interface().(type) {
	case time.Time:
		t, ok := parseDate(text)
		if !ok {
			return fmt.Errorf("%q is not an ISO 8601 date", text)
		}
		v.Set(reflect.ValueOf(t))
		return nil
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
		return f.allowed(text)
	case reflect.Bool:
		b, ok := parseBool(text)
		if !ok {
			return fmt.Errorf("%q is not a boolean", text)
		}
		v.SetBool(b)
	case reflect.Int:
		n, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("%q is not an integer", text)
		}
		v.SetInt(int64(n))
		return f.within(n)
	default:
		panic("query parameter " + f.param + " has a type that is not known")
	}
	return nil
}

func (f queryField) allowed(text string) error {
	words := f.Tag.Get("enum")
	if words == "" || slices.Contains(strings.Split(words, ","), text) {
		return nil
	}
	return fmt.Errorf("%q is not one of %s", text, strings.ReplaceAll(words, ",", ", "))
}

func (f queryField) within(n int) error {
	if low, err := strconv.Atoi(f.Tag.Get("min")); err == nil && n < low {
		return fmt.Errorf("%d is less than %d", n, low)
	}
	if high, err := strconv.Atoi(f.Tag.Get("max")); err == nil && n > high {
		return fmt.Errorf("%d is more than %d", n, high)
	}
	return nil
}

// parseBool reads a boolean as clients in several languages write it.
func parseBool(s string) (v, ok bool) {
	switch strings.ToLower(s) {
	case "true", "1", "yes", "on":
		return true, true
	case "false", "0", "no", "off":
		return false, true
	}
	return false, false
}
