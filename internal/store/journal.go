package store

import (
	"mneme/internal/agent"
)

// The rows of the journal: how each type is written and read. An upsert changes
// only the columns that a row's life changes, and only rows of the same tenant and
// conversation.

const (
	inputKeyColumns = `id, tenant, agent_id, conversation_id, key, digest, door, kind, source,
		if_busy, on_orphan, logged, origin, created_ns, options`
	inputStateColumns = `messages, state, paused, started, turn_id, run`
	inputColumns      = inputKeyColumns + ", " + inputStateColumns

	turnKeyColumns   = `id, tenant, agent_id, conversation_id, door, logged, origin, started_ns`
	turnStateColumns = `options, state, on_orphan, mergeable, steps, ended_ns, stop_reason, error`
	turnColumns      = turnKeyColumns + ", " + turnStateColumns

	runKeyColumns   = `id, tenant, agent_id, conversation_id, door, spec, background, created_ns`
	runStateColumns = `turn_id, started_ns, first_token_ns, ended, ended_ns, stop_reason, error`
	runColumns      = runKeyColumns + ", " + runStateColumns

	stepKeyColumns   = `id, tenant, turn_id, agent_id, conversation_id, n, started_ns`
	stepStateColumns = `run_id, message_id, model, client_keys, state, ended_ns, stop_reason, usage, error`
	stepNoteColumns  = `feedback, tags` // written by SetStepFeedback alone
	stepJournal      = stepKeyColumns + ", " + stepStateColumns
	stepColumns      = stepJournal + ", " + stepNoteColumns

	callKeyColumns   = `step_id, id, tenant, turn_id, agent_id, conversation_id, message_id, idx, name, arguments, created_ns`
	callStateColumns = `state, kind, auto, result_order, asked_ns, done_ns, input, suggestions, diffs, result`
	callColumns      = callKeyColumns + ", " + callStateColumns
)

// upsert makes the statement that inserts a row or changes the state of the one
// with the same key.
func upsert(table, key, columns, state string) string {
	return "INSERT INTO " + table + " (" + columns + ") VALUES (" + marks(columns) + ") ON CONFLICT (" + key +
		") DO UPDATE SET " + updates(state) + " WHERE " + table + ".tenant = excluded.tenant AND " +
		table + ".conversation_id = excluded.conversation_id"
}

var (
	sqlPutInput = upsert("inputs", "id", inputColumns, inputStateColumns)
	sqlPutTurn  = upsert("turns", "id", turnColumns, turnStateColumns)
	sqlPutRun   = upsert("runs", "id", runColumns, runStateColumns)
	sqlPutStep  = upsert("steps", "id", stepJournal, stepStateColumns)
	sqlPutCall  = upsert("tool_calls", "step_id, id", callColumns, callStateColumns)
)

func (e *encoder) input(in *agent.Input) {
	e.mine("input", in.ID, in.ConversationID)
	e.add("input", in.ID, sqlPutInput, []any{
		in.ID, e.s.tenant, in.AgentID, in.ConversationID, orNull(in.Key), clean(in.Digest), string(in.Door), clean(in.Kind), clean(in.Source),
		string(in.IfBusy), string(in.OnOrphan), bit(in.Logged), clean(in.Origin), ns(in.CreatedAt), e.json(&in.Options),
		list(e, in.Messages), string(in.State), bit(in.Paused), bit(in.Started), in.TurnID,
		e.spec(&in.Run),
	})
	if keys := in.ClientKeys(); len(keys) > 1 {
		for _, key := range keys {
			e.stmts = append(e.stmts, statement{what: "key of input " + in.ID, query: sqlPutInputKey, any: true,
				args: []any{in.ConversationID, clean(key), e.s.tenant, in.ID}})
		}
	}
}

// spec encodes what a door wants of a run; nothing special is NULL.
func (e *encoder) spec(r *agent.RunSpec) any {
	if r.ID == "" && !r.Background && r.Request == nil && r.Callback == "" {
		return nil
	}
	return e.json(r)
}

func scanInput(r scanner) (*agent.Input, error) {
	in := new(agent.Input)
	var tenant string
	err := r.Scan(
		&in.ID, &tenant, &in.AgentID, &in.ConversationID, scanText{&in.Key}, &in.Digest, (*string)(&in.Door), &in.Kind, &in.Source,
		(*string)(&in.IfBusy), (*string)(&in.OnOrphan), scanBit{&in.Logged}, &in.Origin, scanTime{&in.CreatedAt}, scanJSON{&in.Options},
		scanJSON{&in.Messages}, (*string)(&in.State), scanBit{&in.Paused}, scanBit{&in.Started}, &in.TurnID,
		scanJSON{&in.Run},
	)
	return in, err
}

func (e *encoder) turn(t *agent.Turn) {
	e.mine("turn", t.ID, t.ConversationID)
	e.add("turn", t.ID, sqlPutTurn, []any{
		t.ID, e.s.tenant, t.AgentID, t.ConversationID, string(t.Door), bit(t.Logged), clean(t.Origin), ns(t.StartedAt),
		e.json(&t.Options), string(t.State), string(t.OnOrphan), bit(t.Mergeable), int64(t.Steps), ns(t.EndedAt),
		string(t.StopReason), e.fault(t.Error),
	})
}

func scanTurn(r scanner) (*agent.Turn, error) {
	t := new(agent.Turn)
	var tenant string
	err := r.Scan(
		&t.ID, &tenant, &t.AgentID, &t.ConversationID, (*string)(&t.Door), scanBit{&t.Logged}, &t.Origin, scanTime{&t.StartedAt},
		scanJSON{&t.Options}, (*string)(&t.State), (*string)(&t.OnOrphan), scanBit{&t.Mergeable}, &t.Steps, scanTime{&t.EndedAt},
		(*string)(&t.StopReason), scanJSON{&t.Error},
	)
	return t, err
}

