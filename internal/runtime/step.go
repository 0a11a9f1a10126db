package runtime

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"mneme/internal/agent"
	"mneme/internal/llm"
	"mneme/internal/prompt"
	"mneme/internal/store"
)

// An asking is one model call in flight. Its worker publishes the pieces as
// they come and posts the end to the actor. cut stops it at any moment: no
// piece is published after cut has returned.
type asking struct {
	a       *actor
	step    *agent.Step
	req     *llm.Request
	model   llm.Model
	cancel  context.CancelCauseFunc
	started agent.State // published with the first piece
	single  bool        // only the first call of the answer counts

	mu     sync.Mutex // guards the rest
	over   bool
	first  bool      // a piece came
	at     time.Time // when it came
	parts  []agent.Part
	text   []byte // of the last part, while it grows
	usage  agent.Usage
	finish llm.Finish
	err    error
}

// ask shows that the current step is sent to the model, and sends it.
func (a *actor) ask() {
	if a.stopping() {
		return // the open step is in the journal
	}
	tools, err := a.toolDefs()
	if err != nil {
		a.fail(modelError(err), false)
		return
	}
	a.emit(agent.StepStarted{N: a.step.N})
	a.emitLoop(agent.LoopWaiting, a.snapshot().Steps, nil)
	a.emitLoop(agent.LoopProcessing, nil, nil)
	a.send(tools)
}

// send sends the current step to the model. What cannot even be sent ends the
// turn.
func (a *actor) send(tools []agent.ToolDef) {
	if !a.fitOrCompact(tools) {
		return
	}
	ctx, cancel := context.WithCancelCause(a.m.work)
	w := &asking{a: a, step: a.step, cancel: cancel}
	a.asking = w
	if err := a.prepare(ctx, w, tools); err != nil {
		cancel(nil)
		a.asking = nil
		a.fail(modelError(err), false)
		return
	}
	a.idle.Go(func() {
		defer cancel(nil)
		w.run(ctx)
		a.post(func(a *actor) { a.answered(w) })
	})
}

// prepare resolves the model and builds the request.
func (a *actor) prepare(ctx context.Context, w *asking, tools []agent.ToolDef) error {
	settings := a.agent.ModelSettings
	if len(a.conv.ModelSettings) > 0 {
		settings = a.conv.ModelSettings
	}
	model, info, err := a.m.cfg.Models.Resolve(ctx, a.modelHandle())
	if err != nil {
		return err
	}
	system := a.prompt.Text
	if a.turn.Options.System != nil {
		system = *a.turn.Options.System
	}
	if add := a.turn.Options.Addendum; add != "" {
		system += "\n\n" + add
	}
	a.step.Model = info.Handle
	w.model, w.single = model, a.oneCall(settings)
	w.req = &llm.Request{
		Model: info.Name, System: system, Messages: prompt.Window(a.history), Tools: tools,
		MaxOutput: maxOutput(settings, info), Settings: settings, CacheKey: a.conv.ID,
	}
	w.started = a.snapshot()
	w.started.Loop, w.started.Steps = agent.LoopProcessing, []string{a.step.ID}
	return nil
}

// modelHandle is the model of the next request.
func (a *actor) modelHandle() string {
	if a.turn != nil && a.turn.Options.Model != "" {
		return a.turn.Options.Model
	}
	if a.conv.Model != nil && *a.conv.Model != "" {
		return *a.conv.Model
	}
	return a.agent.Model
}

// toolDefs describes the turn's tools to the model, and tells watchers of them.
func (a *actor) toolDefs() ([]agent.ToolDef, error) {
	tools, err := a.tools()
	if err != nil {
		return nil, err
	}
	defs := make([]agent.ToolDef, 0, len(tools))
	names := make([]string, 0, len(tools))
	for _, t := range tools {
		defs = append(defs, t.Def)
		names = append(names, t.Def.Name)
	}
	a.noteTools(names)
	return defs, nil
}

// run asks the model and gathers the answer.
func (w *asking) run(ctx context.Context) {
	for part, err := range w.model.Stream(ctx, w.req) {
		if err != nil {
			w.mu.Lock()
			w.err = err
			if cause := context.Cause(ctx); cause != nil {
				w.err = cause
			}
			w.mu.Unlock()
			return
		}
		if !w.take(part) {
			return
		}
	}
}

