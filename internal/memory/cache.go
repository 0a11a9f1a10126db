package memory

import (
	"container/list"
	"sync"
)

// cacheBudget bounds the text that cached snapshots hold, in bytes, counting
// what they share each time.
const cacheBudget = 64 << 20

// fileCost is what a file costs besides its text, in bytes.
const fileCost = 400

// A cache keeps the two snapshots last used of each agent. Over its budget the
// agent that was used least lately goes, except for the last one.
type cache struct {
	budget int

	mu     sync.Mutex // guards what follows
	agents map[string]*list.Element
	order  *list.List // of *cached, most recent first
	used   int
}

type cached struct {
	agentID   string
	snapshots []*Snapshot // most recent first
}

func newCache(budget int) *cache {
	return &cache{budget: budget, agents: map[string]*list.Element{}, order: list.New()}
}

func cost(s *Snapshot) int { return s.size + fileCost*len(s.Files) }

// get finds a snapshot; nil = not here.
func (c *cache) get(agentID, commit string) *Snapshot {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.agents[agentID]
	if e == nil {
		return nil
	}
	c.order.MoveToFront(e)
	list := e.Value.(*cached).snapshots
	for i, s := range list {
		if s.Commit == commit {
			copy(list[1:i+1], list[:i])
			list[0] = s
			return s
		}
	}
	return nil
}

// newest is the agent's snapshot last used; nil = none.
func (c *cache) newest(agentID string) *Snapshot {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.agents[agentID]; e != nil {
		return e.Value.(*cached).snapshots[0]
	}
	return nil
}

// put adds a snapshot and makes room for it.
func (c *cache) put(agentID string, s *Snapshot) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.agents[agentID]
	if e == nil {
		e = c.order.PushFront(&cached{agentID: agentID})
		c.agents[agentID] = e
	}
	c.order.MoveToFront(e)
	entry := e.Value.(*cached)
	entry.snapshots = append([]*Snapshot{s}, entry.snapshots...)
	c.used += cost(s)
	if len(entry.snapshots) > 2 {
		c.used -= cost(entry.snapshots[2])
		entry.snapshots = entry.snapshots[:2]
	}
	for c.used > c.budget && c.order.Len() > 1 {
		c.remove(c.order.Back())
	}
}

// drop forgets an agent.
func (c *cache) drop(agentID string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.agents[agentID]; e != nil {
		c.remove(e)
	}
}

func (c *cache) remove(e *list.Element) {
	entry := c.order.Remove(e).(*cached)
	delete(c.agents, entry.agentID)
	for _, s := range entry.snapshots {
		c.used -= cost(s)
	}
}