func (e *encoder) runRow(r *agent.Run) {
	e.mine("run", r.ID, r.ConversationID)
	e.add("run", r.ID, sqlPutRun, []any{
		r.ID, e.s.tenant, r.AgentID, r.ConversationID, string(r.Door), e.spec(&r.Spec), bit(r.Spec.Background), ns(r.CreatedAt),
		r.TurnID, ns(r.StartedAt), ns(r.FirstTokenAt), bit(r.Ended), ns(r.EndedAt), string(r.StopReason), e.fault(r.Error),
	})
	if r.Ended && r.Spec.Callback != "" {
		e.callback(r)
	}
}

func scanRun(r scanner) (*agent.Run, error) {
	run := new(agent.Run)
	var tenant string
	var background int64 // in Spec too
	err := r.Scan(
		&run.ID, &tenant, &run.AgentID, &run.ConversationID, (*string)(&run.Door), scanJSON{&run.Spec}, &background, scanTime{&run.CreatedAt},
		&run.TurnID, scanTime{&run.StartedAt}, scanTime{&run.FirstTokenAt}, scanBit{&run.Ended}, scanTime{&run.EndedAt}, (*string)(&run.StopReason), scanJSON{&run.Error},
	)
	return run, err
}

func (e *encoder) step(st *agent.Step) {
	e.mine("step", st.ID, st.ConversationID)
	e.add("step", st.ID, sqlPutStep, []any{
		st.ID, e.s.tenant, st.TurnID, st.AgentID, st.ConversationID, int64(st.N), ns(st.StartedAt),
		st.RunID, st.MessageID, clean(st.Model), list(e, st.ClientKeys), string(st.State), ns(st.EndedAt),
		string(st.StopReason), e.json(&st.Usage), e.fault(st.Error),
	})
}

func scanStep(r scanner) (*agent.Step, error) {
	st := new(agent.Step)
	var tenant string
	err := r.Scan(
		&st.ID, &tenant, &st.TurnID, &st.AgentID, &st.ConversationID, &st.N, scanTime{&st.StartedAt},
		&st.RunID, &st.MessageID, &st.Model, scanJSON{&st.ClientKeys}, (*string)(&st.State), scanTime{&st.EndedAt},
		(*string)(&st.StopReason), scanJSON{&st.Usage}, scanJSON{&st.Error}, scanText{&st.Feedback}, scanJSON{&st.Tags},
	)
	return st, err
}

func (e *encoder) call(c *agent.ToolCall) {
	e.mine("tool call", c.ID, c.ConversationID)
	var result any
	if c.Result != nil {
		result = e.json(c.Result)
	}
	e.add("tool call", c.ID, sqlPutCall, []any{
		c.StepID, clean(c.ID), e.s.tenant, c.TurnID, c.AgentID, c.ConversationID, c.MessageID, int64(c.Index), clean(c.Name),
		clean(c.Arguments), ns(c.CreatedAt), string(c.State), string(c.Kind), bit(c.Auto), int64(c.Order), ns(c.AskedAt), ns(c.DoneAt),
		rawText(c.Input), list(e, c.Suggestions), rawText(c.Diffs), result,
	})
}

func scanCall(r scanner) (*agent.ToolCall, error) {
	c := new(agent.ToolCall)
	var tenant string
	err := r.Scan(
		&c.StepID, &c.ID, &tenant, &c.TurnID, &c.AgentID, &c.ConversationID, &c.MessageID, &c.Index, &c.Name,
		&c.Arguments, scanTime{&c.CreatedAt}, (*string)(&c.State), (*string)(&c.Kind), scanBit{&c.Auto}, &c.Order, scanTime{&c.AskedAt}, scanTime{&c.DoneAt},
		scanRaw{&c.Input}, scanJSON{&c.Suggestions}, scanRaw{&c.Diffs}, scanJSON{&c.Result},
	)
	return c, err
}

// sqlPutEvent has no upsert: an event that exists already is a bug of the writer.
const sqlPutEvent = `INSERT INTO run_events (run_id, seq, tenant, kind, at_ns, expires_ns, data) VALUES (?, ?, ?, ?, ?, ?, ?)`

func (e *encoder) event(ev *RunEvent) {
	e.add("event of run", ev.RunID, sqlPutEvent, []any{
		ev.RunID, ev.Seq, e.s.tenant, ev.Kind, ns(ev.At), ns(ev.Expires), clean(string(ev.Data)),
	})
}

const promptColumns = `conversation_id, tenant, created_ns, raw_hash, revision, noticed_at, body`

var sqlPutPrompt = upsert("prompts", "conversation_id", promptColumns, "created_ns, raw_hash, revision, noticed_at, body")

func (e *encoder) prompt(p *agent.Prompt) {
	e.mine("prompt", p.ConversationID, p.ConversationID)
	e.add("prompt of", p.ConversationID, sqlPutPrompt, []any{
		p.ConversationID, e.s.tenant, ns(p.CreatedAt), p.RawHash, p.Revision, p.NoticedAt, clean(p.Text),
	})
}

func scanPrompt(r scanner) (*agent.Prompt, error) {
	p := new(agent.Prompt)
	var tenant string
	err := r.Scan(&p.ConversationID, &tenant, scanTime{&p.CreatedAt}, &p.RawHash, &p.Revision, &p.NoticedAt, &p.Text)
	return p, err
}
