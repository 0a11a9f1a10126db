package rest

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"mneme/internal/agent"
	"mneme/internal/runtime"
)

var sendRoutes = []route{
	{"POST", "/v1/agents/{agent_id}/messages", (*Door).sendToAgent, doc{
		summary: "Send messages to an agent", body: sendBody{}, answer: lettaResponse{}, stream: true}},
	{"POST", "/v1/agents/{agent_id}/messages/stream", (*Door).streamFromAgent, doc{
		summary: "Send messages to an agent and stream the answer (deprecated: use streaming)", body: sendBody{}, stream: true}},
	{"POST", "/v1/agents/{agent_id}/messages/async", (*Door).sendAsync, doc{
		summary: "Send messages to an agent and do not wait for the answer", body: sendBody{}, answer: runState{}}},
	{"POST", "/v1/conversations/{conversation_id}/messages", (*Door).sendToConversation, doc{
		summary: "Send messages to a conversation", body: sendBody{}, answer: lettaResponse{}, stream: true}},
}

// A request is what is stored of a send with the run that it begins.
type request struct {
	Type         string   `json:"run_type"`
	View         view     `json:"view"`
	UseAssistant bool     `json:"use_assistant_message"`
	ToolName     string   `json:"assistant_message_tool_name"`
	ToolArg      string   `json:"assistant_message_tool_kwarg"`
	Types        []string `json:"include_return_message_types" null:"yes"`
	RequestID    string   `json:"request_id,omitempty"`
}

// requestOf reads what is stored of the send that began a run. Runs of other doors
// have nothing: then it is a plain request.
func requestOf(run *agent.Run) request {
	req := request{Type: string(run.Door), UseAssistant: true, ToolName: "send_message", ToolArg: "message"}
	if len(run.Spec.Request) > 0 {
		_ = json.Unmarshal(run.Spec.Request, &req) // written by this door
	}
	return req
}

// A sending is one send on its way.
type sending struct {
	d         *Door
	body      *sendBody
	ag        *agent.Agent
	scope     agent.Scope
	own       bool
	typ       string       // run_type
	busy      agent.IfBusy // what becomes of it when the conversation is busy
	object    bool         // a 409 for a pending approval is an object
	streaming bool
	async     bool
	logged    bool
	view      view
	run       string // id of the run that it begins
	request   json.RawMessage
}

func (d *Door) sendToAgent(w http.ResponseWriter, r *http.Request) error {
	b, err := decodeBody[sendBody](d, w, r)
	if err != nil {
		return err
	}
	s := &sending{typ: "send_message", streaming: b.Streaming.Or(false), busy: agent.BusyWait}
	if s.streaming {
		s.typ = "send_message_streaming"
	} else if err := b.checkPlain(); err != nil {
		return err
	}
	s.object = !s.streaming
	return d.sendAgent(w, r, &b, s)
}

// checkPlain refuses options of streams in a send that does not stream.
func (b *sendBody) checkPlain() error {
	switch {
	case b.StreamTokens.Or(false):
		return unprocessable("body.stream_tokens", "stream_tokens needs streaming")
	case b.Background.Or(false):
		return unprocessable("body.background", "background needs streaming")
	case !b.IncludePings.Or(true):
		return unprocessable("body.include_pings", "include_pings can only be switched off with streaming")
	}
	return nil
}

func (d *Door) streamFromAgent(w http.ResponseWriter, r *http.Request) error {
	b, err := decodeBody[sendBody](d, w, r)
	if err != nil {
		return err
	}
	return d.sendAgent(w, r, &b, &sending{typ: "send_message_streaming", streaming: true, busy: agent.BusyWait})
}

func (d *Door) sendAsync(w http.ResponseWriter, r *http.Request) error {
	b, err := decodeBody[sendBody](d, w, r)
	if err != nil {
		return err
	}
	if err := checkCallback(b.CallbackURL.Or("")); err != nil {
		return err
	}
	return d.sendAgent(w, r, &b, &sending{typ: "send_message_async", async: true, busy: agent.BusyQueue})
}

