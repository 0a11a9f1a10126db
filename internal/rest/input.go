package rest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"

	"mneme/internal/agent"
)

// defaultMaxSteps bounds the model calls of a turn where the send does not.
const defaultMaxSteps = 50

// A sendBody is the body of all routes that send messages (spec/rest.md section 4).
// Which of the fields a route knows is in its sendRoute.
type sendBody struct {
	Messages       []json.RawMessage    `json:"messages"` // messageBody, approvalBody and toolReturnBody
	Input          json.RawMessage      `json:"input"`    // a text or parts: one user message
	MaxSteps       optional[int]        `json:"max_steps"`
	Streaming      optional[bool]       `json:"streaming"`
	StreamTokens   optional[bool]       `json:"stream_tokens"`
	IncludePings   optional[bool]       `json:"include_pings"`
	Background     optional[bool]       `json:"background"`
	AgentID        optional[string]     `json:"agent_id"`
	CallbackURL    optional[string]     `json:"callback_url"`
	ClientTools    []clientTool         `json:"client_tools"`
	ClientSkills   []clientSkill        `json:"client_skills"`
	OverrideModel  optional[string]     `json:"override_model"`
	OverrideSystem optional[string]     `json:"override_system"`
	System         optional[string]     `json:"system"` // the same under another name
	ReturnTypes    optional[[]string]   `json:"include_return_message_types"`
	Compaction     optional[bool]       `json:"include_compaction_messages"`
	ReturnLogprobs optional[bool]       `json:"return_logprobs"`
	TopLogprobs    optional[int]        `json:"top_logprobs"`
	ReturnTokenIDs optional[bool]       `json:"return_token_ids"`
	UseAssistant   optional[bool]       `json:"use_assistant_message"`
	ToolName       optional[string]     `json:"assistant_message_tool_name"`
	ToolArg        optional[string]     `json:"assistant_message_tool_kwarg"`
	EnableThinking optional[textOrBool] `json:"enable_thinking"` // ignored

	parsed parsed // made by check
}

// A clientTool is a tool that the client runs itself.
type clientTool struct {
	Name        string          `json:"name"`
	Description *string         `json:"description"`
	Parameters  json.RawMessage `json:"parameters"`
}

// A clientSkill is a skill that the client offers for one request.
type clientSkill struct {
	Name        *string `json:"name"`
	Description *string `json:"description"`
	Location    *string `json:"location"`
}

// textOrBool accepts what old clients send as either.
type textOrBool struct{}

// UnmarshalJSON implements json.Unmarshaler.
func (textOrBool) UnmarshalJSON(data []byte) error {
	switch first(data) {
	case '"', 't', 'f':
		return nil
	}
	return unprocessable("body.enable_thinking", "Input should be a string or a boolean")
}

// parsed are the messages of a body as the runtime takes them.
type parsed struct {
	messages []agent.InputMessage
	reply    *replyBody // the first item answers waiting calls
	fetches  []fetch
	key      string // the otids that the client gave, joined; "" = none
}

// A replyBody answers the calls that a turn waits for.
type replyBody struct {
	answers []callAnswer
	otid    string
}

// A callAnswer is one answer: of a person (allow) or of a client tool (result).
type callAnswer struct {
	call   string // of the deprecated form, the approval request's id
	old    bool   // it is that form
	allow  bool
	reason string
	result *agent.ToolResult
}

// The items of messages, as they are sent.
type (
	messageBody struct {
		Type     *string         `json:"type"` // message
		Role     *string         `json:"role"` // user, system, assistant
		Content  json.RawMessage `json:"content"`
		Name     *string         `json:"name"`
		OTID     *string         `json:"otid"`
		SenderID *string         `json:"sender_id"`
	}
	approvalBody struct {
		Type      string           `json:"type"` // approval
		OTID      *string          `json:"otid"`
		Approvals *[]approvalEntry `json:"approvals"`
		// The deprecated form answers one call.
		Approve   *bool   `json:"approve"`
		RequestID *string `json:"approval_request_id"`
		Reason    *string `json:"reason"`
	}
	toolReturnBody struct {
		Type    string           `json:"type"` // tool_return
		OTID    *string          `json:"otid"`
		Returns *[]approvalEntry `json:"tool_returns"`
	}
	// An approvalEntry is an approval or a tool return, by its type.
	approvalEntry struct {
		Type    string          `json:"type"`
		CallID  *string         `json:"tool_call_id"`
		Approve *bool           `json:"approve"`
		Reason  *string         `json:"reason"`
		Return  json.RawMessage `json:"tool_return"`
		Status  *string         `json:"status"`
		Stdout  []string        `json:"stdout"`
		Stderr  []string        `json:"stderr"`
	}
)

