package client

import (
	"context"
	"encoding/json"
	"errors"

	"mneme/protocol"
)

// maxTools is how many external tools run at once; further calls are answered
// with an error.
const maxTools = 64

// A Tool is an external tool: one that the agent may call and that runs here.
type Tool struct {
	protocol.ExternalTool
	// Scope offers the tool only to inputs that name it in
	// external_tool_scope_ids; empty = to all.
	Scope string
	// Run is called, in a goroutine of its own, for each call; its error becomes
	// the tool's result. The context ends with the connection. Nil = the calls
	// are left to readers of the events and [Client.AnswerTool].
	Run func(ctx context.Context, input json.RawMessage) (*protocol.ToolResult, error)
}

// groupTools makes the wire's form of tools, by scope.
func groupTools(tools []Tool) []protocol.ToolGroup {
	groups := []protocol.ToolGroup{}
	at := map[string]int{}
	for _, t := range tools {
		i, ok := at[t.Scope]
		if !ok {
			i = len(groups)
			at[t.Scope] = i
			group := protocol.ToolGroup{}
			if t.Scope != "" {
				group.ScopeID = &t.Scope
			}
			groups = append(groups, group)
		}
		groups[i].Tools = append(groups[i].Tools, t.ExternalTool)
	}
	return groups
}

// runTool starts the function of a tool call and answers for it. The caller
// holds mu.
func (c *Client) runTool(l *link, r *Runtime, req *protocol.ExternalToolCallRequest) {
	scope := ""
	if req.ScopeID != nil {
		scope = *req.ScopeID
	}
	for _, t := range r.tools {
		if t.Name != req.ToolName || t.Scope != scope || t.Run == nil {
			continue
		}
		select {
		case c.toolSlots <- struct{}{}:
		default:
			c.refuseTool(l, req.RequestID)
			return
		}
		c.tools.Go(func() {
			defer func() { <-c.toolSlots }()
			result, err := t.Run(l.ctx, json.RawMessage(req.Input))
			c.answerTool(l, req.RequestID, result, err)
		})
		return
	}
}

// refuseTool answers a call that finds no free slot, without waiting.
func (c *Client) refuseTool(l *link, requestID string) {
	text := "too many tool calls at once"
	frame, err := protocol.AppendCommand(nil, &requestID, &protocol.ExternalToolCallResponse{Error: &text})
	if err == nil {
		select {
		case l.out <- frame:
			return
		default:
		}
	}
	c.log.Warn("call of an external tool was dropped: too many at once", "request", requestID)
}

// answerTool answers on the connection that asked; on another one the call is
// unknown.
func (c *Client) answerTool(l *link, requestID string, result *protocol.ToolResult, err error) {
	answer := &protocol.ExternalToolCallResponse{Result: result}
	if err == nil && result == nil {
		err = errors.New("the tool returned nothing")
	}
	if err != nil {
		answer = &protocol.ExternalToolCallResponse{Error: new(err.Error())}
	}
	frame, err := protocol.AppendCommand(nil, &requestID, answer)
	if err != nil {
		text := "the tool's result cannot be sent: " + err.Error()
		frame, err = protocol.AppendCommand(nil, &requestID, &protocol.ExternalToolCallResponse{Error: &text})
	}
	if err == nil {
		err = l.send(l.ctx, frame)
	}
	if err != nil {
		c.log.Warn("answer of an external tool was not sent", "request", requestID, "error", err)
	}
}
