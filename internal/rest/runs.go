package rest

import (
	"context"
	"net/http"
	"time"

	"mneme/internal/agent"
	"mneme/internal/store"
)

var runRoutes = []route{
	{"GET", "/v1/runs", (*Door).listRuns, doc{summary: "List runs, the newest first", query: runsQuery{}, answer: []runState{}}},
	{"GET", "/v1/runs/{run_id}", (*Door).getRun, doc{summary: "Show a run", answer: runState{}}},
	{"GET", "/v1/runs/{run_id}/messages", (*Door).listRunMessages, doc{
		summary: "List the messages of a run, those that began it included", query: runMessagesQuery{}, answer: []variant{}}},
	{"GET", "/v1/runs/{run_id}/steps", (*Door).listRunSteps, doc{summary: "List the steps of a run", query: runStepsQuery{}, answer: []stepState{}}},
	{"GET", "/v1/runs/{run_id}/usage", (*Door).runUsage, doc{summary: "The tokens of a run", answer: usageState{}}},
	{"GET", "/v1/runs/{run_id}/trace", (*Door).runTrace, doc{summary: "The trace of a run: none are kept", query: traceQuery{}, answer: []none{}}},
}

// A runState is a run as answers show it (spec/rest.md section 10).
type runState struct {
	ID             string        `json:"id"`
	AgentID        string        `json:"agent_id"`
	ConversationID *string       `json:"conversation_id"`
	Status         string        `json:"status"`
	StopReason     *string       `json:"stop_reason"`
	Background     *bool         `json:"background"`
	Metadata       runMetadata   `json:"metadata"`
	RequestConfig  requestConfig `json:"request_config"`
	CreatedAt      stamp         `json:"created_at"`
	CompletedAt    stamp         `json:"completed_at"`
	CallbackURL    *string       `json:"callback_url"`
	CallbackSentAt stamp         `json:"callback_sent_at"`
	CallbackStatus *int          `json:"callback_status_code"`
	CallbackError  *string       `json:"callback_error"`
	TTFT           *int64        `json:"ttft_ns"`
	Duration       *int64        `json:"total_duration_ns"`
	BaseTemplateID *string       `json:"base_template_id"`
}

// A runMetadata says how a run was begun and what came of it. The result is that
// of an async run which was asked for by its id.
type runMetadata struct {
	RunType string         `json:"run_type"`
	Error   *errorChunk    `json:"error,omitempty"`
	Result  *lettaResponse `json:"result,omitempty"`
}

type requestConfig struct {
	UseAssistant bool     `json:"use_assistant_message"`
	ToolName     string   `json:"assistant_message_tool_name"`
	ToolArg      string   `json:"assistant_message_tool_kwarg"`
	Types        []string `json:"include_return_message_types" null:"yes"`
}

// renderRun shows a run. wire is its conversation's id, null for an agent's own.
func renderRun(run *agent.Run, wire *string) *runState {
	req := requestOf(run)
	st := &runState{
		ID: run.ID, AgentID: run.AgentID, ConversationID: wire, Status: string(run.Status()),
		Background: &run.Spec.Background, Metadata: runMetadata{RunType: req.Type},
		RequestConfig: requestConfig{req.UseAssistant, req.ToolName, req.ToolArg, req.Types},
		CreatedAt:     stamp(run.CreatedAt), CompletedAt: stamp(run.EndedAt), CallbackURL: text(run.Spec.Callback),
	}
	if run.Ended {
		reason, failure := outcome(run.StopReason, run.Error)
		st.StopReason = &reason
		if failure != nil {
			st.Metadata.Error = errorOf(run.ID, failure)
		}
		if !run.StartedAt.IsZero() {
			st.Duration = new(run.EndedAt.Sub(run.CreatedAt).Nanoseconds())
		}
	}
	if !run.FirstTokenAt.IsZero() {
		st.TTFT = new(run.FirstTokenAt.Sub(run.CreatedAt).Nanoseconds())
	}
	return st
}

// runState shows one run with all that belongs to it.
func (d *Door) runState(ctx context.Context, run *agent.Run) (*runState, error) {
	names := conversationNames{d: d}
	wire, err := names.wire(ctx, run.ConversationID)
	if err != nil {
		return nil, err
	}
	st := renderRun(run, wire)
	if run.Spec.Callback != "" {
		if err := d.showCallback(ctx, st); err != nil {
			return nil, err
		}
	}
	if req := requestOf(run); run.Ended && req.Type == "send_message_async" {
		if st.Metadata.Result, err = d.result(ctx, req, run); err != nil {
			return nil, err
		}
	}
	return st, nil
}

