package protocol

import (
	"encoding/json"
	"fmt"
	"slices"
)

// Input gives a runtime something to do: a message, or the answer to an
// approval (spec/app-server-core.md section 4). With a request_id it is
// answered by input_accepted.
type Input struct {
	Runtime Runtime `json:"runtime"`
	// ActingUserID is runtime.acting_user_id, an attribution; empty = none.
	ActingUserID string       `json:"-"`
	Payload      InputPayload `json:"payload"`
}

// An InputPayload is a *[CreateMessage] or an *[ApprovalResponse].
type InputPayload interface{ inputKind() string }

func (*CreateMessage) inputKind() string    { return "create_message" }
func (*ApprovalResponse) inputKind() string { return "approval_response" }

// CreateMessage starts a turn with messages, or queues them.
type CreateMessage struct {
	Messages                List[InputMessage] `json:"messages"`
	KeepRunning             *bool              `json:"keep_running,omitempty"`         // mneme extension: run on when nobody subscribes
	ClientToolAllowlist     []string           `json:"client_tool_allowlist,omitzero"` // nil = no filter, empty = no tools
	ClientToolset           *ClientToolset     `json:"client_toolset,omitempty"`       // this turn only
	ExternalToolScopeIDs    []string           `json:"external_tool_scope_ids,omitzero"`
	ExcludeInteractiveTools *bool              `json:"exclude_interactive_tools,omitempty"`
	ImageFailureMode        ImageFailureMode   `json:"image_failure_mode,omitempty"` // empty = strict
	ResponseFormat          Object             `json:"response_format,omitzero"`     // checked, without effect
}

// An ImageFailureMode says what an image that cannot be used does.
type ImageFailureMode string

// The image failure modes.
const (
	ImageStrict ImageFailureMode = "strict" // the turn ends in error
	ImageDrop   ImageFailureMode = "drop"   // the image is left out
)

// ClientToolset changes the built-in tools of one turn.
type ClientToolset struct {
	Base    Toolset  `json:"base,omitempty"` // empty = the conversation's preference
	Include []string `json:"include,omitzero"`
}

// An InputMessage is one message of a [CreateMessage].
type InputMessage struct {
	Role            string  `json:"role"` // "user" or "system"
	Content         Content `json:"content"`
	ClientMessageID string  `json:"client_message_id,omitempty"` // dedupe and correlation key
	OTID            string  `json:"otid,omitempty"`
}

// UserMessage makes a message of a user. An empty clientMessageID leaves it
// out: then a lost acknowledgement cannot be retried safely.
func UserMessage(text, clientMessageID string) InputMessage {
	return InputMessage{Role: "user", Content: Text(text), ClientMessageID: clientMessageID}
}

// ApprovalResponse answers a [ControlRequest]. It has either a decision or an
// error, which denies.
type ApprovalResponse struct {
	RequestID string    `json:"request_id"`
	Decision  *Decision `json:"decision,omitempty"`
	Error     *string   `json:"error,omitempty"`
}

// A Decision allows or denies a tool call.
type Decision struct {
	Behavior Behavior `json:"behavior"`
	// Message is required to deny: it becomes the tool's result.
	Message *string `json:"message,omitempty"`
	// UpdatedInput replaces the call's whole input; missing or null keeps it.
	UpdatedInput Optional[Object] `json:"updated_input,omitzero"`
	// SelectedPermissionSuggestionIDs stores the suggested rules of these ids.
	SelectedPermissionSuggestionIDs []string `json:"selected_permission_suggestion_ids,omitzero"`
}

// A Behavior is what a [Decision] does.
type Behavior string

// The behaviors.
const (
	Allow Behavior = "allow"
	Deny  Behavior = "deny"
)

// InputAccepted acknowledges an [Input]. It is a response that has accepted in
// place of success; write it with [AppendFrame].
type InputAccepted struct {
	Runtime     Runtime     `json:"runtime"`
	Accepted    bool        `json:"accepted"`
	Disposition Disposition `json:"disposition,omitempty"` // of a message
	Error       string      `json:"error,omitempty"`
	// TurnID is a mneme extension: the turn that has started.
	TurnID string `json:"turn_id,omitempty"`
}

