package rest

import (
	"context"
	"errors"
	"time"

	"mneme/internal/agent"
	"mneme/internal/runtime"
	"mneme/internal/store"
)

// A source gives the events of one run, in order and each once.
type source interface {
	// ready has a token when take may have something.
	ready() <-chan struct{}
	// take returns what is there now, maybe nothing, without waiting for more.
	take(ctx context.Context) ([]*agent.Event, error)
	// current says that everything that has happened so far was taken.
	current() bool
	// look looks once more whether the run goes on.
	look(ctx context.Context) error
	close()
}

// errSlow ends a stream that is not in a log and whose client does not keep up.
var errSlow = errors.New("the client reads too slowly")

// A liveSource follows a run of which nothing is stored but its messages.
type liveSource struct {
	d     *Door
	run   string
	box   *outbox
	leave func()
	extra []*agent.Event // what look found
}

// watch begins to follow a run that is about to begin, or goes on.
func (d *Door) watch(scope agent.Scope, runID string, deltas bool) *liveSource {
	s := &liveSource{d: d, run: runID, box: newOutbox(runID, deltas, false)}
	s.leave = d.rt.Subscribe(scope, s.box.put)
	return s
}

func (s *liveSource) ready() <-chan struct{} { return s.box.signal }
func (s *liveSource) current() bool          { return true }
func (s *liveSource) close()                 { s.leave() }

func (s *liveSource) take(context.Context) ([]*agent.Event, error) {
	events, lost := s.box.take()
	if lost {
		return nil, errSlow
	}
	events = append(events, s.extra...)
	s.extra = nil
	return events, nil
}

// look finds the end of a run that was stored and never published: its conversation
// was given up after a failure of the database.
func (s *liveSource) look(ctx context.Context) error {
	run, err := s.d.store.Run(ctx, s.run)
	if err != nil || !run.Ended || time.Since(run.EndedAt) < endGrace {
		return err
	}
	events, err := s.d.retell(ctx, run)
	if err == nil && len(events) > 0 {
		s.extra = events[len(events)-1:]
		s.box.wake()
	}
	return err
}

// Sizes and times of following a log.
const (
	logBatch = 64 // entries read at a time
	// endGrace is how long the end of a run that has ended may be missing in its log:
	// after a crash it is missing for ever.
	endGrace = 2 * time.Second
)

// A logSource follows the log of a run: what is stored first, then what is
// published, and whatever was missed in between from the log again. A reader that
// is slow costs nothing but its place.
type logSource struct {
	d     *Door
	run   string
	box   *outbox
	leave func()

	pos    int64 // the last entry that was taken
	behind bool  // the log has more than was taken
	ended  bool  // the end was taken
	checks bool  // the run's row has not been looked at since the last hint
	timer  *time.Timer
}

// follow begins to read the log of a run from its first entry.
func (d *Door) follow(scope agent.Scope, runID string) *logSource {
	s := &logSource{d: d, run: runID, box: newOutbox(runID, true, true), behind: true, checks: true}
	s.leave = d.rt.Subscribe(scope, s.box.put)
	s.box.wake()
	return s
}

func (s *logSource) ready() <-chan struct{} { return s.box.signal }
func (s *logSource) current() bool          { return !s.behind }

func (s *logSource) look(context.Context) error {
	s.checks = true
	s.box.wake()
	return nil
}

func (s *logSource) close() {
	s.leave()
	if s.timer != nil {
		s.timer.Stop()
	}
}

func (s *logSource) take(ctx context.Context) ([]*agent.Event, error) {
	if s.behind {
		return s.read(ctx)
	}
	events, lost := s.box.take()
	if s.box.hinted() {
		s.checks = true
	}
	next := events[:0]
	for _, ev := range events {
		switch {
		case ev.Seq <= s.pos:
		case ev.Seq == s.pos+1:
			next = append(next, ev)
			s.note(ev)
		default:
			lost = true
		}
		if lost {
			break
		}
	}
	if lost {
		s.behind = true
		s.box.wake()
	}
	if len(next) == 0 && !s.behind {
		return s.settle(ctx)
	}
	return next, nil
}

func (s *logSource) note(ev *agent.Event) {
	s.pos = ev.Seq
	if _, ok := ev.Payload.(agent.RunEnded); ok {
		s.ended = true
	}
}

// read takes the next entries from the log.
func (s *logSource) read(ctx context.Context) ([]*agent.Event, error) {
	rows, err := s.d.store.Events(ctx, s.run, s.pos, logBatch)
	if err != nil {
		return nil, err
	}
	if s.behind = len(rows) == logBatch; s.behind || len(rows) == 0 {
		s.box.wake()
	}
	events := make([]*agent.Event, 0, len(rows))
	for _, row := range rows {
		ev, err := runtime.DecodeEvent(row)
		if err != nil {
			return nil, err
		}
		events = append(events, ev)
		s.note(ev)
	}
	if !s.behind && !s.ended {
		s.box.wake() // to look whether the run goes on
	}
	return events, nil
}

// settle looks whether a run whose log has no end has ended nevertheless: because
// its input was taken out of the queue, or because the server died between storing
// the end and logging it. Then the end is made from what is stored.
func (s *logSource) settle(ctx context.Context) ([]*agent.Event, error) {
	if s.ended || !s.checks {
		return nil, nil
	}
	run, err := s.d.store.Run(ctx, s.run)
	if err != nil {
		return nil, err
	}
	switch {
	case !run.Ended:
		s.checks = false
		return nil, nil
	case !run.StartedAt.IsZero() && time.Since(run.EndedAt) < endGrace:
		if s.timer == nil { // its end may be on the way
			s.timer = time.AfterFunc(endGrace, s.box.wake)
		}
		return nil, nil
	}
	s.checks, s.ended = false, true
	return s.d.lostEnd(ctx, run)
}

