package llm

import (
	"encoding/json"
	"slices"
	"strings"

	"mneme/internal/agent"
)

// A feature is an optional part of a request that some servers refuse.
type feature uint32

// The features. A server that refuses one gets requests without it from then on.
const (
	featStore         feature = 1 << iota // store:false
	featStreamOptions                     // stream_options
	featNewMaxTokens                      // max_completion_tokens instead of max_tokens
	featParallel                          // parallel_tool_calls
	featReasoning                         // reasoning sent back on its field
	featNullContent                       // content:null beside tool calls
	featParts                             // content as a list of text parts
	featEffort                            // reasoning_effort
)

const allFeatures = featStore | featStreamOptions | featNewMaxTokens | featParallel |
	featReasoning | featNullContent | featParts | featEffort

// Texts that stand for something that is not there.
const (
	noOutput     = "(no output)"
	noResult     = "No result was recorded for this call; it may not have run."
	imagesBelow  = "(image in the next message)"
	resultImages = "<system-reminder>This is the image of the tool result above.</system-reminder>"
)

// An encoder writes a chat-completions request (spec/harness.md section 1.1).
// It appends JSON and builds nothing in between; the request's messages are
// only read.
type encoder struct {
	buf  []byte
	with feature // what the server takes
	used feature // what this request made use of
	// model names the model whose signed reasoning may go back.
	model    string
	tools    []agent.ToolDef
	settings map[string]json.RawMessage
}

// encodeRequest writes req for a server that takes the features with. used says
// which of them are in it. cacheKey is sent as prompt_cache_key unless empty.
func encodeRequest(req *Request, with feature, cacheKey string) (body []byte, used feature) {
	e := encoder{with: with, model: req.Model, tools: req.Tools}
	e.buf = make([]byte, 0, sizeHint(req))
	if len(req.Settings) > 0 {
		// Settings are checked where they are stored; what is no object is ignored.
		_ = json.Unmarshal(req.Settings, &e.settings)
	}
	e.raw(`{"model":`)
	e.str(req.Model)
	e.raw(`,"messages":[`)
	if req.System != "" {
		e.raw(`{"role":"system","content":`)
		e.str(req.System)
		e.raw(`}`)
	}
	e.messages(req.Messages)
	e.raw(`],"stream":true`)
	if e.may(featStreamOptions) {
		e.raw(`,"stream_options":{"include_usage":true}`)
	}
	if e.may(featStore) {
		e.raw(`,"store":false`)
	}
	e.maxTokens(req.MaxOutput)
	if cacheKey != "" {
		e.raw(`,"prompt_cache_key":`)
		e.str(clip(cacheKey, 64))
	}
	e.toolDefs()
	e.modelSettings()
	e.raw(`}`)
	return e.buf, e.used
}

// sizeHint is about the size of the body, so that it is allocated once.
func sizeHint(req *Request) int {
	n := 1024 + len(req.System) + len(req.System)/16
	for _, m := range req.Messages {
		n += 128 + len(m.Context)
		for i := range m.Parts {
			p := &m.Parts[i]
			n += 64 + len(p.Text) + len(p.Text)/16 + len(p.Data) + len(p.Meta)
			if p.Call != nil {
				n += 128 + len(p.Call.Arguments) + len(p.Call.Arguments)/4
			}
		}
	}
	for i := range req.Tools {
		n += 128 + len(req.Tools[i].Description) + len(req.Tools[i].Description)/16 + len(req.Tools[i].Parameters)
	}
	return n
}

// may says whether the server takes a feature, and notes its use.
func (e *encoder) may(f feature) bool {
	if e.with&f == 0 {
		return false
	}
	e.used |= f
	return true
}

func (e *encoder) raw(s string) { e.buf = append(e.buf, s...) }
func (e *encoder) str(s string) { e.buf = appendString(e.buf, s) }

// comma separates list elements.
func (e *encoder) comma() {
	if last := e.buf[len(e.buf)-1]; last != '[' && last != '{' {
		e.buf = append(e.buf, ',')
	}
}

func (e *encoder) messages(all []*agent.Message) {
	msgs := sendable(all)
	for i, m := range msgs {
		switch m.Role {
		case agent.RoleAssistant:
			e.assistant(m, resultsAfter(msgs, i))
		case agent.RoleTool: // written behind the call; without one it is an orphan
		default:
			e.user(m)
		}
	}
}

// sendable picks what the model may see and drops assistant messages at the
// end: a request must end with the user's or a tool's word.
func sendable(all []*agent.Message) []*agent.Message {
	msgs := make([]*agent.Message, 0, len(all))
	for _, m := range all {
		if m.Hidden || m.Interrupted {
			continue
		}
		switch m.Role {
		case agent.RoleUser, agent.RoleAssistant, agent.RoleTool, agent.RoleNotice, agent.RoleSummary:
			msgs = append(msgs, m)
		}
	}
	for len(msgs) > 0 && endsWithNothing(msgs) {
		msgs = msgs[:len(msgs)-1]
	}
	return msgs
}