// take adds one piece and publishes it; false if the asking was cut off.
func (w *asking) take(p llm.Part) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		return false
	}
	if !w.first && (p.Kind == llm.PartText || p.Kind == llm.PartReasoning || p.Kind == llm.PartCall) {
		w.first, w.at = true, time.Now()
		w.show()
	}
	switch p.Kind {
	case llm.PartText:
		w.grow(agent.PartText, p)
		w.emit(agent.TextDelta{Part: len(w.parts) - 1, Text: p.Text})
	case llm.PartReasoning:
		w.grow(agent.PartReasoning, p)
		if p.Text != "" {
			w.emit(agent.ReasoningDelta{Part: len(w.parts) - 1, Text: p.Text})
		}
	case llm.PartCall:
		w.settle()
		if w.single && slices.ContainsFunc(w.parts, func(p agent.Part) bool { return p.Kind == agent.PartToolCall }) {
			return true
		}
		call := *p.Call
		if call.ID == "" || w.knows(call.ID) {
			call.ID = "call_" + agent.NewUUID()
		}
		w.parts = append(w.parts, agent.Part{Kind: agent.PartToolCall, Call: &call})
		w.emit(agent.CallMade{Call: call})
	case llm.PartUsage:
		w.usage = p.Usage
	case llm.PartFinish:
		w.finish = p.Finish
	}
	return true
}

// show tells that the model is answering this step.
func (w *asking) show() {
	w.a.set(func(s *agent.State) { s.Loop, s.Steps = w.started.Loop, w.started.Steps })
	w.emit(agent.LoopChanged{State: w.started})
}

// grow adds text to the last part, or begins a new one.
func (w *asking) grow(kind agent.PartKind, p llm.Part) {
	n := len(w.parts)
	if n == 0 || w.parts[n-1].Kind != kind || w.parts[n-1].Field != p.Field {
		w.settle()
		w.parts = append(w.parts, agent.Part{Kind: kind, Field: p.Field})
		n++
	}
	w.text = append(w.text, p.Text...)
	if p.Signature != "" {
		w.parts[n-1].Signature = p.Signature
	}
	if p.Meta != nil {
		w.parts[n-1].Meta = p.Meta
	}
}

// settle gives the growing part its text.
func (w *asking) settle() {
	if n := len(w.parts); n > 0 && len(w.text) > 0 {
		w.parts[n-1].Text = string(w.text)
		w.text = w.text[:0]
	}
}

// knows says whether a call id was used before in this context: providers
// repeat them, histories must not.
func (w *asking) knows(id string) bool {
	same := func(p agent.Part) bool { return p.Kind == agent.PartToolCall && p.Call.ID == id }
	return slices.ContainsFunc(w.parts, same) ||
		slices.ContainsFunc(w.req.Messages, func(m *agent.Message) bool { return slices.ContainsFunc(m.Parts, same) })
}

func (w *asking) emit(p agent.Payload) {
	w.a.log.emit(&agent.Event{
		Scope: w.a.scope, TurnID: w.step.TurnID, RunID: w.step.RunID, StepID: w.step.ID,
		MessageID: w.step.MessageID, At: time.Now(), Payload: p,
	})
}

// cut ends the asking at once and returns the text that came. The provider's
// request is cancelled; nothing is published any more.
func (w *asking) cut(cause error) []agent.Part {
	w.cancel(cause)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	w.settle()
	return visible(w.parts)
}

// visible drops the tool calls of an answer that was not finished.
func visible(parts []agent.Part) []agent.Part {
	return slices.DeleteFunc(slices.Clone(parts), func(p agent.Part) bool {
		return p.Kind == agent.PartToolCall || p.Text == "" && p.Kind == agent.PartText
	})
}

// answered takes the end of a model call.
func (a *actor) answered(w *asking) {
	if a.asking != w {
		return // it was cut off
	}
	a.asking = nil
	w.mu.Lock()
	w.over = true
	w.settle()
	w.mu.Unlock()
	if !w.first && a.attempt == 0 {
		w.show() // it ended without a word
	}
	if w.err != nil {
		a.askFailed(w)
		return
	}
	a.attempt, a.compactions = 0, 0
	if w.usage.Reported {
		a.lastTokens, a.lastSeq = w.usage.Total(), a.seq+1 // the answer is counted in
	}
	a.step.Usage = w.usage
	a.usage, a.runUse = a.usage.Add(w.usage), a.runUse.Add(w.usage)
	a.runLen++
	c := &store.Change{}
	if a.run.FirstTokenAt.IsZero() && w.first {
		a.run.FirstTokenAt = w.at
		c.Runs = []*agent.Run{a.run}
	}
	var msg *agent.Message
	if len(w.parts) > 0 {
		msg = a.message(c, agent.RoleAssistant)
		msg.ID, msg.Parts = a.step.MessageID, w.parts
	}
	switch {
	case w.finish == llm.FinishLength:
		if msg != nil {
			msg.Parts = visible(msg.Parts)
		}
		a.step.StopReason = agent.StopMaxTokens
		a.end(ending{
			stop: agent.StopMaxTokens, change: c,
			err:    agent.Errorf(agent.CodeModelLength, "Unexpected stop reason: max_tokens_exceeded"),
			before: func() { a.emitAnswer(msg) },
		})
	case msg != nil && len(msg.Calls()) > 0:
		a.step.StopReason = agent.StopRequiresApproval
		a.proposed(c, msg)
	default:
		a.step.StopReason = agent.StopEndTurn
		a.end(ending{stop: agent.StopEndTurn, change: c, before: func() { a.emitAnswer(msg) }})
	}
}

