package bus_test

import (
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mneme/internal/agent"
	"mneme/internal/bus"
)

var scope = agent.Scope{AgentID: "agent-1", ConversationID: "conv-1"}

func publish(b *bus.Local, s agent.Scope, text string) {
	b.Publish(&agent.Event{Scope: s, Payload: agent.TextDelta{Text: text}})
}

func TestOnlySubscribersOfTheScopeHearIt(t *testing.T) {
	b := bus.New(nil)
	var got []string
	leave := b.Subscribe(scope, func(ev *agent.Event) {
		got = append(got, ev.Payload.(agent.TextDelta).Text)
	})
	publish(b, scope, "a")
	publish(b, agent.Scope{AgentID: "agent-1", ConversationID: "conv-2"}, "other")
	publish(b, scope, "b")
	leave()
	leave() // twice is harmless
	publish(b, scope, "late")
	if diff := cmp.Diff([]string{"a", "b"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestPresenceCountsWatchers(t *testing.T) {
	var counts []int
	b := bus.New(func(s agent.Scope, n int) { counts = append(counts, n) })
	one := b.Subscribe(scope, func(*agent.Event) {})
	two := b.Subscribe(scope, func(*agent.Event) {})
	if n := b.Watchers(scope); n != 2 {
		t.Errorf("watchers = %d, want 2", n)
	}
	one()
	two()
	if diff := cmp.Diff([]int{1, 2, 1, 0}, counts); diff != "" {
		t.Error(diff)
	}
}

func TestEventIDsAreStableAndUnique(t *testing.T) {
	a, b := bus.New(nil), bus.New(nil)
	if first := a.EventID(1); first != a.EventID(1) {
		t.Error("the id of one event changed")
	}
	if a.EventID(1) == a.EventID(2) || a.EventID(1) == b.EventID(1) {
		t.Error("two events share an id")
	}
}

func TestConcurrentUse(t *testing.T) {
	b := bus.New(func(agent.Scope, int) {})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 200 {
				leave := b.Subscribe(scope, func(*agent.Event) {})
				publish(b, scope, "x")
				leave()
			}
		})
	}
	wg.Wait()
	if n := b.Watchers(scope); n != 0 {
		t.Errorf("watchers = %d after all left", n)
	}
}

func BenchmarkPublish(b *testing.B) {
	l := bus.New(nil)
	l.Subscribe(scope, func(*agent.Event) {})
	for b.Loop() {
		publish(l, scope, "token")
	}
}
