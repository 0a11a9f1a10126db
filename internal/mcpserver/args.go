package mcpserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A kind is what a parameter takes.
type kind int

const (
	kindText   kind = iota // any text
	kindLine               // a text without control characters but tab and newline
	kindTags               // a list of such
	kindInt                // a whole number
	kindBool               // true or false
	kindObject             // a JSON object
	kindChoice             // one of some words
	kindTrue               // literally true
)

// A param is one parameter of a tool: from it come its part of the published
// schema and the check of what was sent, so that the two agree.
//
// Clients and models send null, "", [] and {} for what they leave out; for an
// optional parameter each of these means that it is not given. The exceptions
// are marked: null where it clears, an empty list of tags where it replaces.
type param struct {
	name     string
	kind     kind
	about    string
	required bool
	min, max int  // characters, bytes, numbers or entries; max 0 = no limit
	bytes    bool // max counts bytes
	blank    bool // a required text may consist of blanks
	nullable bool // null means something
	emptyOK  bool // an empty list means something
	choices  []string
	preset   int // shown as the default; 0 = none
}

// Limits of tags.
const (
	maxTags = 32
	maxTag  = 64 // characters
)

// schema is the parameter's part of the input schema.
func (p param) schema() map[string]any {
	s := map[string]any{"description": p.about}
	switch p.kind {
	case kindText, kindLine:
		s["type"] = "string"
		if p.nullable {
			s["type"] = []string{"string", "null"}
		}
		if p.required {
			s["minLength"] = max(p.min, 1)
		}
		if p.max > 0 {
			s["maxLength"] = p.max
		}
	case kindTags:
		s["type"], s["maxItems"] = "array", maxTags
		s["items"] = map[string]any{"type": "string", "minLength": 1, "maxLength": maxTag}
	case kindInt:
		s["type"], s["minimum"], s["maximum"] = "integer", p.min, p.max
		if p.preset != 0 {
			s["default"] = p.preset
		}
	case kindBool:
		s["type"] = "boolean"
	case kindObject:
		s["type"] = "object"
	case kindChoice:
		s["type"], s["enum"], s["default"] = "string", p.choices, p.choices[0]
	case kindTrue:
		s["type"], s["const"] = "boolean", true
	}
	return s
}

// inputSchema is the schema of a tool's arguments.
func inputSchema(params []param) map[string]any {
	properties, required := map[string]any{}, []string{}
	for _, p := range params {
		properties[p.name] = p.schema()
		if p.required {
			required = append(required, p.name)
		}
	}
	s := map[string]any{"type": "object", "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		s["required"] = required
	}
	return s
}

// null is the value of a nullable parameter that was null.
type null struct{}

// args are the checked arguments of a call: string, []string, int, bool,
// json.RawMessage or null, by name. What was not given is not there.
type args map[string]any

// parseArgs reads the arguments of a call. The error names the parameter.
func parseArgs(params []param, raw json.RawMessage) (args, error) {
	fields, err := splitArgs(raw)
	if err != nil {
		return nil, err
	}
	out := args{}
	var unknown []string
	for name := range fields {
		if !slices.ContainsFunc(params, func(p param) bool { return p.name == name }) {
			unknown = append(unknown, strconv.Quote(clip(name, 60)))
		}
	}
	if len(unknown) > 0 {
		slices.Sort(unknown)
		return nil, invalid("Unknown argument %s; this tool takes %s.", strings.Join(unknown, ", "), names(params))
	}
	for _, p := range params {
		v, err := p.parse(fields[p.name])
		if err != nil {
			return nil, err
		}
		if v != nil {
			out[p.name] = v
		}
	}
	return out, nil
}

// splitArgs reads the object that holds the arguments; none is an empty one.
func splitArgs(raw json.RawMessage) (map[string]json.RawMessage, error) {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	var fields map[string]json.RawMessage
	if raw[0] != '{' || json.Unmarshal(raw, &fields) != nil {
		return nil, invalid("The arguments must be an object.")
	}
	return fields, nil
}

func names(params []param) string {
	if len(params) == 0 {
		return "no arguments"
	}
	list := make([]string, len(params))
	for i, p := range params {
		list[i] = p.name
	}
	return strings.Join(list, ", ")
}