// A Disposition says what became of a message.
type Disposition string

// The dispositions.
const (
	Started Disposition = "started"
	Queued  Disposition = "queued"
)

// CommandType returns "input".
func (*Input) CommandType() string { return "input" }

// NewResponse makes the empty response.
func (*Input) NewResponse() *InputAccepted { return new(InputAccepted) }

// MarshalJSON writes the fields of the frame.
func (c *Input) MarshalJSON() ([]byte, error) {
	dst := append([]byte(nil), `{"runtime":`...)
	dst = AppendRuntime(dst, c.Runtime)
	if c.ActingUserID != "" {
		dst = append(dst[:len(dst)-1], `,"acting_user_id":`...)
		dst = append(AppendString(dst, c.ActingUserID), '}')
	}
	dst = append(dst, `,"payload":{"kind":`...)
	dst = AppendString(dst, c.Payload.inputKind())
	dst, err := appendBody(dst, "input payload", c.Payload)
	if err != nil {
		return nil, err
	}
	return append(dst, '}'), nil
}

// A PayloadError is an input whose runtime is valid but whose payload is not.
// The server says so twice: to the runtime's subscribers as a non-terminal
// loop_error, and to the sender, if it gave a request_id, as input_accepted
// with accepted false (spec/app-server-core.md sections 1.6 and 4.1).
type PayloadError struct {
	Runtime Runtime
	Loop    string // message of the loop_error; empty = send none
	Ack     string // error of the acknowledgement
}

func (e *PayloadError) Error() string { return e.Ack }

func (c *Input) decode(o *object) {
	rt := o.child("runtime")
	c.Runtime = rt.runtimeFields(false)
	c.ActingUserID, _ = rt.maybeStr("acting_user_id")
	if o.problem.err != nil {
		return
	}
	payload, bad := readPayload(o)
	if bad != nil {
		bad.Runtime = c.Runtime
		o.problem.err = bad
		return
	}
	c.Payload = payload
}

// violation makes the PayloadError that says the same to both.
func violation(format string, args ...any) *PayloadError {
	text := "Protocol violation: " + fmt.Sprintf(format, args...)
	return &PayloadError{Loop: text, Ack: text}
}

func readPayload(o *object) (InputPayload, *PayloadError) {
	raw, ok := o.get("payload")
	if !ok || raw[0] != '{' {
		return nil, violation("input.payload must be an object")
	}
	// Problems of the payload have texts of their own, so they are not reported
	// through o.
	ms, ok := splitObject(raw)
	if !ok {
		return nil, violation("input.payload has too many fields")
	}
	p := &object{path: "input.payload", members: ms, problem: new(problem)}
	kind, isString := p.maybeStr("kind")
	switch {
	case isString && kind == "create_message":
		return readCreateMessage(p)
	case isString && kind == "approval_response":
		return readApproval(p)
	case !isString:
		kind = "undefined"
		if raw, ok := p.get("kind"); ok {
			kind = string(raw)
		}
	}
	text := "Unsupported input payload kind: " + clip(kind)
	return nil, &PayloadError{Loop: text, Ack: text}
}

func readCreateMessage(p *object) (*CreateMessage, *PayloadError) {
	m := &CreateMessage{Messages: []InputMessage{}}
	messages, ok := p.get("messages")
	if !ok || messages[0] != '[' {
		return nil, violation("input.kind=create_message requires payload.messages[]")
	}
	m.ImageFailureMode = optOneOf(p, "image_failure_mode", []ImageFailureMode{ImageStrict, ImageDrop})
	if p.problem.err != nil {
		return nil, violation("input.payload.image_failure_mode must be strict or drop")
	}
	if bad := readToolChoice(p, m); bad != nil {
		return nil, bad
	}
	m.KeepRunning = p.optBool("keep_running")
	if p.problem.err != nil {
		return nil, violation("input.payload.keep_running must be boolean")
	}
	for i, raw := range elements(messages) {
		msg, bad := readInputMessage(i, raw)
		if bad != nil {
			return nil, bad
		}
		m.Messages = append(m.Messages, msg)
	}
	if why := readResponseFormat(p, m); why != "" {
		return nil, &PayloadError{Ack: why}
	}
	return m, nil
}

