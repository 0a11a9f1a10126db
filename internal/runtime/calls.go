package runtime

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"mneme/internal/agent"
	"mneme/internal/store"
	"mneme/internal/tool"
)

// proposed takes an answer with tool calls: the rules speak on each, and one
// commit holds the answer, the calls with their verdicts and, if somebody must
// be asked, the parking of the turn.
func (a *actor) proposed(c *store.Change, msg *agent.Message) {
	now := time.Now()
	a.step.State = agent.StepAnswered
	a.calls, a.results = nil, 0
	for i, part := range msg.Calls() {
		call := &agent.ToolCall{
			ID: part.ID, StepID: a.step.ID, TurnID: a.turn.ID, AgentID: a.agent.ID, ConversationID: a.conv.ID,
			MessageID: msg.ID, Index: i, Name: part.Name, Arguments: part.Arguments,
			Input: tool.ParseInput(part.Arguments), State: agent.CallProposed, CreatedAt: now,
		}
		a.calls = append(a.calls, call)
	}
	a.classify(a.calls)
	var sum agent.CallsClassified
	for _, call := range a.calls {
		switch call.State {
		case agent.CallAllowed:
			sum.Allowed = append(sum.Allowed, call.ID)
		case agent.CallDenied:
			sum.Denied = append(sum.Denied, call.ID)
		default:
			sum.Ask = append(sum.Ask, call.ID)
		}
	}
	c.Calls = a.calls
	c.Steps = []*agent.Step{a.step}
	parks := len(sum.Ask) > 0
	if parks {
		a.park(c)
	}
	err := a.commitThen(c, func() {
		a.emitAnswer(msg)
		a.emit(sum)
		if parks {
			a.emitParked()
		}
	})
	switch {
	case err != nil:
	case parks:
		a.log.off()                     // the run has ended
		a.dismissWaiting(a.busyError()) // nobody knows for how long
	default:
		a.execute()
	}
}

// classify lets the rules decide on proposed calls.
func (a *actor) classify(calls []*agent.ToolCall) {
	tools, err := a.tools()
	if err != nil {
		tools = nil // every call is then an unknown tool
	}
	env := a.env()
	now := time.Now()
	for i, call := range calls {
		t := tool.Find(tools, call.Name)
		d := tool.Decide(t, &tool.Call{ID: call.ID, Name: call.Name, Input: call.Input, Env: env})
		if d.Verdict == tool.Ask && a.denies() {
			d = tool.Decision{Verdict: tool.Deny, Reason: "Permission denied: nobody is there to approve this call"}
		}
		if t == nil && d.Verdict == tool.Ask && a.turn.Door == agent.DoorREST {
			// There is nothing to approve: it becomes an error that names the tools
			// (spec/rest.md section 4).
			d = tool.Decision{Verdict: tool.Allow}
		}
		if why := a.overused(call.Name, calls[:i]); why != "" {
			d = tool.Decision{Verdict: tool.Deny, Reason: why}
		}
		if why := a.lock(t, call.Name); why != "" {
			d = tool.Decision{Verdict: tool.Deny, Reason: why}
		}
		call.Auto = true
		switch {
		case d.Verdict == tool.Deny:
			call.State = agent.CallDenied
			res := agent.TextResult(agent.StatusError, d.Reason)
			call.Result = &res
		case t != nil && t.Run == nil:
			call.State, call.Kind, call.AskedAt, call.Auto = agent.CallWaiting, agent.CallClientTool, now, false
		case d.Verdict == tool.Allow:
			call.State = agent.CallAllowed
		default:
			call.State, call.Kind, call.AskedAt, call.Auto = agent.CallWaiting, agent.CallPermission, now, false
			if t != nil && t.Interactive {
				call.Kind = agent.CallQuestion
			}
			call.Suggestions, call.Diffs = d.Suggestions, d.Diffs
		}
	}
}

// denies says that a turn nobody watches denies what would ask
// (spec/harness.md section 3.7).
func (a *actor) denies() bool {
	return a.m.cfg.Unattended == "deny" && a.turn.OnOrphan == agent.OrphanKeep && a.m.bus.Watchers(a.scope) == 0
}

// park writes into c that the turn waits for an answer.
func (a *actor) park(c *store.Change) {
	now := time.Now()
	a.turn.State = agent.TurnParked
	a.run.Ended, a.run.StopReason, a.run.EndedAt = true, agent.StopRequiresApproval, now
	c.Turns, c.Runs = []*agent.Turn{a.turn}, []*agent.Run{a.run}
}

// emitParked tells watchers what the turn waits for.
func (a *actor) emitParked() {
	pending := a.pending()
	a.set(func(s *agent.State) { s.Pending = pending })
	steps := []string{a.step.ID}
	a.emitLoop(agent.LoopApproval, steps, nil)
	a.emit(agent.CallAsked{Call: pending[0]})
	a.emitDevice(func(*agent.State) {})
	a.emit(agent.RunEnded{StopReason: agent.StopRequiresApproval, Usage: a.runUse, Steps: a.runLen})
}

