package storetest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"mneme/internal/agent"
	"mneme/internal/store"
)

func runID(r *agent.Run) string    { return r.ID }
func stepID(st *agent.Step) string { return st.ID }

// ended is a run of its own turn that ended for a reason.
func (sc *scene) ended(stop agent.StopReason) (*agent.Turn, *agent.Run) {
	turn := sc.turn(agent.TurnEnded)
	run := sc.run(turn)
	run.Ended, run.StopReason, run.EndedAt = true, stop, at(9)
	return turn, run
}

func testRuns(t *testing.T, s *store.Store) {
	sc, other := newScene(t, s), newScene(t, s)
	ctx := t.Context()
	var all []*agent.Run
	add := func(sc *scene, edit func(*agent.Run)) {
		run := sc.run(sc.turn(agent.TurnEnded))
		run.CreatedAt = start // all in one instant
		edit(run)
		sc.commit(&store.Change{Runs: []*agent.Run{run}})
		all = append(all, run)
	}
	for _, stop := range []agent.StopReason{agent.StopEndTurn, agent.StopMaxSteps, agent.StopToolRule, agent.StopRequiresApproval,
		agent.StopCancelled, agent.StopError, agent.StopModelError, agent.StopMaxTokens, agent.StopInvalidResponse, agent.StopOverflow} {
		add(sc, func(r *agent.Run) { r.Ended, r.StopReason, r.EndedAt = true, stop, at(1) })
	}
	side := sc.another()
	add(side, func(r *agent.Run) { r.TurnID, r.StartedAt = "", time.Time{} })
	add(sc, func(r *agent.Run) { r.Spec.Background = true })
	add(other, func(r *agent.Run) { r.Ended, r.StopReason = true, agent.StopEndTurn })
	add(other, func(r *agent.Run) { r.Spec.Background = true })
	list := func(f store.RunFilter) []string { return ids(must(s.Runs(ctx, f))(t), runID) }
	// pick is what the filter should find, the newest first.
	pick := func(keep func(*agent.Run) bool) []string {
		found := []string{}
		for _, r := range slices.Backward(all) {
			if keep(r) {
				found = append(found, r.ID)
			}
		}
		return found
	}
	for _, status := range []agent.RunStatus{agent.RunCreated, agent.RunRunning, agent.RunCompleted, agent.RunFailed, agent.RunCancelled} {
		same(t, string(status), list(store.RunFilter{Statuses: []agent.RunStatus{status}}),
			pick(func(r *agent.Run) bool { return r.Status() == status }))
	}
	for _, c := range []struct {
		name   string
		filter store.RunFilter
		keep   func(*agent.Run) bool
	}{
		{"all", store.RunFilter{}, func(*agent.Run) bool { return true }},
		{"agent", store.RunFilter{AgentIDs: []string{sc.agent.ID}}, func(r *agent.Run) bool { return r.AgentID == sc.agent.ID }},
		{"agents", store.RunFilter{AgentIDs: []string{sc.agent.ID, other.agent.ID}}, func(*agent.Run) bool { return true }},
		{"conversation", store.RunFilter{ConversationID: side.conv.ID}, func(r *agent.Run) bool { return r.ConversationID == side.conv.ID }},
		{"background", store.RunFilter{Background: ptr(true)}, func(r *agent.Run) bool { return r.Spec.Background }},
		{"foreground", store.RunFilter{Background: ptr(false), AgentIDs: []string{other.agent.ID}},
			func(r *agent.Run) bool { return !r.Spec.Background && r.AgentID == other.agent.ID }},
		{"stop reason", store.RunFilter{StopReason: agent.StopEndTurn}, func(r *agent.Run) bool { return r.StopReason == agent.StopEndTurn }},
		{"no such status", store.RunFilter{Statuses: []agent.RunStatus{"expired"}}, func(*agent.Run) bool { return false }},
		{"active or failed", store.RunFilter{Statuses: []agent.RunStatus{agent.RunRunning, agent.RunFailed}},
			func(r *agent.Run) bool { return r.Status() == agent.RunRunning || r.Status() == agent.RunFailed }},
	} {
		same(t, c.name, list(c.filter), pick(c.keep))
	}
	for _, asc := range []bool{false, true} {
		of := store.RunFilter{AgentIDs: []string{sc.agent.ID}, Page: store.Page{Asc: asc}}
		bothWays(t, "runs", list(of), asc, func(p store.Page) []string {
			of.Page = p
			return list(of)
		})
	}
	_, err := s.Runs(ctx, store.RunFilter{Page: store.Page{After: "run-none"}})
	wantCode(t, err, agent.CodeNotFound)

	same(t, "active", ids(must(s.ActiveRuns(ctx, sc.agent.ID, ""))(t), runID), []string{all[11].ID, all[10].ID})
	same(t, "active in a conversation", ids(must(s.ActiveRuns(ctx, "", side.conv.ID))(t), runID), []string{all[10].ID})
	same(t, "last run", must(s.LastRun(ctx, sc.agent.ID))(t).ID, all[9].ID)
	if run := must(s.LastRun(ctx, "agent-none"))(t); run != nil {
		t.Errorf("last run of nobody: %v", run)
	}
	same(t, "agents by their last stop", ids(must(s.Agents(ctx, store.AgentFilter{LastStop: agent.StopEndTurn}))(t), agentID), []string{other.agent.ID})
}

