package runtime_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mneme/internal/agent"
	"mneme/internal/llm/fake"
	"mneme/internal/runtime"
)

// What one input forbids, an input it is queued behind must not bring in.
func TestInputsWithOtherWishesAreNotMerged(t *testing.T) {
	open := make(chan struct{})
	r := setup(t, fake.New(fake.Answer{fake.Gate(open), fake.Text("one")}, fake.Answer{fake.Text("two")}, fake.Answer{fake.Text("three")}))
	r.submit("a")
	r.submit("b")
	r.submit("c", func(in *agent.Input) { in.Options.Allowlist = []string{} })
	close(open)
	r.finished(3)
	want := []string{"user: a", "assistant: one", "user: b", "assistant: two", "user: c", "assistant: three"}
	if diff := cmp.Diff(want, r.history()); diff != "" {
		t.Error(diff)
	}
	reqs := r.model.Requests()
	if len(reqs[2].Tools) != 0 {
		t.Errorf("the turn without tools was given %d", len(reqs[2].Tools))
	}
}

// A question must not be lost because somebody recompiles meanwhile.
func TestAQuietChangeLosesNoLetters(t *testing.T) {
	var c counted
	r := setup(t, fake.New(fake.Answer{fake.CallID("c1", "Count", `{}`)}, fake.Answer{fake.Text("done")}),
		withTools(c.tool("Count")), withConfig(standard))
	r.submit("go", use("Count"))
	r.nth("call_asked", 1)
	entered, leave := make(chan struct{}), make(chan struct{})
	quiet := make(chan error, 1)
	go func() {
		quiet <- r.m.Quiet(context.WithoutCancel(t.Context()), r.scope, func() error { close(entered); <-leave; return nil })
	}()
	<-entered
	answered := make(chan error, 1)
	go func() {
		answered <- r.m.Answer(context.WithoutCancel(t.Context()), r.scope, "c1", runtime.Answer{Allow: true}, nil)
	}()
	time.Sleep(20 * time.Millisecond) // lets the answer wait behind the change; either order must work
	close(leave)
	if err := <-quiet; err != nil {
		t.Fatal(err)
	}
	if err := <-answered; err != nil {
		t.Fatalf("the answer was refused: %v", err)
	}
	r.finished(1)
}

func TestDirectoriesSetDuringATurn(t *testing.T) {
	reached, open := make(chan struct{}), make(chan struct{})
	r := setup(t, fake.New(fake.Answer{fake.Signal(reached), fake.Gate(open), fake.Text("ok")}))
	first, second := t.TempDir(), t.TempDir()
	set := func(dir string, mode *agent.Mode) {
		t.Helper()
		ch := runtime.Change{Mode: mode}
		if dir != "" {
			ch.Cwd = &dir
		}
		if err := r.m.ChangeSettings(t.Context(), r.scope, ch); err != nil {
			t.Fatal(err)
		}
	}
	cwd := func() string {
		t.Helper()
		s, err := r.m.Status(t.Context(), r.scope)
		if err != nil {
			t.Fatal(err)
		}
		return s.Cwd
	}
	set(first, nil)
	r.submit("a")
	<-reached
	strict := agent.ModeStrict
	set(second, nil)
	set("", &strict)
	r.m.ConversationChanged(t.Context(), r.scope)
	if got := cwd(); got != first {
		t.Errorf("the running turn moved to %s", got)
	}
	conv, err := r.st.Conversation(t.Context(), r.scope.ConversationID)
	if err != nil || conv.Cwd != second {
		t.Errorf("stored is %q, %v; want %s", conv.Cwd, err, second)
	}
	set(first, nil) // and back again
	close(open)
	r.finished(1)
	if got := cwd(); got != first {
		t.Errorf("after the turn in %s, want %s", got, first)
	}
}

func TestBackgroundProcessesAreShownAfterTheActorLeft(t *testing.T) {
	r := setup(t, fake.New())
	r.m.SetBackground(r.scope, []agent.Background{{ID: "bash_1", Command: "sleep 9", Status: "running"}})
	s, err := r.m.Status(t.Context(), r.scope)
	if err != nil || len(s.Background) != 1 {
		t.Errorf("shown are %v, %v", s.Background, err)
	}
}

func TestAFullPausedQueueTakesTheNextMessage(t *testing.T) {
	reached := make(chan struct{})
	r := setup(t, fake.New(fake.Answer{fake.Signal(reached), fake.Hang()}, fake.Answer{fake.Text("all")}, fake.Answer{fake.Text("last")}))
	r.submit("busy")
	<-reached
	for range 100 {
		r.submit("waits")
	}
	r.m.Abort(t.Context(), r.scope, "", nil)
	r.submit("one more")
	r.finished(3)
	if h := r.history(); h[len(h)-1] != "assistant: last" || h[len(h)-2] != "user: one more" {
		t.Errorf("the history ends with %v", h[len(h)-3:])
	}
}

func TestClosingSendsAwayWhatWaits(t *testing.T) {
	r := setup(t, fake.New(fake.Answer{fake.Hang()}))
	r.submit("busy")
	waited := make(chan error, 1)
	go func() {
		_, err := r.m.Submit(context.WithoutCancel(t.Context()), r.input("b", func(in *agent.Input) {
			in.IfBusy, in.Door = agent.BusyWait, agent.DoorREST
		}), nil)
		waited <- err
	}()
	time.Sleep(20 * time.Millisecond) // lets it arrive; otherwise it is refused at once
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r.m.Close(ctx)
	if err := <-waited; agent.CodeOf(err) != agent.CodeShutdown {
		t.Errorf("the waiting input: %v", err)
	}
}
