package storetest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"mneme/internal/agent"
	"mneme/internal/store"
)

// full is a change with every field of every row set.
func (sc *scene) full() *store.Change {
	in := sc.input()
	in.Key, in.Digest, in.Logged, in.Origin, in.Paused, in.Started = "k1", "d1", true, "conn-1", true, true
	in.State, in.Door, in.IfBusy = agent.InputTaken, agent.DoorAppServer, agent.BusyReject
	in.Messages = []agent.InputMessage{{
		Role: agent.RoleUser, ClientKey: "k1", OTID: "o1", SenderID: "s1", Name: "n1", Raw: []byte(`[{"type":"text","text":"<b>&"}]`),
		Parts: []agent.Part{agent.Text("<b>&"), {Kind: agent.PartImage, MediaType: "image/png", Data: "iVBORw0="}},
	}}
	in.Options = options()
	in.Run = agent.RunSpec{ID: "run-1", Background: true, Request: []byte(`{"a":"<1>"}`), Callback: "http://c/?a=b&c"}
	turn := sc.turn(agent.TurnEnded)
	turn.Logged, turn.Origin, turn.Options, turn.Mergeable, turn.Steps = true, "conn-1", options(), true, 3
	turn.StopReason, turn.EndedAt = agent.StopModelError, at(9)
	turn.Error = &agent.Error{Code: agent.CodeModel, Message: "m", Field: "f", Detail: "d", Status: 502, Ref: "r", Retryable: true}
	in.TurnID = turn.ID
	run := sc.run(turn)
	run.Ended, run.StopReason, run.Error, run.EndedAt = true, agent.StopModelError, turn.Error, at(9)
	run.Door, run.Spec, run.CreatedAt, run.FirstTokenAt = agent.DoorREST, in.Run, at(1), at(2)
	run.Spec.ID = ""
	step := sc.step(run, 1)
	step.State, step.StopReason, step.EndedAt, step.ClientKeys = agent.StepDone, agent.StopEndTurn, at(8), []string{"k1", "k2"}
	step.Error = turn.Error
	step.Usage = agent.Usage{Input: 100, Output: 20, CacheRead: 80, CacheWrite: 5, Reasoning: 7, Reported: true}
	call := sc.call(step, 1)
	call.Input, call.State, call.Kind, call.Auto = []byte(`{"command": "ls -l"}`), agent.CallDone, agent.CallPermission, true
	call.Suggestions = []agent.Suggestion{{ID: "1", Text: "t", Rule: "Bash(ls:*)", Scope: "project"}}
	call.Diffs, call.Order, call.AskedAt, call.DoneAt = []byte(`[{"path":"a<b"}]`), 2, at(3), at(4)
	call.Result = &agent.ToolResult{Parts: []agent.Part{agent.Text("out")}, Status: agent.StatusError, Stdout: []string{"o"}, Stderr: []string{"e"}}
	answer := sc.message(agent.RoleAssistant, "hello")
	answer.TurnID, answer.RunID, answer.StepID, answer.Interrupted, answer.Hidden = turn.ID, run.ID, step.ID, true, false
	answer.Parts = append(answer.Parts,
		agent.Part{Kind: agent.PartReasoning, Text: "hm", Field: "reasoning_content", Signature: "s/g=", Meta: []byte(`{"a":"<1>"}`)},
		agent.Part{Kind: agent.PartToolCall, Call: &agent.CallPart{ID: "call_1", Name: "Bash", Arguments: `{"command": `}})
	result := sc.message(agent.RoleTool, "out")
	result.StepID, result.CallID, result.Status, result.Name = step.ID, "call_1", agent.StatusSuccess, "Bash"
	result.Stdout, result.Stderr = []string{"o1", "o2"}, []string{"e"}
	user := sc.message(agent.RoleUser, "hi")
	user.Context, user.ClientKey, user.OTID, user.SenderID, user.Name = "<system-reminder>", "k1", "o1", "s1", "Bob"
	summary := sc.message(agent.RoleSummary, "so far")
	summary.Stats = []byte(`{"trigger": "manual"}`)
	return &store.Change{
		Inputs: []*agent.Input{in}, Turns: []*agent.Turn{turn}, Runs: []*agent.Run{run}, Steps: []*agent.Step{step},
		Messages: []*agent.Message{answer, result, user, summary}, Calls: []*agent.ToolCall{call},
		Events: []store.RunEvent{{RunID: run.ID, Seq: 1, Kind: "text_delta", Data: []byte(`{"text":"h"}`), At: at(2), Expires: at(100)}},
		Prompt: &agent.Prompt{ConversationID: sc.conv.ID, Text: "You are.", RawHash: "h", Revision: "c1", NoticedAt: "c2", CreatedAt: at(1)},
	}
}