func testRunByOTID(t *testing.T, s *store.Store) {
	sc := newScene(t, s)
	ctx := t.Context()
	one, several, queued := sc.input(), sc.input(), sc.input()
	_, run1 := sc.ended(agent.StopEndTurn)
	turn2, run2 := sc.ended(agent.StopRequiresApproval)
	next := sc.run(turn2)
	one.Key, one.TurnID, one.Run.ID = "o1", run1.TurnID, run1.ID
	several.Key, several.TurnID = "a\x1fb", turn2.ID // its run is the first of the turn
	several.Messages = []agent.InputMessage{{ClientKey: "a"}, {ClientKey: "b"}}
	queued.Key, queued.Messages = "q", []agent.InputMessage{{ClientKey: "q"}}
	sc.commit(&store.Change{Inputs: []*agent.Input{one, several, queued}, Runs: []*agent.Run{run1, run2, next}})
	for otid, want := range map[string]string{
		"o1": run1.ID, "a\x1fb": run2.ID, "a": run2.ID, "b": run2.ID, "q": "", "": "", "none": "",
	} {
		got := ""
		if run := must(s.RunByOTID(ctx, sc.conv.ID, otid))(t); run != nil {
			got = run.ID
		}
		same(t, fmt.Sprintf("run of %q", otid), got, want)
	}
	if run := must(s.RunByOTID(ctx, sc.another().conv.ID, "a"))(t); run != nil {
		t.Error("the id of another conversation has a run")
	}
	// The first input that had an id keeps it.
	again := sc.input()
	again.Key, again.Run.ID, again.Messages = "b\x1fc", run1.ID, []agent.InputMessage{{ClientKey: "b"}, {ClientKey: "c"}}
	sc.commit(&store.Change{Inputs: []*agent.Input{again}})
	same(t, "run of b", must(s.RunByOTID(ctx, sc.conv.ID, "b"))(t).ID, run2.ID)
	same(t, "run of c", must(s.RunByOTID(ctx, sc.conv.ID, "c"))(t).ID, run1.ID)
}

func testSteps(t *testing.T, s *store.Store) {
	sc, other := newScene(t, s), newScene(t, s)
	ctx := t.Context()
	var all []*agent.Step // the oldest first
	for i, sc := range []*scene{sc, other, sc, sc.another()} {
		turn, run := sc.ended(agent.StopEndTurn)
		c := &store.Change{Turns: []*agent.Turn{turn}, Runs: []*agent.Run{run}}
		for n := range 3 {
			st := sc.step(run, n+1)
			st.StartedAt, st.Model = at(10*i+n), fmt.Sprint("p/m", n)
			c.Steps = append(c.Steps, st)
			all = append(all, st)
		}
		sc.commit(c)
	}
	noted := must(s.SetStepFeedback(ctx, all[1].ID, "positive", []string{`a"b`, "B"}))(t)
	all[1].Feedback, all[1].Tags = "positive", []string{`a"b`, "B"}
	same(t, "noted", noted, all[1])
	must(s.SetStepFeedback(ctx, all[6].ID, "negative", nil))(t)
	must(s.SetStepFeedback(ctx, all[7].ID, "negative", []string{"x"}))(t)
	must(s.SetStepFeedback(ctx, all[7].ID, "", nil))(t)
	_, err := s.SetStepFeedback(ctx, "step-none", "positive", nil)
	wantCode(t, err, agent.CodeNotFound)
	// The journal does not undo it.
	all[1].State, all[1].EndedAt = agent.StepDone, at(50)
	sc.commit(&store.Change{Steps: []*agent.Step{all[1]}})
	same(t, "kept", must(s.Step(ctx, all[1].ID))(t), all[1])

	list := func(f store.StepFilter) []string { return ids(must(s.Steps(ctx, f))(t), stepID) }
	for _, c := range []struct {
		name   string
		filter store.StepFilter
		want   []int
	}{
		{"all", store.StepFilter{}, []int{11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0}},
		{"agent", store.StepFilter{AgentID: other.agent.ID}, []int{5, 4, 3}},
		{"run", store.StepFilter{RunID: all[6].RunID, Page: store.Page{Asc: true}}, []int{6, 7, 8}},
		{"model", store.StepFilter{Model: "p/m1", AgentID: sc.agent.ID}, []int{10, 7, 1}},
		{"feedback", store.StepFilter{Feedback: "negative"}, []int{6}},
		{"any feedback", store.StepFilter{HasFeedback: ptr(true)}, []int{6, 1}},
		{"no feedback", store.StepFilter{HasFeedback: ptr(false), RunID: all[6].RunID}, []int{8, 7}},
		{"tag", store.StepFilter{Tags: []string{"none", `a"b`}}, []int{1}},
		{"tag in another case", store.StepFilter{Tags: []string{"b"}}, nil},
		{"from", store.StepFilter{From: at(30)}, []int{11, 10, 9}},
		{"to", store.StepFilter{To: at(1)}, []int{1, 0}},
	} {
		want := []string{}
		for _, i := range c.want {
			want = append(want, all[i].ID)
		}
		same(t, c.name, list(c.filter), want)
	}
	for _, asc := range []bool{false, true} {
		f := store.StepFilter{Page: store.Page{Asc: asc}}
		bothWays(t, "steps", list(f), asc, func(p store.Page) []string {
			f.Page = p
			return list(f)
		})
	}
	_, err = s.Steps(ctx, store.StepFilter{Page: store.Page{Before: "step-none"}})
	wantCode(t, err, agent.CodeNotFound)
}