func (a *actor) emitAnswer(msg *agent.Message) {
	a.emit(agent.AnswerStored{Message: msg, Usage: a.step.Usage, StopReason: a.step.StopReason})
}

// askFailed decides whether a failed model call is tried again: one budget,
// status codes decide (spec/harness.md section 1.6).
func (a *actor) askFailed(w *asking) {
	if errors.Is(w.err, ErrShutdown) || a.stopping() {
		return // the open step is in the journal
	}
	var overflow *llm.Error
	if errors.As(w.err, &overflow) && overflow.Overflow && a.compactions < maxCompactions && !w.first {
		a.compactThenAsk(TriggerOverflow, modelError(w.err))
		return
	}
	a.attempt++
	delay, again := llm.RetryDelay(w.err, a.attempt)
	if !again {
		a.keepPartial(w.parts, func(c *store.Change) { a.failWith(modelError(w.err), true, c) })
		return
	}
	r := agent.Retrying{
		Reason: "llm_api_error", Message: modelError(w.err).Message,
		Attempt: a.attempt, Max: llm.MaxAttempts - 1, Delay: delay,
	}
	if w.first {
		r.Voided = []string{a.step.MessageID}
		if a.voidStep(w.parts, r) != nil {
			return
		}
	} else {
		a.emit(r)
	}
	a.retry = time.AfterFunc(delay, func() {
		a.post(func(a *actor) {
			switch {
			case a.retry == nil: // aborted
			case w.first:
				a.retry = nil
				a.emitLoop(agent.LoopSending, a.snapshot().Steps, nil)
				a.ask()
			default: // the same step goes on
				a.retry = nil
				a.send(w.req.Tools)
			}
		})
	})
}

// voidStep gives up a step of which something was shown, and opens another that
// asks the same; told says so.
func (a *actor) voidStep(parts []agent.Part, told agent.Retrying) error {
	c := &store.Change{}
	old := a.step
	a.addPartial(c, parts)
	old.State, old.EndedAt, old.StopReason = agent.StepVoid, time.Now(), agent.StopModelError
	a.newStep(c, old.ClientKeys)
	c.Steps = append(c.Steps, old)
	return a.commitThen(c, func() {
		a.noteKeys(false)
		a.emit(told)
	})
}

// addPartial keeps the text of a cut answer: listed, never sent to the model.
func (a *actor) addPartial(c *store.Change, parts []agent.Part) {
	if parts = visible(parts); len(parts) > 0 {
		msg := a.message(c, agent.RoleAssistant)
		msg.ID, msg.Parts, msg.Interrupted = a.step.MessageID, parts, true
	}
}

func (a *actor) keepPartial(parts []agent.Part, then func(*store.Change)) {
	c := &store.Change{}
	a.addPartial(c, parts)
	then(c)
}

// fail ends the turn because of an error. asked says that a model was asked.
func (a *actor) fail(e *agent.Error, asked bool) { a.failWith(e, asked, &store.Change{}) }

func (a *actor) failWith(e *agent.Error, asked bool, c *store.Change) {
	stop := agent.StopError
	if e.Retryable {
		stop = agent.StopModelError
	}
	a.step.StopReason, a.step.Error = stop, e
	end := ending{stop: stop, err: e, change: c}
	if asked {
		end.before = func() { a.emit(agent.StepFailed{Error: e, StopReason: stop}) }
	}
	a.end(end)
}

// modelError is the plain error inside err.
func modelError(err error) *agent.Error {
	var e *agent.Error
	if errors.As(err, &e) {
		return e
	}
	return agent.Errorf(agent.CodeInternal, "The model could not be asked: %v", err)
}