// readToolChoice reads the fields that choose a turn's tools, in the order in
// which the reference checks them.
func readToolChoice(p *object, m *CreateMessage) *PayloadError {
	m.ClientToolAllowlist = p.optStrings("client_tool_allowlist")
	if p.problem.err != nil {
		return violation("input.payload.client_tool_allowlist must be string[]")
	}
	if p.has("client_toolset") {
		t := p.child("client_toolset")
		m.ClientToolset = &ClientToolset{Base: optOneOf(t, "base", toolsets), Include: t.optStrings("include")}
		if p.problem.err != nil {
			return violation("input.payload.client_toolset must contain an optional valid base and string[] include")
		}
	}
	m.ExcludeInteractiveTools = p.optBool("exclude_interactive_tools")
	if p.problem.err != nil {
		return violation("input.payload.exclude_interactive_tools must be boolean")
	}
	m.ExternalToolScopeIDs = p.optStrings("external_tool_scope_ids")
	if p.problem.err != nil {
		return violation("input.payload.external_tool_scope_ids must be string[]")
	}
	return nil
}

func readInputMessage(i int, raw []byte) (InputMessage, *PayloadError) {
	at := fmt.Sprintf("input.payload.messages[%d]", i)
	if raw[0] != '{' {
		return InputMessage{}, violation("%s must be an object, not %s", at, kindOf(raw))
	}
	ms, ok := splitObject(raw)
	if !ok {
		return InputMessage{}, violation("%s has too many fields", at)
	}
	o := &object{path: at, members: ms, problem: new(problem)}
	if typ, _ := o.maybeStr("type"); typ == "approval" {
		return InputMessage{}, &PayloadError{
			Loop: "Protocol violation: approval payloads are not allowed in input.kind=create_message. Use input.kind=approval_response.",
			Ack:  "Approval payloads require approval_response",
		}
	}
	msg := InputMessage{Role: oneOf(o, "role", []string{"user", "system"})}
	if id := o.optStr("client_message_id"); id != nil {
		msg.ClientMessageID = *id
	}
	if id := o.optStr("otid"); id != nil {
		msg.OTID = *id
	}
	if o.problem.err != nil {
		return msg, violation("%s", o.problem.err)
	}
	content, ok := o.get("content")
	if !ok {
		return msg, violation("%s.content is required and must be a string or an array of parts", at)
	}
	if why := msg.Content.read(content); why != "" {
		return msg, violation("%s.content%s", at, why)
	}
	return msg, nil
}

// readResponseFormat returns the acknowledgement's text for a format that is
// not valid; there is no loop_error for it.
func readResponseFormat(p *object, m *CreateMessage) string {
	raw, ok := p.get("response_format")
	if !ok {
		return ""
	}
	var f struct {
		Type   json.RawMessage `json:"type"`
		Schema json.RawMessage `json:"json_schema"`
	}
	isObject := func(raw []byte) bool { return len(raw) > 0 && raw[0] == '{' }
	if !isObject(raw) || json.Unmarshal(raw, &f) != nil {
		return "response_format must be an object"
	}
	if string(f.Type) != `"json_schema"` {
		return "response_format.type must be json_schema"
	}
	if !isObject(f.Schema) {
		return "response_format.json_schema must be an object"
	}
	var s struct {
		Schema json.RawMessage `json:"schema"`
	}
	if json.Unmarshal(f.Schema, &s) != nil || !isObject(s.Schema) {
		return "response_format.json_schema.schema must be an object"
	}
	m.ResponseFormat = raw
	return ""
}

