package rest

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"mneme/internal/agent"
	"mneme/internal/store"
)

var stepRoutes = []route{
	{"GET", "/v1/steps", (*Door).listSteps, doc{summary: "List steps, the newest first", query: stepsQuery{}, answer: []stepState{}}},
	{"GET", "/v1/steps/{step_id}", (*Door).getStep, doc{summary: "Show a step", answer: stepState{}}},
	{"GET", "/v1/steps/{step_id}/messages", (*Door).listStepMessages, doc{
		summary: "List the messages of a step", query: runMessagesQuery{}, answer: []variant{}}},
	{"GET", "/v1/steps/{step_id}/metrics", (*Door).stepMetrics, doc{summary: "The times of a step", answer: metricsState{}}},
	{"GET", "/v1/steps/{step_id}/trace", (*Door).stepTrace, doc{summary: "The provider's trace of a step: none is kept", answer: (*none)(nil)}},
	{"PATCH", "/v1/steps/{step_id}/feedback", (*Door).stepFeedback, doc{
		summary: "Note what people think of a step", body: feedbackBody{}, answer: stepState{}}},
}

// A stepState is a step as answers show it (spec/rest.md section 10).
type stepState struct {
	ID                string             `json:"id"`
	Origin            *string            `json:"origin"`
	ProviderID        *string            `json:"provider_id"`
	RunID             *string            `json:"run_id"`
	AgentID           *string            `json:"agent_id"`
	ProviderName      *string            `json:"provider_name"`
	ProviderCategory  *string            `json:"provider_category"`
	Model             *string            `json:"model"`
	ModelHandle       *string            `json:"model_handle"`
	ModelEndpoint     *string            `json:"model_endpoint"`
	ContextLimit      *int               `json:"context_window_limit"`
	Completion        *int               `json:"completion_tokens"`
	Prompt            *int               `json:"prompt_tokens"`
	Total             *int               `json:"total_tokens"`
	Cached            *int               `json:"cached_input_tokens"`
	CacheWrite        *int               `json:"cache_write_tokens"`
	Reasoning         *int               `json:"reasoning_tokens"`
	CompletionDetails *completionDetails `json:"completion_tokens_details"`
	PromptDetails     *promptDetails     `json:"prompt_tokens_details"`
	StopReason        *string            `json:"stop_reason"`
	Tags              []string           `json:"tags"`
	TID               *string            `json:"tid"`
	TraceID           *string            `json:"trace_id"`
	RequestID         *string            `json:"request_id"`
	Messages          []none             `json:"messages"` // deprecated
	Feedback          *string            `json:"feedback"`
	ProjectID         *string            `json:"project_id"`
	ErrorType         *string            `json:"error_type"`
	ErrorData         *errorChunk        `json:"error_data"`
	Status            string             `json:"status"`
}

// A stepShower shows steps, with what their runs and models know.
type stepShower struct {
	d    *Door
	runs map[string]*shownRun
}

type shownRun struct {
	*agent.Run
	request string
	last    string // id of its last step, where that matters
}

func (s *stepShower) run(ctx context.Context, id string) (*shownRun, error) {
	if run, ok := s.runs[id]; ok {
		return run, nil
	}
	run, err := s.d.store.Run(ctx, id)
	if err != nil {
		return nil, err
	}
	shown := &shownRun{Run: run, request: requestOf(run).RequestID}
	if run.Ended {
		steps, err := s.d.store.StepsOf(ctx, run)
		if err != nil {
			return nil, err
		}
		if len(steps) > 0 {
			shown.last = steps[len(steps)-1].ID
		}
	}
	if s.runs == nil {
		s.runs = map[string]*shownRun{}
	}
	s.runs[id] = shown
	return shown, nil
}

func (s *stepShower) show(ctx context.Context, st *agent.Step) (*stepState, error) {
	run, err := s.run(ctx, st.RunID)
	if err != nil {
		return nil, err
	}
	out := &stepState{
		ID: st.ID, RunID: &st.RunID, AgentID: &st.AgentID, ModelHandle: text(st.Model), Tags: orEmpty(st.Tags), Messages: []none{},
		RequestID: text(run.request), Feedback: text(st.Feedback), Origin: text(string(run.Door)), Status: stepStatus(st),
	}
	if provider, model, ok := strings.Cut(st.Model, "/"); ok {
		out.ProviderName, out.Model, out.ProviderCategory = &provider, &model, new("base")
		if _, info, err := s.d.models.Resolve(ctx, st.Model); err == nil {
			out.ModelEndpoint = text(info.Endpoint)
			if info.Context > 0 {
				out.ContextLimit = &info.Context
			}
		}
	}
	if answered(st) {
		u := st.Usage
		out.Prompt, out.Completion, out.Total = new(u.Input), new(u.Output), new(u.Total())
		if u.Reported {
			out.Cached, out.CacheWrite, out.Reasoning = new(u.CacheRead), new(u.CacheWrite), new(u.Reasoning)
		}
		out.PromptDetails, out.CompletionDetails = detailsOf(u)
	}
	stop, fault := st.StopReason, st.Error
	if run.last == st.ID {
		// The last step carries the run's reason.
		stop = run.StopReason
		if fault == nil {
			fault = run.Error
		}
	}
	if stop != "" {
		reason, failure := outcome(stop, fault)
		out.StopReason = &reason
		if failure != nil {
			out.ErrorData = errorOf(run.ID, failure)
			out.ErrorType = &out.ErrorData.ErrorType
		}
	}
	return out, nil
}

