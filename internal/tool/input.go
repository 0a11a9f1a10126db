package tool

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"mneme/internal/agent"
)

// ParseInput turns a model's raw arguments into a JSON object. Text that
// can be mended without guessing at missing pieces is: a code fence around it,
// an object inside a JSON string, raw line breaks inside strings, trailing
// commas. It returns nil for anything else, above all for arguments that were
// cut: half a file must never be written (spec/harness.md section 1.4). No text
// at all is an empty object.
func ParseInput(raw string) json.RawMessage {
	raw = strings.TrimSpace(raw)
	if raw == "" {
		return json.RawMessage("{}")
	}
	if in := object(raw); in != nil {
		return in
	}
	var inner string
	if json.Unmarshal([]byte(raw), &inner) == nil {
		return object(inner)
	}
	if rest, found := strings.CutPrefix(raw, "```"); found {
		rest = strings.TrimPrefix(rest, "json")
		raw = strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "```"))
	}
	return object(mend(raw))
}

func object(s string) json.RawMessage {
	b := bytes.TrimSpace([]byte(s))
	if len(b) == 0 || b[0] != '{' || !json.Valid(b) {
		return nil
	}
	return b
}

// mend escapes control characters inside strings and drops commas in front of
// a closing bracket.
func mend(s string) string {
	var out strings.Builder
	inString := false
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case inString && c == '\\' && i+1 < len(s) && s[i+1] >= 0x20:
			out.WriteByte(c)
			i++
			out.WriteByte(s[i])
		case inString && c < 0x20:
			fmt.Fprintf(&out, `\u%04x`, c)
		case c == '"':
			inString = !inString
			out.WriteByte(c)
		case !inString && c == ',' && closes(s[i+1:]):
		default:
			out.WriteByte(c)
		}
	}
	return out.String()
}

func closes(s string) bool {
	s = strings.TrimLeft(s, " \t\r\n")
	return s != "" && (s[0] == '}' || s[0] == ']')
}

// missing is the text that refuses a call for lack of parameters, "" if there
// is nothing to refuse. The wording is the wire's (tool-missing-args transcript).
func missing(t *Tool, c *Call) string {
	names, values := members(c.Input)
	var lacks []string
	for _, name := range t.Required {
		if v, ok := values[name]; !ok || string(v) == "null" {
			lacks = append(lacks, name)
		}
	}
	switch {
	case len(lacks) > 0:
	case c.Input == nil:
		return t.Def.Name + " tool arguments are not valid JSON. Send them again as one JSON object."
	default:
		return ""
	}
	plural := ""
	if len(lacks) > 1 {
		plural = "s"
	}
	text := fmt.Sprintf("%s tool missing required parameter%s: %s. Received parameters: %s",
		t.Def.Name, plural, strings.Join(lacks, ", "), strings.Join(names, ", "))
	if len(names) == 0 {
		text += ". The tool call arrived with empty arguments, which usually means they were dropped in transit" +
			" rather than omitted by you. Do not resend an identical call - re-issue it with the arguments" +
			" restructured (e.g. write long payloads to a file first)."
	}
	return text
}

// members returns the keys of a JSON object in the order they stand in, and
// their values.
func members(input json.RawMessage) (names []string, values map[string]json.RawMessage) {
	if json.Unmarshal(input, &values) != nil {
		return nil, nil
	}
	dec := json.NewDecoder(bytes.NewReader(input))
	_, _ = dec.Token() // the brace: the text is valid
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			break
		}
		var skip json.RawMessage
		if dec.Decode(&skip) != nil {
			break
		}
		if name, ok := key.(string); ok && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names, values
}

// NotFound is the result of a call of a tool that the turn does not have.
func NotFound(name string, known []string) agent.ToolResult {
	list, err := json.Marshal(append([]string{}, known...))
	if err != nil {
		return failf("Tool not found: %s", name)
	}
	return agent.TextResult(agent.StatusError, fmt.Sprintf("Tool not found: %s. Available tools: %s", name, list))
}

// Interrupted is the result of a call that an abort ended.
func Interrupted() agent.ToolResult {
	return agent.TextResult(agent.StatusError, "Interrupted by user")
}

// decode reads the input of a call into args. The second result is what the
// model shall see if a parameter has a wrong type.
func decode(c *Call, args any) (agent.ToolResult, bool) {
	if err := json.Unmarshal(c.Input, args); err != nil {
		return failf("Invalid arguments for %s: %v", c.Name, plainJSONError(err)), false
	}
	return agent.ToolResult{}, true
}

func plainJSONError(err error) string {
	if e, ok := err.(*json.UnmarshalTypeError); ok {
		return fmt.Sprintf("%s must not be a %s", e.Field, e.Value)
	}
	return err.Error()
}

func failf(format string, args ...any) agent.ToolResult {
	return agent.TextResult(agent.StatusError, fmt.Sprintf(format, args...))
}

func success(text string) agent.ToolResult {
	return agent.TextResult(agent.StatusSuccess, text)
}

// A number is an integer parameter; models also send "5" and 5.0.
type number int

func (n *number) UnmarshalJSON(b []byte) error {
	s := strings.Trim(string(b), `"`)
	if s == "null" || s == "" {
		return nil
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || f != float64(int(f)) {
		return fmt.Errorf("%s is not a whole number", b)
	}
	*n = number(f)
	return nil
}

// A flag is a boolean parameter; models also send "true".
type flag bool

func (f *flag) UnmarshalJSON(b []byte) error {
	switch strings.ToLower(strings.Trim(string(b), `"`)) {
	case "true":
		*f = true
	case "false", "null", "":
		*f = false
	default:
		return fmt.Errorf("%s is not true or false", b)
	}
	return nil
}
