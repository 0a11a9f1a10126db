package store

import (
	"context"
	"strings"
	"time"

	"mneme/internal/agent"
)

// The conditions `ended = 0` and `run_id <> ”` are written out so that the partial
// indexes serve them.
var (
	sqlLastRunOf = "SELECT " + runColumns + ` FROM runs
		WHERE agent_id = ? AND ended = 1 AND tenant = ? ORDER BY ord DESC LIMIT 1`
	sqlInputByOTID = "SELECT " + inputColumns + ` FROM inputs WHERE id =
		(SELECT input_id FROM input_keys WHERE conversation_id = ? AND key = ? AND tenant = ?)`
	sqlPutInputKey = `INSERT INTO input_keys (conversation_id, key, tenant, input_id) VALUES (?, ?, ?, ?)
		ON CONFLICT (conversation_id, key) DO NOTHING`
	sqlFirstRun = "SELECT " + runColumns + ` FROM runs
		WHERE conversation_id = ? AND turn_id = ? AND tenant = ? ORDER BY ord LIMIT 1`
	sqlFeedback    = `UPDATE steps SET feedback = ?, tags = ? WHERE id = ? AND tenant = ?`
	sqlOldestEvent = `SELECT coalesce(min(seq), 0) FROM run_events WHERE run_id = ? AND tenant = ?`
)

// runListing orders runs as they were made. A run is stored when it is made, so the
// row number tells.
var runListing = listing{noun: "Run", from: "runs", id: "id", tenant: "tenant", keys: []string{"ord"}}

// stepListing orders steps by their run and within it.
var stepListing = listing{noun: "Step", from: "runs r JOIN steps s ON s.conversation_id = r.conversation_id AND s.turn_id = r.turn_id AND s.run_id = r.id",
	id: "s.id", tenant: "s.tenant", keys: []string{"r.ord", "s.n", "s.id"}}

// A RunFilter selects runs for a list, by default the newest first.
type RunFilter struct {
	AgentIDs       []string // empty = all
	ConversationID string
	Statuses       []agent.RunStatus // empty = all
	Background     *bool
	StopReason     agent.StopReason
	Page
}

// Runs lists runs in the order in which they were made.
func (s *Store) Runs(ctx context.Context, f RunFilter) ([]*agent.Run, error) {
	q := &selection{}
	q.where("tenant = ?", s.tenant)
	q.in("agent_id", f.AgentIDs)
	if f.ConversationID != "" {
		q.where("conversation_id = ?", f.ConversationID)
	}
	if len(f.Statuses) > 0 {
		q.statuses(f.Statuses)
	}
	if f.Background != nil {
		q.where("background = ?", bit(*f.Background))
	}
	if f.StopReason != "" {
		q.where("stop_reason = ?", string(f.StopReason))
	}
	return listPage(ctx, s, q, runListing, f.Page, runColumns, scanRun)
}

// statuses matches runs by what is stored of their status.
func (q *selection) statuses(all []agent.RunStatus) {
	stored := map[agent.RunStatus]string{ // as agent.Run.Status has it
		agent.RunCreated:   "ended = 0 AND started_ns = 0",
		agent.RunRunning:   "ended = 0 AND started_ns > 0",
		agent.RunCompleted: "ended = 1 AND stop_reason IN ('end_turn', 'max_steps', 'tool_rule', 'requires_approval')",
		agent.RunCancelled: "ended = 1 AND stop_reason = 'cancelled'",
		agent.RunFailed:    "ended = 1 AND stop_reason NOT IN ('end_turn', 'max_steps', 'tool_rule', 'requires_approval', 'cancelled')",
	}
	conds := []string{"1 = 0"}
	active := true
	for _, status := range all {
		if cond, known := stored[status]; known {
			conds = append(conds, cond)
		}
		active = active && (status == agent.RunCreated || status == agent.RunRunning)
	}
	if active {
		q.where("ended = 0")
	}
	q.where("(" + strings.Join(conds, " OR ") + ")")
}

// ActiveRuns lists the runs of an agent, or of one conversation, that have not
// ended, the newest first, at most 100.
func (s *Store) ActiveRuns(ctx context.Context, agentID, conversationID string) ([]*agent.Run, error) {
	f := RunFilter{ConversationID: conversationID, Statuses: []agent.RunStatus{agent.RunCreated, agent.RunRunning}, Page: Page{Limit: 100}}
	if agentID != "" {
		f.AgentIDs = []string{agentID}
	}
	return s.Runs(ctx, f)
}