// endsWithNothing says whether the last message must not, or will not, be the
// end of a request: an assistant's without calls, a result without a call, an
// empty one of the user.
func endsWithNothing(msgs []*agent.Message) bool {
	last := msgs[len(msgs)-1]
	switch last.Role {
	case agent.RoleAssistant:
		return !hasCalls(last)
	case agent.RoleTool:
		for i := len(msgs) - 2; i >= 0; i-- {
			if m := msgs[i]; m.Role == agent.RoleAssistant {
				return !slices.ContainsFunc(m.Calls(), func(c agent.CallPart) bool { return c.ID == last.CallID })
			}
		}
		return true
	}
	return userContent(last) == (contentCount{})
}

func hasCalls(m *agent.Message) bool {
	return slices.ContainsFunc(m.Parts, func(p agent.Part) bool { return p.Kind == agent.PartToolCall && p.Call != nil })
}

// resultsAfter gives the messages between an assistant message and the next.
func resultsAfter(msgs []*agent.Message, i int) []*agent.Message {
	rest := msgs[i+1:]
	if n := slices.IndexFunc(rest, func(m *agent.Message) bool { return m.Role == agent.RoleAssistant }); n >= 0 {
		rest = rest[:n]
	}
	return rest
}

// A contentCount is what a user message holds.
type contentCount struct{ texts, images int }

func userContent(m *agent.Message) (n contentCount) {
	if m.Context != "" {
		n.texts++
	}
	for i := range m.Parts {
		switch p := &m.Parts[i]; {
		case p.Kind == agent.PartText && p.Text != "":
			n.texts++
		case p.Kind == agent.PartImage && p.Data != "":
			n.images++
		}
	}
	return n
}

// user writes a user message, a notice or a summary; nothing if it is empty.
func (e *encoder) user(m *agent.Message) {
	n := userContent(m)
	if n == (contentCount{}) {
		return
	}
	e.comma()
	e.raw(`{"role":"user","content":`)
	switch {
	case n.images == 0 && n.texts == 1:
		e.str(joinTexts(m, ""))
	case n.images == 0 && !e.may(featParts):
		e.str(joinTexts(m, "\n\n"))
	default:
		e.raw(`[`)
		if m.Context != "" {
			e.textPart(m.Context)
		}
		for i := range m.Parts {
			e.userPart(&m.Parts[i])
		}
		e.raw(`]`)
	}
	e.raw(`}`)
}

// joinTexts is a message's context and texts as one.
func joinTexts(m *agent.Message, sep string) string {
	var texts []string
	if m.Context != "" {
		texts = append(texts, m.Context)
	}
	for i := range m.Parts {
		if p := &m.Parts[i]; p.Kind == agent.PartText && p.Text != "" {
			texts = append(texts, p.Text)
		}
	}
	return strings.Join(texts, sep)
}

func (e *encoder) userPart(p *agent.Part) {
	switch {
	case p.Kind == agent.PartText && p.Text != "":
		e.textPart(p.Text)
	case p.Kind == agent.PartImage && p.Data != "":
		e.imagePart(p)
	}
}

func (e *encoder) textPart(s string) {
	e.comma()
	e.raw(`{"type":"text","text":`)
	e.str(s)
	e.raw(`}`)
}

func (e *encoder) imagePart(p *agent.Part) {
	media := p.MediaType
	if media == "" {
		media = "image/png"
	}
	e.comma()
	e.raw(`{"type":"image_url","image_url":{"url":`)
	e.str("data:" + media + ";base64," + p.Data)
	e.raw(`}}`)
}

// assistant writes an answer of the model, then a result for each of its
// calls. An answer without text and calls is left out.
func (e *encoder) assistant(m *agent.Message, after []*agent.Message) {
	var text strings.Builder
	calls := 0
	for i := range m.Parts {
		switch p := &m.Parts[i]; {
		case p.Kind == agent.PartText:
			text.WriteString(p.Text)
		case p.Kind == agent.PartToolCall && p.Call != nil:
			calls++
		}
	}
	if text.Len() == 0 && calls == 0 {
		return
	}
	e.comma()
	e.raw(`{"role":"assistant","content":`)
	if text.Len() == 0 && e.may(featNullContent) {
		e.raw(`null`)
	} else {
		e.str(text.String())
	}
	e.reasoning(m)
	if calls == 0 {
		e.raw(`}`)
		return
	}
	e.raw(`,"tool_calls":[`)
	for i := range m.Parts {
		if p := &m.Parts[i]; p.Kind == agent.PartToolCall && p.Call != nil {
			e.call(p.Call)
		}
	}
	e.raw(`]}`)
	e.results(m, after)
}

