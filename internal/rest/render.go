package rest

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"mneme/internal/agent"
	"mneme/internal/prompt"
)

// A view says how a client wants to see messages. It is stored with the run that
// a send begins, so that its stream can be shown again.
type view struct {
	Tokens     bool     `json:"tokens,omitempty"` // deltas instead of whole variants
	Pings      bool     `json:"pings,omitempty"`
	Compaction bool     `json:"compaction,omitempty"`
	Types      []string `json:"types"` // of messages; nil = all
	// SpeakTool is the tool by which older types of agents speak: its calls show as
	// assistant messages with the argument SpeakArg, and their text as reasoning.
	// "" = text is what the agent says.
	SpeakTool string `json:"speak_tool,omitempty"`
	SpeakArg  string `json:"speak_arg,omitempty"`
}

// wants says whether the view has messages of a type.
func (v *view) wants(typ string) bool { return v.Types == nil || slices.Contains(v.Types, typ) }

// A span is one variant of a stored assistant message: what kind it is, which
// parts it shows and its index within the message.
//
// Indexes are given first to what shows while the answer streams, in the order in
// which that begins: each reasoning or text part is one variant, all calls
// together are one. What has nothing to stream (hidden reasoning) comes after, so
// that a stream knows every index before it has seen the whole message.
type span struct {
	typ   string
	parts []agent.Part
	index int
}

// layout cuts the parts of an assistant message into spans, in the order in which
// they are shown.
func (v *view) layout(parts []agent.Part) []span {
	var spans []span
	calls := -1
	n := 0
	for _, p := range parts {
		s := span{parts: []agent.Part{p}, index: n}
		switch {
		case p.Kind == agent.PartText && p.Text != "":
			s.typ = typeAssistant
		case p.Kind == agent.PartReasoning && p.Text != "":
			s.typ = typeReasoning
		case p.Kind == agent.PartReasoning && (len(p.Meta) > 0 || p.Signature != ""):
			s.typ, s.index = typeHidden, -1
		case p.Kind == agent.PartToolCall && v.SpeakTool != "" && p.Call.Name == v.SpeakTool:
			s.typ = typeAssistant
		case p.Kind == agent.PartToolCall && calls >= 0:
			spans[calls].parts = append(spans[calls].parts, p)
			continue
		case p.Kind == agent.PartToolCall:
			s.typ, calls = typeCall, len(spans)
		default:
			continue
		}
		if s.index >= 0 {
			n++
		}
		spans = append(spans, s)
	}
	for i := range spans {
		if spans[i].index < 0 {
			spans[i].index = n
			n++
		}
	}
	return spans
}

// assistant renders a stored assistant message. waited says of a call that it
// waits or waited for somebody's answer.
func (v *view) assistant(m *agent.Message, waited func(callID string) bool) []variant {
	var out []variant
	for _, s := range v.layout(m.Parts) {
		out = append(out, v.span(m, s, waited)...)
	}
	return out
}

// span renders one variant; calls of which some waited are two.
func (v *view) span(m *agent.Message, s span, waited func(string) bool) []variant {
	p := s.parts[0]
	switch s.typ {
	case typeReasoning:
		return []variant{&reasoningVariant{
			head: newHead(typeReasoning, m, s.index), Source: "reasoner_model", Reasoning: p.Text, Signature: text(p.Signature),
		}}
	case typeHidden:
		h := &hiddenVariant{head: newHead(typeHidden, m, s.index), State: "omitted"}
		if len(p.Meta) > 0 {
			h.State, h.Hidden = "redacted", new(string(p.Meta))
		}
		return []variant{h}
	case typeCall:
		return callVariants(m, s, waited)
	}
	if p.Kind == agent.PartText && v.SpeakTool != "" {
		return []variant{&reasoningVariant{head: newHead(typeReasoning, m, s.index), Source: "non_reasoner_model", Reasoning: p.Text}}
	}
	a := &assistantVariant{head: newHead(typeAssistant, m, s.index), Content: p.Text}
	if p.Kind == agent.PartToolCall {
		a.Content = v.spoken(p.Call)
	}
	return []variant{a}
}

