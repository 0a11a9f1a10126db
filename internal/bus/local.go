// Package bus carries events from runtimes to whoever watches them.
//
// A subscription is to one scope (or to all memory changes of an agent) and is
// a plain function: it is called in the publisher's goroutine, in order, and
// must not block or call back into the runtime; doors put the event into a
// bounded outbox of their own. So a slow reader costs its own memory and
// nobody's time.
//
// The bus also knows who is there: the number of subscriptions of a scope
// decides about turns that nobody watches any more. It is local to the
// process; a bus between nodes can stand behind the same methods.
package bus

import (
	"crypto/rand"
	"encoding/binary"
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"

	"mneme/internal/agent"
)

// shards bounds how many scopes share a lock.
const shards = 64

// A Handler receives the events of one subscription.
type Handler func(*agent.Event)

// Local is a bus within one process.
type Local struct {
	boot     [8]byte
	n        atomic.Uint64
	seed     maphash.Seed
	shards   [shards]shard
	presence func(scope agent.Scope, watchers int)
}

type shard struct {
	mu   sync.RWMutex
	subs map[agent.Scope][]*subscription // slices are replaced, never changed
}

type subscription struct{ handle Handler }

// New makes a bus. presence, which may be nil, is called after the number of
// watchers of a scope changed, outside any lock.
func New(presence func(scope agent.Scope, watchers int)) *Local {
	b := &Local{seed: maphash.MakeSeed(), presence: presence}
	rand.Read(b.boot[:])
	for i := range b.shards {
		b.shards[i].subs = map[agent.Scope][]*subscription{}
	}
	return b
}

// Publish numbers the event and hands it to the subscribers of its scope. The
// event must not be changed afterwards.
func (b *Local) Publish(ev *agent.Event) {
	ev.N = b.n.Add(1)
	s := b.shard(ev.Scope)
	s.mu.RLock()
	subs := s.subs[ev.Scope]
	s.mu.RUnlock()
	for _, sub := range subs {
		sub.handle(ev)
	}
}

// Subscribe calls h for every event of scope until leave is called. An event
// that is being published while leave runs may still arrive.
func (b *Local) Subscribe(scope agent.Scope, h Handler) (leave func()) {
	sub := &subscription{handle: h}
	b.change(scope, func(subs []*subscription) []*subscription {
		return append(slices.Clone(subs), sub)
	})
	return sync.OnceFunc(func() {
		b.change(scope, func(subs []*subscription) []*subscription {
			return slices.DeleteFunc(slices.Clone(subs), func(s *subscription) bool { return s == sub })
		})
	})
}

// Watchers counts the subscriptions of a scope.
func (b *Local) Watchers(scope agent.Scope) int {
	s := b.shard(scope)
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.subs[scope])
}

// EventID is the stable id of an event, in the form of a UUID: the same for
// every connection that sees it, different in every process.
func (b *Local) EventID(n uint64) string {
	var id [16]byte
	copy(id[:8], b.boot[:])
	binary.BigEndian.PutUint64(id[8:], n)
	return agent.FormatUUID(id)
}

func (b *Local) change(scope agent.Scope, f func([]*subscription) []*subscription) {
	s := b.shard(scope)
	s.mu.Lock()
	subs := f(s.subs[scope])
	if len(subs) == 0 {
		delete(s.subs, scope)
	} else {
		s.subs[scope] = subs
	}
	s.mu.Unlock()
	if b.presence != nil {
		b.presence(scope, len(subs))
	}
}

func (b *Local) shard(scope agent.Scope) *shard {
	return &b.shards[maphash.Comparable(b.seed, scope)%shards]
}