// stepStatus is the state of a step: pending, success, failed or cancelled.
func stepStatus(st *agent.Step) string {
	switch {
	case st.Error != nil || st.State == agent.StepVoid:
		return "failed"
	case st.State == agent.StepOpen || st.State == agent.StepAnswered:
		return "pending"
	case st.StopReason == agent.StopCancelled:
		return "cancelled"
	case st.StopReason == agent.StopError || st.StopReason == agent.StopModelError:
		return "failed"
	}
	return "success"
}

// A stepsQuery selects steps.
type stepsQuery struct {
	paging
	AgentID     string    `query:"agent_id"`
	Model       string    `query:"model"`
	Tags        []string  `query:"tags"`
	Feedback    string    `query:"feedback" enum:"positive,negative"`
	HasFeedback *bool     `query:"has_feedback"`
	TraceIDs    []string  `query:"trace_ids" doc:"there are no traces: such a list is empty"`
	From        time.Time `query:"start_date"`
	To          time.Time `query:"end_date"`
	ProjectID   string    `query:"project_id" doc:"ignored"`
	Limit       int       `query:"limit" default:"50" min:"0" max:"1000"`
	OrderBy     string    `query:"order_by" default:"created_at" enum:"created_at"`
}

func (d *Door) listSteps(w http.ResponseWriter, r *http.Request) error {
	q, err := decodeQuery[stepsQuery](r)
	if err != nil {
		return err
	}
	if len(q.TraceIDs) > 0 {
		return reply(w, []none{})
	}
	return d.replySteps(w, r, store.StepFilter{
		AgentID: q.AgentID, Model: q.Model, Tags: q.Tags, Feedback: q.Feedback, HasFeedback: q.HasFeedback, From: q.From, To: q.To,
		Page: store.Page{After: q.After, Before: q.Before, Limit: q.Limit, Asc: q.asc(false)},
	})
}

func (d *Door) replySteps(w http.ResponseWriter, r *http.Request, f store.StepFilter) error {
	if f.Limit == 0 {
		return reply(w, []none{})
	}
	steps, err := d.store.Steps(r.Context(), f)
	if err != nil {
		return err
	}
	show := stepShower{d: d}
	out := []*stepState{}
	for _, st := range steps {
		shown, err := show.show(r.Context(), st)
		if err != nil {
			return err
		}
		out = append(out, shown)
	}
	return reply(w, out)
}

// step finds the step that {step_id} of the path names.
func (d *Door) step(r *http.Request) (*agent.Step, error) {
	st, err := d.store.Step(r.Context(), r.PathValue("step_id"))
	return st, missing(err, r, "step_id", "step", notFound("Step with id '%s' not found", r.PathValue("step_id")))
}

func (d *Door) replyStep(w http.ResponseWriter, r *http.Request, st *agent.Step) error {
	show := stepShower{d: d}
	out, err := show.show(r.Context(), st)
	if err != nil {
		return err
	}
	return reply(w, out)
}

func (d *Door) getStep(w http.ResponseWriter, r *http.Request) error {
	st, err := d.step(r)
	if err != nil {
		return err
	}
	return d.replyStep(w, r, st)
}

func (d *Door) listStepMessages(w http.ResponseWriter, r *http.Request) error {
	q, err := decodeQuery[runMessagesQuery](r)
	if err != nil {
		return err
	}
	st, err := d.step(r)
	if err != nil {
		return err
	}
	msgs, err := d.messagesOfStep(r.Context(), st)
	if err != nil {
		return err
	}
	items, err := d.listing(nil).render(r.Context(), msgs)
	if err != nil {
		return err
	}
	if !q.asc(true) {
		slices.Reverse(items)
	}
	after, err := d.cursor(r.Context(), q.After)
	if err != nil {
		return err
	}
	before, err := d.cursor(r.Context(), q.Before)
	if err != nil {
		return err
	}
	page, known := window(items, item.owner, after, before, q.Limit)
	if !known {
		return notFound("Message %s%s is not of step %s", q.After, q.Before, st.ID)
	}
	return reply(w, flat(page))
}

