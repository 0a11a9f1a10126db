package llm

import (
	"encoding/json"
	"regexp"
	"strings"

	"mneme/internal/agent"
)

// Some servers hand on a model's own notation of tool calls as text, when their
// parser misses it (bug-report case H08). Two notations are read:
//
//	<tool_call>{"name": "Read", "arguments": {"file_path": "x"}}</tool_call>
//	<function=Read><parameter=file_path>x</parameter></function>
//
// the second also inside the first one's tags. Text counts as calls only where
// nothing is left to guess: it ends with them, each is whole, and each names a
// tool that was offered. Everything else stays text.

// maxHeld bounds the text that waits for the end of a call.
const maxHeld = 1 << 20

var callMarkers = []string{"<tool_call>", "<function="}

// A callFilter holds text back from the first marker on, until it is clear
// whether the text is a call.
type callFilter struct {
	tools []agent.ToolDef // none = nothing is held
	held  strings.Builder
	// inCall says that held begins with a whole marker; otherwise it is a
	// beginning of one, so far.
	inCall bool
}

// push takes text and returns what may be shown.
func (f *callFilter) push(s string) string {
	if len(f.tools) == 0 || f.held.Len() == 0 && strings.IndexByte(s, '<') < 0 {
		return s
	}
	f.held.WriteString(s)
	text := f.held.String()
	if f.inCall {
		if len(text) > maxHeld || goesOnAfterCall(text) {
			return f.release()
		}
		return ""
	}
	at := markerStart(text)
	f.held.Reset()
	f.held.WriteString(text[at:])
	for _, m := range callMarkers {
		f.inCall = f.inCall || strings.HasPrefix(text[at:], m)
	}
	if f.inCall && goesOnAfterCall(text[at:]) {
		return text[:at] + f.release()
	}
	return text[:at]
}

// release gives up the text that was held.
func (f *callFilter) release() string {
	s := f.held.String()
	f.held.Reset()
	f.inCall = false
	return s
}

// markerStart is where the first marker begins in s, or the beginning of one at
// its end, or len(s).
func markerStart(s string) int {
	for i := strings.IndexByte(s, '<'); i >= 0 && i < len(s); {
		rest := s[i:]
		for _, m := range callMarkers {
			if strings.HasPrefix(rest, m) || strings.HasPrefix(m, rest) {
				return i
			}
		}
		next := strings.IndexByte(s[i+1:], '<')
		if next < 0 {
			break
		}
		i += 1 + next
	}
	return len(s)
}

// goesOnAfterCall says whether other text follows the last closing tag.
func goesOnAfterCall(s string) bool {
	end := 0
	for _, tag := range []string{"</tool_call>", "</function>"} {
		if i := strings.LastIndex(s, tag); i >= 0 {
			end = max(end, i+len(tag))
		}
	}
	if end == 0 {
		return false
	}
	rest := strings.TrimSpace(s[end:])
	return rest != "" && markerStart(rest) != 0 && !strings.HasPrefix("</tool_call>", rest)
}

// callsIn reads a text that is nothing but calls. It returns nil if it is not.
func callsIn(text string, tools []agent.ToolDef) []callDelta {
	var calls []callDelta
	for rest := strings.TrimSpace(text); rest != ""; rest = strings.TrimSpace(rest) {
		if len(calls) == maxCalls {
			return nil
		}
		body, after, tagged := rest, "", false
		if inner, ok := strings.CutPrefix(rest, "<tool_call>"); ok {
			if body, after, tagged = strings.Cut(inner, "</tool_call>"); !tagged {
				return nil
			}
			body = strings.TrimSpace(body)
		}
		var call callDelta
		var ok bool
		if strings.HasPrefix(body, "<function=") {
			var left string
			call, left, ok = functionCall(body, tools)
			if tagged {
				ok = ok && strings.TrimSpace(left) == ""
			} else {
				after = left
			}
		} else {
			call, ok = objectCall(body)
			ok = ok && tagged
		}
		if !ok || !offered(tools, string(call.Function.Name)) {
			return nil
		}
		calls = append(calls, call)
		rest = after
	}
	return calls
}

// objectCall reads {"name":…,"arguments":{…}}.
func objectCall(s string) (callDelta, bool) {
	var obj struct {
		Name       string          `json:"name"`
		Arguments  json.RawMessage `json:"arguments"`
		Parameters json.RawMessage `json:"parameters"`
	}
	if json.Unmarshal([]byte(s), &obj) != nil || obj.Name == "" {
		return callDelta{}, false
	}
	args := obj.Arguments
	if len(args) == 0 {
		args = obj.Parameters
	}
	if text := scalar(args); text != "" && args[0] == '"' {
		args = json.RawMessage(text)
	}
	if len(args) > 0 && (args[0] != '{' || !json.Valid(args)) {
		return callDelta{}, false
	}
	return callDelta{Function: functionDelta{Name: wireString(obj.Name), Arguments: wireString(args)}}, true
}

var parameterTag = regexp.MustCompile(`(?s)^\s*<parameter=([^>\s]+)>(.*?)</parameter>`)

// functionCall reads <function=name>…</function> and returns what follows it.
func functionCall(s string, tools []agent.ToolDef) (call callDelta, after string, ok bool) {
	name, rest, ok := strings.Cut(strings.TrimPrefix(s, "<function="), ">")
	if !ok {
		return call, "", false
	}
	name = strings.TrimSpace(name)
	types := parameterTypes(tools, name)
	args := []byte{'{'}
	for {
		m := parameterTag.FindStringSubmatchIndex(rest)
		if m == nil {
			break
		}
		key, value := rest[m[2]:m[3]], rest[m[4]:m[5]]
		value = strings.TrimSuffix(strings.TrimPrefix(value, "\n"), "\n")
		if len(args) > 1 {
			args = append(args, ',')
		}
		args = append(appendString(args, key), ':')
		if t := types[key]; t != "string" && t != "" && json.Valid([]byte(value)) {
			args = append(args, value...)
		} else {
			args = appendString(args, value)
		}
		rest = rest[m[1]:]
	}
	rest, ok = strings.CutPrefix(strings.TrimSpace(rest), "</function>")
	call.Function = functionDelta{Name: wireString(name), Arguments: wireString(append(args, '}'))}
	return call, rest, ok
}

// parameterTypes gives the JSON types of a tool's parameters, "" where the
// schema does not say one.
func parameterTypes(tools []agent.ToolDef, name string) map[string]string {
	types := make(map[string]string)
	for i := range tools {
		if tools[i].Name != name {
			continue
		}
		var schema struct {
			Properties map[string]struct {
				Type json.RawMessage `json:"type"`
			} `json:"properties"`
		}
		_ = json.Unmarshal(tools[i].Parameters, &schema) // without types all are strings
		for key, p := range schema.Properties {
			types[key] = scalar(p.Type)
		}
	}
	return types
}

// maxTries bounds the places where callsAtEnd looks for the first call.
const maxTries = 32

// callsAtEnd finds the calls that a text ends with, for reasoning that
// swallowed them.
func callsAtEnd(text string, tools []agent.ToolDef) []callDelta {
	var starts []int
	for i := 0; i < len(text); i++ {
		i += markerStart(text[i:])
		starts = append(starts, i)
	}
	for _, i := range starts[max(0, len(starts)-maxTries):] {
		if calls := callsIn(text[i:], tools); calls != nil {
			return calls
		}
	}
	return nil
}
