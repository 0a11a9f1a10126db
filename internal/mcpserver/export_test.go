package mcpserver

// Sizes is what a server holds for its clients: sessions, stored events and their
// streams, turns that wait, subscriptions.
type Sizes struct{ Sessions, SDKSessions, Events, Streams, EventBytes, Held, Subscriptions int }

// Sizes counts what a server holds.
func (s *Server) Sizes() Sizes {
	z := Sizes{Sessions: s.front.sessions.size()}
	for range s.mcp.Sessions() {
		z.SDKSessions++
	}
	e := s.front.events
	e.mu.Lock()
	z.Events, z.EventBytes = e.order.Len(), e.bytes
	for _, sess := range e.sessions {
		z.Streams += len(sess.streams)
	}
	e.mu.Unlock()
	s.asks.mu.Lock()
	z.Held = len(s.asks.held)
	s.asks.mu.Unlock()
	z.Subscriptions = len(s.subs.uris())
	return z
}
