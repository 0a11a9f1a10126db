// Package offline is the model that is always there: mneme/offline. It needs no
// network and no key, and the same request always gets the same answer. It is no
// language model. It does two things with an agent's memory, and says how to
// connect a real model for everything else (spec/harness.md section 6.3):
//
//	"remember that …"            adds a line to system/notes.md with the memory tool
//	"what do you know about …"   quotes the lines of the core memory that fit
//
// What it knows it reads from the request, as any model does: the core memory in
// the system prompt, and the notices that came later. A long text without tools
// that looks like a transcript is a request for a summary; it gets the beginning
// of each message.
//
// One answer looks at the exchange: everything after the last answer without
// calls. Facts whose call has no result yet are called for; once all have one,
// the answer says what came of them.
package offline

import (
	"context"
	"iter"
	"strings"
	"unicode/utf8"

	"mneme/internal/agent"
	"mneme/internal/llm"
)

// Model is the offline model. The zero value is ready.
type Model struct{}

var _ llm.Model = Model{}

// New returns the offline model.
func New() Model { return Model{} }

// Stream answers, word by word.
func (Model) Stream(ctx context.Context, req *llm.Request) iter.Seq2[llm.Part, error] {
	return func(yield func(llm.Part, error) bool) {
		text, calls := answer(req)
		out := 0
		for _, p := range parts(text, calls) {
			if err := ctx.Err(); err != nil {
				yield(llm.Part{}, err)
				return
			}
			if !yield(p, nil) {
				return
			}
			out++
		}
		usage := agent.Usage{Input: inputTokens(req), Output: out, Reported: true}
		if !yield(llm.Part{Kind: llm.PartUsage, Usage: usage}, nil) {
			return
		}
		finish := llm.FinishStop
		if len(calls) > 0 {
			finish = llm.FinishCalls
		}
		yield(llm.Part{Kind: llm.PartFinish, Finish: finish}, nil)
	}
}

// parts cuts a text behind its spaces and appends the calls.
func parts(text string, calls []agent.CallPart) []llm.Part {
	var out []llm.Part
	for text != "" {
		end := len(text)
		if i := strings.IndexAny(text, " \n"); i >= 0 {
			end = i + len(text[i:]) - len(strings.TrimLeft(text[i:], " \n"))
		}
		out = append(out, llm.Part{Kind: llm.PartText, Text: text[:end]})
		text = text[end:]
	}
	for i := range calls {
		out = append(out, llm.Part{Kind: llm.PartCall, Call: &calls[i]})
	}
	return out
}

// inputTokens estimates the size of a request at four characters per token.
func inputTokens(req *llm.Request) int {
	n := utf8.RuneCountInString(req.System)
	for _, m := range req.Messages {
		n += utf8.RuneCountInString(m.Context)
		for i := range m.Parts {
			n += utf8.RuneCountInString(m.Parts[i].Text)
			if c := m.Parts[i].Call; c != nil {
				n += len(c.Name) + len(c.Arguments)
			}
		}
	}
	for i := range req.Tools {
		n += len(req.Tools[i].Name) + len(req.Tools[i].Description) + len(req.Tools[i].Parameters)
	}
	return n / 4
}

const (
	help = "I am mneme's offline model: there is no language model behind me. I can keep facts in memory " +
		"(\"remember that …\") and find them again (\"what do you know about …\"). For everything else connect a model " +
		"with `mneme connect`: LM Studio, Ollama and llama.cpp work on this machine, OpenAI, OpenRouter and many others with a key."
	noTool = "I cannot store that: this conversation has no memory tool."
)

// answer decides what to say and which tools to call.
func answer(req *llm.Request) (text string, calls []agent.CallPart) {
	ex := lastExchange(req.Messages)
	if len(req.Tools) == 0 {
		if s := digest(ex.texts); s != "" {
			return s, nil
		}
	}
	mem := readMemory(req)
	var facts, replies []string
	for _, t := range ex.texts {
		if fact, ok := factIn(t); ok {
			facts = append(facts, fact)
		}
	}
	if len(facts) > 0 {
		said, needed := remember(facts, ex, mem, hasTool(req.Tools))
		if len(needed) > 0 {
			return "", needed
		}
		replies = append(replies, said)
	}
	for _, t := range ex.texts {
		if _, ok := factIn(t); ok {
			continue
		}
		if s := recall(t, mem); s != "" {
			replies = append(replies, s)
		}
	}
	if len(replies) == 0 {
		return help, nil
	}
	return strings.Join(replies, "\n\n"), nil
}

func hasTool(tools []agent.ToolDef) bool {
	for i := range tools {
		if tools[i].Name == toolName {
			return true
		}
	}
	return false
}

// An exchange is what came after the last answer without calls.
type exchange struct {
	texts []string // of the user
	calls []settled
	steps int // answers with calls
}

// A settled is a call of the memory tool with its result.
type settled struct {
	args   arguments
	ok     bool
	result string
}

func lastExchange(msgs []*agent.Message) exchange {
	start := 0
	for i, m := range msgs {
		if m.Role == agent.RoleAssistant && len(m.Calls()) == 0 {
			start = i + 1
		}
	}
	var ex exchange
	open := make(map[string]arguments)
	for _, m := range msgs[start:] {
		switch m.Role {
		case agent.RoleUser:
			if t := strings.TrimSpace(agent.TextOf(m.Parts)); t != "" {
				ex.texts = append(ex.texts, t)
			}
		case agent.RoleAssistant:
			ex.steps++
			for _, c := range m.Calls() {
				if c.Name == toolName {
					open[c.ID] = parseArguments(c.Arguments)
				}
			}
		case agent.RoleTool:
			if args, ok := open[m.CallID]; ok {
				ex.calls = append(ex.calls, settled{args: args, ok: m.Status != agent.StatusError, result: agent.TextOf(m.Parts)})
			}
		}
	}
	return ex
}