func options() agent.TurnOptions {
	return agent.TurnOptions{
		ToolsetBase: "none", ToolsetInclude: []string{"Read"}, Allowlist: []string{}, ExternalScopes: []string{"x"}, ExcludeInteractive: true,
		DropBadImages: true, MaxSteps: 4, Model: "m", System: ptr("sys"), Headless: true, Disallowed: []string{"Bash"}, WithUsage: true,
		ClientTools: []agent.ToolDef{{Name: "t", Label: "l", Description: "d", Parameters: []byte(`{"type":"object"}`)}},
	}
}

func testRoundTrip(t *testing.T, s *store.Store) {
	sc := newScene(t, s)
	c := sc.full()
	sc.commit(c)
	ctx := t.Context()
	same(t, "input", must(s.Input(ctx, c.Inputs[0].ID))(t), c.Inputs[0])
	same(t, "input by key", must(s.InputByKey(ctx, sc.conv.ID, "k1"))(t), c.Inputs[0])
	same(t, "turn", must(s.Turn(ctx, c.Turns[0].ID))(t), c.Turns[0])
	same(t, "run", must(s.Run(ctx, c.Runs[0].ID))(t), c.Runs[0])
	same(t, "step", must(s.Step(ctx, c.Steps[0].ID))(t), c.Steps[0])
	same(t, "calls", must(s.Calls(ctx, c.Steps[0].ID))(t), c.Calls)
	same(t, "messages", must(s.Messages(ctx, store.MessageFilter{ConversationID: sc.conv.ID}))(t), c.Messages)
	same(t, "message", must(s.MessageByID(ctx, c.Messages[0].ID))(t), c.Messages[0])
	same(t, "prompt", must(s.Prompt(ctx, sc.conv.ID))(t), c.Prompt)
	same(t, "events", must(s.Events(ctx, c.Runs[0].ID, 0, 0))(t), c.Events)
}

func testUpsert(t *testing.T, s *store.Store) {
	sc := newScene(t, s)
	in, turn := sc.input(), sc.turn(agent.TurnRunning)
	run := sc.run(turn)
	step := sc.step(run, 1)
	run.TurnID, run.StartedAt = "", time.Time{} // its input waits
	call, m := sc.call(step, 0), sc.message(agent.RoleAssistant, "par")
	c := &store.Change{
		Inputs: []*agent.Input{in}, Turns: []*agent.Turn{turn}, Runs: []*agent.Run{run}, Steps: []*agent.Step{step},
		Calls: []*agent.ToolCall{call}, Messages: []*agent.Message{m},
		Prompt: &agent.Prompt{ConversationID: sc.conv.ID, Text: "one", CreatedAt: at(1)},
	}
	sc.commit(c)
	in.State, in.TurnID, in.Paused = agent.InputTaken, turn.ID, true
	turn.State, turn.Steps, turn.StopReason, turn.EndedAt, turn.OnOrphan = agent.TurnEnded, 1, agent.StopEndTurn, at(5), agent.OrphanCancel
	in.Run.ID, run.TurnID, run.StartedAt, run.FirstTokenAt = run.ID, turn.ID, at(2), at(3)
	run.Ended, run.StopReason, run.EndedAt = true, agent.StopEndTurn, at(5)
	step.State, step.Usage, step.EndedAt, step.Error = agent.StepDone, agent.Usage{Input: 1}, at(5), &agent.Error{Code: agent.CodeModel, Message: "m"}
	call.State, call.Result, call.Input = agent.CallDone, ptr(agent.TextResult(agent.StatusSuccess, "x")), []byte(`{}`)
	m.Parts, m.Hidden, m.Interrupted = []agent.Part{agent.Text("partial")}, true, true
	c.Prompt = &agent.Prompt{ConversationID: sc.conv.ID, Text: "two", NoticedAt: "c3", CreatedAt: at(2)}
	sc.commit(c)
	ctx := t.Context()
	same(t, "input", must(s.Input(ctx, in.ID))(t), in)
	same(t, "turn", must(s.Turn(ctx, turn.ID))(t), turn)
	same(t, "run", must(s.Run(ctx, run.ID))(t), run)
	same(t, "step", must(s.Step(ctx, step.ID))(t), step)
	same(t, "calls", must(s.Calls(ctx, step.ID))(t), c.Calls)
	same(t, "messages", must(s.Messages(ctx, store.MessageFilter{ConversationID: sc.conv.ID}))(t), c.Messages)
	same(t, "prompt", must(s.Prompt(ctx, sc.conv.ID))(t), c.Prompt)
}

