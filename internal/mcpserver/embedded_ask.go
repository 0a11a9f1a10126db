package mcpserver

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"mneme/internal/agent"
	"mneme/internal/runtime"
	"mneme/protocol"
)

// abortTimeout bounds what is left to do when a turn is no longer wanted.
const abortTimeout = 10 * time.Second

// A turnLog is what session_ask keeps of a turn's events. The runtime writes,
// Ask reads.
type turnLog struct {
	progress func(string)
	wake     chan struct{} // holds a token when asked or finished has changed

	mu       sync.Mutex
	texts    []stepText
	chars    int
	asked    []*agent.ToolCall
	finished *agent.TurnFinished
}

// stepText is what the assistant said in one message.
type stepText struct{ message, text string }

// take takes an event. It must not block.
func (l *turnLog) take(ev *agent.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch p := ev.Payload.(type) {
	case agent.StepStarted:
		l.progress("thinking")
	case agent.TextDelta:
		l.chars += len([]rune(p.Text))
		l.progress(fmt.Sprintf("writing (%d chars)", l.chars))
	case agent.CallRunning:
		l.progress("tool: " + p.Call.Name)
	case agent.AnswerStored:
		l.texts = append(l.texts, stepText{p.Message.ID, agent.TextOf(p.Message.Parts)})
	case agent.Retrying:
		l.texts = slices.DeleteFunc(l.texts, func(t stepText) bool { return slices.Contains(p.Voided, t.message) })
	case agent.CallAsked:
		l.asked = append(l.asked, p.Call)
		l.signal()
	case agent.TurnFinished:
		l.finished = &p
		l.signal()
	}
}

func (l *turnLog) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// next is an approval that was asked for, or the turn's end.
func (l *turnLog) next() (*agent.ToolCall, *agent.TurnFinished) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.asked) > 0 {
		call := l.asked[0]
		l.asked = l.asked[1:]
		return call, nil
	}
	return nil, l.finished
}

// reply is all that the assistant said.
func (l *turnLog) reply() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var texts []string
	for _, t := range l.texts {
		if t.text != "" {
			texts = append(texts, t.text)
		}
	}
	return strings.Join(texts, "\n\n")
}

// Ask implements Backend.
func (e *Embedded) Ask(ctx context.Context, q Question, h AskHandler) (*Answer, error) {
	scope, err := e.Runtime.OpenEphemeral(ctx, q.AgentID)
	if err != nil {
		return nil, err
	}
	l := &turnLog{progress: h.Progress, wake: make(chan struct{}, 1)}
	leave := e.Runtime.Subscribe(scope, l.take)
	defer leave()
	if e.dir != "" {
		if err := e.Runtime.ChangeSettingsQuietly(ctx, scope, runtime.Change{Cwd: &e.dir}); err != nil {
			return nil, err
		}
	}
	opened, ok := e.Runtime.Ephemeral(scope.ConversationID)
	if !ok {
		return nil, errStopping
	}
	in := &agent.Input{
		AgentID: scope.AgentID, ConversationID: scope.ConversationID, Door: agent.DoorMCP, Ephemeral: true,
		IfBusy: agent.BusyReject, OnOrphan: agent.OrphanCancelNow,
		Messages: []agent.InputMessage{{Role: agent.RoleUser, Parts: []agent.Part{agent.Text(q.Text)}}},
	}
	if _, err := e.Runtime.Submit(ctx, in, nil); err != nil {
		return nil, err
	}
	end, err := e.await(ctx, scope, l, h)
	if err != nil {
		e.abort(ctx, scope)
		return nil, err
	}
	a, err := ended(end.StopReason, end.Error)
	if err != nil {
		return nil, err
	}
	a.Reply = l.reply()
	a.Usage = usageOf(end.Usage)
	a.Storage = Storage{Locked: true, CommitBefore: orNull(opened.Commit)}
	if last := end.Ephemeral; last != nil {
		a.Storage.CommitAfter, a.Storage.WritesBlocked = orNull(last.MemoryCommit), last.WritesBlocked
	}
	return a, nil
}

