package mcpserver

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"mneme/protocol"
)

// versionModern is the first version of the modern era.
const versionModern = "2026-07-28"

// replyHeader is how the front tells the tools what it can send: a header that
// clients cannot set.
const (
	replyHeader = "Mneme-Reply"
	replyJSON   = "json" // one object only: nothing can be asked on the way
)

// isModern says that a call is of the modern era.
func isModern(req *mcp.CallToolRequest) bool { return req.ProtocolVersion() >= versionModern }

// canElicit says whether the person in front of the client can be asked.
func canElicit(req *mcp.CallToolRequest) bool {
	caps := req.ClientCapabilities()
	if caps == nil || caps.Elicitation == nil || caps.Elicitation.Form == nil && caps.Elicitation.URL != nil {
		return false
	}
	if isModern(req) || req.Extra == nil || req.Extra.Header == nil { // the latter is stdio
		return true
	}
	return req.Session.ID() != "" && req.Extra.Header.Get(replyHeader) != replyJSON
}

// elicitKey names the one question of an answer that asks for input.
const elicitKey = "answer"

// needsInput is the answer of the modern era that asks for input.
func needsInput(question *mcp.ElicitParams, state string) *mcp.CallToolResult {
	return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{elicitKey: question}, RequestState: state}
}

// given is the answer that a repeated call brings; nil = it brings none.
func given(req *mcp.CallToolRequest) *mcp.ElicitResult {
	r, _ := req.Params.InputResponses[elicitKey].(*mcp.ElicitResult)
	return r
}

// confirmed lets a call through that has confirm set to true, before anything
// else is looked at. Where it is configured and possible, the person is asked.
func (s *Server) confirmed(ctx context.Context, t *tool, c *call) (*mcp.CallToolResult, error) {
	if !slices.ContainsFunc(t.params, func(p param) bool { return p.kind == kindTrue }) {
		return nil, nil
	}
	fields, err := splitArgs(c.req.Params.Arguments)
	if err != nil {
		return nil, err
	}
	if strings.TrimSpace(string(fields["confirm"])) == "true" {
		return nil, nil
	}
	refused := fault(CodeConfirmation, `Nothing was deleted: "confirm" must be true. Set it only if the person you work for wants this agent deleted.`)
	if !s.cfg.ElicitConfirm || !canElicit(c.req) {
		return nil, refused
	}
	if c.req.Params.RequestState != "" {
		if _, err := s.states.open(ctx, c.req); err != nil {
			return nil, err
		}
		if r := given(c.req); r != nil {
			if r.Action == "accept" {
				return nil, nil
			}
			return nil, refused
		}
	}
	args, err := t.parse(c.req.Params.Arguments)
	if err != nil {
		return nil, err
	}
	ag, err := resolve(ctx, s.backend, args.text("agent_id"))
	if err != nil {
		return nil, err
	}
	question := &mcp.ElicitParams{
		Message:         fmt.Sprintf("Delete the agent %s (%s) with its conversations and its memory, for good?", ag.Name, ag.ID),
		RequestedSchema: emptyForm(),
	}
	if isModern(c.req) {
		return needsInput(question, s.states.seal(ctx, c.req, "")), nil
	}
	r, err := c.req.Session.Elicit(ctx, question)
	if err != nil || r.Action != "accept" {
		return nil, refused
	}
	return nil, nil
}

// emptyForm asks for nothing but accept or decline.
func emptyForm() map[string]any {
	return map[string]any{"type": "object", "properties": map[string]any{}}
}

// A form is what the person is shown for an approval, and how their answer is
// read.
type form struct {
	params    *mcp.ElicitParams
	questions []asked
	input     map[string]json.RawMessage
}

// asked is one question of the agent.
type asked struct {
	Question string `json:"question"`
	Header   string `json:"header"`
	Options  []struct {
		Label       string `json:"label"`
		Description string `json:"description"`
	} `json:"options"`
	MultiSelect bool `json:"multiSelect"`
}

const maxShown = 1000 // characters of a tool's input that are shown

// formFor makes the form of an approval. lists says that the client knows fields
// with several choices (2025-11-25 and later).
func formFor(agentName string, a *Approval, lists bool) form {
	f := form{}
	var in struct {
		Questions []asked `json:"questions"`
	}
	if a.Question && json.Unmarshal(a.Input, &in) == nil && json.Unmarshal(a.Input, &f.input) == nil && len(in.Questions) > 0 {
		f.questions = in.Questions
		f.params = &mcp.ElicitParams{Message: agentName + " asks:", RequestedSchema: questionForm(in.Questions, lists)}
		return f
	}
	f.params = &mcp.ElicitParams{
		Message:         fmt.Sprintf("%s wants to use %s with this input:\n%s\nAllow it?", agentName, a.Tool, clip(string(a.Input), maxShown)),
		RequestedSchema: emptyForm(),
	}
	return f
}

func questionForm(questions []asked, lists bool) map[string]any {
	properties, required := map[string]any{}, []string{}
	for i, q := range questions {
		labels := []string{}
		var about strings.Builder
		about.WriteString(q.Question)
		for _, o := range q.Options {
			labels = append(labels, o.Label)
			if o.Description != "" {
				fmt.Fprintf(&about, "\n%s: %s", o.Label, o.Description)
			}
		}
		field := map[string]any{"type": "string", "title": q.Header, "description": about.String()}
		switch {
		case len(labels) == 0:
		case q.MultiSelect && lists:
			field["type"], field["minItems"] = "array", 1
			field["items"] = map[string]any{"type": "string", "enum": labels}
		default:
			field["enum"] = labels
		}
		name := fmt.Sprintf("question_%d", i+1)
		properties[name] = field
		required = append(required, name)
	}
	return map[string]any{"type": "object", "properties": properties, "required": required}
}

// decision reads the answer; false if the person does not allow it.
func (f form) decision(r *mcp.ElicitResult) (Decision, bool) {
	if r.Action != "accept" {
		return Decision{}, false
	}
	if f.questions == nil {
		return Decision{Allow: true}, true
	}
	answers := map[string]string{}
	for i, q := range f.questions {
		switch v := r.Content[fmt.Sprintf("question_%d", i+1)].(type) {
		case string:
			answers[q.Question] = v
		case []any:
			var chosen []string
			for _, e := range v {
				chosen = append(chosen, fmt.Sprint(e))
			}
			answers[q.Question] = strings.Join(chosen, ", ")
		}
	}
	if len(answers) == 0 {
		return Decision{}, false
	}
	raw, err := protocol.Marshal(answers)
	if err != nil {
		return Decision{}, false
	}
	f.input["answers"] = raw
	input, err := protocol.Marshal(f.input)
	if err != nil {
		return Decision{}, false
	}
	return Decision{Allow: true, Input: input}, true
}
