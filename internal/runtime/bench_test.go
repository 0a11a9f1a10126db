package runtime_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"mneme/internal/agent"
	"mneme/internal/llm"
	"mneme/internal/llm/fake"
)

// BenchmarkTurn is a whole turn of 50 tokens, durably stored, in 32
// conversations at once: what the runtime and the store cost without a door and
// without a provider.
func BenchmarkTurn(b *testing.B) {
	tokens := make([]string, 50)
	for i := range tokens {
		tokens[i] = "token "
	}
	r := setup(b, fake.NewFunc(func(*llm.Request) fake.Answer { return fake.Answer{fake.Text(tokens...)} }))
	r.leave()
	const conversations = 32
	done := make([]chan struct{}, conversations)
	scopes := make([]agent.Scope, conversations)
	for i := range conversations {
		now := time.Now()
		conv := &agent.Conversation{ID: agent.NewID("conv"), AgentID: r.agent.ID, CreatedAt: now, UpdatedAt: now}
		if err := r.st.CreateConversation(b.Context(), conv); err != nil {
			b.Fatal(err)
		}
		scopes[i] = agent.Scope{AgentID: r.agent.ID, ConversationID: conv.ID}
		done[i] = make(chan struct{}, 1)
		defer r.m.Subscribe(scopes[i], func(ev *agent.Event) {
			if _, ok := ev.Payload.(agent.TurnFinished); ok {
				done[i] <- struct{}{}
			}
		})()
	}
	var left atomic.Int64
	left.Store(int64(b.N))
	b.ResetTimer()
	var wg sync.WaitGroup
	for i := range conversations {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				in := r.input("go")
				in.ConversationID = scopes[i].ConversationID
				if _, err := r.m.Submit(b.Context(), in, nil); err != nil {
					b.Error(err)
					return
				}
				<-done[i]
			}
		})
	}
	wg.Wait()
}