// Both databases store the same text for what PostgreSQL could not take.
func testOddText(t *testing.T, s *store.Store) {
	sc := newScene(t, s)
	turn := sc.turn(agent.TurnRunning)
	step := sc.step(sc.run(turn), 1)
	call := sc.call(step, 0)
	call.Arguments, call.Name = "{\"a\":\"\x00\xff\"}", "日本\u2028'\"?$1\\"
	m := sc.message(agent.RoleUser, "nul \x00, bad \xff, emoji 🙂, <script>&\u2028")
	m.Context = "a\x00b\xffc"
	sc.commit(&store.Change{Calls: []*agent.ToolCall{call}, Messages: []*agent.Message{m}})
	got := must(s.Calls(t.Context(), step.ID))(t)[0]
	same(t, "arguments", got.Arguments, "{\"a\":\"\ufffd\ufffd\"}")
	same(t, "name", got.Name, call.Name)
	stored := must(s.MessageByID(t.Context(), m.ID))(t)
	same(t, "context", stored.Context, "a\ufffdb\ufffdc")
	same(t, "part", stored.Parts[0].Text, "nul \x00, bad \ufffd, emoji 🙂, <script>&\u2028")
}

func testSnapshot(t *testing.T, s *store.Store) {
	sc := newScene(t, s)
	snap := sc.load()
	same(t, "empty snapshot", snap, &store.Snapshot{Agent: sc.agent, Conversation: sc.conv})

	c := sc.full()
	sc.commit(c)
	snap = sc.load()
	if snap.Turn != nil || snap.Run != nil || len(snap.Queue) != 0 {
		t.Errorf("ended turn is taken for open: %+v", snap)
	}
	same(t, "steps", snap.Steps, c.Steps)
	same(t, "calls", snap.Calls, c.Calls)
	same(t, "context", snap.Context, c.Messages)
	same(t, "prompt", snap.Prompt, c.Prompt)
	same(t, "last seq", snap.LastSeq, sc.seq)

	_, err := s.Load(t.Context(), "conv-none")
	wantCode(t, err, agent.CodeNotFound)
}

func testSnapshotOpen(t *testing.T, s *store.Store) {
	for _, state := range []agent.TurnState{agent.TurnRunning, agent.TurnParked} {
		sc := newScene(t, s)
		old := sc.turn(agent.TurnEnded)
		turn := sc.turn(state)
		first, second := sc.run(turn), sc.run(turn)
		one, two := sc.step(first, 1), sc.step(second, 2)
		calls := []*agent.ToolCall{sc.call(two, 0), sc.call(two, 1)}
		q1, q2, q3 := sc.input(), sc.input(), sc.input()
		q2.Paused, q3.State = true, agent.InputCancelled
		oldRun := sc.run(old)
		sc.commit(&store.Change{Turns: []*agent.Turn{old}, Runs: []*agent.Run{oldRun}, Steps: []*agent.Step{sc.step(oldRun, 1)}})
		sc.commit(&store.Change{
			Inputs: []*agent.Input{q1, q2, q3}, Turns: []*agent.Turn{turn}, Runs: []*agent.Run{first, second},
			Steps: []*agent.Step{one, two}, Calls: append([]*agent.ToolCall{sc.call(one, 0)}, calls...),
		})
		snap := sc.load()
		same(t, "turn", snap.Turn, turn)
		same(t, "run", snap.Run, second)
		same(t, "steps", snap.Steps, []*agent.Step{one, two})
		same(t, "calls", snap.Calls, calls)
		same(t, "queue", snap.Queue, []*agent.Input{q1, q2})
		// A queued input keeps its place when it changes.
		q1.Paused = true
		sc.commit(&store.Change{Inputs: []*agent.Input{q1}})
		same(t, "queue", sc.load().Queue, []*agent.Input{q1, q2})
	}
}