func readApproval(p *object) (*ApprovalResponse, *PayloadError) {
	bad := violation("input.kind=approval_response requires payload.request_id and either payload.decision or payload.error")
	a := &ApprovalResponse{RequestID: p.nonEmpty("request_id"), Error: p.optStr("error")}
	if p.has("decision") {
		d := p.child("decision")
		a.Decision = &Decision{
			Behavior:                        oneOf(d, "behavior", []Behavior{Allow, Deny}),
			Message:                         d.optStr("message"),
			SelectedPermissionSuggestionIDs: d.optStrings("selected_permission_suggestion_ids"),
		}
		switch {
		case d.isNull("updated_input"):
			a.Decision.UpdatedInput = Null[Object]()
		case d.has("updated_input"):
			a.Decision.UpdatedInput = Some(d.raw("updated_input"))
		}
		if a.Decision.Behavior == Deny && a.Decision.Message == nil {
			return nil, bad
		}
	}
	if p.problem.err != nil || (a.Decision == nil) == (a.Error == nil) {
		return nil, bad
	}
	return a, nil
}

// DecodeInput reads an `input` frame. The error is a *PayloadError if only the
// payload is wrong, else a *DecodeError.
func DecodeInput(data []byte) (Frame, *Input, error) {
	f, cmd, err := DecodeCommand(data)
	if err != nil {
		return f, nil, err
	}
	in, ok := cmd.(*Input)
	if !ok {
		return f, nil, &DecodeError{Code: InvalidField, Field: "type", Message: fmt.Sprintf("type must be input, not %q", clip(f.Type))}
	}
	return f, in, nil
}

// LegacyMessage is the retired `message` frame: an input without
// acknowledgement (spec/app-server-core.md section 1.6).
type LegacyMessage struct {
	AgentID              string             `json:"agentId"`
	ConversationID       string             `json:"conversationId,omitempty"` // empty = default
	Messages             List[InputMessage] `json:"messages"`
	ClientToolAllowlist  []string           `json:"clientToolAllowlist,omitzero"`
	ClientToolset        *ClientToolset     `json:"clientToolset,omitempty"`
	ExternalToolScopeIDs []string           `json:"externalToolScopeIds,omitzero"`
}

// CommandType returns "message".
func (*LegacyMessage) CommandType() string { return "message" }

// Input returns the input that the frame stands for.
func (c *LegacyMessage) Input() *Input {
	conversation := c.ConversationID
	if conversation == "" {
		conversation = "default"
	}
	return &Input{
		Runtime: Runtime{AgentID: c.AgentID, ConversationID: conversation},
		Payload: &CreateMessage{
			Messages:             c.Messages,
			ClientToolAllowlist:  c.ClientToolAllowlist,
			ClientToolset:        c.ClientToolset,
			ExternalToolScopeIDs: c.ExternalToolScopeIDs,
		},
	}
}

func (c *LegacyMessage) decode(o *object) {
	c.AgentID = o.nonEmpty("agentId")
	for _, name := range []string{"conversationId", "conversation_id"} {
		if id := o.optStr(name); id != nil && c.ConversationID == "" {
			c.ConversationID = *id
		}
	}
	// Choices of tools that are not well formed are ignored, as the reference
	// does for this frame only.
	loose := &object{path: o.path, members: o.members, problem: new(problem)}
	if list := loose.optStrings("clientToolAllowlist"); loose.problem.err == nil {
		c.ClientToolAllowlist = list
	}
	loose.problem.err = nil
	if list := loose.optStrings("externalToolScopeIds"); loose.problem.err == nil {
		c.ExternalToolScopeIDs = list
	}
	loose.problem.err = nil
	if loose.has("clientToolset") {
		t := loose.child("clientToolset")
		set := &ClientToolset{Base: optOneOf(t, "base", toolsets), Include: t.optStrings("include")}
		if loose.problem.err == nil {
			c.ClientToolset = set
		}
	}
	raw := o.list("messages")
	if raw == nil {
		return
	}
	c.Messages = slices.Collect(func(yield func(InputMessage) bool) {
		for i, e := range elements(raw) {
			msg, bad := readInputMessage(i, e)
			if bad != nil {
				if o.problem.err == nil {
					o.problem.err = &DecodeError{Code: InvalidField, Field: "message.messages", Message: bad.Ack}
				}
				return
			}
			if !yield(msg) {
				return
			}
		}
	})
}
