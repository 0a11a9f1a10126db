package client

import (
	"context"
	"errors"
	"slices"
	"strings"

	"mneme/protocol"
)

// restore starts the live runtimes again on a new connection, before anybody
// else may use it, and finds out what became of their turns. The error says that
// the connection is of no use; a runtime that the server refuses is broken off.
func (c *Client) restore(l *link, cause error) error {
	var refused *ServerError
	if err := c.rewatch(l); errors.As(err, &refused) {
		c.log.Warn("changes are no longer told", "error", err)
	} else if err != nil {
		return err
	}
	c.mu.Lock()
	live := make([]*Runtime, 0, len(c.runtimes))
	for _, r := range c.runtimes {
		live = append(live, r)
	}
	c.mu.Unlock()
	slices.SortFunc(live, func(a, b *Runtime) int {
		return strings.Compare(a.id.AgentID+a.id.ConversationID, b.id.AgentID+b.id.ConversationID)
	})
	for _, r := range live {
		err := c.restoreRuntime(l, r)
		switch {
		case errors.As(err, &refused):
			c.log.Warn("runtime cannot be started again", "agent", r.id.AgentID, "conversation", r.id.ConversationID, "error", err)
			c.mu.Lock()
			r.breakOff(err)
			c.mu.Unlock()
		case err != nil:
			return err
		}
	}
	return nil
}

// restoreRuntime starts one runtime again, sends its inputs that were not
// acknowledged, and settles the turns that ended meanwhile.
func (c *Client) restoreRuntime(l *link, r *Runtime) error {
	// The supervisor is here, so nobody else sees the connection's end.
	ctx, cancel := context.WithTimeout(l.ctx, restoreTimeout)
	defer cancel()
	c.mu.Lock()
	start := r.start
	var unsent []*Turn
	for _, t := range r.turns {
		if !t.accepted {
			unsent = append(unsent, t)
		}
	}
	*r.scope = scope{} // the replay fills it
	c.mu.Unlock()
	yes := true
	start.WaitForReplay, start.ForceDeviceStatus = &yes, &yes
	if _, err := callOn(ctx, c, l, &start, nil); err != nil {
		return err
	}
	for _, t := range unsent {
		if err := t.send(ctx, l); err != nil {
			return err
		}
		select {
		case <-t.acked:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if len(unsent) > 0 {
		// An input that the server knew already has no further events if its
		// turn has ended: a second look at the state tells.
		if _, err := callOn(ctx, c, l, &protocol.Sync{Runtime: r.id}, nil); err != nil {
			return err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range slices.Clone(r.turns) {
		t.settle(r.scope)
	}
	return nil
}

// settle compares an acknowledged turn with the runtime's state as replayed.
// The caller holds mu.
func (t *Turn) settle(s *scope) {
	idle := s.loop.Status == protocol.WaitingOnInput || s.loop.Status == ""
	switch {
	case slices.ContainsFunc(s.queue, func(q protocol.QueueItem) bool { return q.ClientMessageID == t.key }):
		return // still queued
	case idle:
		t.fail(ErrTurnLost)
	case t.id != "" && s.loop.TurnID != "" && t.id != s.loop.TurnID:
		t.fail(ErrTurnLost) // another turn runs
	case !t.active && !runs(s.loop, t.key):
		t.fail(ErrTurnLost) // it was queued, and what runs is not it
	default:
		t.active = true
		t.result.Gap = true
		if t.id == "" {
			t.id = s.loop.TurnID
		}
	}
}
