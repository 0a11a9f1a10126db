package storetest

import (
	"context"
	"sync"
	"testing"
	"time"

	"mneme/internal/agent"
	"mneme/internal/store"
)

func testLeaseEpochs(t *testing.T, s *store.Store) {
	sc := newScene(t, s)
	old := sc.lease
	sc.lease = acquire(t, s, sc.conv.ID)
	if sc.lease.Epoch <= old.Epoch || sc.lease.Owner != s.Owner() || !sc.lease.Expires.After(time.Now()) {
		t.Fatalf("acquired %+v after %+v", sc.lease, old)
	}
	wantCode(t, s.Commit(t.Context(), old, &store.Change{Messages: []*agent.Message{sc.message(agent.RoleUser, "no")}}), agent.CodeLeaseLost)
	same(t, "messages", must(s.MessageCount(t.Context(), sc.conv.ID))(t), 0)
	sc.commit(&store.Change{Messages: []*agent.Message{sc.message(agent.RoleUser, "yes")}})
}

func testLeaseOfNothing(t *testing.T, s *store.Store) {
	_, err := s.Acquire(t.Context(), "conv-none")
	wantCode(t, err, agent.CodeNotFound)
	sc := newScene(t, s)
	ok(t, s.DeleteConversation(t.Context(), sc.conv.ID))
	wantCode(t, s.Commit(t.Context(), sc.lease, &store.Change{}), agent.CodeLeaseLost)
	_, err = s.Acquire(t.Context(), sc.conv.ID)
	wantCode(t, err, agent.CodeNotFound)
}

func testRelease(t *testing.T, s *store.Store) {
	sc := newScene(t, s)
	ok(t, s.Release(t.Context(), sc.lease))
	wantCode(t, s.Commit(t.Context(), sc.lease, &store.Change{}), agent.CodeLeaseLost)
	ok(t, s.Release(t.Context(), sc.lease))
	next := acquire(t, s, sc.conv.ID)
	if next.Epoch <= sc.lease.Epoch {
		t.Errorf("epoch %d after %d", next.Epoch, sc.lease.Epoch)
	}
	// An old lease does not release the new one.
	ok(t, s.Release(t.Context(), sc.lease))
	ok(t, s.Commit(t.Context(), next, &store.Change{}))
}

func testTakeOver(t *testing.T, s *store.Store) {
	sc := newScene(t, s)
	ok(t, s.TakeOver(t.Context()))
	wantCode(t, s.Commit(t.Context(), sc.lease, &store.Change{}), agent.CodeLeaseLost)
	if next := acquire(t, s, sc.conv.ID); next.Epoch <= sc.lease.Epoch {
		t.Errorf("epoch %d after %d", next.Epoch, sc.lease.Epoch)
	}
}

func testHeld(t *testing.T, a, b *store.Store) {
	sc := newScene(t, a)
	_, err := b.Acquire(t.Context(), sc.conv.ID)
	wantCode(t, err, agent.CodeLeaseLost)
	sc.say(1)
	ok(t, a.Release(t.Context(), sc.lease))
	theirs := acquire(t, b, sc.conv.ID)
	if theirs.Epoch <= sc.lease.Epoch {
		t.Errorf("epoch %d after %d", theirs.Epoch, sc.lease.Epoch)
	}
	_, err = a.Acquire(t.Context(), sc.conv.ID)
	wantCode(t, err, agent.CodeLeaseLost)
}

func testExpired(t *testing.T, a, b *store.Store) {
	sc := newScene(t, a)
	// Commits renew the lease.
	for range 4 {
		time.Sleep(store.DefaultLeaseTerm / 2)
		sc.say(1)
	}
	_, err := b.Acquire(t.Context(), sc.conv.ID)
	wantCode(t, err, agent.CodeLeaseLost)
	time.Sleep(store.DefaultLeaseTerm + time.Second)
	// Expired, but nobody took it: its owner may go on.
	sc.say(1)
	time.Sleep(store.DefaultLeaseTerm + time.Second)
	acquire(t, b, sc.conv.ID)
	wantCode(t, a.Commit(t.Context(), sc.lease, &store.Change{}), agent.CodeLeaseLost)
}

// testFencedOff: a process stalls until its lease ends, another takes over and
// writes, the first comes back. Nothing of what it still had to write is kept.
func testFencedOff(t *testing.T, a, b *store.Store) {
	sc := newScene(t, a)
	sc.say(2)
	time.Sleep(store.DefaultLeaseTerm + time.Second)
	theirs := &scene{T: t, s: b, agent: sc.agent, conv: sc.conv, lease: acquire(t, b, sc.conv.ID), seq: 2}
	theirs.say(2)
	turn := sc.turn(agent.TurnRunning)
	err := a.Commit(t.Context(), sc.lease, &store.Change{
		Turns: []*agent.Turn{turn}, Messages: []*agent.Message{sc.message(agent.RoleUser, "stale")},
	})
	wantCode(t, err, agent.CodeLeaseLost)
	snap := theirs.load()
	if len(snap.Context) != 4 || snap.Turn != nil {
		t.Errorf("%d messages and turn %v after the stale write", len(snap.Context), snap.Turn)
	}
}

// testRacingOwners lets both owners fight for one lease: at each moment one of
// them can write, and epochs never repeat.
func testRacingOwners(t *testing.T, a, b *store.Store) {
	sc := newScene(t, a)
	ok(t, a.Release(t.Context(), sc.lease))
	var mu sync.Mutex
	epochs := map[int64]bool{}
	var wg sync.WaitGroup
	for _, s := range []*store.Store{a, b} {
		for range 2 {
			wg.Go(func() {
				for range 25 {
					l, err := s.Acquire(context.Background(), sc.conv.ID)
					if agent.CodeOf(err) == agent.CodeLeaseLost {
						continue
					}
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					if epochs[l.Epoch] {
						t.Errorf("epoch %d was given out twice", l.Epoch)
					}
					epochs[l.Epoch] = true
					mu.Unlock()
					// Another goroutine of the same owner may have it by now.
					err = s.Commit(context.Background(), l, &store.Change{})
					if code := agent.CodeOf(err); err != nil && code != agent.CodeLeaseLost {
						t.Error(err)
					}
					if err := s.Release(context.Background(), l); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	wg.Wait()
	if len(epochs) < 25 {
		t.Errorf("only %d leases were given out", len(epochs))
	}
}

func testTakeOverIsOwn(t *testing.T, a, b *store.Store) {
	sc := newScene(t, a)
	other := newScene(t, b)
	ok(t, b.TakeOver(t.Context()))
	sc.say(1)
	wantCode(t, b.Commit(t.Context(), other.lease, &store.Change{}), agent.CodeLeaseLost)
	acquire(t, a, other.conv.ID)
}