func (d *Door) sendAgent(w http.ResponseWriter, r *http.Request, b *sendBody, s *sending) error {
	ag, err := d.agent(r)
	if err != nil {
		return err
	}
	conv, err := d.store.OwnConversation(r.Context(), ag.ID)
	if err != nil {
		return err
	}
	return d.send(w, r, b, ag, conv, s)
}

func (d *Door) sendToConversation(w http.ResponseWriter, r *http.Request) error {
	b, err := decodeBody[sendBody](d, w, r)
	if err != nil {
		return err
	}
	conv, err := d.conversationOrOwn(r, b.AgentID.Or(""))
	if err != nil {
		return err
	}
	ag, err := d.roster.Agent(r.Context(), conv.AgentID)
	if err != nil {
		return err
	}
	return d.send(w, r, &b, ag, conv, &sending{
		typ: "send_conversation_message", streaming: b.Streaming.Or(true), busy: agent.BusyReject,
	})
}

// send does what all sends have in common (spec/rest.md section 4).
func (d *Door) send(w http.ResponseWriter, r *http.Request, b *sendBody, ag *agent.Agent, conv *agent.Conversation, s *sending) error {
	s.d, s.body, s.ag, s.own = d, b, ag, conv.Own
	s.scope = agent.Scope{AgentID: ag.ID, ConversationID: conv.ID}
	if model := b.OverrideModel.Or(""); model != "" {
		if err := d.checkModel(r.Context(), model); err != nil {
			return err
		}
	}
	if err := s.prepare(r); err != nil {
		return err
	}
	if err := d.load(r.Context(), b.parsed.fetches); err != nil {
		return err
	}
	ctx, cancel := d.request(r)
	defer cancel()
	var src *liveSource
	if !s.async && !s.logged {
		src = d.watch(s.scope, s.run, s.view.Tokens) // before anything can happen
		defer src.close()
	}
	receipt, err := s.submit(ctx)
	if err != nil {
		return s.refused(ctx, err)
	}
	switch {
	case receipt.Duplicate:
		return s.again(ctx, w, r, receipt)
	case s.async:
		return s.replyRun(w, r, receipt.RunID, true)
	case s.logged && s.streaming:
		run, err := d.store.Run(ctx, receipt.RunID)
		if ctx.Err() != nil {
			return s.left(ctx)
		}
		if err != nil {
			return err
		}
		return d.streamLog(w, r, run, 0, s.view.Pings)
	case s.logged:
		return d.answerStored(ctx, w, r, s.view, receipt.RunID)
	case s.streaming:
		return d.streamLive(w, r, s.view, src)
	}
	return s.collect(ctx, w, src)
}

// request is a context that ends with the request or the door.
func (d *Door) request(r *http.Request) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(r.Context())
	stop := context.AfterFunc(d.life, func() {
		cancel(agent.Errorf(agent.CodeShutdown, "The server is stopping"))
	})
	return ctx, func() { stop(); cancel(nil) }
}

// prepare makes the options of the run.
func (s *sending) prepare(r *http.Request) error {
	b := s.body
	s.run = agent.NewID("run")
	s.logged = s.async || b.Background.Or(false)
	s.view = view{
		Tokens: s.streaming && b.StreamTokens.Or(false), Pings: s.streaming && b.IncludePings.Or(true),
		Compaction: b.Compaction.Or(false),
	}
	if types := b.ReturnTypes.Ptr(); types != nil {
		s.view.Types = orEmpty(*types)
	}
	req := request{
		Type: s.typ, UseAssistant: b.UseAssistant.Or(true), ToolName: b.ToolName.Or("send_message"), ToolArg: b.ToolArg.Or("message"),
		Types: s.view.Types, RequestID: r.Header.Get("x-api-request-log-id"),
	}
	var err error
	s.view.SpeakTool, s.view.SpeakArg, err = speaker(s.ag, req.UseAssistant, req.ToolName, req.ToolArg)
	if err != nil {
		return err
	}
	req.View = s.view
	s.request, err = json.Marshal(req)
	return err
}

func (s *sending) spec() agent.RunSpec {
	spec := agent.RunSpec{ID: s.run, Background: s.logged, Request: s.request}
	if s.async {
		spec.Callback = s.body.CallbackURL.Or("")
	}
	return spec
}

