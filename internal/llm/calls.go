package llm

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"strings"

	"mneme/internal/agent"
)

// maxCalls bounds the tool calls of one answer.
const maxCalls = 128

// A partialCall is a tool call whose pieces are still coming.
type partialCall struct {
	index int // as the server counts; -1 = it does not
	id    string
	name  string
	args  strings.Builder
}

// complete says whether the arguments so far are a whole JSON object. It looks
// at their end first: it is asked with every piece.
func (c *partialCall) complete() bool {
	args := strings.TrimRight(c.args.String(), " \t\r\n")
	return strings.HasSuffix(args, "}") && json.Valid([]byte(args))
}

// callSet puts tool calls together from their pieces. Servers differ in how
// they say which call a piece belongs to (bug-report cases H08): by index, by
// id, by a name that begins a new call, or not at all.
type callSet struct {
	calls []*partialCall
	tools []agent.ToolDef
}

// add takes one piece. ok is false beyond maxCalls.
func (s *callSet) add(d callDelta) (ok bool) {
	id, name, args := string(d.ID), string(d.Function.Name), string(d.Function.Arguments)
	if id == "" && name == "" && args == "" {
		return true
	}
	c := s.find(d.Index, id, name)
	if c == nil {
		if len(s.calls) == maxCalls {
			return false
		}
		c = &partialCall{index: -1, id: id}
		if d.Index != nil {
			c.index = *d.Index
		}
		s.calls = append(s.calls, c)
	}
	if c.id == "" {
		c.id = id
	}
	c.addName(name, s.tools)
	c.args.WriteString(args)
	return true
}

// find gives the call that a piece continues; nil = it begins a new one.
func (s *callSet) find(index *int, id, name string) *partialCall {
	var c *partialCall
	switch {
	case len(s.calls) == 0:
		return nil
	case index != nil:
		c = s.last(func(c *partialCall) bool { return c.index == *index })
	case id != "":
		c = s.last(func(c *partialCall) bool { return c.id == id })
		if c == nil && name == "" {
			c = s.calls[len(s.calls)-1]
		}
	default:
		c = s.calls[len(s.calls)-1]
	}
	if c == nil || name == "" || c.name == "" {
		return c
	}
	// A piece with a name begins a call, unless it only says again which call
	// it belongs to.
	switch newID := id != "" && c.id != "" && id != c.id; {
	case newID && (name != c.name || c.args.Len() == 0 || c.complete()):
		return nil
	case id == "" && c.complete():
		return nil
	case id == "" && index == nil && name != c.name:
		return nil
	}
	return c
}

// last finds the newest call that fits; an index may be used again.
func (s *callSet) last(fits func(*partialCall) bool) *partialCall {
	for i := len(s.calls) - 1; i >= 0; i-- {
		if fits(s.calls[i]) {
			return s.calls[i]
		}
	}
	return nil
}

// addName takes a name, which may be repeated, or come in pieces.
func (c *partialCall) addName(name string, tools []agent.ToolDef) {
	switch {
	case name == "" || name == c.name:
	case c.name == "":
		c.name = name
	case c.args.Len() == 0 && !offered(tools, c.name):
		c.name += name
	}
}

func offered(tools []agent.ToolDef, name string) bool {
	for i := range tools {
		if tools[i].Name == name {
			return true
		}
	}
	return false
}

// finish gives the calls in the order they began. Ids that are missing, or that
// are used already in this answer or in the request's messages, are made anew.
// onlyComplete leaves out calls whose arguments were cut off.
func (s *callSet) finish(history []*agent.Message, onlyComplete bool) []*agent.CallPart {
	if len(s.calls) == 0 {
		return nil
	}
	used := make(map[string]bool)
	for _, m := range history {
		for i := range m.Parts {
			if c := m.Parts[i].Call; c != nil {
				used[c.ID] = true
			}
		}
	}
	var out []*agent.CallPart
	for _, c := range s.calls {
		if onlyComplete && !c.complete() {
			continue
		}
		id := c.id
		if id == "" || used[id] {
			id = newCallID()
		}
		used[id] = true
		out = append(out, &agent.CallPart{ID: id, Name: c.name, Arguments: wholeArguments(c.args.String())})
	}
	return out
}

// wholeArguments is "{}" for a call without arguments, else the text as it came.
func wholeArguments(args string) string {
	switch strings.TrimSpace(args) {
	case "", "null":
		return "{}"
	}
	return args
}

func newCallID() string {
	var b [12]byte
	rand.Read(b[:]) // never fails
	return "call_" + hex.EncodeToString(b[:])
}
