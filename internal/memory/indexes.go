package memory

import (
	"container/list"
	"sync"
)

// indexBudget bounds what the indexes of all agents take, in bytes, by estimate.
const indexBudget = 96 << 20

// The indexes of the agents that were searched last. Over the budget the one
// that was used least lately goes, except for the last one; who still searches
// it keeps it until then.
type indexes struct {
	budget int

	mu     sync.Mutex // guards what follows
	agents map[string]*list.Element
	order  *list.List // of *kept, most recent first
	used   int
}

type kept struct {
	agentID string
	index   *Index
	size    int
}

func newIndexes(budget int) *indexes {
	return &indexes{budget: budget, agents: map[string]*list.Element{}, order: list.New()}
}

// get finds or makes the agent's index.
func (i *indexes) get(agentID string) *Index {
	i.mu.Lock()
	defer i.mu.Unlock()
	e := i.agents[agentID]
	if e == nil {
		e = i.order.PushFront(&kept{agentID: agentID, index: NewIndex()})
		i.agents[agentID] = e
	}
	i.order.MoveToFront(e)
	return e.Value.(*kept).index
}

// weigh notes how large an index is now and makes room.
func (i *indexes) weigh(agentID string, x *Index, size int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	e := i.agents[agentID]
	if e == nil || e.Value.(*kept).index != x {
		return // gone meanwhile
	}
	k := e.Value.(*kept)
	i.used += size - k.size
	k.size = size
	for i.used > i.budget && i.order.Len() > 1 {
		i.remove(i.order.Back())
	}
}

// drop forgets an agent.
func (i *indexes) drop(agentID string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if e := i.agents[agentID]; e != nil {
		i.remove(e)
	}
}

func (i *indexes) remove(e *list.Element) {
	k := i.order.Remove(e).(*kept)
	delete(i.agents, k.agentID)
	i.used -= k.size
}

// with calls f with an index that shows s and that nobody changes meanwhile. The
// first caller at a commit brings the index to it.
func (i *indexes) with(agentID string, s *Snapshot, f func(*Index)) {
	x := i.get(agentID)
	x.mu.RLock()
	if x.snap.Commit == s.Commit {
		defer x.mu.RUnlock()
		f(x)
		return
	}
	x.mu.RUnlock()
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.snap.Commit != s.Commit {
		x.update(s)
		i.weigh(agentID, x, x.size())
	}
	f(x)
}
