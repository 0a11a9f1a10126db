package runtime

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"mneme/internal/agent"
	"mneme/internal/llm"
	"mneme/internal/prompt"
	"mneme/internal/store"
)

// What sets a compaction off, as it is stored and shown (spec/harness.md
// section 1.7).
const (
	TriggerManual   = "manual"
	TriggerLimit    = "context_window_limit"
	TriggerOverflow = "context_window_overflow"
)

// maxCompactions bounds how often one model call is compacted for before the
// turn gives up.
const maxCompactions = 3

// CompactSettings say how to compact. Pointers that are nil leave what the
// agent's own settings say.
type CompactSettings struct {
	Mode      *string  `json:"mode"`
	Model     *string  `json:"model"`
	Prompt    *string  `json:"prompt"`
	ClipChars *int     `json:"clip_chars"` // of the summary; 0 = no limit
	Share     *float64 `json:"sliding_window_percentage"`
}

// Compaction is what a compaction did. Counts are of context messages, the
// system message included.
type Compaction struct {
	Summary        string
	Before, After  int
	NothingToDo    bool
	SummaryMessage *agent.Message
}

// A compacting is a compaction whose summary is being written.
type compacting struct {
	trigger string
	mode    string
	system  string // of the summariser
	model   string // handle
	clip    int
	evict   []*agent.Message
	keep    []*agent.Message
	self    *llm.Request // of the self modes
	before  int          // tokens
	window  int
	cancel  context.CancelCauseFunc
	done    func(*Compaction, error)
}