func testContext(t *testing.T, s *store.Store) {
	sc := newScene(t, s)
	other := sc.another()
	all := sc.say(5)
	other.say(2)
	all[0].Hidden, all[1].Hidden, all[2].Interrupted = true, true, true
	sc.commit(&store.Change{Messages: all[:3]})
	snap := sc.load()
	same(t, "context", snap.Context, all[2:])
	same(t, "last seq", snap.LastSeq, int64(5))
	all[4].Hidden = true
	sc.commit(&store.Change{Messages: all[4:]})
	same(t, "last seq with the last one hidden", sc.load().LastSeq, int64(5))
	same(t, "count", must(s.MessageCount(t.Context(), sc.conv.ID))(t), 5)
}

func testInputKey(t *testing.T, s *store.Store) {
	sc := newScene(t, s)
	first, again, free1, free2 := sc.input(), sc.input(), sc.input(), sc.input()
	first.Key, again.Key = "key", "key"
	sc.commit(&store.Change{Inputs: []*agent.Input{first, free1, free2}})
	wantCode(t, s.Commit(t.Context(), sc.lease, &store.Change{Inputs: []*agent.Input{again}}), agent.CodeConflict)
	same(t, "input", must(s.InputByKey(t.Context(), sc.conv.ID, "key"))(t), first)
	if in := must(s.InputByKey(t.Context(), sc.conv.ID, "Key"))(t); in != nil {
		t.Errorf("found %v under a key of another case", in)
	}
	if in := must(s.InputByKey(t.Context(), sc.conv.ID, ""))(t); in != nil {
		t.Errorf("found %v under no key", in)
	}
	// The key is free in other conversations, and stays taken once the input ended.
	other := sc.another()
	in := other.input()
	in.Key = "key"
	other.commit(&store.Change{Inputs: []*agent.Input{in}})
	first.State = agent.InputCancelled
	sc.commit(&store.Change{Inputs: []*agent.Input{first}})
	wantCode(t, s.Commit(t.Context(), sc.lease, &store.Change{Inputs: []*agent.Input{again}}), agent.CodeConflict)
}

func testOneOpenTurn(t *testing.T, s *store.Store) {
	sc := newScene(t, s)
	first := sc.turn(agent.TurnParked)
	sc.commit(&store.Change{Turns: []*agent.Turn{first}})
	second := sc.turn(agent.TurnRunning)
	wantCode(t, s.Commit(t.Context(), sc.lease, &store.Change{Turns: []*agent.Turn{second}}), agent.CodeConflict)
	first.State = agent.TurnEnded
	sc.commit(&store.Change{Turns: []*agent.Turn{first, second}})
	same(t, "turn", sc.load().Turn, second)
}

// A lease gives no right to the rows of another conversation.
func testForeignRow(t *testing.T, s *store.Store) {
	sc := newScene(t, s)
	other := sc.another()
	theirs := other.say(1)[0]
	if err := s.Commit(t.Context(), sc.lease, &store.Change{Messages: []*agent.Message{theirs}}); err == nil {
		t.Error("a row of another conversation was accepted")
	}
	stolen := *theirs
	stolen.ConversationID, stolen.Parts = sc.conv.ID, nil
	wantCode(t, s.Commit(t.Context(), sc.lease, &store.Change{Messages: []*agent.Message{&stolen}}), agent.CodeConflict)
	same(t, "message", must(s.MessageByID(t.Context(), theirs.ID))(t), theirs)
}