// check implements checker: what can be said without knowing the agent.
func (b *sendBody) check() error {
	if err := b.checkOptions(); err != nil {
		return err
	}
	given := first(b.Input) != 0
	switch {
	case given && b.Messages != nil:
		return unprocessable("body", "Only one of messages and input can be given")
	case !given && b.Messages == nil:
		return unprocessable("body", "One of messages and input is required")
	case given:
		parts, fetches, err := readContent("body.input", b.Input, agent.RoleUser)
		if err != nil {
			return err
		}
		b.parsed.messages = []agent.InputMessage{{Role: agent.RoleUser, Parts: parts, OTID: agent.NewUUID()}}
		b.parsed.fetches = fetches
		return nil
	case len(b.Messages) == 0:
		return unprocessable("body.messages", "Messages must not be empty")
	}
	return b.parsed.read(b.Messages)
}

func (b *sendBody) checkOptions() error {
	if b.MaxSteps.Or(1) < 1 {
		return unprocessable("body.max_steps", "Input should be at least 1")
	}
	if n := b.TopLogprobs.Or(0); n < 0 || n > 20 {
		return unprocessable("body.top_logprobs", "Input should be between 0 and 20")
	}
	for i, typ := range b.ReturnTypes.Value {
		if !slices.Contains(messageTypes, typ) {
			return unprocessable("body.include_return_message_types."+itoa(i), "%s is not one of %s", quoted(typ), strings.Join(messageTypes, ", "))
		}
	}
	for i, t := range b.ClientTools {
		where := "body.client_tools." + itoa(i)
		if t.Name == "" {
			return unprocessable(where+".name", "Field required")
		}
		if c := first(t.Parameters); c != 0 && c != '{' {
			return unprocessable(where+".parameters", "Input should be an object")
		}
	}
	for i, s := range b.ClientSkills {
		for name, v := range map[string]*string{"name": s.Name, "description": s.Description, "location": s.Location} {
			if v == nil {
				return unprocessable("body.client_skills."+itoa(i)+"."+name, "Field required")
			}
		}
	}
	return nil
}

// read takes the items of a body. An answer to waiting calls must come first.
func (p *parsed) read(items []json.RawMessage) error {
	var keys []string
	for i, raw := range items {
		where := "body.messages." + itoa(i)
		if first(raw) != '{' {
			return unprocessable(where, "Input should be an object")
		}
		var probe struct {
			Type      *string         `json:"type"`
			RequestID json.RawMessage `json:"approval_request_id"`
			Approve   json.RawMessage `json:"approve"`
		}
		if err := unmarshalAt(where, raw, &probe); err != nil {
			return err
		}
		typ := "message"
		switch {
		case probe.Type != nil:
			typ = *probe.Type
		case probe.RequestID != nil || probe.Approve != nil:
			typ = "approval"
		}
		var otid *string
		var err error
		switch typ {
		case "message":
			otid, err = p.message(where, raw)
		case "approval", "tool_return":
			if i > 0 {
				return unprocessable(where+".type", "An item of type %s must be the first of messages", typ)
			}
			otid, err = p.answer(where, raw, typ)
		default:
			return unprocessable(where+".type", "%s is not one of message, approval, tool_return", quoted(typ))
		}
		if err != nil {
			return err
		}
		if otid != nil && *otid != "" {
			keys = append(keys, *otid)
		}
	}
	p.key = strings.Join(keys, "\n")
	return nil
}

// roles are the roles in which messages can be sent.
var sentRoles = map[string]agent.Role{"user": agent.RoleUser, "system": agent.RoleSystem, "assistant": agent.RoleAssistant}

func (p *parsed) message(where string, raw json.RawMessage) (otid *string, err error) {
	var b messageBody
	if err := unmarshalAt(where, raw, &b); err != nil {
		return nil, err
	}
	if b.Role == nil {
		return nil, unprocessable(where+".role", "Field required")
	}
	role, ok := sentRoles[*b.Role]
	if !ok {
		return nil, unprocessable(where+".role", "%s is not one of user, system, assistant", quoted(*b.Role))
	}
	parts, fetches, err := readContent(where+".content", b.Content, role)
	if err != nil {
		return nil, err
	}
	msg := agent.InputMessage{Role: role, Parts: parts, Name: plain(b.Name), SenderID: plain(b.SenderID)}
	if b.OTID != nil && *b.OTID != "" {
		msg.OTID, msg.ClientKey = *b.OTID, *b.OTID
	} else {
		msg.OTID = agent.NewUUID()
	}
	p.messages = append(p.messages, msg)
	p.fetches = append(p.fetches, fetches...)
	return b.OTID, nil
}