// result is what an async run would have answered had it been waited for.
func (d *Door) result(ctx context.Context, req request, run *agent.Run) (*lettaResponse, error) {
	resp, e, err := d.response(ctx, req.View, run)
	if err != nil {
		return nil, err
	}
	resp.Stop, resp.Usage = stopChunk{Type: typeStop, Reason: e.stop}, e.usage
	return resp, nil
}

func (d *Door) showCallback(ctx context.Context, st *runState) error {
	c, err := d.store.Callback(ctx, st.ID)
	if err != nil || c == nil {
		return err
	}
	st.CallbackSentAt = stamp(c.Sent)
	if c.Status != 0 {
		st.CallbackStatus = &c.Status
	}
	st.CallbackError = text(c.Error)
	return nil
}

// conversationNames gives the ids under which conversations show: an agent's own
// has none.
type conversationNames struct {
	d     *Door
	known map[string]*string
}

func (n *conversationNames) wire(ctx context.Context, id string) (*string, error) {
	if w, ok := n.known[id]; ok {
		return w, nil
	}
	conv, err := n.d.store.Conversation(ctx, id)
	w := &id
	switch {
	case agent.CodeOf(err) == agent.CodeNotFound: // deleted
	case err != nil:
		return nil, err
	case conv.Own:
		w = nil
	}
	if n.known == nil {
		n.known = map[string]*string{}
	}
	n.known[id] = w
	return w, nil
}

// A runsQuery selects runs.
type runsQuery struct {
	paging
	AgentID        string   `query:"agent_id"`
	AgentIDs       []string `query:"agent_ids" doc:"deprecated: use agent_id"`
	Statuses       []string `query:"statuses" enum:"created,running,completed,failed,cancelled"`
	Active         *bool    `query:"active" doc:"created and running ones, where no statuses are given"`
	Background     *bool    `query:"background"`
	StopReason     string   `query:"stop_reason"`
	ConversationID string   `query:"conversation_id"`
	Limit          int      `query:"limit" default:"100" min:"1" max:"1000"`
	OrderBy        string   `query:"order_by" default:"created_at" enum:"created_at,duration" doc:"runs are ordered by their creation"`
}

func (d *Door) listRuns(w http.ResponseWriter, r *http.Request) error {
	q, err := decodeQuery[runsQuery](r)
	if err != nil {
		return err
	}
	f := store.RunFilter{
		AgentIDs: q.AgentIDs, ConversationID: q.ConversationID, Background: q.Background,
		Page: store.Page{After: q.After, Before: q.Before, Asc: q.asc(false)},
	}
	if q.AgentID != "" {
		f.AgentIDs = append(f.AgentIDs, q.AgentID)
	}
	for _, s := range q.Statuses {
		f.Statuses = append(f.Statuses, agent.RunStatus(s))
	}
	if len(f.Statuses) == 0 && q.Active != nil && *q.Active {
		f.Statuses = []agent.RunStatus{agent.RunCreated, agent.RunRunning}
	}
	runs, err := d.runsThatEnded(r.Context(), f, q.StopReason, q.Limit)
	if err != nil {
		return err
	}
	names := conversationNames{d: d}
	out := []*runState{}
	for _, run := range runs {
		wire, err := names.wire(r.Context(), run.ConversationID)
		if err != nil {
			return err
		}
		st := renderRun(run, wire)
		if run.Spec.Callback != "" {
			if err := d.showCallback(r.Context(), st); err != nil {
				return err
			}
		}
		out = append(out, st)
	}
	return reply(w, out)
}

// runsThatEnded lists runs; stop selects them by the reason that is shown, which is
// not always the one that is stored. "" = all.
func (d *Door) runsThatEnded(ctx context.Context, f store.RunFilter, stop string, limit int) ([]*agent.Run, error) {
	keep := func(*agent.Run) bool { return true }
	switch agent.StopReason(stop) {
	case "":
	case agent.StopError, agent.StopModelError, agent.StopInvalidResponse, agent.StopOverflow:
		if len(f.Statuses) == 0 {
			f.Statuses = []agent.RunStatus{agent.RunFailed}
		}
		keep = func(run *agent.Run) bool {
			shown, _ := outcome(run.StopReason, run.Error)
			return shown == stop
		}
	default:
		f.StopReason = agent.StopReason(stop)
	}
	return scan(f.Page, limit, keep, func(p store.Page) ([]*agent.Run, error) {
		f.Page = p
		return d.store.Runs(ctx, f)
	}, func(run *agent.Run) (string, int64) { return run.ID, 0 })
}