func testAllOrNothing(t *testing.T, s *store.Store) {
	sc := newScene(t, s)
	keyed := sc.input()
	keyed.Key = "key"
	sc.commit(&store.Change{Inputs: []*agent.Input{keyed}})
	turn := sc.turn(agent.TurnRunning)
	clash := sc.input()
	clash.Key = "key"
	fresh := sc.input()
	m := sc.message(agent.RoleUser, "lost")
	err := s.Commit(t.Context(), sc.lease, &store.Change{
		Inputs: []*agent.Input{fresh, clash}, Turns: []*agent.Turn{turn}, Messages: []*agent.Message{m},
	})
	wantCode(t, err, agent.CodeConflict)
	snap := sc.load()
	same(t, "queue", snap.Queue, []*agent.Input{keyed})
	if snap.Turn != nil || len(snap.Context) != 0 {
		t.Errorf("rows of a failed change were kept: %+v", snap)
	}
}

// A failing change must not harm those that share its transaction.
func testBadNeighbour(t *testing.T, s *store.Store) {
	const good, bad = 12, 4
	var scenes []*scene
	for range good + bad {
		sc := newScene(t, s)
		in := sc.input()
		in.Key = "key"
		sc.commit(&store.Change{Inputs: []*agent.Input{in}})
		scenes = append(scenes, sc)
	}
	for round := range 10 {
		errs := make([]chan error, len(scenes))
		for i, sc := range scenes {
			c := &store.Change{Messages: []*agent.Message{sc.message(agent.RoleUser, "m")}}
			if i < bad {
				in := sc.input()
				in.Key = "key"
				c.Inputs = []*agent.Input{in}
			}
			errs[i] = make(chan error, 1)
			go func() { errs[i] <- s.Commit(context.Background(), sc.lease, c) }()
		}
		for i, sc := range scenes {
			err := <-errs[i]
			if i < bad {
				wantCode(t, err, agent.CodeConflict)
				sc.seq--
			} else {
				ok(t, err)
			}
			same(t, "stored messages", must(s.MessageCount(t.Context(), sc.conv.ID))(t), map[bool]int{true: 0, false: round + 1}[i < bad])
		}
	}
}

