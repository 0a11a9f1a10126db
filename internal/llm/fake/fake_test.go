package fake_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"mneme/internal/agent"
	"mneme/internal/llm"
	"mneme/internal/llm/fake"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func ask(ctx context.Context, m llm.Model, req *llm.Request) (parts []llm.Part, err error) {
	for p, e := range m.Stream(ctx, req) {
		if e != nil {
			return parts, e
		}
		parts = append(parts, p)
	}
	return parts, nil
}

func TestScript(t *testing.T) {
	m := fake.New(
		fake.Answer{fake.Reasoning("hm"), fake.Text("a", "b"), fake.Call("Read", `{}`)},
		fake.Answer{fake.Text("c"), fake.Usage(agent.Usage{Input: 7, Output: 1}), fake.Finish(llm.FinishLength), fake.Text("never")},
		fake.Answer{fake.StatusRetryAfter(429, "slow down", 3)},
		fake.Answer{fake.Text("half"), fake.Cut()},
	)
	req := &llm.Request{Model: "m", Messages: []*agent.Message{{Role: agent.RoleUser, Parts: []agent.Part{agent.Text("hi")}}}}

	got, err := ask(t.Context(), m, req)
	want := []llm.Part{
		{Kind: llm.PartReasoning, Text: "hm", Field: "reasoning_content"},
		{Kind: llm.PartText, Text: "a"}, {Kind: llm.PartText, Text: "b"},
		{Kind: llm.PartCall, Call: &agent.CallPart{ID: "call_1_1", Name: "Read", Arguments: "{}"}},
		{Kind: llm.PartUsage, Usage: agent.Usage{Input: 100, Output: 3, Reported: true}},
		{Kind: llm.PartFinish, Finish: llm.FinishCalls},
	}
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("first answer: %v\n%s", err, d)
	}

	req.Messages[0].Parts[0].Text = "changed later"
	if s := m.Requests()[0].Messages[0].Parts[0].Text; s != "hi" {
		t.Errorf("recorded request holds %q", s)
	}

	got, err = ask(t.Context(), m, req)
	if err != nil || len(got) != 3 || got[2].Finish != llm.FinishLength || got[1].Usage.Input != 7 {
		t.Errorf("second answer: %v %v", got, err)
	}

	var e *llm.Error
	if _, err = ask(t.Context(), m, req); !errors.As(err, &e) || e.Status != 429 || !e.Retryable || e.RetryAfter != 3*time.Second || agent.CodeOf(err) != agent.CodeModelRateLimit {
		t.Errorf("third answer: %v", err)
	}
	if got, err = ask(t.Context(), m, req); len(got) != 1 || !errors.As(err, &e) || !e.Retryable || e.Status != 0 {
		t.Errorf("fourth answer: %v %v", got, err)
	}
	if _, err = ask(t.Context(), m, req); agent.CodeOf(err) != agent.CodeInternal {
		t.Errorf("beyond the script: %v", err)
	}
	if n := len(m.Requests()); n != 5 || m.Left() != 0 {
		t.Errorf("%d requests, %d answers left", n, m.Left())
	}
}

func TestHangEndsWithContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	m := fake.New(fake.Answer{fake.Text("x"), fake.Hang()})
	done := make(chan error)
	go func() {
		_, err := ask(ctx, m, &llm.Request{})
		done <- err
	}()
	if err := m.Wait(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if err := m.Wait(ctx, 2); !errors.Is(err, context.Canceled) {
		t.Errorf("waiting for a request that never comes: %v", err)
	}
}

func TestGateAndSignal(t *testing.T) {
	open, reached := make(chan struct{}), make(chan struct{})
	m := fake.New(fake.Answer{fake.Text("before"), fake.Signal(reached), fake.Gate(open), fake.Text("after")})
	parts := make(chan []llm.Part)
	go func() {
		got, _ := ask(t.Context(), m, &llm.Request{})
		parts <- got
	}()
	<-reached
	select {
	case <-parts:
		t.Fatal("the gate did not hold")
	default:
	}
	close(open)
	if got := <-parts; len(got) != 4 || got[1].Text != "after" {
		t.Errorf("got %v", got)
	}
}

func TestLeavingTheLoop(t *testing.T) {
	m := fake.New(fake.Answer{fake.Text("a", "b", "c")})
	n := 0
	for range m.Stream(t.Context(), &llm.Request{}) {
		n++
		break
	}
	if n != 1 {
		t.Errorf("%d parts", n)
	}
}

func TestNewFunc(t *testing.T) {
	m := fake.NewFunc(func(req *llm.Request) fake.Answer { return fake.Answer{fake.Text("I am " + req.Model)} })
	got, err := ask(t.Context(), m, &llm.Request{Model: "z"})
	if err != nil || got[0].Text != "I am z" || len(m.Requests()) != 1 {
		t.Errorf("%v %v", got, err)
	}
}
