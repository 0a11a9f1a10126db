package rest

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"time"

	"mneme/internal/agent"
	"mneme/internal/runtime"
	"mneme/internal/store"
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

// A lettaResponse is the answer to a send that does not stream.
type lettaResponse struct {
	Messages []variant   `json:"messages"`
	Stop     stopChunk   `json:"stop_reason"`
	Usage    *usageChunk `json:"usage"`
	Logprobs *none       `json:"logprobs"`         // providers do not give them here
	Turns    []none      `json:"turns" null:"yes"` // likewise; always null
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

// answer settles the calls that the turn waits for and goes on with it.
func (s *sending) answer(ctx context.Context) (runtime.Receipt, error) {
	p := &s.body.parsed
	options := s.options()
	reply := runtime.Reply{
		Answers: map[string]runtime.Answer{}, Messages: p.messages, Key: p.key, Door: agent.DoorREST,
		Run: s.spec(), Options: &options, Logged: s.logged,
	}
	if p.key != "" {
		reply.Digest = p.digest()
	}
	limit := s.resultLimit(ctx)
	for _, a := range p.reply.answers {
		call := a.call
		if a.old {
			call = s.callOf(ctx, a.call)
		}
		reply.Answers[call] = answerOf(a, limit)
	}
	return s.d.rt.AnswerAll(ctx, s.scope, reply, nil)
}

// denialPrefix begins what the model sees of a call that a person denied.
const denialPrefix = "Error: request to call tool denied."

const denialReason = denialPrefix + " User reason: "

func answerOf(a callAnswer, limit int) runtime.Answer {
	switch {
	case a.result != nil:
		return runtime.Answer{Result: shorten(a.result, limit)}
	case a.allow:
		return runtime.Answer{Allow: true}
	case a.reason == "":
		return runtime.Answer{Message: denialPrefix}
	}
	return runtime.Answer{Message: denialReason + a.reason}
}

// callOf gives the call that the deprecated form of an approval means: it may name
// the approval request instead, where only one call waits.
func (s *sending) callOf(ctx context.Context, id string) string {
	state, err := s.d.rt.Status(ctx, s.scope)
	if err != nil || len(state.Pending) != 1 {
		return id
	}
	only := state.Pending[0]
	if id == requestID(only.MessageID) || id == only.MessageID {
		return only.ID
	}
	return id
}

// resultLimit is how long the texts of a client tool's result may be, in
// characters (spec/rest.md section 7).
func (s *sending) resultLimit(ctx context.Context) int {
	const least = 5000
	window := s.ag.ContextLimit
	if conv, err := s.d.store.Conversation(ctx, s.scope.ConversationID); err == nil && conv.ContextLimit > 0 {
		window = conv.ContextLimit
	}
	if window == 0 {
		if _, info, err := s.d.models.Resolve(ctx, s.ag.Model); err == nil {
			window = info.Context
		}
	}
	return max(least, window*8/10)
}

// shorten cuts the texts of a result to limit characters in all.
func shorten(res *agent.ToolResult, limit int) *agent.ToolResult {
	out := *res
	out.Parts = slices.Clone(res.Parts)
	left := limit
	for i, p := range out.Parts {
		if p.Kind != agent.PartText || len(p.Text) <= left {
			left -= len(p.Text)
			continue
		}
		if runes := []rune(p.Text); len(runes) > left {
			left = max(left, 0)
			out.Parts[i].Text = string(runes[:left]) + "\n[The result was cut here: it has " + itoa(len(runes)) + " characters, of which " + itoa(left) + " are shown.]"
			left = 0
		}
	}
	return &out
}

// replayed says that the answers repeat results that the model has already: those
// of one step among the last messages of the context (spec/rest.md section 6.4).
func (s *sending) replayed(ctx context.Context) (bool, error) {
	const last = 10
	msgs, err := s.d.store.Messages(ctx, store.MessageFilter{
		ConversationID: s.scope.ConversationID, VisibleOnly: true, SkipInterrupted: true, Desc: true, Limit: 5 * last,
		Roles: []agent.Role{agent.RoleUser, agent.RoleAssistant, agent.RoleTool, agent.RoleSummary},
	})
	if err != nil {
		return false, err
	}
	var want []string
	for _, a := range s.body.parsed.reply.answers {
		want = append(want, a.call)
	}
	slices.Sort(want)
	seen := 0
	for i := 0; i < len(msgs) && seen < last; seen++ {
		step := msgs[i].StepID
		if msgs[i].Role != agent.RoleTool {
			i++
			continue
		}
		var got []string
		for ; i < len(msgs) && msgs[i].Role == agent.RoleTool && msgs[i].StepID == step; i++ {
			got = append(got, msgs[i].CallID)
		}
		if slices.Sort(got); slices.Equal(got, want) || subset(want, got) {
			return true, nil
		}
	}
	return false, nil
}

// subset says whether all of a, which is not empty, are in b: calls of a step that
// needed no answer have results beside those that did.
func subset(a, b []string) bool {
	return len(a) > 0 && !slices.ContainsFunc(a, func(v string) bool { return !slices.Contains(b, v) })
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

// collect gathers the answer of a run that has just begun.
func (s *sending) collect(ctx context.Context, w http.ResponseWriter, src *liveSource) error {
	rend := newRenderer(s.view, s.run, false)
	resp := lettaResponse{Messages: []variant{}}
	tick := time.NewTicker(pingEvery)
	defer tick.Stop()
	for {
		select {
		case <-src.ready():
		case <-tick.C:
			if err := src.look(ctx); err != nil {
				return err
			}
			continue
		case <-ctx.Done():
			return s.left(ctx)
		}
		events, err := src.take(ctx)
		if err != nil {
			return err
		}
		for _, ev := range events {
			for _, c := range rend.event(ev) {
				if v, ok := c.(variant); ok {
					resp.Messages = append(resp.Messages, v)
				}
			}
		}
		if rend.ended != nil {
			return resp.finish(w, rend.ended)
		}
	}
}

// left ends a send whose client is gone, or whose server goes down: the run goes on.
func (s *sending) left(ctx context.Context) error {
	err := context.Cause(ctx)
	if asDomain(err) == nil {
		return nil // nobody reads an answer
	}
	// Whoever gave an otid finds the run again; others would begin another one.
	return &httpError{Status: http.StatusServiceUnavailable, Final: s.body.parsed.key == "", RetryAfter: 1,
		Body: detail{"The server is stopping; the run goes on when it is back"}}
}

// finish writes the answer of a run that has ended, or its failure.
func (resp *lettaResponse) finish(w http.ResponseWriter, e *ending) error {
	if e.err != nil {
		return e.err
	}
	resp.Stop = stopChunk{Type: typeStop, Reason: e.stop}
	resp.Usage = e.usage
	return reply(w, resp)
}

// answerStored waits for the end of a run and answers from what is stored.
func (d *Door) answerStored(ctx context.Context, w http.ResponseWriter, r *http.Request, v view, runID string) error {
	run, err := d.awaitEnd(ctx, runID)
	if err != nil {
		if r.Context().Err() != nil {
			return nil
		}
		return err
	}
	resp, e, err := d.response(ctx, v, run)
	if err != nil {
		return err
	}
	return resp.finish(w, e)
}

// response makes the answer of a run that has ended from what is stored of it.
func (d *Door) response(ctx context.Context, v view, run *agent.Run) (*lettaResponse, *ending, error) {
	events, err := d.retell(ctx, run)
	if err != nil {
		return nil, nil, err
	}
	v.Tokens = false
	rend := newRenderer(v, run.ID, false)
	resp := &lettaResponse{Messages: []variant{}}
	for _, ev := range events {
		for _, c := range rend.event(ev) {
			if x, ok := c.(variant); ok {
				resp.Messages = append(resp.Messages, x)
			}
		}
	}
	return resp, rend.ended, nil
}

// awaitEnd waits until a run has ended and its end was published.
func (d *Door) awaitEnd(ctx context.Context, runID string) (*agent.Run, error) {
	run, err := d.store.Run(ctx, runID)
	if err != nil {
		return nil, err
	}
	box := newOutbox(runID, false, false)
	leave := d.rt.Subscribe(agent.Scope{AgentID: run.AgentID, ConversationID: run.ConversationID}, box.put)
	defer leave()
	// Some ends are not published, such as that of an input that left the queue.
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		if run, err = d.store.Run(ctx, runID); err != nil || run.Ended {
			return run, err
		}
		select {
		case <-box.signal:
			box.take()
		case <-tick.C:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// again answers a send whose key is known: with the run that it began the first
// time (spec/rest.md section 6.4).
func (s *sending) again(ctx context.Context, w http.ResponseWriter, r *http.Request, receipt runtime.Receipt) error {
	run, err := s.original(ctx, receipt)
	if err != nil {
		return err
	}
	switch {
	case s.async:
		return s.replyRun(w, r, run.ID, false)
	case !s.streaming:
		return s.d.answerStored(ctx, w, r, s.view, run.ID)
	case run.Spec.Background && !s.d.expired(ctx, run):
		return s.d.streamLog(w, r, run, 0, s.view.Pings)
	}
	return s.d.joinLive(w, r, s.view, run)
}

// original finds the run of an earlier send. One that another door queued has none
// before it begins.
func (s *sending) original(ctx context.Context, receipt runtime.Receipt) (*agent.Run, error) {
	for {
		if receipt.RunID != "" {
			run, err := s.d.store.Run(ctx, receipt.RunID)
			if agent.CodeOf(err) != agent.CodeNotFound {
				return run, err
			}
		}
		run, err := s.d.store.RunByOTID(ctx, s.scope.ConversationID, s.body.parsed.key)
		if err != nil || run != nil {
			return run, err
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// replyRun answers with a run. One that was just made shows as created, even if it
// has begun meanwhile.
func (s *sending) replyRun(w http.ResponseWriter, r *http.Request, id string, made bool) error {
	run, err := s.d.store.Run(r.Context(), id)
	if err != nil {
		return err
	}
	st, err := s.d.runState(r.Context(), run)
	if err != nil {
		return err
	}
	if made {
		st.Status, st.StopReason, st.CompletedAt, st.Metadata.Result = string(agent.RunCreated), nil, stamp{}, nil
	}
	return reply(w, st)
}
