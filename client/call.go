package client

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"

	"mneme/protocol"
)

// Call sends a command and waits for its response. The response's type follows
// from the command's:
//
//	list, err := client.Call(ctx, c, &protocol.AgentList{})
//
// A response that says that the command failed gives a *ServerError, and still
// its data. There is no limit of time but the context's.
func Call[R any](ctx context.Context, c *Client, cmd protocol.Request[R]) (*R, error) {
	l, err := c.acquire(ctx)
	if err != nil {
		return nil, err
	}
	return callOn(ctx, c, l, cmd, nil)
}

// callOn is Call on a given connection. Hook, if any, runs in the read loop when
// a response that succeeded arrives.
func callOn[R any](ctx context.Context, c *Client, l *link, cmd protocol.Request[R], hook func(*R)) (*R, error) {
	var decoded *R
	decode := func(raw []byte) error {
		resp := cmd.NewResponse()
		if err := protocol.DecodeResponse(raw, resp); err != nil {
			return fmt.Errorf("read the response of %s: %w", cmd.CommandType(), err)
		}
		if sum, ok := any(decoded).(interface{ Add(*R) }); ok && decoded != nil {
			sum.Add(resp)
		} else {
			decoded = resp
		}
		return nil
	}
	p := newCall(cmd.CommandType())
	p.settle = func() {
		for _, raw := range p.frames {
			if err := decode(raw); err != nil {
				p.err = err
				return
			}
		}
		outcome, err := protocol.ReadOutcome(p.frames[len(p.frames)-1])
		switch {
		case err != nil:
			p.err = fmt.Errorf("read the response of %s: %w", cmd.CommandType(), err)
		case !outcome.OK:
			p.err = &ServerError{Command: cmd.CommandType(), Message: outcome.Error}
		case hook != nil:
			hook(decoded)
		}
	}
	if err := c.roundTrip(ctx, l, cmd, p); err != nil {
		return decoded, err
	}
	return decoded, nil
}

// CallRaw is Call for a command whose response has no type here, such as a
// *protocol.Later. It returns the response's frame.
func (c *Client) CallRaw(ctx context.Context, cmd protocol.Command) (json.RawMessage, error) {
	l, err := c.acquire(ctx)
	if err != nil {
		return nil, err
	}
	p := newCall(cmd.CommandType())
	p.settle = func() {
		outcome, err := protocol.ReadOutcome(p.frames[0])
		switch {
		case err != nil:
			p.err = fmt.Errorf("read the response of %s: %w", cmd.CommandType(), err)
		case !outcome.OK:
			p.err = &ServerError{Command: cmd.CommandType(), Message: outcome.Error}
		}
	}
	err = c.roundTrip(ctx, l, cmd, p)
	if len(p.frames) == 0 {
		return nil, err
	}
	return p.frames[len(p.frames)-1], err
}

// Tell sends a command that has no response, such as
// *protocol.ChangeDeviceState. It returns when the frame is on its way out.
func (c *Client) Tell(ctx context.Context, cmd protocol.Command) error {
	return c.tell(ctx, nil, cmd)
}

// AnswerTool answers an external tool call that was taken from the events.
// Calls of a [Tool] with a function are answered by the client.
func (c *Client) AnswerTool(ctx context.Context, requestID string, answer *protocol.ExternalToolCallResponse) error {
	return c.tell(ctx, &requestID, answer)
}

func (c *Client) tell(ctx context.Context, requestID *string, cmd protocol.Command) error {
	frame, err := protocol.AppendCommand(nil, requestID, cmd)
	if err != nil {
		return err
	}
	l, err := c.acquire(ctx)
	if err != nil {
		return err
	}
	return c.send(ctx, l, frame)
}

// send gives a frame to a connection.
func (c *Client) send(ctx context.Context, l *link, frame []byte) error {
	err := l.send(ctx, frame)
	if err != nil && l.ctx.Err() != nil {
		return c.whyEnded(l)
	}
	return err
}

// A call waits for the response to one request. Its fields are written by the
// read loop under the client's mutex until done is closed.
type call struct {
	link     *link
	command  string
	response string // type of the response; empty = unknown, any frame with the id
	frames   []json.RawMessage
	settle   func() // runs in the read loop when all frames are there; may set err
	err      error
	done     chan struct{}
}

func newCall(command string) *call {
	info, _ := protocol.Lookup(command)
	return &call{command: command, response: info.Response, done: make(chan struct{})}
}

// fail ends the call without a response.
func (p *call) fail(err error) {
	p.err = err
	close(p.done)
}

// refusal reads the error frame with which a server answers a command that it
// does not know.
func (p *call) refusal(raw []byte) error {
	var e protocol.ErrorEvent
	if err := json.Unmarshal(raw, &e); err != nil {
		return fmt.Errorf("read the response of %s: %w", p.command, err)
	}
	return &ServerError{Command: p.command, Message: e.Error}
}

// take adds a frame and reports whether it was the last. Only list_memory
// answers with several, all but the last with done false.
func (p *call) take(raw []byte) bool {
	p.frames = append(p.frames, raw)
	var more struct {
		Done *bool `json:"done"`
	}
	return p.response != "list_memory_response" || json.Unmarshal(raw, &more) != nil || more.Done == nil || *more.Done
}

// roundTrip sends a command and waits for the end of its call.
func (c *Client) roundTrip(ctx context.Context, l *link, cmd protocol.Command, p *call) error {
	id, ok := c.expect(l, p)
	if !ok {
		return c.whyEnded(l)
	}
	frame, err := protocol.AppendCommand(nil, &id, cmd)
	if err == nil {
		err = c.send(ctx, l, frame)
	}
	if err != nil {
		c.forget(id)
		return err
	}
	select {
	case <-p.done: // answered, or failed with the connection
		return p.err
	case <-ctx.Done():
		c.forget(id)
		return context.Cause(ctx)
	}
}

// expect registers a call and gives it a request id. The call fails when the
// connection that it is made on ends; it is false if that has happened already.
func (c *Client) expect(l *link, p *call) (string, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l.over {
		return "", false
	}
	p.link = l
	c.ids++
	id := c.prefix + "-" + strconv.Itoa(c.ids)
	c.pending[id] = p
	return id, true
}

func (c *Client) forget(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pending, id)
}

// newID makes a short random id.
func newID(prefix string) string {
	var b [12]byte
	rand.Read(b[:]) // never fails
	return prefix + "-" + hex.EncodeToString(b[:])
}