func (s *sending) options() agent.TurnOptions {
	o := agent.TurnOptions{
		MaxSteps: s.body.MaxSteps.Or(defaultMaxSteps), Model: s.body.OverrideModel.Or(""),
		ClientTools: toolDefs(s.body.ClientTools), Addendum: skillsText(s.body.ClientSkills),
	}
	for _, system := range []optional[string]{s.body.System, s.body.OverrideSystem} {
		if p := system.Ptr(); p != nil {
			o.System = p
		}
	}
	return o
}

// submit hands the messages, or the answers to waiting calls, to the runtime.
func (s *sending) submit(ctx context.Context) (runtime.Receipt, error) {
	if s.body.parsed.reply == nil {
		return s.put(ctx, s.body.parsed.messages, s.body.parsed.key)
	}
	receipt, err := s.answer(ctx)
	if agent.CodeOf(err) != agent.CodeNotPending {
		return receipt, err
	}
	again, err2 := s.replayed(ctx)
	if err2 != nil || !again {
		if err2 == nil {
			err2 = err
		}
		return receipt, err2
	}
	msgs := s.body.parsed.messages
	if len(msgs) == 0 {
		msgs = []agent.InputMessage{{Role: agent.RoleUser, OTID: agent.NewUUID(), Parts: []agent.Part{agent.Text(textKeepAlive)}}}
	}
	return s.put(ctx, msgs, s.body.parsed.key)
}

// textKeepAlive stands for the message of somebody who repeats answers that were
// given already, so that the turn goes on.
const textKeepAlive = "[Automatic keep-alive: the results of your tool calls were delivered again. Please continue.]"

func (s *sending) put(ctx context.Context, msgs []agent.InputMessage, key string) (runtime.Receipt, error) {
	in := &agent.Input{
		AgentID: s.scope.AgentID, ConversationID: s.scope.ConversationID, Door: agent.DoorREST, Messages: msgs,
		Options: s.options(), OnOrphan: agent.OrphanKeep, Logged: s.logged, Run: s.spec(), Key: key, IfBusy: s.busy,
	}
	if key != "" {
		in.Digest = s.body.parsed.digest()
	}
	if s.busy != agent.BusyWait {
		return s.d.rt.Submit(ctx, in, nil)
	}
	// A parked conversation is not waited for: it may stay so for long.
	in.IfBusy = agent.BusyReject
	receipt, err := s.d.rt.Submit(ctx, in, nil)
	if agent.CodeOf(err) != agent.CodeBusy {
		return receipt, err
	}
	in.IfBusy = agent.BusyWait
	return s.d.rt.Submit(ctx, in, nil)
}

// refused gives the answer for what the runtime did not take.
func (s *sending) refused(ctx context.Context, err error) error {
	e := asDomain(err)
	if e == nil {
		return err
	}
	switch e.Code {
	case agent.CodeConflict:
		return conflict("The otid was used before with other content; use a new one")
	case agent.CodeQueueFull:
		return conflict("Cannot send a new message: too many messages wait for this agent already.")
	case agent.CodeParked:
		if s.object {
			return s.pendingError(ctx)
		}
	}
	return err
}

// asDomain finds the error of the other packages in err; nil if there is none.
func asDomain(err error) *agent.Error {
	var e *agent.Error
	if errors.As(err, &e) {
		return e
	}
	return nil
}

// A pendingDetail is the detail of a 409 that names the request in the way.
type pendingDetail struct {
	Code      string  `json:"code"`
	Message   string  `json:"message"`
	RequestID *string `json:"pending_request_id"`
}

func (s *sending) pendingError(ctx context.Context) error {
	p := pendingDetail{Code: "PENDING_APPROVAL", Message: textParked}
	if state, err := s.d.rt.Status(ctx, s.scope); err == nil && len(state.Pending) > 0 {
		p.RequestID = new(requestID(state.Pending[0].MessageID))
	}
	return &httpError{Status: http.StatusConflict, Final: true, Body: struct {
		Detail pendingDetail `json:"detail"`
	}{p}}
}
