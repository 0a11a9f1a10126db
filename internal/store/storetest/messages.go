package storetest

import (
	"context"
	"slices"
	"sync"
	"testing"

	"mneme/internal/agent"
	"mneme/internal/store"
)

func testMessages(t *testing.T, s *store.Store) {
	sc := newScene(t, s)
	all := sc.say(6)
	note := sc.message(agent.RoleNotice, "note")
	all[1].Hidden = true
	sc.commit(&store.Change{Messages: []*agent.Message{all[1], note}})
	all = append(all, note)
	foreign := sc.another().say(1)[0]
	id := func(i int) string { return all[i].ID }
	for _, c := range []struct {
		name   string
		filter store.MessageFilter
		want   []int
	}{
		{"all", store.MessageFilter{}, []int{0, 1, 2, 3, 4, 5, 6}},
		{"newest first", store.MessageFilter{Desc: true, Limit: 2}, []int{6, 5}},
		{"before", store.MessageFilter{BeforeID: id(3)}, []int{0, 1, 2}},
		{"before, newest first", store.MessageFilter{BeforeID: id(3), Desc: true, Limit: 2}, []int{2, 1}},
		{"after", store.MessageFilter{AfterID: id(3)}, []int{4, 5, 6}},
		{"after, newest first", store.MessageFilter{AfterID: id(1), Desc: true, Limit: 2}, []int{6, 5}},
		{"between", store.MessageFilter{AfterID: id(1), BeforeID: id(4)}, []int{2, 3}},
		{"by seq", store.MessageFilter{AfterSeq: 2, BeforeSeq: 6}, []int{2, 3, 4}},
		{"by role", store.MessageFilter{Roles: []agent.Role{agent.RoleNotice, agent.RoleTool}}, []int{6}},
		{"visible", store.MessageFilter{VisibleOnly: true, Limit: 2}, []int{0, 2}},
	} {
		c.filter.ConversationID = sc.conv.ID
		want := []string{}
		for _, i := range c.want {
			want = append(want, id(i))
		}
		same(t, c.name, ids(must(s.Messages(t.Context(), c.filter))(t), messageID), want)
	}
	for _, unknown := range []string{"message-none", foreign.ID} {
		_, err := s.Messages(t.Context(), store.MessageFilter{ConversationID: sc.conv.ID, BeforeID: unknown})
		wantCode(t, err, agent.CodeNotFound)
	}
}

// testAgentMessages: one agent's messages over several conversations, many at the
// same instant.
func testAgentMessages(t *testing.T, s *store.Store) {
	base := newScene(t, s)
	var all []*agent.Message
	for _, sc := range []*scene{base, base.another(), base.another()} {
		for i := range 9 {
			m := sc.message(agent.RoleUser, "m")
			m.CreatedAt = at(i / 4)
			all = append(all, m)
			sc.commit(&store.Change{Messages: []*agent.Message{m}})
		}
	}
	newScene(t, s).say(2)
	slices.SortFunc(all, func(a, b *agent.Message) int {
		if c := a.CreatedAt.Compare(b.CreatedAt); c != 0 {
			return c
		}
		return map[bool]int{true: -1, false: 1}[a.ID < b.ID]
	})
	want := ids(all, messageID)
	same(t, "forward", pages(t, s, store.MessageFilter{AgentID: base.agent.ID, Limit: 5}), want)
	slices.Reverse(want)
	same(t, "backward", pages(t, s, store.MessageFilter{AgentID: base.agent.ID, Limit: 5, Desc: true}), want)
}

// pages reads a listing page by page, from the last id of each.
func pages(t *testing.T, s *store.Store, f store.MessageFilter) []string {
	t.Helper()
	all := []string{}
	for {
		page := ids(must(s.Messages(t.Context(), f))(t), messageID)
		if len(page) == 0 {
			return all
		}
		all = append(all, page...)
		if f.Desc {
			f.BeforeID = page[len(page)-1]
		} else {
			f.AfterID = page[len(page)-1]
		}
	}
}

// testPagingWhileWriting pages through a conversation in both directions while it
// grows: nothing that was there at the start is skipped or repeated.
func testPagingWhileWriting(t *testing.T, s *store.Store) {
	sc := newScene(t, s)
	first := ids(sc.say(100), messageID)
	var wg sync.WaitGroup
	wg.Go(func() {
		for range 150 {
			ms := []*agent.Message{sc.message(agent.RoleUser, "new"), sc.message(agent.RoleUser, "new")}
			if err := s.Commit(context.Background(), sc.lease, &store.Change{Messages: ms}); err != nil {
				t.Error(err)
				return
			}
		}
	})
	defer wg.Wait()
	for range 3 {
		for _, f := range []store.MessageFilter{
			{ConversationID: sc.conv.ID, Limit: 7, Desc: true},
			{AgentID: sc.agent.ID, Limit: 7, Desc: true},
		} {
			got := pages(t, s, f)
			if n := len(got) - len(first); n < 0 {
				t.Fatalf("%d of %d messages", len(got), len(first))
			}
			slices.Reverse(got)
			same(t, "old messages", got[:len(first)], first)
			if unique(got) != len(got) {
				t.Fatal("a message was listed twice")
			}
		}
	}
	// Forward it goes on to the newest: as many as were there when it ended.
	var got []string
	for f := (store.MessageFilter{ConversationID: sc.conv.ID, Limit: 7}); len(got) < 120; f.AfterID = got[len(got)-1] {
		got = append(got, ids(must(s.Messages(t.Context(), f))(t), messageID)...)
	}
	same(t, "old messages", got[:len(first)], first)
	if unique(got) != len(got) {
		t.Fatal("a message was listed twice")
	}
}

func unique(list []string) int {
	seen := map[string]bool{}
	for _, v := range list {
		seen[v] = true
	}
	return len(seen)
}

// testConcurrentReaders: whoever reads while changes are written sees each change
// whole: a turn that took its input, and as many messages as its step counter.
func testConcurrentReaders(t *testing.T, s *store.Store) {
	sc := newScene(t, s)
	turn := sc.turn(agent.TurnRunning)
	stop := make(chan struct{})
	var writers, readers sync.WaitGroup
	writers.Go(func() {
		for i := range 80 {
			turn.Steps = i + 1
			c := &store.Change{Turns: []*agent.Turn{turn}, Messages: []*agent.Message{sc.message(agent.RoleUser, "m")}}
			if err := s.Commit(context.Background(), sc.lease, c); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for range 4 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				snap, err := s.Load(context.Background(), sc.conv.ID)
				if err != nil {
					t.Error(err)
					return
				}
				if snap.Turn != nil && (snap.Turn.Steps != len(snap.Context) || snap.LastSeq != int64(len(snap.Context))) {
					t.Errorf("step %d with %d messages, last %d", snap.Turn.Steps, len(snap.Context), snap.LastSeq)
					return
				}
			}
		})
	}
	writers.Wait()
	close(stop)
	readers.Wait()
}