// lostEnd are the events at the end of a run that its log does not have.
func (d *Door) lostEnd(ctx context.Context, run *agent.Run) ([]*agent.Event, error) {
	events, err := d.retell(ctx, run)
	if err != nil {
		return nil, err
	}
	logged := map[string]bool{}
	for pos := int64(0); ; {
		rows, err := d.store.Events(ctx, run.ID, pos, logBatch)
		if err != nil {
			return nil, err
		}
		for _, row := range rows {
			pos = row.Seq
			ev, err := runtime.DecodeEvent(row)
			if err != nil {
				return nil, err
			}
			if name := told(ev); name != "" {
				logged[name] = true
			}
		}
		if len(rows) < logBatch {
			break
		}
	}
	var lost []*agent.Event
	for _, ev := range events {
		if name := told(ev); name == "" || !logged[name] {
			lost = append(lost, ev)
		}
	}
	return lost, nil
}

// told names what an event tells, "" for what is told once or not from rows.
func told(ev *agent.Event) string {
	switch p := ev.Payload.(type) {
	case agent.AnswerStored:
		if p.Message != nil {
			return "answer " + p.Message.ID
		}
	case agent.CallsClassified:
		return "classified " + ev.StepID
	case agent.CallReturned:
		return "returned " + p.Call.StepID + " " + p.Call.ID
	case agent.Compacted:
		return "compacted " + p.Message.ID
	}
	return ""
}

// retell makes the events of a run again from what is stored of it: answers,
// results, summaries and, if it has ended, its end. What was only streamed is not
// among them.
func (d *Door) retell(ctx context.Context, run *agent.Run) ([]*agent.Event, error) {
	roles := []agent.Role{agent.RoleAssistant, agent.RoleTool, agent.RoleSummary}
	msgs, err := d.store.MessagesOfRun(ctx, run.ID, store.MessageFilter{Roles: roles, SkipInterrupted: true})
	if err != nil {
		return nil, err
	}
	steps, err := d.store.StepsOf(ctx, run)
	if err != nil {
		return nil, err
	}
	t := teller{run: run, steps: map[string]*agent.Step{}, calls: map[string][]store.CallMark{}, results: map[string]int{}}
	var ids []string
	for _, st := range steps {
		t.steps[st.ID] = st
	}
	for _, m := range msgs {
		ids = insert(ids, m.StepID)
		if m.Role == agent.RoleTool {
			t.results[m.StepID]++
		}
	}
	marks, err := d.store.CallMarks(ctx, ids)
	if err != nil {
		return nil, err
	}
	for _, m := range marks {
		t.calls[m.StepID] = append(t.calls[m.StepID], m)
	}
	for _, m := range msgs {
		t.message(m)
	}
	if run.Ended {
		t.end(steps)
	}
	return t.events, nil
}

// A teller makes events of stored messages.
type teller struct {
	run     *agent.Run
	steps   map[string]*agent.Step
	calls   map[string][]store.CallMark // by step
	results map[string]int              // by step
	events  []*agent.Event
}

func (t *teller) tell(m *agent.Message, p agent.Payload) {
	t.events = append(t.events, &agent.Event{
		TurnID: t.run.TurnID, RunID: t.run.ID, StepID: m.StepID, MessageID: m.ID, At: m.CreatedAt, Payload: p,
	})
}

func (t *teller) message(m *agent.Message) {
	switch m.Role {
	case agent.RoleAssistant:
		if m.StepID == "" {
			return // sent by a client
		}
		stored := agent.AnswerStored{Message: m}
		if st := t.steps[m.StepID]; st != nil {
			stored.Usage, stored.StopReason = st.Usage, st.StopReason
		}
		t.tell(m, stored)
		if len(m.Calls()) == 0 {
			return
		}
		var c agent.CallsClassified
		for _, mark := range t.calls[m.StepID] {
			if mark.Waited {
				c.Ask = append(c.Ask, mark.ID)
			} else {
				c.Allowed = append(c.Allowed, mark.ID)
			}
		}
		t.tell(m, c)
	case agent.RoleTool:
		marks := t.calls[m.StepID]
		if t.results[m.StepID] < len(marks) {
			return // the others have not come yet
		}
		call := &agent.ToolCall{ID: m.CallID, StepID: m.StepID, Name: m.Name}
		for _, mark := range marks {
			if mark.ID == m.CallID {
				call.Index = mark.Index
			}
		}
		t.tell(m, agent.CallReturned{Call: call, Message: m})
	case agent.RoleSummary:
		t.tell(m, agent.Compacted{Message: m})
	}
}

// end tells the end of the run, with the usage of its steps.
func (t *teller) end(steps []*agent.Step) {
	e := agent.RunEnded{StopReason: t.run.StopReason, Error: t.run.Error}
	for _, st := range steps {
		if answered(st) {
			e.Usage = e.Usage.Add(st.Usage)
			e.Steps++
		}
	}
	t.events = append(t.events, &agent.Event{TurnID: t.run.TurnID, RunID: t.run.ID, At: t.run.EndedAt, Payload: e})
}

// answered says that a step got its answer from the model.
func answered(st *agent.Step) bool {
	switch st.State {
	case agent.StepAnswered, agent.StepDone:
		switch st.StopReason {
		case agent.StopCancelled, agent.StopError, agent.StopModelError:
			return false
		}
		return true
	}
	return false
}