// messagesOfStep reads the messages of a step, a few. Results that came after a
// person's answer are stored with the next run.
func (d *Door) messagesOfStep(ctx context.Context, st *agent.Step) ([]*agent.Message, error) {
	f := store.MessageFilter{Roles: listedRoles, SkipInterrupted: true}
	msgs, err := d.store.MessagesOfStep(ctx, st, f)
	if err != nil {
		return nil, err
	}
	later, err := d.nextRun(ctx, st)
	if err != nil || later == nil {
		return msgs, err
	}
	more, err := d.store.MessagesOfStep(ctx, &agent.Step{ID: st.ID, RunID: later.ID}, f)
	return append(msgs, more...), err
}

// nextRun is the run of the same turn that follows a step's own; nil if there is
// none.
func (d *Door) nextRun(ctx context.Context, st *agent.Step) (*agent.Run, error) {
	run, err := d.store.Run(ctx, st.RunID)
	if err != nil || run.StopReason != agent.StopRequiresApproval {
		return nil, err
	}
	runs, err := d.store.Runs(ctx, store.RunFilter{ConversationID: st.ConversationID, Page: store.Page{After: run.ID, Limit: 1, Asc: true}})
	if err != nil || len(runs) == 0 || runs[0].TurnID != st.TurnID {
		return nil, err
	}
	return runs[0], nil
}

// A metricsState are the times of a step, in ns. Starts are since 1970.
type metricsState struct {
	ID             string  `json:"id"`
	RunID          *string `json:"run_id"`
	AgentID        *string `json:"agent_id"`
	StepStart      *int64  `json:"step_start_ns"`
	RequestStart   *int64  `json:"llm_request_start_ns"`
	Request        *int64  `json:"llm_request_ns"`
	ToolExecution  *int64  `json:"tool_execution_ns"`
	Step           *int64  `json:"step_ns"`
	ProviderID     *string `json:"provider_id"`
	ProjectID      *string `json:"project_id"`
	TemplateID     *string `json:"template_id"`
	BaseTemplateID *string `json:"base_template_id"`
}

// stepMetrics tells the times of a step. The model's part ends when its answer was
// stored.
func (d *Door) stepMetrics(w http.ResponseWriter, r *http.Request) error {
	st, err := d.step(r)
	if err != nil {
		return err
	}
	m := metricsState{
		ID: st.ID, RunID: &st.RunID, AgentID: &st.AgentID, StepStart: new(st.StartedAt.UnixNano()), RequestStart: new(st.StartedAt.UnixNano()),
	}
	answer := st.EndedAt
	if msg, err := d.store.MessageByID(r.Context(), st.MessageID); err == nil {
		answer = msg.CreatedAt
	} else if agent.CodeOf(err) != agent.CodeNotFound {
		return err
	}
	if !answer.IsZero() {
		m.Request = new(answer.Sub(st.StartedAt).Nanoseconds())
	}
	if !st.EndedAt.IsZero() {
		m.Step = new(st.EndedAt.Sub(st.StartedAt).Nanoseconds())
	}
	calls, err := d.store.Calls(r.Context(), st.ID)
	if err != nil {
		return err
	}
	if done := slices.MaxFunc(append(calls, &agent.ToolCall{}), func(a, b *agent.ToolCall) int { return a.DoneAt.Compare(b.DoneAt) }); !done.DoneAt.IsZero() {
		m.ToolExecution = new(done.DoneAt.Sub(answer).Nanoseconds())
	}
	return reply(w, m)
}

func (d *Door) stepTrace(w http.ResponseWriter, r *http.Request) error {
	if _, err := d.step(r); err != nil {
		return err
	}
	return reply(w, nil)
}

// A feedbackBody is what people think of a step. Tags are replaced where given.
type feedbackBody struct {
	Feedback *string            `json:"feedback"` // positive, negative; null takes it back
	Tags     optional[[]string] `json:"tags"`
}

func (b *feedbackBody) check() error {
	if b.Feedback != nil && *b.Feedback != "positive" && *b.Feedback != "negative" {
		return unprocessable("body.feedback", "%s is not one of positive, negative", quoted(*b.Feedback))
	}
	return nil
}

func (d *Door) stepFeedback(w http.ResponseWriter, r *http.Request) error {
	b, err := decodeBody[feedbackBody](d, w, r)
	if err != nil {
		return err
	}
	st, err := d.step(r)
	if err != nil {
		return err
	}
	tags := st.Tags
	if b.Tags.Set {
		tags = b.Tags.Value
	}
	st, err = d.store.SetStepFeedback(r.Context(), st.ID, plain(b.Feedback), tags)
	if err != nil {
		return err
	}
	return d.replyStep(w, r, st)
}
