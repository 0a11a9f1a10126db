package client

import (
	"context"
	"slices"

	"mneme/protocol"
)

// A Runtime is one conversation that the client has started.
type Runtime struct {
	client *Client
	id     protocol.Runtime

	// Guarded by the client's mu.
	info   *protocol.RuntimeStartResponse
	start  protocol.RuntimeStart // to start it again
	tools  []Tool
	turns  []*Turn // not ended, in the order of their inputs
	scope  *scope
	broken error // why it can no longer be used; nil = it can
}

// StartRuntime starts a runtime, or starts it again with other settings, and
// subscribes to its events. Tools are this client's external tools in it; they
// take the place of start.ExternalTools. When it returns, the server's replay of
// the runtime's state has been seen, unless start.WaitForReplay is false.
//
// The settings are kept to start the runtime again on the next connection, all
// but mode and directory, which the server keeps itself. An ephemeral runtime
// ends with its connection.
func (c *Client) StartRuntime(ctx context.Context, start protocol.RuntimeStart, tools ...Tool) (*Runtime, error) {
	if len(tools) > 0 {
		start.ExternalTools = groupTools(tools)
	}
	if start.ClientInfo == nil {
		start.ClientInfo = c.opts.ClientInfo
	}
	if start.WaitForReplay == nil {
		yes := true
		start.WaitForReplay = &yes
	}
	l, err := c.acquire(ctx)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.starting++
	c.mu.Unlock()
	defer c.startingDone()
	var r *Runtime
	_, err = callOn(ctx, c, l, &start, func(resp *protocol.RuntimeStartResponse) {
		if resp.Runtime != nil {
			r = c.register(start, tools, resp)
		}
	})
	if err != nil {
		return nil, err
	}
	if r == nil {
		return nil, &ServerError{Command: "runtime_start", Message: "the response has no runtime"}
	}
	return r, nil
}

// register makes the handle of a runtime, or renews the one there is. The
// caller holds mu.
func (c *Client) register(start protocol.RuntimeStart, tools []Tool, resp *protocol.RuntimeStartResponse) *Runtime {
	id := *resp.Runtime
	r := c.runtimes[id]
	if r == nil {
		if c.scopes[id] == nil {
			c.scopes[id] = new(scope)
		}
		r = &Runtime{client: c, id: id, scope: c.scopes[id]}
		c.runtimes[id] = r
	}
	start.AgentID, start.CreateAgent = nil, nil
	if id.AgentID != "" {
		start.AgentID = &id.AgentID
	}
	start.ConversationID, start.CreateConversation = &id.ConversationID, nil
	start.Mode, start.Cwd = "", protocol.Optional[string]{}
	r.info, r.start, r.tools = resp, start, tools
	return r
}

// startingDone forgets the scopes that were seen while a start was in flight
// and belong to no runtime.
func (c *Client) startingDone() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.starting--
	if c.starting > 0 {
		return
	}
	for id := range c.scopes {
		if c.runtimes[id] == nil {
			delete(c.scopes, id)
		}
	}
}

// ID names the runtime.
func (r *Runtime) ID() protocol.Runtime { return r.id }

// Info is the response of the latest [Client.StartRuntime]: agent,
// conversation, what was made. It is shared: do not change it.
func (r *Runtime) Info() *protocol.RuntimeStartResponse {
	r.client.mu.Lock()
	defer r.client.mu.Unlock()
	return r.info
}

// Release forgets the runtime: it is not started again on the next connection,
// and its turns fail here with ErrClosed. The server goes on sending its events
// as long as the connection lasts.
func (r *Runtime) Release() {
	r.client.mu.Lock()
	defer r.client.mu.Unlock()
	if r.broken == nil {
		r.breakOff(ErrClosed)
	}
}

// Status is the runtime's latest loop status.
func (r *Runtime) Status() protocol.LoopStatus {
	r.client.mu.Lock()
	defer r.client.mu.Unlock()
	return r.scope.loop
}

// Pending lists the approvals and questions that wait for an answer.
func (r *Runtime) Pending() []protocol.PendingControl {
	r.client.mu.Lock()
	defer r.client.mu.Unlock()
	return slices.Clone(r.scope.pending)
}

// Subscribe starts a subscription to the runtime's events, also those of turns
// that others start.
func (r *Runtime) Subscribe() *Subscription { return r.client.subscribe(r.id) }

// Approve allows the call of a control request.
func (r *Runtime) Approve(ctx context.Context, requestID string) error {
	return r.Answer(ctx, &protocol.ApprovalResponse{RequestID: requestID, Decision: &protocol.Decision{Behavior: protocol.Allow}})
}

// Deny refuses the call of a control request; the message is what the model
// gets to read.
func (r *Runtime) Deny(ctx context.Context, requestID, message string) error {
	return r.Answer(ctx, &protocol.ApprovalResponse{RequestID: requestID,
		Decision: &protocol.Decision{Behavior: protocol.Deny, Message: &message}})
}

// Answer answers a control request in full: with another input, or with a
// suggested rule to store.
func (r *Runtime) Answer(ctx context.Context, answer *protocol.ApprovalResponse) error {
	_, err := Call(ctx, r.client, &protocol.Input{Runtime: r.id, Payload: answer})
	return err
}

// Abort aborts the running turn. It reports whether there was one.
func (r *Runtime) Abort(ctx context.Context) (bool, error) {
	resp, err := Call(ctx, r.client, &protocol.AbortMessage{Runtime: r.id})
	if err != nil {
		return false, err
	}
	return resp.Aborted, nil
}

// Sync asks the server to replay the runtime's state, which it does before
// Sync returns.
func (r *Runtime) Sync(ctx context.Context) error {
	_, err := Call(ctx, r.client, &protocol.Sync{Runtime: r.id})
	return err
}

// SetTools replaces this client's external tools in the runtime; the next turn
// has them.
func (r *Runtime) SetTools(ctx context.Context, tools ...Tool) error {
	l, err := r.client.acquire(ctx)
	if err != nil {
		return err
	}
	groups := groupTools(tools)
	cmd := &protocol.ExternalToolsUpdate{Updates: []protocol.ToolsUpdate{
		{Runtimes: []protocol.Runtime{r.id}, ExternalTools: groups},
	}}
	_, err = callOn(ctx, r.client, l, cmd, func(*protocol.ExternalToolsUpdateResponse) {
		r.tools, r.start.ExternalTools = tools, groups
	})
	return err
}

// observe brings the runtime's turns up to date. The caller holds mu.
func (r *Runtime) observe(ev protocol.Event) {
	for _, t := range slices.Clone(r.turns) {
		t.observe(ev)
	}
}

// ephemeral reports whether the runtime ends with its connection.
func (r *Runtime) ephemeral() bool { return r.start.Ephemeral != nil && *r.start.Ephemeral }

// disconnected decides what becomes of the turns: without another connection
// they fail, with one those that can be found again are kept. The caller holds
// mu.
func (r *Runtime) disconnected(cause error, again bool) {
	if again && r.ephemeral() {
		r.breakOff(cause)
		return
	}
	for _, t := range slices.Clone(r.turns) {
		if !again || !t.recoverable(cause) {
			t.fail(cause)
		}
	}
}

// breakOff makes the runtime unusable. The caller holds mu.
func (r *Runtime) breakOff(cause error) {
	r.broken = cause
	for _, t := range slices.Clone(r.turns) {
		t.fail(cause)
	}
	delete(r.client.runtimes, r.id)
	delete(r.client.scopes, r.id)
}
