package store

import (
	"context"
	"time"

	"mneme/internal/agent"
)

var (
	sqlTurn    = "SELECT " + turnColumns + " FROM turns WHERE id = ? AND tenant = ?"
	sqlRun     = "SELECT " + runColumns + " FROM runs WHERE id = ? AND tenant = ?"
	sqlStep    = "SELECT " + stepColumns + " FROM steps WHERE id = ? AND tenant = ?"
	sqlInput   = "SELECT " + inputColumns + " FROM inputs WHERE id = ? AND tenant = ?"
	sqlRunsOf  = "SELECT " + runColumns + " FROM runs WHERE conversation_id = ? AND tenant = ? ORDER BY ord DESC"
	sqlStepsOf = "SELECT " + stepColumns + ` FROM steps
		WHERE conversation_id = ? AND turn_id = ? AND run_id = ? AND tenant = ? ORDER BY n, id`
)

// Turn returns one turn, or CodeNotFound.
func (s *Store) Turn(ctx context.Context, id string) (*agent.Turn, error) {
	return get(ctx, s.pool(), "Turn", id, scanTurn, sqlTurn, id, s.tenant)
}

// Run returns one run, or CodeNotFound.
func (s *Store) Run(ctx context.Context, id string) (*agent.Run, error) {
	return get(ctx, s.pool(), "Run", id, scanRun, sqlRun, id, s.tenant)
}

// Step returns one step, or CodeNotFound.
func (s *Store) Step(ctx context.Context, id string) (*agent.Step, error) {
	return get(ctx, s.pool(), "Step", id, scanStep, sqlStep, id, s.tenant)
}

// Input returns one input, or CodeNotFound.
func (s *Store) Input(ctx context.Context, id string) (*agent.Input, error) {
	return get(ctx, s.pool(), "Input", id, scanInput, sqlInput, id, s.tenant)
}

// RunsOf lists the runs of a conversation, the newest first; limit 0 = all.
func (s *Store) RunsOf(ctx context.Context, conversationID string, limit int) ([]*agent.Run, error) {
	var runs []*agent.Run
	err := s.pool().eachOf(ctx, appendTo(&runs, scanRun), sqlRunsOf+limitTo(limit), conversationID, s.tenant)
	return runs, s.dialect.fault("list the runs of "+conversationID, err)
}

// StepsOf lists the steps of a run in order.
func (s *Store) StepsOf(ctx context.Context, run *agent.Run) ([]*agent.Step, error) {
	var steps []*agent.Step
	err := s.pool().each(ctx, appendTo(&steps, scanStep), sqlStepsOf, run.ConversationID, run.TurnID, run.ID, s.tenant)
	return steps, s.dialect.fault("list the steps of run "+run.ID, err)
}

// Calls lists the tool calls of a step in the order the model made them.
func (s *Store) Calls(ctx context.Context, stepID string) ([]*agent.ToolCall, error) {
	var calls []*agent.ToolCall
	err := s.pool().each(ctx, appendTo(&calls, scanCall), sqlStepCalls, stepID, s.tenant)
	return calls, s.dialect.fault("list the calls of step "+stepID, err)
}

const (
	sqlLastEvent = `SELECT coalesce(max(seq), 0) FROM run_events WHERE run_id = ? AND tenant = ?`

	sqlEvents = `SELECT run_id, seq, kind, at_ns, expires_ns, data FROM run_events
		WHERE run_id = ? AND seq > ? AND tenant = ? ORDER BY seq`
	// The log of a run is kept or deleted as a whole, so only first events are
	// indexed. A log that was prolonged later is left for the next time.
	sqlExpiredLogs = `SELECT run_id FROM run_events e WHERE seq = 1 AND expires_ns < ? AND tenant = ?
		AND NOT EXISTS (SELECT 1 FROM run_events later WHERE later.run_id = e.run_id AND later.expires_ns >= ?)
		ORDER BY expires_ns LIMIT 100`
	sqlDeleteLog = `DELETE FROM run_events WHERE run_id = ? AND tenant = ?`
)

// Events lists the stored events of a run after the given Seq (0 = from the first)
// in order; limit 0 = all.
func (s *Store) Events(ctx context.Context, runID string, after int64, limit int) ([]RunEvent, error) {
	var events []RunEvent
	err := s.pool().eachOf(ctx, func(r scanner) error {
		var ev RunEvent
		var data string
		err := r.Scan(&ev.RunID, &ev.Seq, &ev.Kind, scanTime{&ev.At}, scanTime{&ev.Expires}, &data)
		ev.Data = []byte(data)
		events = append(events, ev)
		return err
	}, sqlEvents+limitTo(limit), runID, after, s.tenant)
	return events, s.dialect.fault("read the events of run "+runID, err)
}

// LastEventSeq is the position of the newest entry in a run's log, 0 if it has
// none.
func (s *Store) LastEventSeq(ctx context.Context, runID string) (int64, error) {
	var seq int64
	_, err := s.pool().one(ctx, func(row scanner) error { return row.Scan(&seq) }, sqlLastEvent, runID, s.tenant)
	return seq, s.dialect.fault("read the log of run "+runID, err)
}

// PruneEvents deletes the logs of runs whose events all expired before the given
// time, some at a time so that other writes are not held up. It returns the number
// of logs deleted.
func (s *Store) PruneEvents(ctx context.Context, before time.Time) (int, error) {
	pruned := 0
	for {
		var runs []string
		err := s.pool().each(ctx, func(r scanner) error {
			var id string
			err := r.Scan(&id)
			runs = append(runs, id)
			return err
		}, sqlExpiredLogs, ns(before), s.tenant, ns(before))
		if err != nil {
			return pruned, s.dialect.fault("find expired events", err)
		}
		if len(runs) == 0 {
			return pruned, nil
		}
		err = s.write(ctx, "delete expired events", func(t *tx) error {
			for _, id := range runs {
				if _, err := t.exec(sqlDeleteLog, id, s.tenant); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return pruned, err
		}
		pruned += len(runs)
	}
}
