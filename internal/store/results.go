package store

import (
	"context"

	"mneme/internal/agent"
)

// A CallMark is what a list of messages has to know of a tool call: its place
// among the calls of its step, and whether it waits or waited for an answer.
type CallMark struct {
	StepID string
	ID     string
	Index  int
	Waited bool
}

// CallMarks lists the calls of steps, without what they were given and gave back.
func (s *Store) CallMarks(ctx context.Context, stepIDs []string) ([]CallMark, error) {
	if len(stepIDs) == 0 {
		return nil, nil
	}
	q := &selection{}
	q.where(in("step_id", len(stepIDs)), texts(stepIDs)...)
	q.where("tenant = ?", s.tenant)
	var marks []CallMark
	err := s.pool().eachOf(ctx, func(r scanner) error {
		var m CallMark
		err := r.Scan(&m.StepID, &m.ID, &m.Index, scanBit{&m.Waited})
		marks = append(marks, m)
		return err
	}, "SELECT step_id, id, idx, CASE WHEN asked_ns > 0 THEN 1 ELSE 0 END FROM tool_calls"+q.text()+orderBy(false, "step_id", "idx"), q.args...)
	return marks, s.dialect.fault("list the calls of steps", err)
}

// StepResults lists the results that runs stored for the calls of steps, in the
// order in which they came.
func (s *Store) StepResults(ctx context.Context, runIDs, stepIDs []string) ([]*agent.Message, error) {
	if len(runIDs) == 0 || len(stepIDs) == 0 {
		return nil, nil
	}
	q := &selection{}
	q.where("run_id <> ''") // so that the index of runs serves it
	q.where(in("run_id", len(runIDs)), texts(runIDs)...)
	q.where(in("step_id", len(stepIDs)), texts(stepIDs)...)
	q.where("role = 'tool'")
	q.where(original)
	q.where("tenant = ?", s.tenant)
	var all []*agent.Message
	err := s.pool().eachOf(ctx, appendTo(&all, scanMessage), "SELECT "+messageColumns+" FROM messages"+q.text()+orderBy(false, "seq"), q.args...)
	return all, s.dialect.fault("list the results of steps", err)
}
