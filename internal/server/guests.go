package server

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// privateLinger is how long an idle conversation of a private server stays
	// loaded, and so how long WaitGuests gives a guest to begin its turn.
	privateLinger = time.Second
	guestPause    = 20 * time.Millisecond
)

// A countingListener knows how many of its connections are open.
type countingListener struct {
	net.Listener
	open atomic.Int64
}

// Accept implements net.Listener.
func (l *countingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.open.Add(1)
	return &countedConn{Conn: c, closed: sync.OnceFunc(func() { l.open.Add(-1) })}, nil
}

type countedConn struct {
	net.Conn
	closed func()
}

// Close implements net.Conn.
func (c *countedConn) Close() error {
	c.closed()
	return c.Conn.Close()
}

// WaitGuests waits while other commands are connected to a private server and
// any conversation is at work, so that a command does not take the state away
// under the turn of another one. A guest that does nothing is not waited for.
func (s *Server) WaitGuests(ctx context.Context) {
	tick := time.NewTicker(guestPause)
	defer tick.Stop()
	for since := time.Now(); s.guests != nil && s.guests.open.Load() > 0; {
		if s.parts.runtime.Live() == 0 && time.Since(since) > privateLinger {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
