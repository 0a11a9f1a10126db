package crash

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/coder/websocket"
)

// patience bounds waits for what must happen. It is no measure of speed.
const patience = 60 * time.Second

var errGone = errors.New("the server is gone")

// A frame is one message from the server, with the fields that the checks look at.
type frame struct {
	Type        string          `json:"type"`
	RequestID   string          `json:"request_id"`
	Success     bool            `json:"success"`
	Accepted    bool            `json:"accepted"`
	Disposition string          `json:"disposition"`
	Error       string          `json:"error"`
	Runtime     *scope          `json:"runtime"`
	Messages    []listed        `json:"messages"`
	NextBefore  string          `json:"next_before"`
	HasMore     bool            `json:"has_more"`
	Queue       []queued        `json:"queue"`
	Loop        *loop           `json:"loop_status"`
	Delta       *delta          `json:"delta"`
	Request     json.RawMessage `json:"request"`
}

type scope struct {
	Agent        string `json:"agent_id"`
	Conversation string `json:"conversation_id"`
}

type queued struct {
	Paused bool `json:"paused"`
}

type loop struct {
	Status string `json:"status"`
}

type delta struct {
	Kind string `json:"message_type"`
}

// listed is one record of conversation_messages_list.
type listed struct {
	ID       string `json:"id"`
	Kind     string `json:"message_type"`
	OTID     string `json:"otid"`
	CallID   string `json:"tool_call_id"`
	Status   string `json:"status"`
	ToolCall *struct {
		ID        string `json:"tool_call_id"`
		Arguments string `json:"arguments"`
	} `json:"tool_call"`
}

// A client is one connection that watches one runtime.
type client struct {
	conn    *websocket.Conn
	scope   scope
	seen    func(*frame)    // is told of every frame; may kill the server
	answers func(id string) // is told of approvals that are about to be answered; may be nil

	mu      sync.Mutex // guards the rest
	n       int
	replies map[string]chan *frame
	loop    string
	queue   int
	pending map[string]bool // approval requests that wait
	changed chan struct{}
	gone    chan struct{}
}

// connect opens a connection and starts the runtime: a new agent and
// conversation if at is nil.
func connect(ctx context.Context, url string, at *scope, mode string, seen func(*frame)) (*client, error) {
	conn, _, err := websocket.Dial(ctx, url, nil)
	if err != nil {
		return nil, err
	}
	conn.SetReadLimit(64 << 20)
	c := &client{
		conn: conn, seen: seen, replies: map[string]chan *frame{}, pending: map[string]bool{},
		changed: make(chan struct{}), gone: make(chan struct{}),
	}
	go c.readAll(ctx)
	start := map[string]any{"type": "runtime_start", "mode": mode, "wait_for_replay": true}
	if at == nil {
		start["create_agent"] = map[string]any{"body": map[string]any{"name": "crash", "model": "lmstudio/mock-1", "memory_blocks": []any{}}}
		start["create_conversation"] = map[string]any{"body": map[string]any{}}
	} else {
		start["agent_id"], start["conversation_id"] = at.Agent, at.Conversation
	}
	r, err := c.call(ctx, start)
	if err == nil && !r.Success {
		err = fmt.Errorf("runtime_start: %s", r.Error)
	}
	if err != nil {
		c.close()
		return nil, err
	}
	c.scope = *r.Runtime
	return c, nil
}

func (c *client) close() {
	c.conn.CloseNow()
	<-c.gone
}

func (c *client) readAll(ctx context.Context) {
	defer close(c.gone)
	for {
		_, data, err := c.conn.Read(ctx)
		if err != nil {
			return
		}
		var f frame
		if json.Unmarshal(data, &f) != nil {
			continue
		}
		c.take(&f)
		if c.seen != nil {
			c.seen(&f)
		}
	}
}