func plain(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// answer reads an item that answers waiting calls, in any of its forms.
func (p *parsed) answer(where string, raw json.RawMessage, typ string) (otid *string, err error) {
	var b approvalBody
	list := "approvals"
	if typ == "tool_return" {
		list = "tool_returns"
		var t toolReturnBody
		if err := unmarshalAt(where, raw, &t); err != nil {
			return nil, err
		}
		b.OTID, b.Approvals = t.OTID, t.Returns
		if b.Approvals == nil {
			return nil, unprocessable(where+".tool_returns", "Field required")
		}
	} else if err := unmarshalAt(where, raw, &b); err != nil {
		return nil, err
	}
	r := &replyBody{otid: plain(b.OTID)}
	p.reply = r
	if b.Approvals == nil {
		if b.Approve == nil && b.RequestID == nil {
			return b.OTID, badRequest("%s: approvals are missing", where)
		}
		r.answers = []callAnswer{{
			old: true, call: plain(b.RequestID), allow: b.Approve != nil && *b.Approve, reason: plain(b.Reason),
		}}
		return b.OTID, nil
	}
	if len(*b.Approvals) == 0 {
		return b.OTID, badRequest("%s.%s must not be empty", where, list)
	}
	for i, e := range *b.Approvals {
		if typ == "tool_return" && e.Type == "" {
			e.Type = "tool"
		}
		a, err := p.entry(where+"."+list+"."+itoa(i), e)
		if err != nil {
			return nil, err
		}
		r.answers = append(r.answers, a)
	}
	return b.OTID, nil
}

func (p *parsed) entry(where string, e approvalEntry) (callAnswer, error) {
	if e.Type == "" { // as the retired server tells them apart
		e.Type = "approval"
		if e.Return != nil {
			e.Type = "tool"
		}
	}
	if e.CallID == nil {
		return callAnswer{}, unprocessable(where+".tool_call_id", "Field required")
	}
	a := callAnswer{call: *e.CallID}
	switch e.Type {
	case "approval":
		if e.Approve == nil {
			return a, unprocessable(where+".approve", "Field required")
		}
		a.allow, a.reason = *e.Approve, plain(e.Reason)
		return a, nil
	case "tool":
	default:
		return a, unprocessable(where+".type", "%s is not one of approval, tool", quoted(e.Type))
	}
	res := &agent.ToolResult{Status: agent.StatusSuccess, Stdout: e.Stdout, Stderr: e.Stderr}
	switch plain(e.Status) {
	case "success":
	case "error":
		res.Status = agent.StatusError
	case "":
		return a, unprocessable(where+".status", "Field required")
	default:
		return a, unprocessable(where+".status", "%s is not one of success, error", quoted(*e.Status))
	}
	raw := e.Return
	if bytes.Equal(bytes.TrimSpace(raw), []byte("[]")) {
		raw = []byte(`""`)
	}
	parts, fetches, err := readContent(where+".tool_return", raw, agent.RoleTool)
	if err != nil {
		return a, err
	}
	res.Parts, a.result = parts, res
	p.fetches = append(p.fetches, fetches...)
	return a, nil
}

// digest tells the body of one send from that of another under the same key. Ids
// that were made here do not count: they differ with every try.
func (p *parsed) digest() string {
	type answer struct {
		Call   string            `json:"call"`
		Allow  bool              `json:"allow"`
		Reason string            `json:"reason"`
		Result *agent.ToolResult `json:"result"`
	}
	var body struct {
		Messages []agent.InputMessage `json:"messages"`
		Answers  []answer             `json:"answers,omitempty"`
	}
	for _, m := range p.messages {
		m.OTID = m.ClientKey
		body.Messages = append(body.Messages, m)
	}
	if p.reply != nil {
		for _, a := range p.reply.answers {
			body.Answers = append(body.Answers, answer{a.call, a.allow, a.reason, a.result})
		}
	}
	data, err := json.Marshal(body)
	if err != nil {
		return "" // texts and numbers always encode
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// toolDefs are the client tools as the runtime takes them. One without parameters
// takes none.
func toolDefs(tools []clientTool) []agent.ToolDef {
	var defs []agent.ToolDef
	for _, t := range tools {
		params := t.Parameters
		if first(params) == 0 {
			params = json.RawMessage(`{"type":"object","properties":{}}`)
		}
		defs = append(defs, agent.ToolDef{Name: t.Name, Description: plain(t.Description), Parameters: params})
	}
	return defs
}

// skillsText tells the model of the client's skills; "" if there are none.
func skillsText(skills []clientSkill) string {
	if len(skills) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("<skills>\nThe client offers these skills. To use one, read the file at its location first.\n")
	for _, s := range skills {
		b.WriteString("- " + *s.Name + ": " + *s.Description + " (" + *s.Location + ")\n")
	}
	b.WriteString("</skills>")
	return b.String()
}
