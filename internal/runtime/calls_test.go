package runtime_test

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mneme/internal/agent"
	"mneme/internal/llm/fake"
	"mneme/internal/runtime"
	"mneme/internal/tool"
)

// counted is a tool with a side effect that must happen once.
type counted struct{ runs atomic.Int32 }

func (c *counted) tool(name string) *tool.Tool {
	return &tool.Tool{
		Def:   agent.ToolDef{Name: name, Description: "counts", Parameters: json.RawMessage(`{"type":"object"}`)},
		Class: tool.Serial,
		Run: func(context.Context, *tool.Call) agent.ToolResult {
			c.runs.Add(1)
			return agent.TextResult(agent.StatusSuccess, "counted")
		},
	}
}

// blocked is a tool that runs until it is let go, or for ever.
func blocked(name string, started chan<- struct{}, open <-chan struct{}) *tool.Tool {
	return &tool.Tool{
		Def:   agent.ToolDef{Name: name, Description: "waits", Parameters: json.RawMessage(`{"type":"object"}`)},
		Class: tool.Serial,
		Run: func(ctx context.Context, c *tool.Call) agent.ToolResult {
			started <- struct{}{}
			select {
			case <-open:
				return agent.TextResult(agent.StatusSuccess, "let go")
			case <-ctx.Done():
				return agent.TextResult(agent.StatusError, "stopped")
			}
		},
	}
}

func use(names ...string) func(*agent.Input) {
	return func(in *agent.Input) { in.Options.ToolsetBase, in.Options.ToolsetInclude = "none", names }
}

func standard(c *runtime.Config) { c.Mode = agent.ModeStandard }

func TestToolPhase(t *testing.T) {
	var c counted
	r := setup(t, fake.New(
		fake.Answer{fake.Call("Count", `{}`), fake.Call("Count", `{}`)},
		fake.Answer{fake.Text("done")},
	), withTools(c.tool("Count")))
	r.submit("go", use("Count"))
	r.finished(1)
	want := []string{"user: go", "assistant: [Count {}][Count {}]", "tool: counted", "tool: counted", "assistant: done"}
	if diff := cmp.Diff(want, r.history()); diff != "" {
		t.Error(diff)
	}
	if n := c.runs.Load(); n != 2 {
		t.Errorf("the tool ran %d times, want 2", n)
	}
	wantKinds := []string{
		"call_made", "answer_stored", "calls_classified", "EXECUTING_CLIENT_SIDE_TOOL", "device_changed",
		"call_running", "call_ended", "call_returned", "SENDING_API_REQUEST",
	}
	kinds := r.kinds()
	for i, k := range kinds {
		if k == "call_made" {
			if diff := cmp.Diff(wantKinds, kinds[i:i+len(wantKinds)]); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
			break
		}
	}
}

func TestApprovalSurvivesARestart(t *testing.T) {
	var c counted
	r := setup(t, fake.New(fake.Answer{fake.Text("may I?"), fake.Call("Count", `{"n":1}`)}, fake.Answer{fake.Text("done")}),
		withTools(c.tool("Count")), withConfig(standard))
	r.submit("go", use("Count"))
	asked := r.nth("call_asked", 1).Payload.(agent.CallAsked)
	r.restart()
	s, err := r.m.Status(t.Context(), r.scope)
	if err != nil || len(s.Pending) != 1 || s.Pending[0].ID != asked.Call.ID || s.Loop != agent.LoopApproval || !s.Processing {
		t.Fatalf("after the restart: %+v, %v", s, err)
	}
	if _, err := r.m.Submit(t.Context(), r.input("b", func(in *agent.Input) { in.IfBusy = agent.BusyReject }), nil); agent.CodeOf(err) != agent.CodeParked {
		t.Errorf("a second input: %v, want parked", err)
	}
	acked := false
	err = r.m.Answer(t.Context(), r.scope, asked.Call.ID,
		runtime.Answer{Allow: true, Input: json.RawMessage(`{"n":2}`)}, func() { acked = true })
	if err != nil || !acked {
		t.Fatalf("answer: %v, acknowledged %v", err, acked)
	}
	r.finished(1)
	if err := r.m.Answer(t.Context(), r.scope, asked.Call.ID, runtime.Answer{Allow: true}, nil); agent.CodeOf(err) != agent.CodeNotPending {
		t.Errorf("a second answer: %v, want not pending", err)
	}
	if n := c.runs.Load(); n != 1 {
		t.Errorf("the tool ran %d times", n)
	}
	want := []string{"user: go", `assistant: may I?[Count {"n":1}]`,
		`approval: {"approvals":[{"type":"approval","tool_call_id":"call_1_1","approve":true}]}`, "tool: counted", "assistant: done"}
	if diff := cmp.Diff(want, r.history()); diff != "" {
		t.Error(diff)
	}
}

