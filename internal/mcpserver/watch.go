package mcpserver

import (
	"context"
	"hash/fnv"
	"slices"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	maxSubscriptions = 1000   // of one session
	maxListed        = 10_000 // agents whose list of files is remembered
)

// subscriptions are the URIs that clients want to hear of. The SDK delivers; we
// know which URIs a change concerns.
type subscriptions struct {
	mu    sync.Mutex
	byURI map[string]map[*mcp.ServerSession]int // how often
	count map[*mcp.ServerSession]int

	// changes that were not told yet, coalesced; wake holds a token while there
	// are any. Guarded by mu.
	changes []Change
	wake    chan struct{}

	// listed is a digest of the paths of an agent's files as they were at the
	// last change. It belongs to tellChanges.
	listed map[string]uint64
}

func newSubscriptions() *subscriptions {
	return &subscriptions{
		byURI: map[string]map[*mcp.ServerSession]int{}, count: map[*mcp.ServerSession]int{},
		wake: make(chan struct{}, 1), listed: map[string]uint64{},
	}
}

// subscribe notes a subscription. Any URI will do: what it names may come later.
func (s *subscriptions) subscribe(_ context.Context, req *mcp.SubscribeRequest) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.count[req.Session] >= maxSubscriptions {
		return invalid("A session may have at most %d subscriptions.", maxSubscriptions)
	}
	m := s.byURI[req.Params.URI]
	if m == nil {
		m = map[*mcp.ServerSession]int{}
		s.byURI[req.Params.URI] = m
	}
	m[req.Session]++
	s.count[req.Session]++
	return nil
}

func (s *subscriptions) unsubscribe(_ context.Context, req *mcp.UnsubscribeRequest) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(req.Params.URI, req.Session)
	return nil
}

// drop removes all subscriptions of a session to a URI. mu is held.
func (s *subscriptions) drop(uri string, ss *mcp.ServerSession) {
	m := s.byURI[uri]
	if s.count[ss] -= m[ss]; s.count[ss] <= 0 {
		delete(s.count, ss)
	}
	if delete(m, ss); len(m) == 0 {
		delete(s.byURI, uri)
	}
}

// end forgets a session.
func (s *subscriptions) end(ss *mcp.ServerSession) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.count[ss] == 0 {
		return
	}
	for uri, m := range s.byURI {
		if m[ss] > 0 {
			s.drop(uri, ss)
		}
	}
}

// uris are those that somebody subscribed to, in order.
func (s *subscriptions) uris() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]string, 0, len(s.byURI))
	for uri := range s.byURI {
		list = append(list, uri)
	}
	slices.Sort(list)
	return list
}

// put takes a change of the backend. Changes of one agent that wait are put
// together, so the list stays as short as the list of agents.
func (s *subscriptions) put(c Change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.changes, func(o Change) bool { return o.AgentID == c.AgentID && o.Agent == c.Agent })
	if i < 0 {
		c.Paths = slices.Clone(c.Paths)
		s.changes = append(s.changes, c)
	} else {
		o := &s.changes[i]
		o.Commit = c.Commit
		o.Paths = append(o.Paths, c.Paths...)
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *subscriptions) take() []Change {
	s.mu.Lock()
	defer s.mu.Unlock()
	changes := s.changes
	s.changes = nil
	return changes
}

// tellChanges tells clients of changes until the server's life ends.
func (s *Server) tellChanges() {
	for {
		select {
		case <-s.subs.wake:
		case <-s.life.Done():
			return
		}
		for _, c := range s.subs.take() {
			s.tellChange(c)
		}
	}
}

func (s *Server) tellChange(c Change) {
	ctx, cancel := context.WithTimeout(s.life, s.cfg.RequestTimeout)
	defer cancel()
	name, asked := "", false
	for _, uri := range s.subs.uris() {
		t := parseURI(uri)
		if !c.concerns(t) {
			continue
		}
		if !c.All && t.kind != agentsResource && t.agent != c.AgentID {
			// The URI may name the agent by its name, which only the server knows.
			if !asked {
				asked = true
				if ag, err := s.backend.Agent(ctx, c.AgentID); err == nil {
					name = fold(ag.Name)
				}
			}
			if name == "" || fold(t.agent) != name {
				continue
			}
		}
		if err := s.mcp.ResourceUpdated(ctx, &mcp.ResourceUpdatedNotificationParams{URI: uri}); err != nil {
			s.log.Debug("change not told", "uri", uri, "err", err)
		}
	}
	if s.listChanged(ctx, c) {
		s.addAgentsResource() // to the SDK this is a change of the list, which it tells
	}
}

// concerns says whether a change shows in what a URI names, whoever the agent is.
func (c Change) concerns(t target) bool {
	if c.All {
		return t.kind != noResource
	}
	switch t.kind {
	case agentsResource, agentResource:
		return c.Agent != ""
	case memoryResource:
		return c.Agent == ""
	case historyResource:
		return c.Agent == "" && (t.path == "" || c.touches(t.path))
	case fileResource:
		return c.Agent == "" && c.touches(t.path)
	}
	return false
}

func (c Change) touches(path string) bool {
	return slices.Contains(c.Paths, path) || slices.Contains(c.Paths, "*")
}

// listChanged says whether a change adds resources or takes some away.
func (s *Server) listChanged(ctx context.Context, c Change) bool {
	if c.All || c.Agent != "" {
		if c.Agent == "deleted" {
			delete(s.subs.listed, c.AgentID)
		}
		return true
	}
	snap, err := s.backend.Memory(ctx, c.AgentID, Paths)
	if err != nil {
		return false // deleted, which is a change of its own, or out of reach
	}
	h := fnv.New64a()
	for _, f := range snap.served() {
		h.Write([]byte(f.Path)) //nolint:errcheck // never fails
		h.Write([]byte{0})      //nolint:errcheck // likewise
	}
	before, known := s.subs.listed[c.AgentID]
	if !known && len(s.subs.listed) >= maxListed {
		clear(s.subs.listed)
	}
	s.subs.listed[c.AgentID] = h.Sum64()
	return !known || before != h.Sum64()
}