// LastRun returns the newest run of an agent that has ended; nil if there is none.
func (s *Store) LastRun(ctx context.Context, agentID string) (*agent.Run, error) {
	run, err := maybe(ctx, s.pool(), scanRun, sqlLastRunOf, agentID, s.tenant)
	return run, s.dialect.fault("find the last run of "+agentID, err)
}

// RunByOTID returns the run of the input that was sent to a conversation with the
// id, be it the input's key or the id of one of its messages; nil if there is none,
// or it waits without one.
func (s *Store) RunByOTID(ctx context.Context, conversationID, otid string) (*agent.Run, error) {
	in, err := s.InputByKey(ctx, conversationID, otid)
	if err == nil && in == nil {
		in, err = maybe(ctx, s.pool(), scanInput, sqlInputByOTID, conversationID, clean(otid), s.tenant)
	}
	var run *agent.Run
	switch {
	case err != nil || in == nil:
	case in.Run.ID != "":
		run, err = maybe(ctx, s.pool(), scanRun, sqlRun, in.Run.ID, s.tenant)
	case in.TurnID != "":
		run, err = maybe(ctx, s.pool(), scanRun, sqlFirstRun, conversationID, in.TurnID, s.tenant)
	}
	return run, s.dialect.fault("find the run of "+otid, err)
}

// A StepFilter selects steps for a list, by default the newest first.
type StepFilter struct {
	AgentID     string // "" = all
	RunID       string
	Model       string
	Feedback    string // positive or negative
	HasFeedback *bool
	Tags        []string // any of them
	// From and To bound the start of the step, both included; zero = open.
	From, To time.Time
	Page
}

// Steps lists steps in the order of their runs.
func (s *Store) Steps(ctx context.Context, f StepFilter) ([]*agent.Step, error) {
	q := &selection{}
	q.where("r.tenant = ?", s.tenant)
	if f.AgentID != "" {
		q.where("r.agent_id = ?", f.AgentID)
	}
	if f.RunID != "" {
		q.where("r.id = ?", f.RunID)
	}
	if f.Model != "" {
		q.where("s.model = ?", clean(f.Model))
	}
	if f.Feedback != "" {
		q.where("s.feedback = ?", f.Feedback)
	}
	if f.HasFeedback != nil {
		q.where(map[bool]string{true: "s.feedback IS NOT NULL", false: "s.feedback IS NULL"}[*f.HasFeedback])
	}
	if err := q.anyListed("s.tags", f.Tags); err != nil {
		return nil, err
	}
	if !f.From.IsZero() {
		q.where("s.started_ns >= ?", ns(f.From))
	}
	if !f.To.IsZero() {
		q.where("s.started_ns <= ?", ns(f.To))
	}
	columns := "s." + strings.Join(strings.Fields(stepColumns), " s.")
	return listPage(ctx, s, q, stepListing, f.Page, columns, scanStep)
}

// SetStepFeedback stores what people noted of a step, "" and nil for nothing, and
// returns it. An unknown step is CodeNotFound.
func (s *Store) SetStepFeedback(ctx context.Context, id, feedback string, tags []string) (*agent.Step, error) {
	e := &encoder{s: s}
	stored := list(e, tags)
	if e.err != nil {
		return nil, e.err
	}
	err := s.write(ctx, "note feedback on step "+id, func(t *tx) error {
		n, err := t.exec(sqlFeedback, orNull(feedback), stored, id, s.tenant)
		if err == nil && n == 0 {
			return notFound("Step", id)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return s.Step(ctx, id)
}

// MessagesOfRun lists the messages of a run. Of the filter the positions, roles,
// order and limit count.
func (s *Store) MessagesOfRun(ctx context.Context, runID string, f MessageFilter) ([]*agent.Message, error) {
	f.ConversationID, f.AgentID, f.runID, f.stepID = "", "", runID, ""
	return s.Messages(ctx, f)
}

// MessagesOfStep lists the messages of a step, as MessagesOfRun does.
func (s *Store) MessagesOfStep(ctx context.Context, st *agent.Step, f MessageFilter) ([]*agent.Message, error) {
	f.ConversationID, f.AgentID, f.runID, f.stepID = "", "", st.RunID, st.ID
	return s.Messages(ctx, f)
}

// OldestEventSeq is the position of the oldest entry that is kept of a run's log,
// 0 if it has none.
func (s *Store) OldestEventSeq(ctx context.Context, runID string) (int64, error) {
	var seq int64
	_, err := s.pool().one(ctx, func(row scanner) error { return row.Scan(&seq) }, sqlOldestEvent, runID, s.tenant)
	return seq, s.dialect.fault("read the log of run "+runID, err)
}
