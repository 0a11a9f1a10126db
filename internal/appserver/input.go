package appserver

import (
	"bytes"
	"context"
	"strings"

	"mneme/internal/agent"
	"mneme/internal/runtime"
	"mneme/protocol"
)

// input gives a runtime something to do: messages, or the answer to a waiting
// call (spec/app-server-core.md section 4). It is answered by input_accepted,
// which has accepted in place of success.
func input(ctx context.Context, k *call, cmd *protocol.Input) error {
	if k.sub == nil {
		k.refused(k.public(k.unknown).Message)
		return nil
	}
	var err error
	switch p := cmd.Payload.(type) {
	case *protocol.CreateMessage:
		err = k.submit(ctx, cmd, p)
	case *protocol.ApprovalResponse:
		err = k.decide(ctx, p)
	}
	if err != nil {
		k.refused(k.public(err).Message)
	}
	return nil
}

// isApproval tells the input that a running turn waits for.
func isApproval(cmd protocol.Command) bool {
	in, ok := cmd.(*protocol.Input)
	if !ok {
		return false
	}
	_, ok = in.Payload.(*protocol.ApprovalResponse)
	return ok
}

// legacyMessage is input by its old name, without acknowledgement.
func legacyMessage(ctx context.Context, k *call, cmd *protocol.LegacyMessage) error {
	in := cmd.Input()
	k.frame.RequestID = nil
	if k.sub, k.unknown = k.conn.subscribe(ctx, in.Runtime); k.sub == nil {
		return k.unknown
	}
	return k.submit(ctx, in, in.Payload.(*protocol.CreateMessage))
}

func (k *call) submit(ctx context.Context, cmd *protocol.Input, m *protocol.CreateMessage) error {
	in, err := newInput(cmd, m)
	if err != nil {
		return err
	}
	f := k.sub.feed
	in.AgentID, in.ConversationID, in.Origin = f.scope.AgentID, f.scope.ConversationID, k.id
	f.headless(&in.Options)
	_, err = k.door.rt.Submit(ctx, in, func(r runtime.Receipt) {
		ack := &protocol.InputAccepted{Runtime: f.rt, Accepted: true, Disposition: protocol.Queued}
		if r.Started {
			ack.Disposition, ack.TurnID = protocol.Started, r.TurnID
		}
		k.acknowledge(ack)
	})
	return err
}

// newInput translates a create_message.
func newInput(cmd *protocol.Input, m *protocol.CreateMessage) (*agent.Input, error) {
	in := &agent.Input{
		Door: agent.DoorAppServer, Kind: "message", Source: "user",
		IfBusy: agent.BusyQueue, OnOrphan: agent.OrphanCancel,
		Options: agent.TurnOptions{
			Allowlist: m.ClientToolAllowlist, ExternalScopes: m.ExternalToolScopeIDs,
			ExcludeInteractive: m.ExcludeInteractiveTools != nil && *m.ExcludeInteractiveTools,
			DropBadImages:      m.ImageFailureMode == protocol.ImageDrop,
		},
	}
	if m.KeepRunning != nil && *m.KeepRunning {
		in.OnOrphan = agent.OrphanKeep
	}
	if t := m.ClientToolset; t != nil {
		in.Options.ToolsetBase, in.Options.ToolsetInclude = string(t.Base), t.Include
	}
	var keys []string
	for i, msg := range m.Messages {
		parts, err := parts(i, msg.Content)
		if err != nil {
			return nil, err
		}
		key := msg.ClientMessageID
		if key == "" {
			key = msg.OTID
		}
		if key != "" {
			keys = append(keys, key)
		}
		otid := msg.OTID
		if otid == "" {
			otid = msg.ClientMessageID
		}
		in.Messages = append(in.Messages, agent.InputMessage{
			Role: agent.Role(msg.Role), Parts: parts, ClientKey: key, OTID: otid, SenderID: cmd.ActingUserID,
			Raw: bytes.Clone(msg.Content.Raw()), // the frame's buffer is not ours to keep
		})
	}
	in.Key = strings.Join(keys, "\n")
	return in, nil
}

// parts translates the content of message i.
func parts(i int, c protocol.Content) ([]agent.Part, error) {
	out := []agent.Part{}
	for j, p := range c.Parts() {
		switch p.Type {
		case "text":
			out = append(out, agent.Text(p.Text))
		case "image":
			out = append(out, agent.Part{Kind: agent.PartImage, MediaType: p.MediaType, Data: p.Data})
		default:
			return nil, agent.Invalid("messages.content",
				"input.payload.messages[%d].content[%d] has the type %.40q; text and image are accepted", i, j, p.Type)
		}
	}
	return out, nil
}

// decide hands in the answer to a waiting call.
func (k *call) decide(ctx context.Context, a *protocol.ApprovalResponse) error {
	id, ok := strings.CutPrefix(a.RequestID, requestPrefix)
	if !ok {
		return agent.Errorf(agent.CodeNotPending, "Approval request is no longer pending")
	}
	var ans runtime.Answer
	switch d := a.Decision; {
	case d == nil:
		ans.Message = *a.Error
	case d.Behavior == protocol.Deny:
		ans.Message = *d.Message
	default:
		ans.Allow, ans.Suggestions = true, d.SelectedPermissionSuggestionIDs
		if d.UpdatedInput.Value != nil {
			ans.Input = bytes.Clone(*d.UpdatedInput.Value)
		}
	}
	return k.door.rt.Answer(ctx, k.sub.feed.scope, id, ans, func() {
		k.acknowledge(&protocol.InputAccepted{Runtime: k.sub.feed.rt, Accepted: true})
	})
}

