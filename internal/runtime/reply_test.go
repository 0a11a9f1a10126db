package runtime_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mneme/internal/agent"
	"mneme/internal/llm/fake"
	"mneme/internal/runtime"
)

func TestAnswerAll(t *testing.T) {
	var c counted
	def := agent.ToolDef{Name: "Screen", Description: "the client's", Parameters: json.RawMessage(`{"type":"object"}`)}
	r := setup(t, fake.New(
		fake.Answer{fake.CallID("c1", "Count", `{}`), fake.CallID("c2", "Screen", `{}`)},
		fake.Answer{fake.Text("done")},
	), withTools(c.tool("Count")), withConfig(standard))
	first := r.submit("go", use("Count"), func(in *agent.Input) {
		in.Door, in.Options.ClientTools = agent.DoorREST, []agent.ToolDef{def}
	})
	r.nth("call_asked", 1)
	res := agent.TextResult(agent.StatusSuccess, "a cat")
	answers := map[string]runtime.Answer{"c1": {Allow: true}, "c2": {Result: &res}}

	_, err := r.m.AnswerAll(t.Context(), r.scope, runtime.Reply{Answers: map[string]runtime.Answer{"c1": {Allow: true}}}, nil)
	if agent.CodeOf(err) != agent.CodeInvalid || err.Error() != "Invalid tool call IDs. Expected '['c1', 'c2']', but received '['c1']'." {
		t.Errorf("too few answers: %v", err)
	}
	follow := []agent.InputMessage{{Role: agent.RoleUser, Parts: []agent.Part{agent.Text("and hurry")}}}
	reply := runtime.Reply{Answers: answers, Messages: follow, Key: "a1", Door: agent.DoorREST,
		Run: agent.RunSpec{Background: true}, Options: &agent.TurnOptions{ToolsetBase: "none", ToolsetInclude: []string{"Count"}, ClientTools: []agent.ToolDef{def}}}
	second, err := r.m.AnswerAll(t.Context(), r.scope, reply, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.finished(1)
	if second.TurnID != first.TurnID || second.RunID == first.RunID {
		t.Errorf("the answer went on as %+v, the turn began as %+v", second, first)
	}
	again, err := r.m.AnswerAll(t.Context(), r.scope, reply, nil)
	if err != nil || !again.Duplicate || again.RunID != second.RunID {
		t.Errorf("the repeated answer got %+v, %v", again, err)
	}
	if _, err := r.m.AnswerAll(t.Context(), r.scope, runtime.Reply{Answers: answers}, nil); agent.CodeOf(err) != agent.CodeNotPending {
		t.Errorf("an answer to nothing: %v", err)
	}
	sent := r.sent(2)
	want := []string{"user: go", "assistant: [Count][Screen]", "tool: counted", "tool: a cat", "user: and hurry"}
	if diff := cmp.Diff(want, sent); diff != "" {
		t.Errorf("the model saw (-want +got):\n%s", diff)
	}
}

func TestFollowUpsSurviveACrash(t *testing.T) {
	started := make(chan struct{}, 1)
	r := setup(t, fake.New(fake.Answer{fake.CallID("c1", "Wait", `{}`)}, fake.Answer{fake.Text("done")}),
		withTools(blocked("Wait", started, nil)), withConfig(standard))
	r.submit("go", use("Wait"))
	r.nth("call_asked", 1)
	follow := []agent.InputMessage{{Role: agent.RoleUser, Parts: []agent.Part{agent.Text("and hurry")}}}
	if _, err := r.m.AnswerAll(t.Context(), r.scope, runtime.Reply{
		Answers: map[string]runtime.Answer{"c1": {Allow: true}}, Messages: follow, Door: agent.DoorREST,
	}, nil); err != nil {
		t.Fatal(err)
	}
	<-started
	r.crash()
	r.finished(1)
	sent := r.sent(2)
	if len(sent) != 4 || sent[3] != "user: and hurry" || !strings.Contains(sent[2], "may have run in part") {
		t.Errorf("the model saw %v", sent)
	}
}

func TestReset(t *testing.T) {
	r := setup(t, fake.New(fake.Answer{fake.Text("one")}, fake.Answer{fake.Text("two")}))
	r.turn("a")
	if err := r.m.Reset(t.Context(), r.scope); err != nil {
		t.Fatal(err)
	}
	r.restart()
	r.turn("b")
	if diff := cmp.Diff([]string{"user: b"}, r.sent(2)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"user: a", "assistant: one", "user: b", "assistant: two"}, r.history()); diff != "" {
		t.Error(diff)
	}
}

