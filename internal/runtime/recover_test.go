package runtime_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mneme/internal/agent"
	"mneme/internal/llm/fake"
	"mneme/internal/runtime"
	"mneme/internal/store"
)

func TestACrashInTheMiddleOfAnAnswerAsksAgain(t *testing.T) {
	reached := make(chan struct{})
	r := setup(t, fake.New(
		fake.Answer{fake.Text("lost text"), fake.Signal(reached), fake.Hang()},
		fake.Answer{fake.Text("whole")},
	))
	r.submit("a", key("ka"))
	<-reached
	first := r.nth("text_delta", 1)
	r.crash()
	r.finished(1)
	if diff := cmp.Diff([]string{"user: a", "assistant: whole"}, r.history()); diff != "" {
		t.Error(diff)
	}
	retry := r.nth("retrying", 1).Payload.(agent.Retrying)
	if retry.Reason != "restart" || len(retry.Voided) != 1 || retry.Voided[0] != first.MessageID {
		t.Errorf("announced %+v, want message %s void", retry, first.MessageID)
	}
	if second := r.nth("text_delta", 1); second.MessageID == first.MessageID || second.StepID != first.StepID {
		t.Errorf("asked again as step %s message %s", second.StepID, second.MessageID)
	}
}

func TestACrashWhileAToolRunsNeverRunsItAgain(t *testing.T) {
	started := make(chan struct{}, 2)
	r := setup(t, fake.New(fake.Answer{fake.Call("Wait", `{}`), fake.Call("Wait", `{}`)}, fake.Answer{fake.Text("I see")}),
		withTools(blocked("Wait", started, nil)))
	r.submit("go", use("Wait"))
	<-started // the first runs, the second waits for it
	open := make(chan struct{})
	close(open)
	second := make(chan struct{}, 2)
	withTools(blocked("Wait", second, open))(r)
	r.crash()
	r.finished(1)
	h := r.history()
	if len(h) != 5 || !strings.Contains(h[2], "may have run in part") || h[3] != "tool: let go" {
		t.Errorf("history %v", h)
	}
	if len(second) != 1 {
		t.Errorf("%d calls ran after the crash, want only the one that had not begun", len(second))
	}
}

func TestTheOldOwnerWritesNothing(t *testing.T) {
	reached, open := make(chan struct{}), make(chan struct{})
	r := setup(t, fake.New(
		fake.Answer{fake.Text("old"), fake.Signal(reached), fake.Gate(open)},
		fake.Answer{fake.Text("new")},
	))
	r.submit("a")
	<-reached
	r.crash()
	r.finished(1)
	close(open) // the old server comes to life again and wants to store its answer
	r.model.Add(fake.Answer{fake.Text("next")})
	r.turn("b")
	if diff := cmp.Diff([]string{"user: a", "assistant: new", "user: b", "assistant: next"}, r.history()); diff != "" {
		t.Error(diff)
	}
}

func TestTheQueueSurvivesACrash(t *testing.T) {
	reached := make(chan struct{})
	r := setup(t, fake.New(fake.Answer{fake.Signal(reached), fake.Hang()}, fake.Answer{fake.Text("one")}, fake.Answer{fake.Text("two")}))
	r.submit("a", key("ka"))
	<-reached
	r.submit("b", key("kb"))
	r.crash()
	r.finished(2)
	want := []string{"user: a", "assistant: one", "user: b", "assistant: two"}
	if diff := cmp.Diff(want, r.history()); diff != "" {
		t.Error(diff)
	}
	if rc := r.submit("b", key("kb")); !rc.Duplicate || rc.Started {
		t.Errorf("the repeat got %+v", rc)
	}
}

func TestADrainFinishesTheAnswerAndKeepsTheRest(t *testing.T) {
	reached, open := make(chan struct{}), make(chan struct{})
	r := setup(t, fake.New(fake.Answer{fake.Text("x"), fake.Signal(reached), fake.Gate(open), fake.Text("y")}, fake.Answer{fake.Text("two")}))
	r.submit("a")
	<-reached
	r.submit("b")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	closed := make(chan struct{})
	go func() { r.m.Close(ctx); close(closed) }()
	for {
		_, err := r.m.Submit(t.Context(), r.input("late"), nil)
		if agent.CodeOf(err) == agent.CodeShutdown {
			break
		}
	}
	close(open)
	<-closed
	want := []string{"user: a", "assistant: xy"}
	if diff := cmp.Diff(want, r.history()[:2]); diff != "" {
		t.Error(diff)
	}
	if n := len(r.model.Requests()); n != 1 {
		t.Errorf("%d requests while stopping, want 1", n)
	}
}

func TestRetryBeforeAnyOutput(t *testing.T) {
	r := setup(t, fake.New(
		fake.Answer{fake.StatusRetryAfter(http.StatusTooManyRequests, "slow down", 0)},
		fake.Answer{fake.Text("ok")},
	))
	r.turn("a")
	retry := r.nth("retrying", 1).Payload.(agent.Retrying)
	if len(retry.Voided) != 0 || retry.Attempt != 1 || retry.Max != 3 {
		t.Errorf("announced %+v", retry)
	}
	if diff := cmp.Diff([]string{"user: a", "assistant: ok"}, r.history()); diff != "" {
		t.Error(diff)
	}
}