func TestApprovalsAreAskedOneByOne(t *testing.T) {
	var c counted
	r := setup(t, fake.New(
		fake.Answer{fake.CallID("c1", "Count", `{}`), fake.CallID("c2", "Count", `{}`)},
		fake.Answer{fake.Text("done")},
	), withTools(c.tool("Count")), withConfig(standard))
	r.submit("go", use("Count"))
	if got := r.nth("call_asked", 1).Payload.(agent.CallAsked).Call.ID; got != "c1" {
		t.Errorf("asked for %s first", got)
	}
	if err := r.m.Answer(t.Context(), r.scope, "c1", runtime.Answer{Message: "not this one"}, nil); err != nil {
		t.Fatal(err)
	}
	if got := r.nth("call_asked", 2).Payload.(agent.CallAsked).Call.ID; got != "c2" {
		t.Errorf("asked for %s second", got)
	}
	if n := c.runs.Load(); n != 0 {
		t.Error("a tool ran before every question was answered")
	}
	if err := r.m.Answer(t.Context(), r.scope, "c2", runtime.Answer{Allow: true}, nil); err != nil {
		t.Fatal(err)
	}
	r.finished(1)
	// Completion order for the model: what was allowed first, denials last.
	want := []string{"user: go", "assistant: [Count {}][Count {}]",
		`approval: {"approvals":[{"type":"approval","tool_call_id":"c1","approve":false,"reason":"not this one"},` +
			`{"type":"approval","tool_call_id":"c2","approve":true}]}`,
		"tool: counted", "tool: not this one", "assistant: done"}
	if diff := cmp.Diff(want, r.history()); diff != "" {
		t.Error(diff)
	}
}

func TestAbortOfAParkedTurn(t *testing.T) {
	var c counted
	r := setup(t, fake.New(fake.Answer{fake.CallID("c1", "Count", `{}`)}, fake.Answer{fake.Text("fine")}),
		withTools(c.tool("Count")), withConfig(standard))
	r.submit("go", use("Count"))
	r.nth("call_asked", 1)
	if ok, err := r.m.Abort(t.Context(), r.scope, "", nil); !ok || err != nil {
		t.Fatalf("abort: %v, %v", ok, err)
	}
	if end := r.finished(1); end.StopReason != agent.StopCancelled {
		t.Errorf("ended as %v", end.StopReason)
	}
	if err := r.m.Answer(t.Context(), r.scope, "c1", runtime.Answer{Allow: true}, nil); agent.CodeOf(err) != agent.CodeNotPending {
		t.Errorf("a late answer: %v", err)
	}
	r.turn("next")
	if n := c.runs.Load(); n != 0 {
		t.Errorf("the tool ran %d times", n)
	}
	sent := r.sent(2)
	if sent[2] != "tool: Interrupted by user" {
		t.Errorf("the model saw %v", sent)
	}
}

