package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/coder/websocket"
)

// A client is the leanest App Server client there is: it looks at frames as
// bytes, so that it costs the machine less than what it measures.
type client struct {
	ctx     context.Context
	conn    *websocket.Conn
	runtime json.RawMessage
	agent   string
	n       int
}

var (
	markFinished = []byte(`"type":"turn_finished"`)
	markDelta    = []byte(`"message_type":"assistant_message"`)
)

// dial connects and starts a runtime of a new agent.
func dial(ctx context.Context, url string) (*client, error) {
	conn, _, err := websocket.Dial(ctx, url, nil)
	if err != nil {
		return nil, err
	}
	conn.SetReadLimit(64 << 20)
	c := &client{ctx: ctx, conn: conn}
	err = c.start(`"create_agent":{"body":{"name":"bench","model":"lmstudio/mock-1","memory_blocks":[]}},"create_conversation":{"body":{}}`)
	return c, err
}

// renew goes on in a new conversation of the same agent, so that histories stay
// short.
func (c *client) renew() error {
	return c.start(fmt.Sprintf(`"agent_id":%q,"create_conversation":{"body":{}}`, c.agent))
}

func (c *client) start(fields string) error {
	c.n++
	frame := fmt.Sprintf(`{"type":"runtime_start","request_id":"s-%d","mode":"unrestricted","wait_for_replay":true,%s}`, c.n, fields)
	if err := c.conn.Write(c.ctx, websocket.MessageText, []byte(frame)); err != nil {
		return err
	}
	for {
		frame, err := c.read()
		if err != nil {
			return err
		}
		var r struct {
			Type    string
			Success bool
			Error   string
			Runtime json.RawMessage
		}
		if err := json.Unmarshal(frame, &r); err != nil {
			return err
		}
		if r.Type != "runtime_start_response" {
			continue
		}
		if !r.Success {
			return fmt.Errorf("runtime_start: %s", r.Error)
		}
		var id struct {
			Agent string `json:"agent_id"`
		}
		c.runtime = r.Runtime
		err = json.Unmarshal(r.Runtime, &id)
		c.agent = id.Agent
		return err
	}
}

func (c *client) read() ([]byte, error) {
	_, frame, err := c.conn.Read(c.ctx)
	return frame, err
}

func (c *client) close() { c.conn.CloseNow() }

// A turn is what one turn looked like from outside.
type turn struct {
	first time.Duration // to the first piece of the answer
	whole time.Duration
}

// turn sends one text and waits for the end of its turn.
func (c *client) turn(text string) (turn, error) {
	c.n++
	frame := fmt.Sprintf(`{"type":"input","request_id":"i-%d","runtime":%s,"payload":{"kind":"create_message","messages":[{"role":"user","content":%q,"client_message_id":"cm-%d"}]}}`,
		c.n, c.runtime, text, c.n)
	begin := time.Now()
	if err := c.conn.Write(c.ctx, websocket.MessageText, []byte(frame)); err != nil {
		return turn{}, err
	}
	var t turn
	for {
		frame, err := c.read()
		if err != nil {
			return t, err
		}
		if t.first == 0 && bytes.Contains(frame, markDelta) {
			t.first = time.Since(begin)
		}
		if bytes.Contains(frame, markFinished) {
			t.whole = time.Since(begin)
			if !bytes.Contains(frame, []byte(`"end_turn"`)) {
				return t, fmt.Errorf("the turn failed: %.300s", frame)
			}
			return t, nil
		}
	}
}
