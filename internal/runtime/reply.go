package runtime

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"mneme/internal/agent"
	"mneme/internal/store"
)

// A Reply answers all calls that a parked turn waits for, in one go, and says
// how the turn goes on. Doors that ask about every call at once use it.
type Reply struct {
	// Answers are by call id. They must cover every call that waits; calls of the
	// same step that were answered through another door may be among them, their
	// first answer stands.
	Answers map[string]Answer
	// Messages are shown to the model after the tool results.
	Messages []agent.InputMessage
	Key      string // as of an input
	Digest   string
	Door     agent.Door
	Run      agent.RunSpec      // of the run that the answer opens
	Options  *agent.TurnOptions // replaces those of the turn; nil = unchanged
	Logged   bool               // store the events of that run
}

// AnswerAll settles the calls of a parked turn and opens its next run. Errors:
// CodeNotPending if nothing waits; CodeInvalid with Field tool_call_ids if the
// answers do not cover what waits; CodeConflict for a known key with another
// body. A known key gives the original's receipt.
func (m *Manager) AnswerAll(ctx context.Context, scope agent.Scope, reply Reply, ack func(Receipt)) (Receipt, error) {
	if ack == nil {
		ack = func(Receipt) {}
	}
	in := &agent.Input{
		AgentID: scope.AgentID, ConversationID: scope.ConversationID, Door: reply.Door,
		Kind: kindFollowUp, Messages: reply.Messages, Key: reply.Key, Digest: reply.Digest,
		Run: reply.Run, Logged: reply.Logged,
	}
	if err := prepare(in); err != nil {
		return Receipt{}, err
	}
	return ask(ctx, m, scope, func(a *actor) (Receipt, error) {
		if known, err := a.known(in); known != nil || err != nil {
			if err != nil {
				return Receipt{}, err
			}
			ack(*known)
			return *known, nil
		}
		return a.answerAll(reply, in, ack)
	})
}

// kindFollowUp marks inputs that join the turn whose calls they came with.
const kindFollowUp = "follow_up"

func (a *actor) answerAll(reply Reply, in *agent.Input, ack func(Receipt)) (Receipt, error) {
	if a.turn == nil || a.turn.State != agent.TurnParked {
		return Receipt{}, errNotPending()
	}
	if err := a.covers(reply.Answers); err != nil {
		return Receipt{}, err
	}
	calls := slices.Clone(a.calls)
	c := &store.Change{}
	var settled []*agent.ToolCall
	for i, call := range calls {
		ans, ok := reply.Answers[call.ID]
		if !ok || call.State != agent.CallWaiting {
			continue
		}
		answered := *call
		if err := settle(&answered, ans); err != nil {
			return Receipt{}, err
		}
		calls[i] = &answered
		settled = append(settled, &answered)
		if err := a.saveRules(&answered, ans.Suggestions, c); err != nil {
			return Receipt{}, err
		}
	}
	a.calls, c.Calls = calls, settled
	if reply.Options != nil {
		a.turn.Options = *reply.Options
	}
	a.turn.Logged = reply.Logged
	a.unpark(c, in.Run)
	in.AgentID, in.ConversationID = a.scope.AgentID, a.scope.ConversationID
	in.TurnID, in.State, in.Run.ID, in.Started = a.turn.ID, agent.InputTaken, a.run.ID, true
	if len(in.Messages) > 0 {
		in.State = agent.InputQueued // it joins after the results
	}
	c.Inputs = append(c.Inputs, in)
	if err := a.commit(c); err != nil {
		return Receipt{}, err
	}
	if in.State == agent.InputQueued {
		a.queue = slices.Insert(slices.Clone(a.queue), 0, in)
	}
	r := Receipt{InputID: in.ID, Started: true, TurnID: a.turn.ID, RunID: a.run.ID, StepID: a.step.ID}
	ack(r)
	a.set(func(s *agent.State) { s.Pending = nil })
	for _, call := range settled {
		a.emit(agent.CallSettled{Call: call})
	}
	a.emitLoop(agent.LoopApproval, []string{a.step.ID}, nil)
	a.emitDevice(func(*agent.State) {})
	a.execute()
	return r, nil
}

// covers checks that answers name every call that waits, and nothing that was
// not asked.
func (a *actor) covers(answers map[string]Answer) error {
	var waiting []string
	matches := true
	asked := map[string]bool{}
	for _, call := range a.calls {
		if call.AskedAt.IsZero() {
			continue
		}
		asked[call.ID] = true
		if call.State == agent.CallWaiting {
			waiting = append(waiting, call.ID)
			if _, ok := answers[call.ID]; !ok {
				matches = false
			}
		}
	}
	for id := range answers {
		if !asked[id] {
			matches = false
		}
	}
	if matches {
		return nil
	}
	var got []string
	for id := range answers {
		got = append(got, id)
	}
	slices.Sort(got)
	return agent.Invalid("tool_call_ids", "Invalid tool call IDs. Expected '%s', but received '%s'.", quoted(waiting), quoted(got))
}

