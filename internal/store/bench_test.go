package store_test

import (
	"fmt"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"mneme/internal/agent"
	"mneme/internal/store"
	"mneme/internal/store/storetest"
)

// A talker writes the journal of plain turns in one conversation.
type talker struct {
	s     *store.Store
	agent *agent.Agent
	conv  *agent.Conversation
	lease store.Lease
	seq   int64

	turn *agent.Turn
	run  *agent.Run
	step *agent.Step
}

func newTalker(b *testing.B, s *store.Store) *talker {
	now := time.Now()
	a := &agent.Agent{ID: agent.NewID("agent"), Name: "Ada", Model: "auto", Toolset: "auto", CreatedAt: now, UpdatedAt: now,
		System: fmt.Sprintf("%8000s", "You are Ada.")}
	c := &agent.Conversation{ID: agent.NewID("conv"), AgentID: a.ID, Own: true, CreatedAt: now, UpdatedAt: now}
	if err := s.CreateAgent(b.Context(), a, c); err != nil {
		b.Fatal(err)
	}
	l, err := s.Acquire(b.Context(), c.ID)
	if err != nil {
		b.Fatal(err)
	}
	return &talker{s: s, agent: a, conv: c, lease: l}
}

func (t *talker) message(role agent.Role, text string) *agent.Message {
	t.seq++
	return &agent.Message{ID: agent.NewID("message"), AgentID: t.agent.ID, ConversationID: t.conv.ID, Seq: t.seq, Role: role,
		Parts: []agent.Part{agent.Text(text)}, TurnID: t.turn.ID, RunID: t.run.ID, StepID: t.step.ID, CreatedAt: time.Now()}
}

// begin commits the input, the turn with its run and step, and the user's message.
func (t *talker) begin(b *testing.B) {
	now := time.Now()
	text := "What is the weather like in the town where I was born, and should I take a coat with me today?"
	t.turn = &agent.Turn{ID: agent.NewID("turn"), AgentID: t.agent.ID, ConversationID: t.conv.ID, State: agent.TurnRunning,
		Door: agent.DoorAppServer, OnOrphan: agent.OrphanCancel, Mergeable: true, StartedAt: now}
	t.run = &agent.Run{ID: agent.NewID("run"), TurnID: t.turn.ID, AgentID: t.agent.ID, ConversationID: t.conv.ID, StartedAt: now}
	t.step = &agent.Step{ID: agent.NewID("step"), RunID: t.run.ID, TurnID: t.turn.ID, AgentID: t.agent.ID, ConversationID: t.conv.ID, N: 1,
		State: agent.StepOpen, MessageID: agent.NewID("message"), Model: "fake/model", ClientKeys: []string{agent.NewUUID()}, StartedAt: now}
	in := &agent.Input{ID: agent.NewID("input"), AgentID: t.agent.ID, ConversationID: t.conv.ID, Key: agent.NewUUID(), Door: agent.DoorAppServer,
		Kind: "message", Source: "user", IfBusy: agent.BusyQueue, OnOrphan: agent.OrphanCancel, State: agent.InputTaken, TurnID: t.turn.ID, CreatedAt: now,
		Messages: []agent.InputMessage{{Role: agent.RoleUser, Parts: []agent.Part{agent.Text(text)}, ClientKey: agent.NewUUID()}}}
	t.commit(b, &store.Change{
		Inputs: []*agent.Input{in}, Turns: []*agent.Turn{t.turn}, Runs: []*agent.Run{t.run}, Steps: []*agent.Step{t.step},
		Messages: []*agent.Message{t.message(agent.RoleUser, text)},
	})
}