func TestAbortWhileAToolRuns(t *testing.T) {
	started := make(chan struct{}, 1)
	r := setup(t, fake.New(fake.Answer{fake.CallID("c1", "Wait", `{}`)}, fake.Answer{fake.Text("fine")}),
		withTools(blocked("Wait", started, nil)))
	r.submit("go", use("Wait"))
	<-started
	r.m.Abort(t.Context(), r.scope, "", nil)
	r.finished(1)
	ended := r.nth("call_ended", 1).Payload.(agent.CallEnded)
	if ended.Call.Result.Status != agent.StatusError || agent.TextOf(ended.Call.Result.Parts) != "Interrupted by user" {
		t.Errorf("the call ended with %+v", ended.Call.Result)
	}
	r.turn("next")
	want := []string{"user: go", "assistant: [Wait {}]", "tool: Interrupted by user",
		"notice: <system-reminder>The user interrupted the active stream.</system-reminder>", "user: next", "assistant: fine"}
	if diff := cmp.Diff(want, r.history()); diff != "" {
		t.Error(diff)
	}
}

func TestQueuedInputJoinsAfterTheTools(t *testing.T) {
	started, open := make(chan struct{}, 1), make(chan struct{})
	r := setup(t, fake.New(fake.Answer{fake.Call("Wait", `{}`)}, fake.Answer{fake.Text("both")}),
		withTools(blocked("Wait", started, open)))
	rc := r.submit("go", use("Wait"))
	<-started
	r.submit("and this", key("kb"), use("Wait"))
	close(open)
	r.finished(1)
	want := []string{"user: go", "assistant: [Wait {}]", "tool: let go", "user: and this", "assistant: both"}
	if diff := cmp.Diff(want, r.history()); diff != "" {
		t.Error(diff)
	}
	in, err := r.st.InputByKey(t.Context(), r.scope.ConversationID, "kb")
	if err != nil || in.TurnID != rc.TurnID || in.State != agent.InputTaken {
		t.Errorf("the joined input is %+v, %v", in, err)
	}
}

func TestRESTTurnsAreNotJoined(t *testing.T) {
	started, open := make(chan struct{}, 1), make(chan struct{})
	r := setup(t, fake.New(fake.Answer{fake.Call("Wait", `{}`)}, fake.Answer{fake.Text("one")}, fake.Answer{fake.Text("two")}),
		withTools(blocked("Wait", started, open)))
	r.submit("go", use("Wait"), func(in *agent.Input) { in.Door = agent.DoorREST })
	<-started
	r.submit("other")
	close(open)
	r.finished(2)
	want := []string{"user: go", "assistant: [Wait {}]", "tool: let go", "assistant: one", "user: other", "assistant: two"}
	if diff := cmp.Diff(want, r.history()); diff != "" {
		t.Error(diff)
	}
}

func TestMaxSteps(t *testing.T) {
	var c counted
	r := setup(t, fake.New(fake.Answer{fake.Call("Count", `{}`)}, fake.Answer{fake.Call("Count", `{}`)}, fake.Answer{fake.Text("never")}),
		withTools(c.tool("Count")))
	r.submit("go", use("Count"), func(in *agent.Input) { in.Options.MaxSteps = 2 })
	if end := r.finished(1); end.StopReason != agent.StopMaxSteps {
		t.Errorf("ended as %v", end.StopReason)
	}
	h := r.history()
	if n := c.runs.Load(); n != 2 || h[len(h)-1] != "tool: counted" {
		t.Errorf("ran %d times; history %v", n, h)
	}
}