func (e *encoder) call(c *agent.CallPart) {
	e.comma()
	e.raw(`{"id":`)
	e.str(c.ID)
	e.raw(`,"type":"function","function":{"name":`)
	e.str(e.callName(c.Name))
	e.raw(`,"arguments":`)
	e.str(callArguments(c.Arguments))
	e.raw(`}}`)
}

// callName makes a name that servers accept of whatever the model made up.
func (e *encoder) callName(name string) string {
	for i := range e.tools {
		if e.tools[i].Name == name {
			return name
		}
	}
	clean := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '_', r == '-':
			return r
		}
		return '_'
	}, name)
	if clean == "" {
		return "unknown"
	}
	return clean[:min(len(clean), 64)]
}

// callArguments keeps arguments that are a JSON object byte for byte. Anything
// else is wrapped into one: servers parse them and would refuse the history.
func callArguments(args string) string {
	trimmed := strings.TrimSpace(args)
	if trimmed == "" || trimmed == "null" {
		return "{}"
	}
	if trimmed[0] == '{' && json.Valid([]byte(args)) {
		return args
	}
	return string(appendString([]byte(`{"invalid_arguments":`), args)) + "}"
}

// results writes the results of m's calls in the order they are given, then an
// error for each call without one, then the images of all of them: tool
// messages hold text only.
func (e *encoder) results(m *agent.Message, after []*agent.Message) {
	open := m.Calls()
	var images []*agent.Part
	for _, r := range after {
		if r.Role != agent.RoleTool {
			continue
		}
		i := slices.IndexFunc(open, func(c agent.CallPart) bool { return c.ID == r.CallID })
		if i < 0 {
			continue
		}
		open = slices.Delete(open, i, i+1)
		text := resultText(r)
		for i := range r.Parts {
			if p := &r.Parts[i]; p.Kind == agent.PartImage && p.Data != "" {
				images = append(images, p)
			}
		}
		e.result(r.CallID, text)
	}
	for _, c := range open {
		e.result(c.ID, noResult)
	}
	if len(images) == 0 {
		return
	}
	e.comma()
	e.raw(`{"role":"user","content":[`)
	e.textPart(resultImages)
	for _, p := range images {
		e.imagePart(p)
	}
	e.raw(`]}`)
}

func resultText(r *agent.Message) string {
	text := agent.TextOf(r.Parts)
	if strings.TrimSpace(text) != "" {
		return text
	}
	if slices.ContainsFunc(r.Parts, func(p agent.Part) bool { return p.Kind == agent.PartImage && p.Data != "" }) {
		return imagesBelow
	}
	return noOutput
}

func (e *encoder) result(callID, text string) {
	e.comma()
	e.raw(`{"role":"tool","tool_call_id":`)
	e.str(callID)
	e.raw(`,"content":`)
	e.str(text)
	e.raw(`}`)
}

// The fields that reasoning may come in and go back on.
var reasoningFields = []string{"reasoning_content", "reasoning", "reasoning_text"}

// reasoning sends reasoning back on the field that it came in. Structured
// reasoning is signed for one model: it goes back to that one only, byte for
// byte.
func (e *encoder) reasoning(m *agent.Message) {
	var details []json.RawMessage
	for i := range m.Parts {
		if p := &m.Parts[i]; p.Kind == agent.PartReasoning && len(p.Meta) > 0 {
			details = append(details, detailsFor(p.Meta, e.model)...)
		}
	}
	for _, field := range reasoningFields {
		var text strings.Builder
		for i := range m.Parts {
			p := &m.Parts[i]
			if p.Kind == agent.PartReasoning && (p.Field == field || p.Field == "" && field == reasoningFields[0]) {
				text.WriteString(p.Text)
			}
		}
		if text.Len() > 0 && e.may(featReasoning) {
			e.raw(`,"` + field + `":`)
			e.str(text.String())
		}
	}
	if len(details) > 0 && e.may(featReasoning) {
		e.raw(`,"reasoning_details":[`)
		for _, d := range details {
			e.comma()
			e.buf = append(e.buf, d...)
		}
		e.raw(`]`)
	}
}

func (e *encoder) toolDefs() {
	if len(e.tools) == 0 {
		return
	}
	e.raw(`,"tools":[`)
	for i := range e.tools {
		t := &e.tools[i]
		e.comma()
		e.raw(`{"type":"function","function":{"name":`)
		e.str(t.Name)
		e.raw(`,"description":`)
		e.str(t.Description)
		e.raw(`,"parameters":`)
		if len(t.Parameters) > 0 {
			e.buf = append(e.buf, t.Parameters...)
		} else {
			e.raw(`{"type":"object","properties":{}}`)
		}
		e.raw(`}}`)
	}
	e.raw(`]`)
}