// callVariants shows the calls of a message: those that run by themselves, and
// those that waited as a message of their own.
func callVariants(m *agent.Message, s span, waited func(string) bool) []variant {
	var own, asked []wireCall
	for _, p := range s.parts {
		c := wireCall{Name: p.Call.Name, Arguments: p.Call.Arguments, ID: p.Call.ID}
		if waited(c.ID) {
			asked = append(asked, c)
		} else {
			own = append(own, c)
		}
	}
	var out []variant
	if len(own) > 0 {
		out = append(out, &callVariant{head: newHead(typeCall, m, s.index), Call: own[0], Calls: own})
	}
	if len(asked) > 0 {
		out = append(out, &callVariant{head: requestHead(m), Call: asked[0], Calls: asked})
	}
	return out
}

// requestHead is the head of the approval request of a message: its otid is its id.
func requestHead(m *agent.Message) head {
	h := newHead(typeRequest, m, 0)
	h.ID = requestID(m.ID)
	h.OTID = new(h.ID)
	return h
}

// spoken is what a call of the speaking tool says.
func (v *view) spoken(c *agent.CallPart) string {
	var args map[string]json.RawMessage
	var said string
	if json.Unmarshal([]byte(c.Arguments), &args) != nil || json.Unmarshal(args[v.SpeakArg], &said) != nil {
		return c.Arguments
	}
	return said
}

// A group are the results of one step that are stored: over REST they are one
// message, named by the first that came. In call order.
type group struct {
	first *agent.Message // the one with the lowest Seq
	all   []*agent.Message
}

// newGroup orders the results of a step; order gives the place of a call.
func newGroup(msgs []*agent.Message, order func(callID string) int) group {
	g := group{all: slices.Clone(msgs)}
	g.first = slices.MinFunc(msgs, func(a, b *agent.Message) int { return cmp.Compare(a.Seq, b.Seq) })
	slices.SortStableFunc(g.all, func(a, b *agent.Message) int {
		return cmp.Or(cmp.Compare(order(a.CallID), order(b.CallID)), cmp.Compare(a.Seq, b.Seq))
	})
	return g
}

// returns renders the results of a step; nil if the view hides them all.
func (v *view) returns(g group) variant {
	shown := g.all
	if v.SpeakTool != "" {
		shown = slices.DeleteFunc(slices.Clone(shown), func(m *agent.Message) bool { return m.Name == v.SpeakTool })
	}
	if len(shown) == 0 {
		return nil
	}
	r := &returnVariant{head: newHead(typeReturn, g.first, 0)}
	for _, m := range shown {
		r.Returns = append(r.Returns, wireReturn{
			Type: "tool", Return: returnContent(m.Parts), Status: string(m.Status), CallID: m.CallID,
			Stdout: m.Stdout, Stderr: m.Stderr,
		})
	}
	r.Name = text(shown[0].Name)
	one := r.Returns[0]
	r.Return, r.Status, r.CallID, r.Stdout, r.Stderr = plainReturn(shown[0].Parts), one.Status, one.CallID, one.Stdout, one.Stderr
	return r
}

// returnContent is a result as text, or as parts if it has an image.
func returnContent(parts []agent.Part) any {
	if slices.ContainsFunc(parts, func(p agent.Part) bool { return p.Kind == agent.PartImage }) {
		return contentParts(parts)
	}
	return plainReturn(parts)
}

// plainReturn joins the texts of a result; images leave a mark.
func plainReturn(parts []agent.Part) string {
	var lines []string
	for _, p := range parts {
		if p.Kind == agent.PartImage {
			lines = append(lines, "[image "+p.MediaType+"]")
			continue
		}
		lines = append(lines, p.Text)
	}
	return strings.Join(lines, "\n")
}

// contentParts renders texts and images.
func contentParts(parts []agent.Part) []any {
	out := []any{}
	for _, p := range parts {
		switch p.Kind {
		case agent.PartText:
			out = append(out, wireText{Type: "text", Text: p.Text})
		case agent.PartImage:
			out = append(out, wireImage{Type: "image", Source: imageSource{Type: "base64", MediaType: p.MediaType, Data: p.Data}})
		}
	}
	return out
}