// run finds the run that {run_id} of the path names. A bad shape is 400.
func (d *Door) run(r *http.Request) (*agent.Run, error) {
	id := r.PathValue("run_id")
	run, err := d.store.Run(r.Context(), id)
	if agent.CodeOf(err) == agent.CodeNotFound {
		if !isID("run", id) {
			return nil, badRequest("Invalid run ID format: %s", quoted(id))
		}
		return nil, notFound("Run with ID '%s' not found", id)
	}
	return run, err
}

func (d *Door) getRun(w http.ResponseWriter, r *http.Request) error {
	run, err := d.run(r)
	if err != nil {
		return err
	}
	st, err := d.runState(r.Context(), run)
	if err != nil {
		return err
	}
	return reply(w, st)
}

type runMessagesQuery struct {
	messageLimit
	paging
	OrderBy string `query:"order_by" default:"created_at" enum:"created_at"`
}

// listRunMessages lists the messages of a run, in the types that its send asked for.
func (d *Door) listRunMessages(w http.ResponseWriter, r *http.Request) error {
	q, err := decodeQuery[runMessagesQuery](r)
	if err != nil {
		return err
	}
	run, err := d.run(r)
	if err != nil {
		return err
	}
	req := requestOf(run)
	l := d.listing(req.Types)
	l.view.SpeakTool, l.view.SpeakArg = req.View.SpeakTool, req.View.SpeakArg
	l.query = func(ctx context.Context, f store.MessageFilter) ([]*agent.Message, error) {
		return d.store.MessagesOfRun(ctx, run.ID, f)
	}
	items, err := d.relative(r.Context(), l, store.MessageFilter{}, q.paging, q.asc(true), q.Limit)
	if err != nil {
		return err
	}
	return reply(w, flat(items))
}

type runStepsQuery struct {
	paging
	Limit   int    `query:"limit" default:"100" min:"0" max:"1000"`
	OrderBy string `query:"order_by" default:"created_at" enum:"created_at"`
}

func (d *Door) listRunSteps(w http.ResponseWriter, r *http.Request) error {
	q, err := decodeQuery[runStepsQuery](r)
	if err != nil {
		return err
	}
	run, err := d.run(r)
	if err != nil {
		return err
	}
	f := store.StepFilter{RunID: run.ID, Page: store.Page{After: q.After, Before: q.Before, Limit: q.Limit, Asc: q.asc(false)}}
	return d.replySteps(w, r, f)
}

// A usageState are the tokens of a run.
type usageState struct {
	Prompt            int                `json:"prompt_tokens"`
	Completion        int                `json:"completion_tokens"`
	Total             int                `json:"total_tokens"`
	PromptDetails     *promptDetails     `json:"prompt_tokens_details"`
	CompletionDetails *completionDetails `json:"completion_tokens_details"`
}

type promptDetails struct {
	Cached     int `json:"cached_tokens"`
	CacheRead  int `json:"cache_read_tokens"`
	CacheWrite int `json:"cache_creation_tokens"`
}

type completionDetails struct {
	Reasoning int `json:"reasoning_tokens"`
}

func detailsOf(u agent.Usage) (*promptDetails, *completionDetails) {
	if !u.Reported {
		return nil, nil
	}
	return &promptDetails{u.CacheRead, u.CacheRead, u.CacheWrite}, &completionDetails{u.Reasoning}
}

func (d *Door) runUsage(w http.ResponseWriter, r *http.Request) error {
	run, err := d.run(r)
	if err != nil {
		return err
	}
	steps, err := d.store.StepsOf(r.Context(), run)
	if err != nil {
		return err
	}
	var sum agent.Usage
	for _, st := range steps {
		sum = sum.Add(st.Usage)
	}
	u := usageState{Prompt: sum.Input, Completion: sum.Output, Total: sum.Total()}
	u.PromptDetails, u.CompletionDetails = detailsOf(sum)
	return reply(w, u)
}

type traceQuery struct {
	Limit int `query:"limit" default:"1000" min:"1" max:"5000"`
}

func (d *Door) runTrace(w http.ResponseWriter, r *http.Request) error {
	if _, err := decodeQuery[traceQuery](r); err != nil {
		return err
	}
	if _, err := d.run(r); err != nil {
		return err
	}
	return reply(w, []none{})
}

// expired says whether the events of a run are kept no longer
// (spec/rest.md section 6.1).
func (d *Door) expired(ctx context.Context, run *agent.Run) bool {
	if !run.Ended || run.StartedAt.IsZero() {
		return false
	}
	if time.Since(run.CreatedAt) > d.retention {
		return true
	}
	oldest, err := d.store.OldestEventSeq(ctx, run.ID)
	return err == nil && oldest != 1
}
