package mcpserver

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"mneme/client"
	"mneme/internal/agent"
	"mneme/protocol"
)

// Ask implements Backend. Each question has a connection of its own: with a mneme
// its conversation ends with that, and nothing is left.
func (b *Bridge) Ask(ctx context.Context, q Question, h AskHandler) (*Answer, error) {
	x, err := b.extensions(ctx)
	if err != nil {
		return nil, err
	}
	c, err := b.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	t := &bridgeTurn{Bridge: b, client: c, handler: h, stock: !x.EphemeralRuntime}
	if t.stock {
		if t.before, err = b.head(ctx, q.AgentID); err != nil {
			return nil, err
		}
	}
	if err := t.start(ctx, q.AgentID); err != nil {
		return nil, err
	}
	a, err := t.run(ctx, q)
	if t.stock {
		// Also after a failure the conversation must not stay in view.
		tidy, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortTimeout)
		defer cancel()
		warning := b.hide(tidy, t.runtime.ID().ConversationID)
		if err == nil {
			a.Warnings = append(a.Warnings, warning)
		}
	}
	return a, err
}

// A bridgeTurn is one question over a connection.
type bridgeTurn struct {
	*Bridge
	client  *client.Client
	handler AskHandler
	runtime *client.Runtime
	stock   bool
	before  string // commit
	denied  int
	detail  string // what the provider said to the last failure
}

// start opens the runtime. A directory that was not asked for and that the
// server does not have is left out.
func (t *bridgeTurn) start(ctx context.Context, agentID string) error {
	start := protocol.RuntimeStart{AgentID: &agentID, Cwd: protocol.Some(t.dir)}
	if t.stock {
		start.CreateConversation, start.Mode = &protocol.CreateConversation{}, protocol.ModeStrict
	} else {
		start.Ephemeral = new(true)
	}
	rt, err := t.client.StartRuntime(ctx, start)
	if err != nil && !t.dirGiven && ctx.Err() == nil && isServerError(err) {
		start.Cwd = protocol.Optional[string]{}
		rt, err = t.client.StartRuntime(ctx, start)
	}
	if err != nil {
		return t.explain(ctx, err)
	}
	t.runtime = rt
	if c := rt.Info().MemoryCommit; c != nil {
		t.before = *c
	}
	return nil
}

func isServerError(err error) bool {
	_, ok := err.(*client.ServerError)
	return ok
}

// run sends the question and follows its turn to the end.
func (t *bridgeTurn) run(ctx context.Context, q Question) (*Answer, error) {
	turn, err := t.runtime.Send(ctx, q.Text)
	if err != nil {
		return nil, t.explain(ctx, err)
	}
	if err := t.follow(ctx, turn); err != nil {
		t.abort(ctx)
		return nil, err
	}
	result, err := turn.Wait(ctx)
	if err != nil {
		t.abort(ctx)
		return nil, t.explain(ctx, err)
	}
	var failed *agent.Error
	if result.Error != "" {
		failed = &agent.Error{Code: agent.CodeModel, Message: result.Error, Detail: t.detail}
	}
	a, err := ended(agent.StopReason(result.StopReason), failed)
	if err != nil {
		return nil, err
	}
	a.Reply = result.Text()
	if result.Usage != (protocol.Usage{}) {
		a.Usage = &result.Usage
	}
	return a, t.prove(ctx, q.AgentID, result, a)
}

// prove says what became of the storage.
func (t *bridgeTurn) prove(ctx context.Context, agentID string, r client.TurnResult, a *Answer) error {
	if t.stock {
		s, warning, err := t.stockStorage(ctx, agentID, t.before, t.denied)
		if err != nil {
			return err
		}
		a.Storage = s
		if warning != "" {
			a.Warnings = append(a.Warnings, warning)
		}
		return nil
	}
	a.Storage = Storage{Locked: true, CommitBefore: orNull(t.before)}
	if f := r.Finished; f != nil {
		a.Storage.CommitAfter = f.MemoryCommit
		if f.WritesBlocked != nil {
			a.Storage.WritesBlocked = *f.WritesBlocked
		}
	}
	return nil
}

// follow tells of progress and has approvals decided.
func (t *bridgeTurn) follow(ctx context.Context, turn *client.Turn) error {
	chars := 0
	asked := map[string]bool{}
	for ev, err := range turn.Events(ctx) {
		if err != nil {
			return t.explain(ctx, err)
		}
		switch e := ev.Body.(type) {
		case *protocol.LoopStatusUpdate:
			if e.LoopStatus.Status == protocol.WaitingForAPIResponse {
				t.handler.Progress("thinking")
			}
		case *protocol.StreamDelta:
			switch d := e.Delta.(type) {
			case *protocol.AssistantDelta:
				chars += len([]rune(d.Content.Text()))
				t.handler.Progress(fmt.Sprintf("writing (%d chars)", chars))
			case *protocol.ToolStartDelta:
				t.handler.Progress("tool: " + d.ToolName)
			case *protocol.LoopErrorDelta:
				if d.APIError != nil {
					t.detail = d.APIError.Detail
				}
			}
		case *protocol.ControlRequest:
			if asked[e.RequestID] {
				continue
			}
			asked[e.RequestID] = true
			if err := t.decide(ctx, e); err != nil {
				return err
			}
		}
	}
	return nil
}

// questionTool is the tool by which agents ask people.
const questionTool = "AskUserQuestion"

// decide answers a request for an approval.
func (t *bridgeTurn) decide(ctx context.Context, e *protocol.ControlRequest) error {
	ap := &Approval{ID: e.RequestID, Tool: e.Request.ToolName, Question: e.Request.ToolName == questionTool, Input: json.RawMessage(e.Request.Input)}
	var d Decision
	if t.stock {
		t.denied++
		d = stockDecide(ap)
	} else {
		var err error
		if d, err = t.handler.Approve(ctx, ap); err != nil {
			return err
		}
	}
	decision := &protocol.Decision{Behavior: protocol.Allow}
	if !d.Allow {
		decision = &protocol.Decision{Behavior: protocol.Deny, Message: &d.Message}
	} else if d.Input != nil {
		decision.UpdatedInput = protocol.Some(protocol.Object(d.Input))
	}
	err := t.runtime.Answer(ctx, &protocol.ApprovalResponse{RequestID: e.RequestID, Decision: decision})
	if err != nil && isServerError(err) && strings.Contains(err.Error(), "no longer pending") {
		return nil
	}
	return t.explain(ctx, err)
}

// abort ends a turn that is no longer wanted.
func (t *bridgeTurn) abort(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if _, err := t.runtime.Abort(ctx); err != nil {
		t.log.Debug("turn not aborted", "err", err)
	}
}

// pathsOfDiff is the files that a unified diff changes.
func pathsOfDiff(diff string) []string {
	var paths []string
	for text := range strings.Lines(diff) {
		if rest, ok := strings.CutPrefix(strings.TrimRight(text, "\r\n"), "diff --git a/"); ok {
			if _, after, ok := strings.Cut(rest, " b/"); ok {
				paths = append(paths, after)
			}
		}
	}
	return paths
}