func TestRetryAfterACutVoidsWhatWasShown(t *testing.T) {
	r := setup(t, fake.New(fake.Answer{fake.Text("half"), fake.Cut()}, fake.Answer{fake.Text("whole")}))
	r.turn("a")
	shown := r.nth("text_delta", 1)
	retry := r.nth("retrying", 1).Payload.(agent.Retrying)
	if diff := cmp.Diff([]string{shown.MessageID}, retry.Voided); diff != "" {
		t.Error(diff)
	}
	want := []string{"user: a", "assistant: half (interrupted)", "assistant: whole"}
	if diff := cmp.Diff(want, r.history()); diff != "" {
		t.Error(diff)
	}
	r.model.Add(fake.Answer{fake.Text("more")})
	r.turn("b")
	if diff := cmp.Diff([]string{"user: a", "assistant: whole", "user: b"}, r.sent(3)); diff != "" {
		t.Error(diff)
	}
}

func TestAFinalFailureEndsTheTurnOnce(t *testing.T) {
	r := setup(t, fake.New(fake.Answer{fake.Status(http.StatusUnauthorized, "bad key")}, fake.Answer{fake.Text("better")}))
	end := r.turn("a")
	if end.StopReason != agent.StopError || end.Error == nil || end.Error.Status != http.StatusUnauthorized {
		t.Errorf("ended as %+v", end)
	}
	if n := r.count("step_failed"); n != 1 {
		t.Errorf("%d step failures were announced", n)
	}
	r.turn("b")
	if diff := cmp.Diff([]string{"user: a", "user: b", "assistant: better"}, r.history()); diff != "" {
		t.Error(diff)
	}
}

func TestLoggedRunsLeaveAllTheirEvents(t *testing.T) {
	r := setup(t, fake.New(fake.Answer{fake.Text("a ", "b ", "c")}))
	rc := r.submit("go", func(in *agent.Input) { in.Logged, in.Door = true, agent.DoorREST })
	r.finished(1)
	log, err := r.st.Events(t.Context(), rc.RunID, 0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for i, e := range log {
		if e.Seq != int64(i+1) {
			t.Errorf("entry %d has position %d", i, e.Seq)
		}
		if n := len(kinds); n == 0 || kinds[n-1] != e.Kind {
			kinds = append(kinds, e.Kind)
		}
	}
	want := []string{"input_joined", "turn_started", "step_started", "text_delta", "answer_stored", "run_ended", "turn_finished"}
	if diff := cmp.Diff(want, kinds); diff != "" {
		t.Error(diff)
	}
}

func TestEphemeralTurnsLeaveNothing(t *testing.T) {
	r := setup(t, fake.New(fake.Answer{fake.Text("whisper")}, fake.Answer{fake.Text("again")}))
	scope, err := r.m.OpenEphemeral(t.Context(), r.agent.ID)
	if err != nil {
		t.Fatal(err)
	}
	rec := newRecorder(t)
	leave := r.m.Subscribe(scope, rec.record)
	defer leave()
	for i := range 2 {
		in := r.input("psst")
		in.ConversationID, in.Ephemeral = scope.ConversationID, true
		if _, err := r.m.Submit(t.Context(), in, nil); err != nil {
			t.Fatal(err)
		}
		rec.nth("turn_finished", i+1)
	}
	if sent := r.sent(2); len(sent) != 3 {
		t.Errorf("the second turn saw %v", sent)
	}
	msgs, err := r.st.Messages(t.Context(), store.MessageFilter{AgentID: r.agent.ID, Limit: 10})
	if err != nil || len(msgs) != 0 {
		t.Errorf("%d messages were stored, %v", len(msgs), err)
	}
}

func TestModeHoldsAtOnceAndDirectoryAfterTheTurn(t *testing.T) {
	reached, open := make(chan struct{}), make(chan struct{})
	r := setup(t, fake.New(fake.Answer{fake.Signal(reached), fake.Gate(open), fake.Text("ok")}))
	r.submit("a")
	<-reached
	before, _ := r.m.Status(t.Context(), r.scope)
	mode, dir := agent.ModeStrict, t.TempDir()
	if err := r.m.ChangeSettings(t.Context(), r.scope, runtime.Change{Mode: &mode, Cwd: &dir}); err != nil {
		t.Fatal(err)
	}
	during, _ := r.m.Status(t.Context(), r.scope)
	if during.Mode != mode || during.Cwd != before.Cwd || during.CwdRevision <= before.CwdRevision {
		t.Errorf("during the turn: %s in %s, revision %d", during.Mode, during.Cwd, during.CwdRevision)
	}
	close(open)
	r.finished(1)
	after, _ := r.m.Status(t.Context(), r.scope)
	if after.Cwd != dir {
		t.Errorf("after the turn in %s, want %s", after.Cwd, dir)
	}
	r.restart()
	if s, _ := r.m.Status(t.Context(), r.scope); s.Mode != mode || s.Cwd != dir {
		t.Errorf("after a restart: %s in %s", s.Mode, s.Cwd)
	}
}
