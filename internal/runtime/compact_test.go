package runtime_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mneme/internal/agent"
	"mneme/internal/llm"
	"mneme/internal/llm/fake"
	"mneme/internal/runtime"
)

// summariser answers requests for a summary with "the summary", others with the
// number of messages that it was shown.
func summariser(req *llm.Request) fake.Answer {
	if strings.Contains(req.System, "leave an assistant's view") {
		return fake.Answer{fake.Text("the summary")}
	}
	return fake.Answer{fake.Text(fmt.Sprint(len(req.Messages))), fake.NoUsage()}
}

func ptr[T any](v T) *T { return &v }

func TestCompactAll(t *testing.T) {
	r := setup(t, fake.NewFunc(summariser))
	for i := range 3 {
		r.turn(fmt.Sprint("text ", i))
	}
	c, err := r.m.Compact(t.Context(), r.scope, &runtime.CompactSettings{Mode: ptr("all")})
	if err != nil {
		t.Fatal(err)
	}
	if c.Summary != "the summary" || c.Before != 7 || c.After != 2 {
		t.Errorf("compaction %+v", c)
	}
	again, err := r.m.Compact(t.Context(), r.scope, &runtime.CompactSettings{Mode: ptr("all")})
	if err != nil || !again.NothingToDo || again.Summary != "the summary" {
		t.Errorf("a second compaction %+v, %v; want nothing to do", again, err)
	}
	for _, restarted := range []bool{false, true} {
		if restarted {
			r.restart()
		}
		r.turn("next")
		reqs := r.model.Requests()
		shown := reqs[len(reqs)-1].Messages
		if shown[0].Role != agent.RoleSummary || !strings.Contains(agent.TextOf(shown[0].Parts), "the summary") ||
			!strings.Contains(agent.TextOf(shown[0].Parts), "system_alert") {
			t.Errorf("restarted %v: the first message is %+v", restarted, shown[0])
		}
	}
	if h := r.history(); h[0] != "user: text 0" || len(h) != 11 {
		t.Errorf("older messages are not listed any more: %v", h)
	}
}

func TestSlidingWindowKeepsTheNewest(t *testing.T) {
	r := setup(t, fake.NewFunc(summariser))
	for i := range 6 {
		r.turn(fmt.Sprint("text ", i))
	}
	if _, err := r.m.Compact(t.Context(), r.scope, nil); err != nil {
		t.Fatal(err)
	}
	r.restart()
	r.turn("next")
	reqs := r.model.Requests()
	var shown []string
	for _, m := range reqs[len(reqs)-1].Messages {
		if m.Role == agent.RoleUser {
			shown = append(shown, agent.TextOf(m.Parts))
		}
	}
	if diff := cmp.Diff([]string{"text 2", "text 3", "text 4", "text 5", "next"}, shown); diff != "" {
		t.Errorf("the model sees (-want +got):\n%s", diff)
	}
}

func TestCompactionWithoutAModel(t *testing.T) {
	r := setup(t, fake.NewFunc(func(req *llm.Request) fake.Answer {
		if strings.Contains(req.System, "leave an assistant's view") {
			return fake.Answer{fake.Status(401, "no key")}
		}
		return fake.Answer{fake.Text("ok")}
	}))
	r.turn("my bicycle is called Rosinante")
	c, err := r.m.Compact(t.Context(), r.scope, &runtime.CompactSettings{Mode: ptr("all")})
	if err != nil || !strings.Contains(c.Summary, "Rosinante") {
		t.Errorf("compaction %+v, %v", c, err)
	}
}