// await has approvals decided until the turn ends.
func (e *Embedded) await(ctx context.Context, scope agent.Scope, l *turnLog, h AskHandler) (*agent.TurnFinished, error) {
	for {
		call, end := l.next()
		switch {
		case call != nil:
			d, err := h.Approve(ctx, &Approval{ID: call.ID, Tool: call.Name, Question: call.Kind == agent.CallQuestion, Input: call.Input})
			if err != nil {
				return nil, err
			}
			ans := runtime.Answer{Allow: d.Allow, Message: d.Message, Input: d.Input}
			err = e.Runtime.Answer(ctx, scope, call.ID, ans, nil)
			if err != nil && agent.CodeOf(err) != agent.CodeNotPending {
				return nil, err
			}
			continue
		case end != nil:
			return end, nil
		}
		select {
		case <-l.wake:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// abort ends a turn that is no longer wanted.
func (e *Embedded) abort(ctx context.Context, scope agent.Scope) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortTimeout)
	defer cancel()
	if _, err := e.Runtime.Abort(ctx, scope, "", nil); err != nil && agent.CodeOf(err) != agent.CodeNotFound {
		e.Logger.Debug("turn not aborted", "conversation", scope.ConversationID, "err", err)
	}
}

// ended reads how a turn ended. One that was cut short still has an answer.
func ended(stop agent.StopReason, failed *agent.Error) (*Answer, error) {
	switch {
	case failed != nil:
		return nil, modelError(failed)
	case stop == agent.StopCancelled:
		return nil, fault(CodeCancelled, "The turn was aborted.")
	case stop == agent.StopError, stop == agent.StopModelError, stop == agent.StopInvalidResponse, stop == agent.StopOverflow:
		return nil, modelError(agent.Errorf(agent.CodeModel, "The turn failed: %s", stop))
	case stop == agent.StopMaxSteps:
		return &Answer{Warnings: []string{"The turn was ended because it took too many steps; the reply may be incomplete."}}, nil
	case stop == agent.StopMaxTokens:
		return &Answer{Warnings: []string{"The model's answer hit its length limit; the reply may be incomplete."}}, nil
	}
	return &Answer{}, nil
}

// modelError is a provider's failure in one plain line: what we make of it, and
// the provider's own words.
func modelError(e *agent.Error) error {
	text := line(cmp.Or(e.Message, "The model failed."))
	if e.Status > 0 && !strings.Contains(text, fmt.Sprint(e.Status)) {
		text = fmt.Sprintf("%s (HTTP status %d)", text, e.Status)
	}
	if own := line(ownWords(e.Detail)); own != "" && !strings.Contains(text, own) {
		text += " The provider says: " + clip(own, 500)
	}
	return fault(CodeModelError, "%s", text)
}

// ownWords is the message in what a provider answered: mostly an object that
// holds it somewhere, else a text.
func ownWords(detail string) string {
	var object struct {
		Error   json.RawMessage `json:"error"`
		Message string          `json:"message"`
		Detail  string          `json:"detail"`
	}
	if json.Unmarshal([]byte(detail), &object) != nil {
		return detail
	}
	var inner struct {
		Message string `json:"message"`
	}
	var text string
	switch {
	case json.Unmarshal(object.Error, &inner) == nil && inner.Message != "":
		return inner.Message
	case json.Unmarshal(object.Error, &text) == nil && text != "":
		return text
	}
	return cmp.Or(object.Message, object.Detail, detail)
}

// usageOf is a turn's usage in the form that is shown.
func usageOf(u agent.Usage) *protocol.Usage {
	if !u.Reported {
		return nil
	}
	return &protocol.Usage{
		PromptTokens: u.Input, CompletionTokens: u.Output, TotalTokens: u.Total(),
		CachedInputTokens: u.CacheRead, CacheWriteTokens: u.CacheWrite, ReasoningTokens: u.Reasoning,
	}
}