// end commits the answer and the ends of step, run and turn.
func (t *talker) end(b *testing.B) {
	now := time.Now()
	m := t.message(agent.RoleAssistant, fmt.Sprintf("%400s", "It rains. Take one."))
	m.ID = t.step.MessageID
	t.step.State, t.step.StopReason, t.step.EndedAt, t.step.Usage = agent.StepDone, agent.StopEndTurn, now, agent.Usage{Input: 1000, Output: 100, Reported: true}
	t.run.Ended, t.run.StopReason, t.run.EndedAt = true, agent.StopEndTurn, now
	t.turn.State, t.turn.StopReason, t.turn.EndedAt, t.turn.Steps = agent.TurnEnded, agent.StopEndTurn, now, 1
	t.conv.UpdatedAt, t.conv.LastMessageAt = now, now
	t.commit(b, &store.Change{
		Turns: []*agent.Turn{t.turn}, Runs: []*agent.Run{t.run}, Steps: []*agent.Step{t.step}, Messages: []*agent.Message{m},
		Conversation: t.conv, RunEnded: now,
	})
}

func (t *talker) commit(b *testing.B, c *store.Change) {
	if err := t.s.Commit(b.Context(), t.lease, c); err != nil {
		b.Fatal(err)
	}
}

// cpu is what the process has used so far.
func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// benchTurns runs b.N plain turns, two Commits each, from as many conversations at
// once. It reports the CPU of the whole process per turn.
func benchTurns(b *testing.B, s *store.Store, parallel int) {
	talkers := make([]*talker, parallel)
	for i := range talkers {
		talkers[i] = newTalker(b, s)
	}
	before := cpu()
	var turns sync.WaitGroup
	b.ResetTimer()
	for i, t := range talkers {
		turns.Go(func() {
			for range (b.N + parallel - 1 - i) / parallel {
				t.begin(b)
				t.end(b)
			}
		})
	}
	turns.Wait()
	b.StopTimer()
	b.ReportMetric(float64(cpu()-before)/float64(b.N), "cpu-ns/turn")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "turns/s")
}

// BenchmarkTurn measures the journal of plain turns on a real SQLite file, and on
// PostgreSQL where there is one (without fsync).
func BenchmarkTurn(b *testing.B) {
	urls := map[string]func(testing.TB) string{
		"sqlite":   func(tb testing.TB) string { return filepath.Join(tb.TempDir(), "mneme.db") },
		"postgres": storetest.Postgres,
	}
	for _, kind := range []string{"sqlite", "postgres"} {
		for _, parallel := range []int{1, 32} {
			b.Run(fmt.Sprintf("%s/%d", kind, parallel), func(b *testing.B) {
				s, err := store.Open(b.Context(), urls[kind](b), store.Options{})
				if err != nil {
					b.Fatal(err)
				}
				defer s.Close()
				benchTurns(b, s, parallel)
			})
		}
	}
}

// BenchmarkMessages measures reading the messages of an agent that has very many:
// the newest page, one in the middle, and searches for a common and a rare word.
func BenchmarkMessages(b *testing.B) {
	const many = 100_000
	s, err := store.Open(b.Context(), filepath.Join(b.TempDir(), "mneme.db"), store.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	t := newTalker(b, s)
	t.turn, t.run, t.step = &agent.Turn{}, &agent.Run{}, &agent.Step{}
	middle := ""
	for t.seq < many {
		var batch []*agent.Message
		for range 1000 {
			batch = append(batch, t.message(agent.RoleUser, fmt.Sprintf("common words of message %d and word%d", t.seq, t.seq%5000)))
		}
		if t.seq == many/2 {
			middle = batch[0].ID
		}
		t.commit(b, &store.Change{Messages: batch})
	}
	for waiting := 1; waiting > 0; time.Sleep(100 * time.Millisecond) {
		if waiting, _, err = s.IndexLag(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	for name, f := range map[string]store.MessageFilter{
		"newest": {AgentID: t.agent.ID, Limit: 100, Desc: true}, "middle": {AgentID: t.agent.ID, Limit: 100, BeforeID: middle, Desc: true},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if page, err := s.Messages(b.Context(), f); err != nil || len(page) != 100 {
					b.Fatal(len(page), err)
				}
			}
		})
	}
	for name, query := range map[string]string{"search/common": "which words are common", "search/rare": "where is word4321"} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if hits, err := s.SearchMessages(b.Context(), store.SearchFilter{AgentID: t.agent.ID, Query: query}); err != nil || len(hits) == 0 {
					b.Fatal(len(hits), err)
				}
			}
		})
	}
}