func TestCompactionModes(t *testing.T) {
	for _, mode := range []string{"self_compact_all", "self_compact_sliding_window"} {
		t.Run(mode, func(t *testing.T) {
			r := setup(t, fake.NewFunc(func(req *llm.Request) fake.Answer {
				last := agent.TextOf(req.Messages[len(req.Messages)-1].Parts)
				if strings.Contains(last, "must be shortened") {
					return fake.Answer{fake.Text("my own summary")}
				}
				return fake.Answer{fake.Text("ok")}
			}))
			for i := range 4 {
				r.turn(fmt.Sprint("text ", i))
			}
			c, err := r.m.Compact(t.Context(), r.scope, &runtime.CompactSettings{Mode: &mode})
			if err != nil || c.Summary != "my own summary" {
				t.Errorf("compaction %+v, %v", c, err)
			}
		})
	}
	r := setup(t, fake.NewFunc(summariser))
	r.turn("a")
	if _, err := r.m.Compact(t.Context(), r.scope, &runtime.CompactSettings{Mode: ptr("magic")}); agent.CodeOf(err) != agent.CodeInvalid {
		t.Errorf("an unknown mode: %v", err)
	}
}

func TestALongHistoryIsCompactedBeforeItIsSent(t *testing.T) {
	r := setup(t, fake.NewFunc(summariser))
	r.agent.ContextLimit = 2000
	if _, err := r.st.UpdateAgent(t.Context(), r.agent.ID, func(a *agent.Agent) error {
		a.ContextLimit = 2000
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		r.turn(strings.Repeat(fmt.Sprint("word", i, " "), 400))
	}
	done := r.nth("compacted", 1).Payload.(agent.Compacted)
	if done.Message.Role != agent.RoleSummary || !strings.Contains(string(done.Message.Stats), runtime.TriggerLimit) {
		t.Errorf("compacted into %+v, stats %s", done.Message, done.Message.Stats)
	}
	if end := r.finished(4); end.StopReason != agent.StopEndTurn {
		t.Errorf("the turn ended as %+v", end)
	}
}

func TestOverflowIsCompactedAndAskedAgain(t *testing.T) {
	refused := false
	r := setup(t, fake.NewFunc(func(req *llm.Request) fake.Answer {
		if strings.Contains(req.System, "leave an assistant's view") {
			return fake.Answer{fake.Text("the summary")}
		}
		if agent.TextOf(req.Messages[len(req.Messages)-1].Parts) == "last" && !refused {
			refused = true
			return fake.Answer{fake.Overflow()}
		}
		return fake.Answer{fake.Text("ok")}
	}))
	for i := range 4 {
		r.turn(fmt.Sprint("text ", i))
	}
	if end := r.turn("last"); end.StopReason != agent.StopEndTurn {
		t.Errorf("the turn ended as %+v", end)
	}
	if n := r.count("compacted"); n != 1 {
		t.Errorf("compacted %d times", n)
	}
}

func TestASystemPromptThatIsTooLongIsSaid(t *testing.T) {
	r := setup(t, fake.NewFunc(summariser))
	if _, err := r.st.UpdateAgent(t.Context(), r.agent.ID, func(a *agent.Agent) error {
		a.ContextLimit, a.System = 500, strings.Repeat("rule ", 2000)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	end := r.turn("hi")
	if end.Error == nil || end.Error.Code != agent.CodeModelOverflow || !strings.Contains(end.Error.Message, "context_window_limit") {
		t.Errorf("ended as %+v", end)
	}
}

func TestAbortDuringACompaction(t *testing.T) {
	reached := make(chan struct{})
	r := setup(t, fake.NewFunc(func(req *llm.Request) fake.Answer {
		if strings.Contains(req.System, "leave an assistant's view") {
			return fake.Answer{fake.Signal(reached), fake.Hang()}
		}
		return fake.Answer{fake.Text("ok"), fake.NoUsage()}
	}))
	if _, err := r.st.UpdateAgent(t.Context(), r.agent.ID, func(a *agent.Agent) error {
		a.ContextLimit = 1000
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	r.turn(strings.Repeat("word ", 500))
	r.submit(strings.Repeat("more ", 500))
	select {
	case <-reached:
	case <-time.After(patience):
		t.Fatal("nobody was asked for a summary")
	}
	if ok, err := r.m.Abort(t.Context(), r.scope, "", nil); !ok || err != nil {
		t.Fatalf("abort: %v, %v", ok, err)
	}
	if end := r.finished(2); end.StopReason != agent.StopCancelled {
		t.Errorf("ended as %v", end.StopReason)
	}
}
