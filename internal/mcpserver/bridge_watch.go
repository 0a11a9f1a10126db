package mcpserver

import (
	"context"
	"time"

	"mneme/client"
	"mneme/protocol"
)

// Waits between attempts to connect again, to hear of changes.
const (
	leastWait = 500 * time.Millisecond
	mostWait  = 30 * time.Second
)

// Watch implements Backend. The connection is kept while somebody watches: a
// mneme tells of all changes. A stock server does not; of its changes our own are
// told, and those of others when the agent is read.
func (b *Bridge) Watch(tell func(Change)) (stop func()) {
	b.mu.Lock()
	b.tells[&tell] = true
	first := len(b.tells) == 1
	b.mu.Unlock()
	ctx, cancel := context.WithCancel(b.life)
	done := make(chan struct{})
	if first && b.url != "" {
		b.work.Go(func() {
			defer close(done)
			b.listen(ctx)
		})
	} else {
		close(done)
	}
	return func() {
		cancel()
		<-done
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.tells, &tell)
	}
}

// changed tells those who watch of a change that we made or saw.
func (b *Bridge) changed(c Change) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.conn != nil && b.conn.mneme != nil && b.conn.mneme.ChangeEvents && !c.All {
		return // the server tells us
	}
	b.tell(c)
}

// tell tells those who watch. mu is held.
func (b *Bridge) tell(c Change) {
	for tell := range b.tells {
		(*tell)(c)
	}
}

// listen keeps a connection and hears its change events until ctx ends.
func (b *Bridge) listen(ctx context.Context) {
	wait := leastWait
	for lost := false; ; lost = true {
		conn, err := b.connect(ctx)
		if err == nil {
			if lost {
				b.changed(Change{All: true}) // who knows what we missed
			}
			begin := time.Now()
			err = b.hear(ctx, conn)
			if time.Since(begin) > mostWait {
				wait = leastWait
			}
		}
		if ctx.Err() != nil {
			return
		}
		b.log.Debug("no change events", "err", err)
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
		wait = min(2*wait, mostWait)
	}
}

// hear passes the change events of a connection on until it ends.
func (b *Bridge) hear(ctx context.Context, conn *connection) error {
	if conn.mneme == nil || !conn.mneme.ChangeEvents {
		select {
		case <-conn.Done():
			return conn.Err()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	sub := conn.Subscribe()
	defer sub.Close()
	if _, err := client.Call(ctx, conn.Client, &protocol.WatchChanges{Enabled: true}); err != nil {
		return err
	}
	for ev, err := range sub.Events(ctx) {
		if err != nil {
			return err
		}
		var c Change
		switch e := ev.Body.(type) {
		case *protocol.MemoryUpdated:
			if e.AgentID == "" {
				continue
			}
			c = Change{AgentID: e.AgentID, Commit: e.Commit, Paths: e.AffectedPaths}
		case *protocol.AgentsChanged:
			c = Change{AgentID: e.AgentID, Agent: e.Change}
		default:
			continue
		}
		b.mu.Lock()
		b.tell(c)
		b.mu.Unlock()
	}
	return nil
}

// locks are one lock per name, as long as somebody wants it.
type locks struct {
	slot chan map[string]*keyed
}

type keyed struct {
	held chan struct{}
	want int
}

func newLocks() *locks {
	l := &locks{slot: make(chan map[string]*keyed, 1)}
	l.slot <- map[string]*keyed{}
	return l
}

// lock waits for the lock of a name.
func (l *locks) lock(ctx context.Context, name string) (unlock func(), err error) {
	table := <-l.slot
	k := table[name]
	if k == nil {
		k = &keyed{held: make(chan struct{}, 1)}
		table[name] = k
	}
	k.want++
	l.slot <- table
	done := func() {
		table := <-l.slot
		if k.want--; k.want == 0 {
			delete(table, name)
		}
		l.slot <- table
	}
	select {
	case k.held <- struct{}{}:
		return func() { <-k.held; done() }, nil
	case <-ctx.Done():
		done()
		return nil, context.Cause(ctx)
	}
}