func testMessagesOfRun(t *testing.T, s *store.Store) {
	sc := newScene(t, s)
	ctx := t.Context()
	turn := sc.turn(agent.TurnEnded)
	runs := []*agent.Run{sc.run(turn), sc.run(turn)}
	step := sc.step(runs[0], 1)
	var all []*agent.Message
	for i := range 8 {
		m := sc.message(agent.RoleUser, "m")
		m.RunID = runs[i/6].ID
		if i%2 == 1 {
			m.StepID, m.Role = step.ID, agent.RoleAssistant
		}
		all = append(all, m)
	}
	all[3].Interrupted = true
	loose := sc.message(agent.RoleNotice, "of no run")
	sc.commit(&store.Change{Runs: runs, Steps: []*agent.Step{step}, Messages: append(all, loose)})
	of := func(f store.MessageFilter) []string {
		return ids(must(s.MessagesOfRun(ctx, runs[0].ID, f))(t), messageID)
	}
	id := func(i int) string { return all[i].ID }
	same(t, "run", of(store.MessageFilter{}), ids(all[:6], messageID))
	same(t, "page", of(store.MessageFilter{AfterID: id(1), Limit: 2}), []string{id(2), id(3)})
	same(t, "newest first", of(store.MessageFilter{BeforeID: id(4), Desc: true, Limit: 2}), []string{id(3), id(2)})
	same(t, "role", of(store.MessageFilter{Roles: []agent.Role{agent.RoleAssistant}, SkipInterrupted: true}), []string{id(1), id(5)})
	_, err := s.MessagesOfRun(ctx, runs[0].ID, store.MessageFilter{AfterID: id(7)})
	wantCode(t, err, agent.CodeNotFound)
	same(t, "step", ids(must(s.MessagesOfStep(ctx, step, store.MessageFilter{AfterID: id(1)}))(t), messageID), []string{id(3), id(5)})
	_, err = s.MessagesOfStep(ctx, step, store.MessageFilter{AfterID: id(2)})
	wantCode(t, err, agent.CodeNotFound)
}

func testCallbacks(t *testing.T, s *store.Store) {
	sc := newScene(t, s)
	ctx := t.Context()
	_, run := sc.ended(agent.StopEndTurn)
	run.Spec.Callback, run.Ended = "http://c/1", false
	_, plain := sc.ended(agent.StopEndTurn)
	sc.commit(&store.Change{Runs: []*agent.Run{run, plain}})
	if c := must(s.Callback(ctx, run.ID))(t); c != nil {
		t.Errorf("a running run has a callback: %v", c)
	}
	run.Ended = true
	sc.commit(&store.Change{Runs: []*agent.Run{run}})
	c := must(s.Callback(ctx, run.ID))(t)
	same(t, "callback", c, &store.Callback{RunID: run.ID, URL: "http://c/1", Next: run.EndedAt})
	same(t, "next", must(s.NextCallback(ctx))(t), run.EndedAt)
	same(t, "not due", len(must(s.DueCallbacks(ctx, run.EndedAt.Add(-1)))(t)), 0)
	same(t, "due", must(s.DueCallbacks(ctx, run.EndedAt))(t), []*store.Callback{c})
	c.Tries, c.Next, c.Sent, c.Status, c.Error, c.Payload = 1, at(20), at(10), 503, "busy", []byte(`{"a":1}`)
	ok(t, s.PutCallback(ctx, c))
	// The run's row may be written again: who was told stays told.
	sc.commit(&store.Change{Runs: []*agent.Run{run}})
	same(t, "callback", must(s.Callback(ctx, run.ID))(t), c)
	same(t, "next", must(s.NextCallback(ctx))(t), at(20))
	c.Next = time.Time{}
	ok(t, s.PutCallback(ctx, c))
	same(t, "due", len(must(s.DueCallbacks(ctx, at(1000)))(t)), 0)
	same(t, "next", must(s.NextCallback(ctx))(t), time.Time{})
	ok(t, s.DeleteConversation(ctx, sc.conv.ID))
	if c := must(s.Callback(ctx, run.ID))(t); c != nil {
		t.Error("the callback outlived its run")
	}
}