// Compact shortens what the model sees of a conversation, now. It is CodeBusy
// while a turn runs; a parked turn does not mind. override may be nil.
func (m *Manager) Compact(ctx context.Context, scope agent.Scope, override *CompactSettings) (*Compaction, error) {
	type result struct {
		c   *Compaction
		err error
	}
	ch := make(chan result, 1)
	m.post(scope, command{
		run: func(a *actor) {
			if a.turn != nil && a.turn.State == agent.TurnRunning || a.compacting != nil {
				ch <- result{err: a.busyError()}
				return
			}
			a.compact(TriggerManual, override, func(c *Compaction, err error) {
				ch <- result{c, err}
				a.next()
			})
		},
		fail: func(err error) { ch <- result{err: err} },
	})
	select {
	case r := <-ch:
		return r.c, r.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// compact decides what leaves the context and lets a worker sum it up. done is
// called in the actor.
func (a *actor) compact(trigger string, override *CompactSettings, done func(*Compaction, error)) {
	s, err := a.compactSettings(override)
	if err != nil {
		done(nil, err)
		return
	}
	c := &compacting{
		trigger: trigger, mode: *s.Mode, clip: *s.ClipChars, model: orDefault(deref(s.Model), a.modelHandle()),
		system: orDefault(deref(s.Prompt), prompt.SummarySystem(*s.Mode)), window: a.window(), done: done,
	}
	msgs := a.visible()
	c.before = a.contextTokens(msgs)
	n := len(msgs)
	if c.mode == prompt.ModeSlidingWindow || c.mode == prompt.ModeSelfSlidingWindow {
		n = orDefault(prompt.Cut(msgs, *s.Share, c.window), len(msgs))
	}
	n = min(n, settled(msgs))
	if trigger != TriggerManual {
		n = min(n, answeredPart(msgs))
	}
	c.evict, c.keep = msgs[:n], msgs[n:]
	if n == 0 || n == 1 && msgs[0].Role == agent.RoleSummary {
		done(&Compaction{Summary: summaryOf(msgs), Before: len(msgs) + 1, After: len(msgs) + 1, NothingToDo: true}, nil)
		return
	}
	if strings.HasPrefix(c.mode, "self_") {
		c.self = &llm.Request{System: a.promptText(), Messages: prompt.Window(c.evict), CacheKey: a.conv.ID}
	}
	ctx, cancel := context.WithCancelCause(a.m.work)
	c.cancel = cancel
	a.compacting = c
	a.emit(agent.Compacting{Trigger: trigger, Tokens: c.before, Window: c.window})
	a.idle.Go(func() {
		defer cancel(nil)
		text := a.m.summarize(ctx, c)
		a.post(func(a *actor) { a.compacted(c, text) })
	})
}

// visible are the messages that are in the context, the summary first.
func (a *actor) visible() []*agent.Message {
	var out []*agent.Message
	var summary *agent.Message
	for _, m := range a.history {
		switch {
		case m.Hidden || m.Interrupted || m.Role == agent.RoleSystem || m.Role == agent.RoleApproval:
		case m.Role == agent.RoleSummary:
			summary = m
		default:
			out = append(out, m)
		}
	}
	if summary != nil {
		out = slices.Insert(out, 0, summary)
	}
	return out
}

// settled is how many messages may leave: not the last answer while its calls
// have no results.
func settled(msgs []*agent.Message) int {
	for i := len(msgs) - 1; i >= 0; i-- {
		calls := msgs[i].Calls()
		if len(calls) == 0 {
			continue
		}
		results := 0
		for _, m := range msgs[i+1:] {
			if m.Role == agent.RoleTool && slices.ContainsFunc(calls, func(c agent.CallPart) bool { return c.ID == m.CallID }) {
				results++
			}
		}
		if results < len(calls) {
			return i
		}
		break
	}
	return len(msgs)
}

// answeredPart is how many messages may leave in the middle of a turn: what the
// model has not answered yet stays.
func answeredPart(msgs []*agent.Message) int {
	for i := len(msgs) - 1; i >= 0; i-- {
		if role := msgs[i].Role; role == agent.RoleAssistant || role == agent.RoleTool || role == agent.RoleSummary {
			return i + 1
		}
	}
	return 0
}

func summaryOf(msgs []*agent.Message) string {
	if len(msgs) > 0 && msgs[0].Role == agent.RoleSummary {
		return agent.TextOf(msgs[0].Parts)
	}
	return ""
}

// compactSettings are the agent's settings with those of the request on top.
func (a *actor) compactSettings(override *CompactSettings) (CompactSettings, error) {
	mode, clip, share := prompt.ModeSlidingWindow, 50_000, 0.3
	s := CompactSettings{Mode: &mode, ClipChars: &clip, Share: &share}
	if len(a.agent.Compaction) > 0 && string(a.agent.Compaction) != "null" {
		if err := s.add(a.agent.Compaction); err != nil {
			return s, err
		}
	}
	if o := override; o != nil {
		if o.Mode != nil && *o.Mode != *s.Mode && o.Prompt == nil {
			s.Prompt = nil // the other mode's own default
		}
		overlay(&s.Mode, o.Mode)
		overlay(&s.Model, o.Model)
		overlay(&s.Prompt, o.Prompt)
		overlay(&s.ClipChars, o.ClipChars)
		overlay(&s.Share, o.Share)
	}
	switch *s.Mode {
	case prompt.ModeAll, prompt.ModeSlidingWindow, prompt.ModeSelfAll, prompt.ModeSelfSlidingWindow:
		return s, nil
	}
	return s, agent.Invalid("compaction_settings.mode", "compaction_settings.mode %q is not one of %s, %s, %s, %s", *s.Mode,
		prompt.ModeSlidingWindow, prompt.ModeAll, prompt.ModeSelfAll, prompt.ModeSelfSlidingWindow)
}

// add lays stored settings over s.
func (s *CompactSettings) add(stored json.RawMessage) error {
	var o CompactSettings
	if err := json.Unmarshal(stored, &o); err != nil {
		return agent.Invalid("compaction_settings", "The agent's compaction_settings cannot be read: %v", err)
	}
	overlay(&s.Mode, o.Mode)
	overlay(&s.Model, o.Model)
	overlay(&s.Prompt, o.Prompt)
	overlay(&s.ClipChars, o.ClipChars)
	overlay(&s.Share, o.Share)
	return nil
}

func overlay[T any](to **T, with *T) {
	if with != nil {
		*to = with
	}
}

func deref[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// summarize writes the summary: with the chosen mode, then with those it falls
// back to, at last without any model. It returns "" only when ctx has ended.
func (m *Manager) summarize(ctx context.Context, c *compacting) string {
	var failure error
	if c.self != nil {
		text, err := m.selfSummary(ctx, c)
		if err == nil {
			return clip(text, c.clip)
		}
		failure = err
	}
	for _, limit := range prompt.TranscriptLimits() {
		if ctx.Err() != nil {
			return ""
		}
		text, err := m.complete(ctx, c.model, &llm.Request{System: c.system, Messages: userText(prompt.Transcript(c.evict, limit))})
		if err == nil {
			return clip(text, c.clip)
		}
		failure = err
		var e *llm.Error
		if !errors.As(err, &e) || !e.Overflow {
			break
		}
	}
	if ctx.Err() != nil {
		return ""
	}
	m.log.Warn("no model wrote the summary; the beginnings of the messages stand in", "err", failure)
	return clip(prompt.Digest(c.evict), c.clip)
}

// selfSummary lets the agent's own model sum up what it has seen itself.
func (m *Manager) selfSummary(ctx context.Context, c *compacting) (string, error) {
	req := *c.self
	req.Messages = append(slices.Clone(req.Messages), userText(prompt.SelfSummaryRequest(c.mode))...)
	return m.complete(ctx, c.model, &req)
}

// complete asks a model for one text, with the retries of a step.
func (m *Manager) complete(ctx context.Context, handle string, req *llm.Request) (string, error) {
	model, info, err := m.cfg.Models.Resolve(ctx, handle)
	if err != nil {
		return "", err
	}
	req.Model = info.Name
	for attempt := 1; ; attempt++ {
		text, err := one(model.Stream(ctx, req))
		if err == nil && strings.TrimSpace(text) == "" {
			return "", fmt.Errorf("the model wrote nothing")
		}
		if err == nil {
			return text, nil
		}
		delay, again := llm.RetryDelay(err, attempt)
		if !again {
			return "", err
		}
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
}

func one(parts func(func(llm.Part, error) bool)) (string, error) {
	var b strings.Builder
	for p, err := range parts {
		if err != nil {
			return "", err
		}
		if p.Kind == llm.PartText {
			b.WriteString(p.Text)
		}
	}
	return strings.TrimSpace(b.String()), nil
}

func userText(text string) []*agent.Message {
	return []*agent.Message{{Role: agent.RoleUser, Parts: []agent.Part{agent.Text(text)}}}
}

// clip cuts a summary to n characters; 0 = no limit.
func clip(text string, n int) string {
	const mark = " […]"
	if r := []rune(text); n > 0 && len(r) > n {
		return string(r[:max(0, n-len(mark))]) + mark
	}
	return text
}

// compacted stores the summary in place of what it sums up.
func (a *actor) compacted(c *compacting, text string) {
	if a.compacting != c {
		return // aborted
	}
	a.compacting = nil
	if text == "" {
		c.done(nil, errStopping())
		return
	}
	change := &store.Change{}
	for _, m := range c.evict {
		if m.Role == agent.RoleSummary {
			gone := *m
			gone.Hidden = true
			change.Messages = append(change.Messages, &gone)
			continue
		}
		change.HideThrough = max(change.HideThrough, m.Seq)
	}
	a.history = slices.DeleteFunc(slices.Clone(a.history), func(m *agent.Message) bool {
		return m.Seq <= change.HideThrough || m.Role == agent.RoleSummary
	})
	msg := a.message(change, agent.RoleSummary)
	msg.Parts = []agent.Part{agent.Text(text)}
	stats := prompt.CompactionStats{
		Trigger: c.trigger, TokensBefore: c.before, Window: c.window,
		MessagesBefore: len(c.evict) + len(c.keep) + 1, MessagesAfter: len(c.keep) + 2,
	}
	a.prompt = nil // compiled afresh from the memory as it is now
	if err := a.refreshPrompt(change); err != nil {
		a.die(err)
		c.done(nil, err)
		return
	}
	stats.TokensAfter = prompt.Estimate(a.prompt.Text, nil, c.keep) + prompt.EstimateMessage(msg)
	msg.Stats, _ = json.Marshal(stats)
	if err := a.commitThen(change, func() { a.emit(agent.Compacted{Message: msg}) }); err != nil {
		c.done(nil, err)
		return
	}
	a.lastTokens = 0
	c.done(&Compaction{
		Summary: text, Before: stats.MessagesBefore, After: stats.MessagesAfter, SummaryMessage: msg,
	}, nil)
}

// window is how many tokens the model takes, 0 = not known.
func (a *actor) window() int {
	if n := orDefault(a.conv.ContextLimit, a.agent.ContextLimit); n > 0 {
		return n
	}
	_, info, err := a.m.cfg.Models.Resolve(a.m.work, a.modelHandle())
	if err != nil {
		return 0
	}
	return info.Context
}

// contextTokens is about what the next request takes: what the provider counted
// for the last one and an estimate of what came since, or an estimate of all.
func (a *actor) contextTokens(msgs []*agent.Message) int {
	if a.lastTokens > 0 {
		n := a.lastTokens
		for _, m := range msgs {
			if m.Seq > a.lastSeq {
				n += prompt.EstimateMessage(m)
			}
		}
		return n
	}
	return prompt.Estimate(a.promptText(), nil, msgs)
}

func (a *actor) promptText() string {
	if a.prompt == nil {
		return a.agent.System
	}
	return a.prompt.Text
}

// fitOrCompact says whether the next request may be sent. If it is too long it
// begins a compaction after which the step is asked, or ends the turn.
func (a *actor) fitOrCompact(tools []agent.ToolDef) (send bool) {
	window := a.window()
	msgs := a.visible()
	if prompt.Fits(a.contextTokens(msgs), window) {
		return true
	}
	if prompt.Estimate(a.promptText(), tools, nil) > window {
		a.fail(&agent.Error{
			Code: agent.CodeModelOverflow,
			Message: fmt.Sprintf("The system prompt and the tools alone exceed the context window of %d tokens: "+
				"raise context_window_limit, shorten the memory or choose a smaller toolset", window),
		}, false)
		return false
	}
	if a.compactions > 0 {
		return true // the estimate may be wrong; the provider decides
	}
	a.compactThenAsk(TriggerLimit, nil)
	return false
}

// compactThenAsk compacts for the current step and asks it then. why is the
// provider's refusal, nil if it was not asked.
func (a *actor) compactThenAsk(trigger string, why *agent.Error) {
	a.compactions++
	step := a.step
	a.compact(trigger, nil, func(c *Compaction, err error) {
		switch {
		case a.dead != nil || a.step != step:
		case err != nil && agent.CodeOf(err) == agent.CodeShutdown:
		case err != nil:
			a.fail(modelError(err), why != nil)
		case c.NothingToDo && why != nil:
			a.fail(why, true)
		default:
			a.ask()
		}
	})
}
