package storetest

import (
	"testing"

	"mneme/internal/agent"
	"mneme/internal/store"
)

// testHideThrough: a compaction hides what came before its summary in the same
// change, and one that finds nothing to hide still writes the rest.
func testHideThrough(t *testing.T, s *store.Store) {
	sc := newScene(t, s)
	other := sc.another()
	theirs := other.say(2)
	sc.commit(&store.Change{HideThrough: 5, Messages: []*agent.Message{sc.message(agent.RoleUser, "text 1")}, RunEnded: at(1)})
	same(t, "last run", must(s.Agent(t.Context(), sc.agent.ID))(t).LastRunAt, at(1))
	all := append(sc.load().Context, sc.say(3)...)
	kept, sum := all[3], sc.message(agent.RoleSummary, "sum")
	sc.commit(&store.Change{HideThrough: kept.Seq - 1, Messages: []*agent.Message{sum}})
	snap := sc.load()
	same(t, "context", snap.Context, []*agent.Message{kept, sum})
	same(t, "last seq", snap.LastSeq, sum.Seq)
	same(t, "all messages", must(s.MessageCount(t.Context(), sc.conv.ID))(t), 5)
	same(t, "context of the other", other.load().Context, theirs)
	// A lost lease hides nothing.
	stale := sc.lease
	sc.lease = acquire(t, s, sc.conv.ID)
	wantCode(t, s.Commit(t.Context(), stale, &store.Change{HideThrough: 100}), agent.CodeLeaseLost)
	same(t, "context", sc.load().Context, snap.Context)
}

func testLoadState(t *testing.T, s *store.Store) {
	sc := newScene(t, s)
	c := sc.full()
	c.Turns[0].State, c.Inputs[0].State = agent.TurnParked, agent.InputQueued
	sc.commit(c)
	want := sc.load()
	want.Context, want.LastSeq = nil, 0
	same(t, "state", must(s.LoadState(t.Context(), sc.conv.ID))(t), want)
	_, err := s.LoadState(t.Context(), "conv-none")
	wantCode(t, err, agent.CodeNotFound)
}

func testContextIDs(t *testing.T, s *store.Store) {
	sc := newScene(t, s)
	var all []*agent.Message
	var want []string
	for _, role := range []agent.Role{agent.RoleSystem, agent.RoleUser, agent.RoleNotice, agent.RoleAssistant, agent.RoleTool, agent.RoleApproval, agent.RoleSummary} {
		plain, hidden, cut := sc.message(role, "a"), sc.message(role, "b"), sc.message(role, "c")
		hidden.Hidden, cut.Interrupted = true, true
		all = append(all, plain, hidden, cut)
		switch role {
		case agent.RoleUser, agent.RoleAssistant, agent.RoleTool, agent.RoleSummary:
			want = append(want, plain.ID)
		}
	}
	sc.commit(&store.Change{Messages: all})
	same(t, "context ids", must(s.ContextIDs(t.Context(), sc.conv.ID))(t), want)
	same(t, "of nothing", must(s.ContextIDs(t.Context(), "conv-none"))(t), []string{})
}

func testLastEvent(t *testing.T, s *store.Store) {
	sc := newScene(t, s)
	same(t, "no events", must(s.LastEventSeq(t.Context(), "run-1"))(t), int64(0))
	for seq := range int64(3) {
		sc.commit(&store.Change{Events: []store.RunEvent{{RunID: "run-1", Seq: seq + 1, Data: []byte("{}")}}})
	}
	same(t, "last event", must(s.LastEventSeq(t.Context(), "run-1"))(t), int64(3))
}
