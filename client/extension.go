package client

import (
	"context"
	"errors"
	"fmt"

	"mneme/protocol"
)

// ErrUnsupported: the server has no such command. It is one of mneme's own
// (spec/app-server-commands.md section 2.13), which other servers ignore in
// silence, so it was not sent.
var ErrUnsupported = errors.New("the server does not have this command")

// Extensions says which of mneme's own commands the server has; none is the zero
// value. It asks once for each connection.
func (c *Client) Extensions(ctx context.Context) (protocol.Extensions, error) {
	l, err := c.acquire(ctx)
	if err != nil {
		return protocol.Extensions{}, err
	}
	return c.extensions(ctx, l)
}

func (c *Client) extensions(ctx context.Context, l *link) (protocol.Extensions, error) {
	c.mu.Lock()
	known := l.extensions
	c.mu.Unlock()
	if known != nil {
		return *known, nil
	}
	info, err := callOn(ctx, c, l, &protocol.AppServerInfo{}, nil)
	if err != nil {
		return protocol.Extensions{}, err
	}
	var ext protocol.Extensions
	if info.Capabilities.Mneme != nil {
		ext = *info.Capabilities.Mneme
	}
	c.mu.Lock()
	l.extensions = &ext
	c.mu.Unlock()
	return ext, nil
}

// extended finds a connection whose server has the extension that has tells.
func (c *Client) extended(ctx context.Context, name string, has func(protocol.Extensions) bool) (*link, error) {
	l, err := c.acquire(ctx)
	if err != nil {
		return nil, err
	}
	ext, err := c.extensions(ctx, l)
	if err != nil {
		return nil, err
	}
	if !has(ext) {
		return nil, fmt.Errorf("%s: %w", name, ErrUnsupported)
	}
	return l, nil
}

// MemorySnapshot reads an agent's memory files at one commit.
func (c *Client) MemorySnapshot(ctx context.Context, cmd protocol.MemorySnapshot) (*protocol.MemorySnapshotResponse, error) {
	l, err := c.extended(ctx, "memory_snapshot", func(e protocol.Extensions) bool { return e.MemorySnapshot })
	if err != nil {
		return nil, err
	}
	return callOn(ctx, c, l, &cmd, nil)
}

// MemorySearch ranks an agent's memory files for a query, topK of them at most;
// 0 = the server's default.
func (c *Client) MemorySearch(ctx context.Context, agentID, query string, topK int) (*protocol.MemorySearchResponse, error) {
	l, err := c.extended(ctx, "memory_search", func(e protocol.Extensions) bool { return e.MemorySearch })
	if err != nil {
		return nil, err
	}
	cmd := &protocol.MemorySearch{AgentID: agentID, Query: query}
	if topK != 0 {
		cmd.TopK = &topK
	}
	return callOn(ctx, c, l, cmd, nil)
}

// StartEphemeral starts a runtime of start.AgentID that leaves nothing behind:
// it can read the agent's memory as it is now, and the working directory, and
// change nothing. It ends with the connection. [TurnResult.Finished] tells how
// many writes the model tried in vain.
func (c *Client) StartEphemeral(ctx context.Context, start protocol.RuntimeStart) (*Runtime, error) {
	if _, err := c.extended(ctx, "runtime_start with ephemeral", func(e protocol.Extensions) bool { return e.EphemeralRuntime }); err != nil {
		return nil, err
	}
	yes := true
	start.Ephemeral = &yes
	return c.StartRuntime(ctx, start)
}

// WatchChanges asks for the changes of all agents, *protocol.MemoryUpdated,
// *protocol.AgentsChanged and *protocol.ConversationsChanged, and subscribes to
// them, [Disconnected] and [Reconnected]. What happened between those two is not
// told. The server tells of changes as long as the client lives.
func (c *Client) WatchChanges(ctx context.Context) (*Subscription, error) {
	l, err := c.extended(ctx, "watch_changes", func(e protocol.Extensions) bool { return e.ChangeEvents })
	if err != nil {
		return nil, err
	}
	s := c.subscribeTo(isChange)
	_, err = callOn(ctx, c, l, &protocol.WatchChanges{Enabled: true}, func(*protocol.WatchChangesResponse) { c.watching = true })
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// isChange picks the events of WatchChanges.
func isChange(ev *protocol.Event) bool {
	switch ev.Body.(type) {
	case *protocol.MemoryUpdated, *protocol.AgentsChanged, *protocol.ConversationsChanged, *Disconnected, *Reconnected:
		return true
	}
	return ev.Type == "crons_updated" || ev.Type == "skills_updated"
}

// rewatch asks a new connection for changes, if the last one was asked.
func (c *Client) rewatch(l *link) error {
	c.mu.Lock()
	watching := c.watching
	c.mu.Unlock()
	if !watching {
		return nil
	}
	ctx, cancel := context.WithTimeout(l.ctx, restoreTimeout)
	defer cancel()
	ext, err := c.extensions(ctx, l)
	if err != nil || !ext.ChangeEvents {
		return err
	}
	_, err = callOn(ctx, c, l, &protocol.WatchChanges{Enabled: true}, nil)
	return err
}