func quoted(ids []string) string {
	return "['" + strings.Join(ids, "', '") + "']"
}

// unpark writes into c that the turn goes on in its next run, and what people
// answered.
func (a *actor) unpark(c *store.Change, spec agent.RunSpec) {
	a.turn.State = agent.TurnRunning
	c.Turns = []*agent.Turn{a.turn}
	a.newRun(c, spec)
	if a.turn.Logged {
		a.log.start(a.run.ID, 0)
	} else {
		a.log.off()
	}
	msg := a.message(c, agent.RoleApproval)
	msg.Stats = approvals(a.calls)
}

// An approvalRecord is one answer as an approval message keeps it.
type approvalRecord struct {
	Type       string           `json:"type"` // approval or tool
	CallID     string           `json:"tool_call_id"`
	Approve    *bool            `json:"approve,omitempty"`
	Reason     string           `json:"reason,omitempty"`
	ToolReturn string           `json:"tool_return,omitempty"`
	Status     agent.CallStatus `json:"status,omitempty"`
	Stdout     []string         `json:"stdout,omitempty"`
	Stderr     []string         `json:"stderr,omitempty"`
}

// approvals are the answers to the calls of a step that were asked for.
func approvals(calls []*agent.ToolCall) json.RawMessage {
	var list []approvalRecord
	for _, call := range calls {
		if call.AskedAt.IsZero() {
			continue
		}
		r := approvalRecord{Type: "approval", CallID: call.ID}
		allowed := call.State == agent.CallAllowed
		switch {
		case allowed && call.Result != nil:
			r.Type, r.ToolReturn, r.Status = "tool", agent.TextOf(call.Result.Parts), call.Result.Status
			r.Stdout, r.Stderr = call.Result.Stdout, call.Result.Stderr
		case allowed:
			r.Approve = &allowed
		default:
			r.Approve = &allowed
			if call.Result != nil {
				r.Reason = agent.TextOf(call.Result.Parts)
			}
		}
		list = append(list, r)
	}
	data, err := json.Marshal(map[string]any{"approvals": list})
	if err != nil {
		return nil // strings and booleans always encode
	}
	return data
}

// Reset takes everything but a fresh system message out of the context of a
// conversation; its messages stay listed. A parked turn is cancelled. CodeBusy
// while a turn runs.
func (m *Manager) Reset(ctx context.Context, scope agent.Scope) error {
	_, err := ask(ctx, m, scope, func(a *actor) (struct{}, error) {
		if a.turn != nil && a.turn.State == agent.TurnRunning || a.compacting != nil {
			return struct{}{}, a.busyError()
		}
		if a.turn != nil {
			a.abort(true, func() {})
		}
		if a.dead != nil || a.turn != nil {
			return struct{}{}, a.dead
		}
		c := &store.Change{HideThrough: a.seq}
		a.history, a.prompt, a.lastTokens = nil, nil, 0
		if err := a.refreshPrompt(c); err != nil {
			a.die(err)
			return struct{}{}, err
		}
		return struct{}{}, a.commit(c)
	})
	return err
}

// reasonCancelled is what the model sees of calls that waited when their run was
// cancelled (spec/rest.md section 8.4).
const reasonCancelled = "Error: request to call tool denied. User reason: The user cancelled the request, so the tool call was denied."

// denyWaiting denies what waits; it is stored with the end of the turn.
func (a *actor) denyWaiting(text string) {
	for i, call := range a.calls {
		if call.State == agent.CallWaiting {
			denied := *call
			res := agent.TextResult(agent.StatusError, text)
			denied.State, denied.Result = agent.CallDenied, &res
			a.calls[i] = &denied
		}
	}
}

// CancelRun ends the turn of a run, or takes the input that waits for the run
// out of the queue; false if the run is neither.
func (m *Manager) CancelRun(ctx context.Context, scope agent.Scope, runID string) (bool, error) {
	return ask(ctx, m, scope, func(a *actor) (bool, error) {
		if runID != "" && a.active(runID) {
			a.denyWaiting(reasonCancelled)
			a.abort(true, func() {})
			return true, a.dead
		}
		i := slices.IndexFunc(a.queue, func(in *agent.Input) bool { return in.Run.ID == runID })
		if i < 0 || runID == "" {
			return false, nil
		}
		if err := a.cancelQueued([]*agent.Input{a.queue[i]}); err != nil {
			return false, err
		}
		a.emitQueue()
		return true, nil
	})
}