// parse checks one argument; nil = it is not given.
func (p param) parse(raw json.RawMessage) (any, error) {
	raw = bytes.TrimSpace(raw)
	switch string(raw) {
	case "":
		return p.absent("is required")
	case "null":
		if p.nullable {
			return null{}, nil
		}
		return p.absent("must not be null")
	case `""`, "{}", "[]":
		if !p.required && !(p.emptyOK && string(raw) == "[]") {
			return nil, nil
		}
	}
	switch p.kind {
	case kindText, kindLine:
		return p.parseText(raw)
	case kindTags:
		return p.parseTags(raw)
	case kindInt:
		return p.parseInt(raw)
	case kindBool:
		switch string(raw) {
		case "true":
			return true, nil
		case "false":
			return false, nil
		}
		return nil, invalid("%q must be true or false, not %s.", p.name, kindOf(raw))
	case kindObject:
		if raw[0] != '{' {
			return nil, invalid("%q must be an object, not %s.", p.name, kindOf(raw))
		}
		return json.RawMessage(raw), nil
	case kindChoice:
		var s string
		if json.Unmarshal(raw, &s) != nil || !slices.Contains(p.choices, s) {
			return nil, invalid("%q must be one of %s.", p.name, strings.Join(p.choices, ", "))
		}
		return s, nil
	}
	return string(raw) == "true", nil // kindTrue is checked by its tool
}

func (p param) absent(why string) (any, error) {
	if p.required && p.kind != kindTrue {
		return nil, invalid("%q %s: %s", p.name, why, p.about)
	}
	return nil, nil
}

func (p param) parseText(raw json.RawMessage) (any, error) {
	var s string
	if raw[0] != '"' || json.Unmarshal(raw, &s) != nil {
		return nil, invalid("%q must be a string, not %s.", p.name, kindOf(raw))
	}
	return s, p.checkText(s)
}

func (p param) checkText(s string) error {
	if p.required && !p.blank && strings.TrimSpace(s) == "" {
		return invalid("%q must not be blank.", p.name)
	}
	size, unit := utf8.RuneCountInString(s), "characters"
	if p.bytes {
		size, unit = len(s), "bytes"
	}
	if p.max > 0 && size > p.max {
		return invalid("%q has %d %s; at most %d are allowed.", p.name, size, unit, p.max)
	}
	if p.kind == kindLine && strings.ContainsFunc(s, isControl) {
		return invalid("%q must not hold control characters.", p.name)
	}
	return nil
}

func isControl(r rune) bool { return unicode.IsControl(r) && r != '\t' && r != '\n' }

func (p param) parseTags(raw json.RawMessage) (any, error) {
	var list []json.RawMessage
	if raw[0] != '[' || json.Unmarshal(raw, &list) != nil {
		return nil, invalid("%q must be a list of strings, not %s.", p.name, kindOf(raw))
	}
	if len(list) > maxTags {
		return nil, invalid("%q has %d entries; at most %d are allowed.", p.name, len(list), maxTags)
	}
	tags := []string{}
	for i, e := range list {
		item := param{name: fmt.Sprintf("%s[%d]", p.name, i), kind: kindLine, required: true, max: maxTag}
		v, err := item.parseText(bytes.TrimSpace(e))
		if err != nil {
			return nil, err
		}
		if t := strings.TrimSpace(v.(string)); !slices.Contains(tags, t) {
			tags = append(tags, t)
		}
	}
	return tags, nil
}

// parseInt takes a whole number, also as a string and with a fraction of zero.
func (p param) parseInt(raw json.RawMessage) (any, error) {
	text := string(raw)
	var s string
	if raw[0] == '"' && json.Unmarshal(raw, &s) == nil {
		text = strings.TrimSpace(s)
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || f != math.Trunc(f) || f < float64(p.min) || f > float64(p.max) {
		return nil, invalid("%q must be a whole number from %d to %d.", p.name, p.min, p.max)
	}
	return int(f), nil
}

// kindOf names what a JSON value is.
func kindOf(raw json.RawMessage) string {
	switch raw[0] {
	case '"':
		return "a string"
	case '{':
		return "an object"
	case '[':
		return "a list"
	case 't', 'f':
		return "a truth value"
	case 'n':
		return "null"
	}
	return "a number"
}

func (a args) has(name string) bool { _, ok := a[name]; return ok }

// text is a text argument; "" if it is not given or null.
func (a args) text(name string) string { s, _ := a[name].(string); return s }

// tags is a list argument; nil if it is not given.
func (a args) tags(name string) []string { l, _ := a[name].([]string); return l }

// number is a number argument, or preset.
func (a args) number(name string, preset int) int {
	if n, ok := a[name].(int); ok {
		return n
	}
	return preset
}

// clip cuts a text for a message.
func clip(s string, most int) string {
	if utf8.RuneCountInString(s) <= most {
		return s
	}
	return string([]rune(s)[:most-1]) + "…"
}