func testWithdraw(t *testing.T, s *store.Store) {
	sc := newScene(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Commit(ctx, sc.lease, &store.Change{Messages: []*agent.Message{sc.message(agent.RoleUser, "no")}}); err == nil {
		t.Fatal("a withdrawn change was acknowledged")
	}
	same(t, "messages", must(s.MessageCount(t.Context(), sc.conv.ID))(t), 0)

	// Whatever the moment of the cancellation, the answer tells the truth.
	sc.seq = 0
	for i := range 60 {
		m := sc.message(agent.RoleUser, "maybe")
		ctx, cancel := context.WithCancel(t.Context())
		timer := time.AfterFunc(time.Duration(i)*20*time.Microsecond, cancel)
		err := s.Commit(ctx, sc.lease, &store.Change{Messages: []*agent.Message{m}})
		timer.Stop()
		cancel()
		_, e := s.MessageByID(t.Context(), m.ID)
		if stored := e == nil; stored != (err == nil) {
			t.Fatalf("commit said %v, message stored: %v", err, stored)
		}
		if err != nil && !strings.Contains(err.Error(), context.Canceled.Error()) {
			t.Fatalf("withdrawn with %v", err)
		}
	}
}

// A panic in a caller's function is the caller's: the store goes on.
func testPanic(t *testing.T, s *store.Store) {
	sc := newScene(t, s)
	func() {
		defer func() {
			if v := recover(); v == nil || !strings.Contains(fmt.Sprint(v), "a mistake") {
				t.Errorf("recovered %v", v)
			}
		}()
		s.UpdateAgent(t.Context(), sc.agent.ID, func(a *agent.Agent) error { panic("a mistake") })
	}()
	sc.say(1)
}

func testAfterClose(t *testing.T, s *store.Store) {
	sc := newScene(t, s)
	done := make(chan error)
	const n = 50
	for range n {
		other := sc.another()
		c := &store.Change{Messages: []*agent.Message{other.message(agent.RoleUser, "late")}}
		go func() { done <- s.Commit(context.Background(), other.lease, c) }()
	}
	ok(t, s.Close())
	for range n {
		if err := <-done; err != nil {
			wantCode(t, err, agent.CodeShutdown)
		}
	}
	wantCode(t, s.Commit(t.Context(), sc.lease, &store.Change{}), agent.CodeShutdown)
}

func testUnfinished(t *testing.T, s *store.Store) {
	base := newScene(t, s)
	var want []agent.Scope
	for _, c := range []struct {
		turn   agent.TurnState // "" = none
		queued int
		paused int
		found  bool
	}{
		{"", 0, 0, false},
		{"", 1, 0, true},
		{"", 2, 1, true},
		{"", 0, 1, false},
		{agent.TurnRunning, 0, 0, true},
		{agent.TurnRunning, 2, 0, true},
		{agent.TurnParked, 0, 0, false},
		{agent.TurnParked, 1, 0, false},
		{agent.TurnEnded, 0, 0, false},
		{agent.TurnEnded, 1, 0, true},
	} {
		sc := base.another()
		change := &store.Change{}
		taken := sc.input()
		taken.State = agent.InputTaken
		change.Inputs = append(change.Inputs, taken)
		for i := range c.queued + c.paused {
			in := sc.input()
			in.Paused = i >= c.queued
			change.Inputs = append(change.Inputs, in)
		}
		if c.turn != "" {
			change.Turns = []*agent.Turn{sc.turn(c.turn)}
		}
		sc.commit(change)
		if c.found {
			want = append(want, agent.Scope{AgentID: sc.agent.ID, ConversationID: sc.conv.ID})
		}
	}
	got := must(s.Unfinished(t.Context()))(t)
	for _, w := range want {
		if n := count(got, w); n != 1 {
			t.Errorf("%v is listed %d times", w, n)
		}
	}
	if len(got) != len(want) {
		t.Errorf("listed %d conversations, want %d", len(got), len(want))
	}
}

func count[T comparable](all []T, v T) int {
	n := 0
	for _, w := range all {
		if w == v {
			n++
		}
	}
	return n
}

func testParked(t *testing.T, s *store.Store) {
	sc := newScene(t, s)
	turn := sc.turn(agent.TurnParked)
	run := sc.run(turn)
	step := sc.step(run, 1)
	done, late, early := sc.call(step, 0), sc.call(step, 1), sc.call(step, 2)
	done.State, late.State, early.State = agent.CallDone, agent.CallWaiting, agent.CallWaiting
	late.AskedAt, early.AskedAt = at(5), at(4)
	sc.commit(&store.Change{
		Turns: []*agent.Turn{turn}, Runs: []*agent.Run{run}, Steps: []*agent.Step{step}, Calls: []*agent.ToolCall{done, late, early},
	})
	running := sc.another()
	running.commit(&store.Change{Turns: []*agent.Turn{running.turn(agent.TurnRunning)}})
	same(t, "parked turns", must(s.ParkedTurns(t.Context()))(t), []store.ParkedTurn{{Turn: turn, Calls: []*agent.ToolCall{early, late}}})
}

func testEvents(t *testing.T, s *store.Store) {
	sc := newScene(t, s)
	event := func(run string, seq int64) store.RunEvent {
		return store.RunEvent{RunID: run, Seq: seq, Kind: "k", Data: []byte(`{}`), At: at(1), Expires: at(10)}
	}
	sc.commit(&store.Change{Events: []store.RunEvent{event("run-1", 1), event("run-1", 2), event("run-2", 1)}})
	sc.commit(&store.Change{Events: []store.RunEvent{event("run-1", 3)}})
	for _, c := range []struct {
		after int64
		limit int
		want  []int64
	}{{0, 0, []int64{1, 2, 3}}, {1, 0, []int64{2, 3}}, {0, 2, []int64{1, 2}}, {3, 0, nil}} {
		var got []int64
		for _, ev := range must(s.Events(t.Context(), "run-1", c.after, c.limit))(t) {
			got = append(got, ev.Seq)
		}
		same(t, "seqs", got, c.want)
	}
	wantCode(t, s.Commit(t.Context(), sc.lease, &store.Change{Events: []store.RunEvent{event("run-1", 3)}}), agent.CodeConflict)
}

func testPruneEvents(t *testing.T, s *store.Store) {
	sc := newScene(t, s)
	var all []store.RunEvent
	for run, expires := range map[string][]int{"run-old": {5, 6}, "run-new": {50, 50}, "run-grown": {5, 50}} {
		for i, e := range expires {
			all = append(all, store.RunEvent{RunID: run, Seq: int64(i + 1), Kind: "k", Data: []byte(`{}`), At: at(1), Expires: at(e)})
		}
	}
	sc.commit(&store.Change{Events: all})
	same(t, "pruned", must(s.PruneEvents(t.Context(), at(10)))(t), 1)
	for run, n := range map[string]int{"run-old": 0, "run-new": 2, "run-grown": 2} {
		same(t, run, len(must(s.Events(t.Context(), run, 0, 0))(t)), n)
	}
	same(t, "pruned", must(s.PruneEvents(t.Context(), at(100)))(t), 2)
}

func testLookups(t *testing.T, s *store.Store) {
	sc := newScene(t, s)
	turn := sc.turn(agent.TurnRunning)
	r1, r2 := sc.run(turn), sc.run(turn)
	st1, st2, st3 := sc.step(r1, 1), sc.step(r1, 2), sc.step(r2, 3)
	sc.commit(&store.Change{Turns: []*agent.Turn{turn}, Runs: []*agent.Run{r1, r2}, Steps: []*agent.Step{st2, st1, st3}})
	ctx := t.Context()
	same(t, "runs", must(s.RunsOf(ctx, sc.conv.ID, 0))(t), []*agent.Run{r2, r1})
	same(t, "runs", must(s.RunsOf(ctx, sc.conv.ID, 1))(t), []*agent.Run{r2})
	same(t, "steps", must(s.StepsOf(ctx, r1))(t), []*agent.Step{st1, st2})
	for _, find := range []func(string) error{
		func(id string) error { _, err := s.Turn(ctx, id); return err },
		func(id string) error { _, err := s.Run(ctx, id); return err },
		func(id string) error { _, err := s.Step(ctx, id); return err },
		func(id string) error { _, err := s.Input(ctx, id); return err },
		func(id string) error { _, err := s.MessageByID(ctx, id); return err },
	} {
		wantCode(t, find("none"), agent.CodeNotFound)
		wantCode(t, find(""), agent.CodeNotFound)
	}
}

func testConversationState(t *testing.T, s *store.Store) {
	sc := newScene(t, s)
	must(s.UpdateConversation(t.Context(), sc.conv.ID, func(c *agent.Conversation) error {
		c.Summary, c.LastMessageAt = ptr("mine"), at(20)
		return nil
	}))(t)
	// The runtime's copy is older than the change above.
	mine := *sc.conv
	mine.Mode, mine.Cwd, mine.Toolset, mine.Rules = agent.ModeStrict, "/tmp", "auto", []string{"Bash(ls:*)"}
	mine.UpdatedAt, mine.LastMessageAt = at(11), at(10)
	sc.commit(&store.Change{Conversation: &mine})
	want := mine
	want.Summary, want.LastMessageAt = ptr("mine"), at(20)
	same(t, "conversation", must(s.Conversation(t.Context(), sc.conv.ID))(t), &want)
	mine.LastMessageAt = at(30)
	sc.commit(&store.Change{Conversation: &mine})
	same(t, "last message", must(s.Conversation(t.Context(), sc.conv.ID))(t).LastMessageAt, at(30))
}

func testLastRun(t *testing.T, s *store.Store) {
	sc := newScene(t, s)
	sc.commit(&store.Change{RunEnded: at(9)})
	sc.commit(&store.Change{RunEnded: at(8)})
	same(t, "last run", must(s.Agent(t.Context(), sc.agent.ID))(t).LastRunAt, at(9))
}