func TestClientToolWaitsForItsResult(t *testing.T) {
	def := agent.ToolDef{Name: "Screen", Description: "the client's", Parameters: json.RawMessage(`{"type":"object"}`)}
	r := setup(t, fake.New(fake.Answer{fake.CallID("c1", "Screen", `{}`)}, fake.Answer{fake.Text("seen")}))
	r.submit("look", func(in *agent.Input) { in.Options.ClientTools = []agent.ToolDef{def} })
	asked := r.nth("call_asked", 1).Payload.(agent.CallAsked)
	if asked.Call.Kind != agent.CallClientTool {
		t.Errorf("kind %s", asked.Call.Kind)
	}
	if err := r.m.Answer(t.Context(), r.scope, "c1", runtime.Answer{Allow: true}, nil); agent.CodeOf(err) != agent.CodeInvalid {
		t.Errorf("allowing a client tool: %v, want invalid", err)
	}
	res := agent.TextResult(agent.StatusSuccess, "a cat")
	if err := r.m.Answer(t.Context(), r.scope, "c1", runtime.Answer{Result: &res}, nil); err != nil {
		t.Fatal(err)
	}
	r.finished(1)
	want := []string{"user: look", "assistant: [Screen {}]",
		`approval: {"approvals":[{"type":"tool","tool_call_id":"c1","tool_return":"a cat","status":"success"}]}`,
		"tool: a cat", "assistant: seen"}
	if diff := cmp.Diff(want, r.history()); diff != "" {
		t.Error(diff)
	}
}

func TestExternalTools(t *testing.T) {
	def := agent.ToolDef{Name: "lookup", Description: "theirs", Parameters: json.RawMessage(`{"type":"object"}`)}
	groups := []runtime.ExternalGroup{{Tools: []agent.ToolDef{def}}}
	for _, tc := range []struct {
		name, want string
		act        func(r *rig, id string)
	}{
		{"answered", "tool: 42", func(r *rig, id string) {
			if r.m.AnswerExternal("other", id, agent.TextResult(agent.StatusSuccess, "stolen")) {
				t.Error("another connection could answer")
			}
			if !r.m.AnswerExternal("conn", id, agent.TextResult(agent.StatusSuccess, "42")) {
				t.Error("the owner could not answer")
			}
		}},
		{"owner left", "tool: External tool execution error: Listener connection closed", func(r *rig, id string) {
			r.m.Disconnect("conn")
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := setup(t, fake.New(fake.Answer{fake.Call("lookup", `{"q":1}`)}, fake.Answer{fake.Text("ok")}))
			r.m.SetExternal("conn", r.scope, groups)
			r.submit("go", func(in *agent.Input) { in.Origin = "conn" })
			call := r.nth("external_call", 1).Payload.(agent.ExternalCall)
			if call.To != "conn" || call.Call.Name != "lookup" || string(call.Call.Input) != `{"q":1}` {
				t.Errorf("asked %+v", call)
			}
			tc.act(r, call.RequestID)
			r.finished(1)
			if h := r.history(); h[2] != tc.want {
				t.Errorf("history %v, want %q", h, tc.want)
			}
			if r.m.AnswerExternal("conn", call.RequestID, agent.TextResult(agent.StatusSuccess, "late")) {
				t.Error("a second answer was taken")
			}
		})
	}
}

func TestRepeatedCallIDsAreRemade(t *testing.T) {
	var c counted
	r := setup(t, fake.New(
		fake.Answer{fake.CallID("same", "Count", `{}`)},
		fake.Answer{fake.CallID("same", "Count", `{}`), fake.CallID("same", "Count", `{}`)},
		fake.Answer{fake.Text("done")},
	), withTools(c.tool("Count")))
	r.submit("go", use("Count"))
	r.finished(1)
	seen := map[string]bool{}
	reqs := r.model.Requests()
	for _, m := range reqs[len(reqs)-1].Messages {
		for _, call := range m.Calls() {
			if seen[call.ID] {
				t.Errorf("call id %s stands twice in the history", call.ID)
			}
			seen[call.ID] = true
		}
	}
	if len(seen) != 3 || c.runs.Load() != 3 {
		t.Errorf("%d calls, %d runs; want 3", len(seen), c.runs.Load())
	}
}