// user renders what somebody said: a text if it is exactly one.
func user(m *agent.Message) variant {
	u := &userVariant{head: inputHead(typeUser, m)}
	if len(m.Parts) == 1 && m.Parts[0].Kind == agent.PartText {
		u.Content = m.Parts[0].Text
	} else {
		u.Content = contentParts(m.Parts)
	}
	return u
}

// inputHead is the head of a message that came in: it has no step, and the otid
// that its sender gave it.
func inputHead(typ string, m *agent.Message) head {
	h := newHead(typ, m, 0)
	h.StepID, h.Name, h.SenderID = nil, text(m.Name), text(m.SenderID)
	if m.OTID != "" {
		h.OTID = new(m.OTID)
	}
	return h
}

// summary renders a stored summary: as old clients know it unless the view asks
// for summary messages (spec/rest.md section 3).
func (v *view) summary(m *agent.Message) variant {
	if slices.Contains(v.Types, typeSummary) {
		return summaryMessage(m)
	}
	return &userVariant{head: inputHead(typeUser, m), Content: prompt.PackSummary(m)}
}

func summaryMessage(m *agent.Message) *summaryVariant {
	return &summaryVariant{head: inputHead(typeSummary, m), Summary: agent.TextOf(m.Parts), Stats: statsOf(m.Stats)}
}

// response renders the stored answers to waiting calls.
func response(m *agent.Message) variant {
	r := &responseVariant{head: inputHead(typeResponse, m), Approvals: []any{}}
	r.StepID = text(m.StepID)
	var stored struct {
		Approvals []struct {
			wireReturn
			Approve bool    `json:"approve"`
			Reason  *string `json:"reason"`
		} `json:"approvals"`
	}
	if len(m.Stats) > 0 {
		_ = json.Unmarshal(m.Stats, &stored) // it was written by the runtime
	}
	for i, a := range stored.Approvals {
		if a.Type == "tool" {
			r.Approvals = append(r.Approvals, a.wireReturn)
			continue
		}
		a.Reason = reasonOf(a.Reason)
		r.Approvals = append(r.Approvals, wireApproval{Type: "approval", CallID: a.CallID, Approve: a.Approve, Reason: a.Reason})
		if r.Approve == nil {
			one := &stored.Approvals[i]
			r.Approve, r.RequestID, r.Reason = &one.Approve, &one.CallID, a.Reason
		}
	}
	return r
}

// reasonOf is the reason that a person gave for a denial: what is stored is the text
// that the model sees.
func reasonOf(stored *string) *string {
	if stored == nil || *stored == "" || *stored == denialPrefix {
		return nil
	}
	return new(strings.TrimPrefix(*stored, denialReason))
}

// stored renders a message that stands alone: all but the results of tools.
func (v *view) stored(m *agent.Message, waited func(string) bool) []variant {
	switch m.Role {
	case agent.RoleAssistant:
		all := v.assistant(m, waited)
		if m.StepID == "" && len(all) > 0 { // sent by a client
			h := all[0].base()
			h.Name, h.SenderID = text(m.Name), text(m.SenderID)
			if m.OTID != "" {
				h.OTID = new(m.OTID)
			}
		}
		return all
	case agent.RoleUser:
		return []variant{user(m)}
	case agent.RoleNotice:
		if m.OTID == "" {
			return nil // from the harness, for the model alone
		}
		return []variant{&systemVariant{head: inputHead(typeSystem, m), Content: agent.TextOf(m.Parts)}}
	case agent.RoleSystem:
		return []variant{&systemVariant{head: inputHead(typeSystem, m), Content: agent.TextOf(m.Parts)}}
	case agent.RoleSummary:
		return []variant{v.summary(m)}
	case agent.RoleApproval:
		return []variant{response(m)}
	}
	return nil
}

// keep filters variants by their type.
func (v *view) keep(all []variant) []variant {
	if v.Types == nil {
		return all
	}
	return slices.DeleteFunc(all, func(x variant) bool { return !v.wants(x.base().Type) })
}