// pending is what waits for an answer, in call order. The copies are for
// readers outside the actor.
func (a *actor) pending() []*agent.ToolCall {
	var out []*agent.ToolCall
	for _, call := range a.calls {
		if call.State == agent.CallWaiting {
			c := *call
			out = append(out, &c)
		}
	}
	return out
}

// An Answer settles a call that waits.
type Answer struct {
	Allow   bool
	Message string          // of a denial: the text that the model sees
	Input   json.RawMessage // of an allowance: replaces the input; nil = unchanged
	// Suggestions are the ids of the offered rules that shall be saved.
	Suggestions []string
	// Result is what a client tool gave, or the answer to a question; it stands
	// for running the tool.
	Result *agent.ToolResult
}

// Answer settles a waiting call; the last answer of a step sends the turn on.
// ack is called once the answer is stored, before what follows is published.
// A call that does not wait (any more) is CodeNotPending.
func (m *Manager) Answer(ctx context.Context, scope agent.Scope, callID string, ans Answer, ack func()) error {
	if ack == nil {
		ack = func() {}
	}
	_, err := ask(ctx, m, scope, func(a *actor) (struct{}, error) {
		return struct{}{}, a.answer(callID, ans, ack)
	})
	if agent.CodeOf(err) == agent.CodeNotFound {
		return errNotPending()
	}
	return err
}

func errNotPending() error {
	return agent.Errorf(agent.CodeNotPending, "Approval request is no longer pending")
}

func (a *actor) answer(callID string, ans Answer, ack func()) error {
	i := slices.IndexFunc(a.calls, func(c *agent.ToolCall) bool { return c.ID == callID })
	if a.turn == nil || a.turn.State != agent.TurnParked || i < 0 || a.calls[i].State != agent.CallWaiting {
		return errNotPending()
	}
	call := *a.calls[i]
	if err := settle(&call, ans); err != nil {
		return err
	}
	c := &store.Change{Calls: []*agent.ToolCall{&call}}
	if err := a.saveRules(&call, ans.Suggestions, c); err != nil {
		return err
	}
	a.calls[i] = &call
	if len(ans.Suggestions) > 0 {
		a.reclassify(c)
	}
	pending := a.pending()
	if len(pending) == 0 {
		a.unpark(c, agent.RunSpec{})
	}
	if err := a.commit(c); err != nil {
		return err
	}
	a.emit(agent.CallSettled{Call: &call})
	a.emitLoop(agent.LoopApproval, []string{a.step.ID}, nil)
	a.emitDevice(func(s *agent.State) { s.Pending = nil }) // until the next one is asked
	ack()
	if len(pending) > 0 {
		a.set(func(s *agent.State) { s.Pending = pending })
		a.emitLoop(agent.LoopApproval, []string{a.step.ID}, nil)
		a.emit(agent.CallAsked{Call: pending[0]})
		a.emitDevice(func(*agent.State) {})
		return nil
	}
	a.execute()
	return nil
}

// settle writes an answer into a waiting call.
func settle(call *agent.ToolCall, ans Answer) error {
	switch {
	case ans.Result != nil:
		if call.Kind == agent.CallPermission {
			return agent.Invalid("approvals", "The call %s waits for an approval, not for a tool return", call.ID)
		}
		call.State, call.Result = agent.CallAllowed, ans.Result
	case ans.Allow:
		if call.Kind == agent.CallClientTool {
			return agent.Invalid("approvals", "The call %s waits for its tool return", call.ID)
		}
		if ans.Input != nil {
			var object map[string]json.RawMessage
			if json.Unmarshal(ans.Input, &object) != nil {
				return agent.Invalid("updated_input", "updated_input must be an object")
			}
			call.Input = ans.Input
		}
		call.State = agent.CallAllowed
	default:
		call.State = agent.CallDenied
		res := agent.TextResult(agent.StatusError, ans.Message)
		call.Result = &res
	}
	return nil
}

// saveRules stores the chosen suggestions: for the project, or for the rest of
// the conversation.
func (a *actor) saveRules(call *agent.ToolCall, chosen []string, c *store.Change) error {
	for _, s := range call.Suggestions {
		if !slices.Contains(chosen, s.ID) {
			continue
		}
		if s.Scope == "project" && a.eph == nil {
			ctx, cancel := context.WithTimeout(context.Background(), commitTimeout)
			defer cancel()
			if err := a.m.cfg.Store.AddProjectRule(ctx, a.cwd(), s.Rule); err != nil {
				return err
			}
			a.rules = nil
			continue
		}
		conv := *a.conv
		conv.Rules = append(slices.Clone(conv.Rules), s.Rule)
		stored := conv
		if a.pendingCwd != nil {
			stored.Cwd = *a.pendingCwd // what the row says already
		}
		a.conv, c.Conversation, a.rules = &conv, &stored, nil
	}
	return nil
}

// reclassify lets new rules speak on what still waits.
func (a *actor) reclassify(c *store.Change) {
	for i, call := range a.calls {
		if call.State != agent.CallWaiting || call.Kind != agent.CallPermission {
			continue
		}
		again := *call
		again.State = agent.CallProposed
		a.classify([]*agent.ToolCall{&again})
		if again.State != agent.CallWaiting {
			a.calls[i] = &again
			c.Calls = append(c.Calls, &again)
		}
	}
}
