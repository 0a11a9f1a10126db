package runtime_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mneme/internal/agent"
	"mneme/internal/llm/fake"
	"mneme/internal/runtime"
)

func TestTextTurn(t *testing.T) {
	r := setup(t, fake.New(fake.Answer{fake.Reasoning("hm"), fake.Text("hello ", "there")}))
	var acked runtime.Receipt
	var before int
	receipt, err := r.m.Submit(t.Context(), r.input("hi", key("cm-1")), func(rc runtime.Receipt) {
		acked, before = rc, len(r.kinds())
	})
	if err != nil {
		t.Fatal(err)
	}
	end := r.finished(1)
	if !receipt.Started || receipt != acked || before != 0 {
		t.Errorf("receipt %+v, acknowledged %+v after %d events; want it started and first", receipt, acked, before)
	}
	want := []string{
		"input_joined", "turn_started", "SENDING_API_REQUEST", "device_changed", "step_started",
		"WAITING_FOR_API_RESPONSE", "PROCESSING_API_RESPONSE",
		"reasoning_delta", "text_delta", "answer_stored", "WAITING_ON_INPUT", "device_changed",
		"run_ended", "turn_finished",
	}
	if diff := cmp.Diff(want, r.kinds()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if end.StopReason != agent.StopEndTurn || end.Error != nil {
		t.Errorf("turn ended as %+v", end)
	}
	if diff := cmp.Diff([]string{"user: hi", "assistant: hello there"}, r.history()); diff != "" {
		t.Errorf("history (-want +got):\n%s", diff)
	}
	turn, err := r.st.Turn(t.Context(), receipt.TurnID)
	if err != nil || turn.State != agent.TurnEnded || turn.StopReason != agent.StopEndTurn {
		t.Errorf("stored turn %+v, %v", turn, err)
	}
}

func TestKeysAreKnownForEver(t *testing.T) {
	r := setup(t, fake.New(fake.Answer{fake.Text("one")}))
	first := r.submit("hi", key("cm-1"))
	r.finished(1)
	r.restart()
	again := r.submit("hi", key("cm-1"))
	if !again.Duplicate || again.InputID != first.InputID || again.TurnID != first.TurnID || !again.Started {
		t.Errorf("the repeat got %+v, the original %+v", again, first)
	}
	_, err := r.m.Submit(t.Context(), r.input("other", key("cm-1")), nil)
	if code := agent.CodeOf(err); code != agent.CodeConflict {
		t.Errorf("other content under the same key: %v, want a conflict", err)
	}
	if diff := cmp.Diff([]string{"user: hi", "assistant: one"}, r.history()); diff != "" {
		t.Error(diff)
	}
}

func TestUnknownConversation(t *testing.T) {
	r := setup(t, fake.New())
	in := r.input("hi")
	in.ConversationID = agent.NewID("conv")
	if _, err := r.m.Submit(t.Context(), in, nil); agent.CodeOf(err) != agent.CodeNotFound {
		t.Errorf("got %v, want not found", err)
	}
}

func TestQueuedInputsRunInOrderAsOneTurn(t *testing.T) {
	open := make(chan struct{})
	r := setup(t, fake.New(
		fake.Answer{fake.Gate(open), fake.Text("one")},
		fake.Answer{fake.Text("two")},
	))
	r.submit("a", key("ka"))
	for _, k := range []string{"kb", "kc"} {
		if rc := r.submit("text "+k, key(k)); rc.Started {
			t.Errorf("%s was started while a turn runs", k)
		}
	}
	close(open)
	r.finished(2)
	want := []string{"user: a", "assistant: one", "user: text kb", "user: text kc", "assistant: two"}
	if diff := cmp.Diff(want, r.history()); diff != "" {
		t.Error(diff)
	}
	q := r.wait("dequeue", func(ev *agent.Event) bool {
		q, ok := ev.Payload.(agent.QueueChanged)
		return ok && len(q.Removed) > 0
	}).Payload.(agent.QueueChanged)
	wantGone := []agent.RemovedItem{{ClientKey: "kb", Disposition: "dequeued"}, {ClientKey: "kc", Disposition: "dequeued"}}
	if diff := cmp.Diff(wantGone, q.Removed); diff != "" || len(q.Queue) != 0 {
		t.Errorf("queue %v, removed (-want +got):\n%s", q.Queue, diff)
	}
}

func TestQueueIsBoundedAndKeepsWhatItAccepted(t *testing.T) {
	r := setup(t, fake.New(fake.Answer{fake.Hang()}))
	r.submit("busy")
	for i := range 100 {
		r.submit(fmt.Sprint(i))
	}
	_, err := r.m.Submit(t.Context(), r.input("one too many"), nil)
	if agent.CodeOf(err) != agent.CodeQueueFull {
		t.Errorf("the 101st: %v, want a full queue", err)
	}
	s, err := r.m.Status(t.Context(), r.scope)
	if err != nil || len(s.Queue) != 100 {
		t.Errorf("queue of %d, %v", len(s.Queue), err)
	}
}

func TestRemoveQueued(t *testing.T) {
	open := make(chan struct{})
	r := setup(t, fake.New(fake.Answer{fake.Gate(open), fake.Text("one")}, fake.Answer{fake.Text("two")}))
	r.submit("a")
	gone := r.submit("b", key("kb"))
	r.submit("c", key("kc"))
	for _, want := range []bool{true, false} {
		found, err := r.m.RemoveQueued(t.Context(), r.scope, gone.InputID, func(bool) {})
		if err != nil || found != want {
			t.Errorf("removed = %v, %v; want %v", found, err, want)
		}
	}
	close(open)
	r.finished(2)
	if diff := cmp.Diff([]string{"user: a", "assistant: one", "user: c", "assistant: two"}, r.history()); diff != "" {
		t.Error(diff)
	}
}

func TestBusyPolicies(t *testing.T) {
	open := make(chan struct{})
	r := setup(t, fake.New(fake.Answer{fake.Gate(open), fake.Text("one")}, fake.Answer{fake.Text("two")}))
	first := r.submit("a")
	reject := func(in *agent.Input) { in.IfBusy, in.Door = agent.BusyReject, agent.DoorREST }
	_, err := r.m.Submit(t.Context(), r.input("b", reject), nil)
	e, ok := err.(*agent.Error)
	if !ok || e.Code != agent.CodeBusy || e.Ref != first.RunID {
		t.Errorf("got %v, want busy with the run %s", err, first.RunID)
	}
	waited := make(chan error, 1)
	go func() {
		_, err := r.m.Submit(context.WithoutCancel(t.Context()), r.input("c", func(in *agent.Input) {
			in.IfBusy, in.Door = agent.BusyWait, agent.DoorREST
		}), nil)
		waited <- err
	}()
	time.Sleep(20 * time.Millisecond) // lets it reach the actor; either order must work
	close(open)
	if err := <-waited; err != nil {
		t.Errorf("the waiting input: %v", err)
	}
	r.finished(2)
	if diff := cmp.Diff([]string{"user: a", "assistant: one", "user: c", "assistant: two"}, r.history()); diff != "" {
		t.Error(diff)
	}
}

func TestAbortKeepsThePartialText(t *testing.T) {
	reached := make(chan struct{})
	r := setup(t, fake.New(
		fake.Answer{fake.Text("half an ", "answer"), fake.Signal(reached), fake.Hang()},
		fake.Answer{fake.Text("fine")},
	))
	rc := r.submit("a")
	<-reached
	r.submit("queued", key("kq"))
	if ok, err := r.m.Abort(t.Context(), r.scope, agent.NewID("run"), nil); ok || err != nil {
		t.Errorf("abort of another run: %v, %v", ok, err)
	}
	ok, err := r.m.Abort(t.Context(), r.scope, rc.RunID, nil)
	if !ok || err != nil {
		t.Fatalf("abort: %v, %v", ok, err)
	}
	if end := r.finished(1); end.StopReason != agent.StopCancelled {
		t.Errorf("the turn ended as %v", end.StopReason)
	}
	if ok, _ := r.m.Abort(t.Context(), r.scope, "", nil); ok {
		t.Error("a second abort found something to abort")
	}
	s, _ := r.m.Status(t.Context(), r.scope)
	if len(s.Queue) != 1 || !s.Queue[0].Paused {
		t.Fatalf("queue after the abort: %+v", s.Queue)
	}
	r.submit("b")
	r.finished(2)
	want := []string{"user: a", "assistant: half an answer (interrupted)",
		"notice: <system-reminder>The user interrupted the active stream.</system-reminder>",
		"user: queued", "user: b", "assistant: fine"}
	if diff := cmp.Diff(want, r.history()); diff != "" {
		t.Error(diff)
	}
	wantSent := []string{"user: a", want[2], "user: queued", "user: b"}
	if diff := cmp.Diff(wantSent, r.sent(2)); diff != "" {
		t.Errorf("the model saw (-want +got):\n%s", diff)
	}
}

func TestResumeQueue(t *testing.T) {
	reached := make(chan struct{})
	r := setup(t, fake.New(fake.Answer{fake.Signal(reached), fake.Hang()}, fake.Answer{fake.Text("two")}))
	r.submit("a")
	<-reached
	r.submit("b", key("kb"))
	r.m.Abort(t.Context(), r.scope, "", nil)
	n, err := r.m.ResumeQueue(t.Context(), r.scope, func(int) {})
	if n != 1 || err != nil {
		t.Errorf("resumed %d, %v", n, err)
	}
	r.finished(2)
	if h := r.history(); h[len(h)-1] != "assistant: two" {
		t.Errorf("history %v", h)
	}
}

func TestOrphans(t *testing.T) {
	for _, tc := range []struct {
		policy agent.OnOrphan
		want   agent.StopReason
	}{
		{agent.OrphanCancel, agent.StopCancelled},
		{agent.OrphanCancelNow, agent.StopCancelled},
		{agent.OrphanKeep, agent.StopEndTurn},
	} {
		t.Run(string(tc.policy), func(t *testing.T) {
			open, reached := make(chan struct{}), make(chan struct{})
			r := setup(t, fake.New(fake.Answer{fake.Text("x"), fake.Signal(reached), fake.Gate(open), fake.Text("y")}),
				withConfig(func(c *runtime.Config) { c.OrphanGrace = 10 * time.Millisecond }))
			rc := r.submit("a", func(in *agent.Input) { in.OnOrphan = tc.policy })
			<-reached
			r.leave()
			if tc.policy == agent.OrphanKeep {
				time.Sleep(50 * time.Millisecond) // more than the grace
				close(open)
			}
			deadline := time.Now().Add(patience)
			for {
				turn, err := r.st.Turn(t.Context(), rc.TurnID)
				if err != nil {
					t.Fatal(err)
				}
				if turn.State == agent.TurnEnded {
					if turn.StopReason != tc.want {
						t.Errorf("ended as %s, want %s", turn.StopReason, tc.want)
					}
					return
				}
				if time.Now().After(deadline) {
					t.Fatal("the turn did not end")
				}
				time.Sleep(5 * time.Millisecond)
			}
		})
	}
}
