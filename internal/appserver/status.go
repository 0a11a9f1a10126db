package appserver

import (
	"encoding/json"

	"mneme/internal/agent"
	"mneme/protocol"
)

// loopStatus shows where a runtime's turn is.
func loopStatus(s agent.State) *protocol.LoopStatusUpdate {
	st := protocol.LoopStatus{
		Status:               protocol.LoopState(s.Loop),
		ActiveRunIDs:         s.Steps,
		ExecutingToolCallIDs: s.Executing,
		TurnID:               s.TurnID,
	}
	if len(s.StepKeys) > 0 {
		st.ClientMessageIDsByRunID = s.StepKeys
	}
	return &protocol.LoopStatusUpdate{LoopStatus: st}
}

// queueUpdate shows the waiting inputs and what left them.
func queueUpdate(queue []agent.QueueItem, removed []agent.RemovedItem) *protocol.QueueUpdate {
	u := &protocol.QueueUpdate{}
	for _, q := range queue {
		u.Queue = append(u.Queue, protocol.QueueItem{
			ID: q.ID, ClientMessageID: q.ClientKey, Kind: q.Kind, Source: q.Source,
			Content: content(q.Raw, q.Content), EnqueuedAt: protocol.FormatTime(q.EnqueuedAt), Paused: q.Paused,
		})
	}
	for _, r := range removed {
		u.Removed = append(u.Removed, protocol.QueueRemoval{ClientMessageID: r.ClientKey, Disposition: r.Disposition})
	}
	return u
}

// requestPrefix makes the id of a control_request from that of its call.
const requestPrefix = "perm-"

// controlRequest asks for the answer to a waiting call.
func controlRequest(rt protocol.Runtime, c *agent.ToolCall) *protocol.ControlRequest {
	return &protocol.ControlRequest{
		RequestID: requestPrefix + c.ID, Request: canUseTool(c),
		AgentID: &rt.AgentID, ConversationID: rt.ConversationID,
	}
}

func canUseTool(c *agent.ToolCall) protocol.CanUseTool {
	q := protocol.CanUseTool{
		Subtype: "can_use_tool", ToolName: c.Name, ToolCallID: c.ID, Input: inputObject(c.Input),
	}
	for _, s := range c.Suggestions {
		q.PermissionSuggestions = append(q.PermissionSuggestions, protocol.PermissionSuggestion{ID: s.ID, Text: s.Text})
	}
	if len(c.Diffs) > 0 && json.Unmarshal(c.Diffs, &q.Diffs) != nil {
		q.Diffs = nil // a preview that cannot be read is none
	}
	return q
}

// inputObject is a call's input where it is a JSON object, else {}.
func inputObject(input json.RawMessage) protocol.Object {
	if len(input) > 0 && input[0] == '{' {
		return protocol.Object(input)
	}
	return nil
}

// shown is the waiting call that clients are asked about; nil = none.
func shown(s agent.State) *agent.ToolCall {
	if len(s.Pending) == 0 || s.Pending[0].Kind == agent.CallClientTool {
		return nil
	}
	return s.Pending[0]
}

// externalCall asks a connection to run one of its tools. The frame has no
// envelope.
func externalCall(rt protocol.Runtime, p agent.ExternalCall) (*frame, error) {
	req := &protocol.ExternalToolCallRequest{
		RequestID: p.RequestID, ToolCallID: p.Call.ID, ToolName: p.Call.Name, Input: inputObject(p.Call.Input),
	}
	if p.ScopeID != "" {
		req.ScopeID = &p.ScopeID
	}
	body, err := protocol.AppendEvent(nil, rt, req)
	if err != nil {
		return nil, err
	}
	return &frame{body: body}, nil
}