// acknowledge sends input_accepted, which only those get who said a request_id.
func (k *call) acknowledge(ack *protocol.InputAccepted) {
	k.answered = true
	if k.frame.RequestID != nil {
		k.reply(protocol.AppendFrame(nil, "input_accepted", k.frame.RequestID, ack))
	}
}

// refused says that an input was not accepted.
func (k *call) refused(text string) {
	if k.answered {
		k.door.log.Warn("input failed after it was accepted", "err", text)
		return
	}
	k.answered = true
	if k.frame.RequestID == nil {
		k.sendError(string(agent.CodeInvalid), text)
		return
	}
	ack := &protocol.InputAccepted{Error: text}
	if k.frame.Runtime != nil {
		ack.Runtime = *k.frame.Runtime
	}
	k.reply(protocol.AppendFrame(nil, "input_accepted", k.frame.RequestID, ack))
}

// refuseInput answers an input whose payload is not valid: the runtime's
// subscribers get a loop_error, the sender its refusal too.
func (c *conn) refuseInput(k *call, p *protocol.PayloadError) {
	if p.Loop != "" {
		k.sub, _ = c.subscribe(c.ctx, p.Runtime)
		k.loopError(p.Loop)
	}
	if k.frame.RequestID != nil || p.Loop == "" {
		k.refused(p.Ack)
	}
}

// loopError tells the subscribers of the command's runtime that it failed; where
// there is no such runtime only the sender hears of it.
func (k *call) loopError(text string) {
	d := &protocol.LoopErrorDelta{Message: text, StopReason: protocol.StopError}
	if err := k.broadcast(d); err != nil {
		k.door.log.Error("encode loop_error", "err", err)
	}
}

// broadcast sends a delta that no event of the runtime stands behind to the
// subscribers of the command's runtime.
func (k *call) broadcast(d protocol.Delta) error {
	if k.sub == nil {
		// Without the request_id, to which the answer is still to come.
		k.conn.sendError(nil, string(agent.CodeInvalid), deltaText(d))
		return nil
	}
	f := k.sub.feed
	id := agent.NewUUID()
	head := d.Head()
	head.ID, head.Date = "lifecycle-"+id, now()
	fr, err := f.frame(&protocol.StreamDelta{Delta: d}, id)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.subs {
		if s.full {
			s.deliver([]*frame{fr})
		}
	}
	return nil
}

func deltaText(d protocol.Delta) string {
	if e, ok := d.(*protocol.LoopErrorDelta); ok {
		return e.Message
	}
	return ""
}

// abort ends the turn of a runtime (spec/app-server-core.md section 5.6).
func abort(ctx context.Context, k *call, cmd *protocol.AbortMessage) (*protocol.AbortMessageResponse, error) {
	resp := &protocol.AbortMessageResponse{Runtime: cmd.Runtime}
	if k.sub == nil {
		return resp, nil // nothing runs where nothing is
	}
	target := ""
	if cmd.RunID.Value != nil {
		target = *cmd.RunID.Value
	}
	_, err := k.door.rt.Abort(ctx, k.sub.feed.scope, target, func(aborted bool) {
		k.ok(&protocol.AbortMessageResponse{Runtime: k.sub.feed.rt, Aborted: aborted})
	})
	if agent.CodeOf(err) == agent.CodeNotFound && !k.answered {
		return resp, nil
	}
	return resp, err
}

// removeQueued takes an input out of the queue. The response says by success
// whether it was there; then comes the queue as it is.
func removeQueued(ctx context.Context, k *call, cmd *protocol.RemoveQueueItem) (*protocol.RemoveQueueItemResponse, error) {
	resp := &protocol.RemoveQueueItemResponse{ItemID: cmd.ItemID}
	if k.sub == nil {
		return resp, k.unknown
	}
	_, err := k.door.rt.RemoveQueued(ctx, k.sub.feed.scope, cmd.ItemID, func(found bool) {
		if found {
			k.ok(resp)
			return
		}
		k.answered = true
		k.reply(protocol.AppendFrame(nil, "remove_queue_item_response", k.frame.RequestID, struct {
			Success bool   `json:"success"`
			ItemID  string `json:"item_id"`
		}{false, cmd.ItemID}))
	})
	return resp, err
}

// resumeQueue releases what an abort has paused.
func resumeQueue(ctx context.Context, k *call, cmd *protocol.ResumeQueue) (*protocol.ResumeQueueResponse, error) {
	resp := &protocol.ResumeQueueResponse{Runtime: cmd.Runtime}
	if k.sub == nil {
		return resp, nil // nothing is paused where nothing is
	}
	_, err := k.door.rt.ResumeQueue(ctx, k.sub.feed.scope, func(n int) {
		k.ok(&protocol.ResumeQueueResponse{Runtime: k.sub.feed.rt, Resumed: n})
	})
	return resp, err
}