func TestCancelRun(t *testing.T) {
	r := setup(t, fake.New(fake.Answer{fake.Hang()}))
	running := r.submit("a")
	waiting := r.submit("b", func(in *agent.Input) { in.Door, in.Run.Background = agent.DoorREST, true })
	if waiting.RunID == "" {
		t.Fatal("a queued background input has no run")
	}
	run, err := r.st.Run(t.Context(), waiting.RunID)
	if err != nil || run.Ended || !run.StartedAt.IsZero() {
		t.Errorf("the waiting run is %+v, %v", run, err)
	}
	for _, tc := range []struct {
		id   string
		want bool
	}{{agent.NewID("run"), false}, {waiting.RunID, true}, {waiting.RunID, false}, {running.RunID, true}} {
		if ok, err := r.m.CancelRun(t.Context(), r.scope, tc.id); ok != tc.want || err != nil {
			t.Errorf("cancel %s: %v, %v; want %v", tc.id, ok, err, tc.want)
		}
	}
	r.finished(1)
	if run, err = r.st.Run(t.Context(), waiting.RunID); err != nil || run.StopReason != agent.StopCancelled {
		t.Errorf("the cancelled run is %+v, %v", run, err)
	}
	if diff := cmp.Diff([]string{"user: a", "notice: <system-reminder>The user interrupted the active stream.</system-reminder>"}, r.history()); diff != "" {
		t.Error(diff)
	}
}

func TestToolRules(t *testing.T) {
	for _, tc := range []struct {
		name, rules string
		stop        agent.StopReason
		runs        int32
	}{
		{"none", `[]`, agent.StopEndTurn, 2},
		{"exit_loop", `[{"type":"exit_loop","tool_name":"Count"}]`, agent.StopToolRule, 1},
		{"max_count_per_step", `[{"type":"max_count_per_step","tool_name":"Count","max_count_limit":1}]`, agent.StopEndTurn, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var c counted
			r := setup(t, fake.New(fake.Answer{fake.Call("Count", `{}`)}, fake.Answer{fake.Call("Count", `{}`)}, fake.Answer{fake.Text("done")}),
				withTools(c.tool("Count")), withConfig(standard))
			if _, err := r.st.UpdateAgent(t.Context(), r.agent.ID, func(a *agent.Agent) error {
				a.Toolset, a.Tools, a.ToolRules = "none", []string{"Count"}, json.RawMessage(tc.rules)
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			if end := r.turn("go"); end.StopReason != tc.stop {
				t.Errorf("ended as %v, want %v", end.StopReason, tc.stop)
			}
			if n := c.runs.Load(); n != tc.runs {
				t.Errorf("the tool ran %d times, want %d", n, tc.runs)
			}
		})
	}
}

func TestEventsComeBackFromTheLog(t *testing.T) {
	r := setup(t, fake.New(fake.Answer{fake.Text("a")}))
	rc := r.submit("go", func(in *agent.Input) { in.Logged, in.Door = true, agent.DoorREST })
	r.finished(1)
	log, err := r.st.Events(t.Context(), rc.RunID, 0, 100)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range log {
		ev, err := runtime.DecodeEvent(row)
		if err != nil {
			t.Fatal(err)
		}
		if ev.Payload.Kind() != row.Kind || ev.RunID != rc.RunID || ev.TurnID != rc.TurnID {
			t.Errorf("entry %d came back as %+v", row.Seq, ev)
		}
	}
}

func TestOneCallWhereParallelCallsAreOff(t *testing.T) {
	var c counted
	r := setup(t, fake.New(fake.Answer{fake.Call("Count", `{}`), fake.Call("Count", `{}`)}, fake.Answer{fake.Text("done")}),
		withTools(c.tool("Count")))
	if _, err := r.st.UpdateAgent(t.Context(), r.agent.ID, func(a *agent.Agent) error {
		a.ModelSettings = json.RawMessage(`{"parallel_tool_calls":false}`)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	r.submit("go", use("Count"), func(in *agent.Input) { in.Door = agent.DoorREST })
	r.finished(1)
	if n := c.runs.Load(); n != 1 || r.count("call_made") != 1 {
		t.Errorf("%d calls ran, %d were shown; want one", n, r.count("call_made"))
	}
}

func TestAnOTIDBelongsToOneSend(t *testing.T) {
	r := setup(t, fake.New(fake.Answer{fake.Text("one")}))
	rest := func(in *agent.Input) { in.Door = agent.DoorREST }
	r.submit("a", key("o1"), rest)
	r.finished(1)
	_, err := r.m.Submit(t.Context(), r.input("a", rest, func(in *agent.Input) {
		in.Messages = append(in.Messages, agent.InputMessage{Role: agent.RoleUser, ClientKey: "o2", Parts: []agent.Part{agent.Text("b")}})
		in.Messages[0].ClientKey, in.Key = "o1", "o1,o2"
	}), nil)
	if agent.CodeOf(err) != agent.CodeConflict {
		t.Errorf("an otid in other company: %v, want a conflict", err)
	}
}