func (c *client) take(f *frame) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch f.Type {
	case "update_loop_status":
		c.loop = f.Loop.Status
	case "update_queue":
		c.queue = len(f.Queue)
	case "control_request":
		c.pending[f.RequestID] = true
	default:
		if ch := c.replies[f.RequestID]; ch != nil && f.RequestID != "" {
			delete(c.replies, f.RequestID)
			ch <- f
		}
	}
	close(c.changed)
	c.changed = make(chan struct{})
}

// call sends a command and waits for its answer.
func (c *client) call(ctx context.Context, cmd map[string]any) (*frame, error) {
	c.mu.Lock()
	c.n++
	id := fmt.Sprintf("r-%d", c.n)
	ch := make(chan *frame, 1)
	c.replies[id] = ch
	c.mu.Unlock()
	cmd["request_id"] = id
	data, err := json.Marshal(cmd)
	if err != nil {
		return nil, err
	}
	if err := c.conn.Write(ctx, websocket.MessageText, data); err != nil {
		return nil, errGone
	}
	limit := time.NewTimer(patience)
	defer limit.Stop()
	select {
	case f := <-ch:
		return f, nil
	case <-c.gone:
		return nil, errGone
	case <-limit.C:
		return nil, fmt.Errorf("%v was not answered within %s", cmd["type"], patience)
	}
}

// send sends one user text under a client message id.
func (c *client) send(ctx context.Context, id, text string) (*frame, error) {
	return c.call(ctx, map[string]any{"type": "input", "runtime": c.wire(), "payload": map[string]any{
		"kind":     "create_message",
		"messages": []any{map[string]any{"role": "user", "content": text, "client_message_id": id}},
	}})
}

// allow answers an approval request.
func (c *client) allow(ctx context.Context, request string) (*frame, error) {
	return c.call(ctx, map[string]any{"type": "input", "runtime": c.wire(), "payload": map[string]any{
		"kind": "approval_response", "request_id": request, "decision": map[string]any{"behavior": "allow"},
	}})
}

func (c *client) wire() map[string]any {
	return map[string]any{"agent_id": c.scope.Agent, "conversation_id": c.scope.Conversation}
}

// wait waits until f holds of the connection's state.
func (c *client) wait(what string, f func() bool) error {
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for {
		c.mu.Lock()
		ok, changed := f(), c.changed
		state := fmt.Sprintf("loop %s, %d queued, pending %v", c.loop, c.queue, c.pending)
		c.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-c.gone:
			return errGone
		case <-limit.C:
			return fmt.Errorf("%s did not come within %s (%s)", what, patience, state)
		}
	}
}

// settle answers everything that asks and waits until the runtime is at rest.
func (c *client) settle(ctx context.Context) error {
	for {
		err := c.wait("rest", func() bool {
			return len(c.pending) > 0 || c.loop == "WAITING_ON_INPUT" && c.queue == 0
		})
		if err != nil {
			return err
		}
		c.mu.Lock()
		var ask string
		for id := range c.pending {
			ask = id
		}
		delete(c.pending, ask)
		c.mu.Unlock()
		if ask == "" {
			return nil
		}
		if c.answers != nil {
			c.answers(ask)
		}
		f, err := c.allow(ctx, ask)
		if err != nil {
			return err
		}
		if !f.Accepted {
			return fmt.Errorf("the answer to %s was refused: %s", ask, f.Error)
		}
	}
}

// history lists all messages of the conversation, oldest first.
func (c *client) history(ctx context.Context) ([]listed, error) {
	var all []listed
	before := ""
	for {
		query := map[string]any{"agent_id": c.scope.Agent, "limit": 100}
		if before != "" {
			query["before"] = before
		}
		f, err := c.call(ctx, map[string]any{
			"type": "conversation_messages_list", "conversation_id": c.scope.Conversation, "query": query,
		})
		if err != nil {
			return nil, err
		}
		if !f.Success {
			return nil, fmt.Errorf("conversation_messages_list: %s", f.Error)
		}
		for _, m := range f.Messages {
			all = append([]listed{m}, all...)
		}
		if !f.HasMore {
			return all, nil
		}
		before = f.NextBefore
	}
}
