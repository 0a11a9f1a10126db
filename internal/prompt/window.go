package prompt

import (
	"slices"

	"mneme/internal/agent"
)

// InterruptedResult is the result of a call that never got one.
const InterruptedResult = "Interrupted by user"

// Window picks from the stored history what goes to the model, in a form that
// every provider accepts (spec/harness.md section 1.1):
//
//   - user, assistant, tool, notice and summary messages; none that are hidden,
//     interrupted or empty
//   - the results of an assistant's calls directly behind it, one per call, in
//     the order they came; a call without one gets InterruptedResult with status
//     error; results without a call are left out
//   - the newest summary first, older ones not at all
//   - the last message is not the assistant's
//
// history is ordered by Seq. It is only read: what must differ is a copy.
func Window(history []*agent.Message) []*agent.Message {
	type answer struct {
		msg     *agent.Message
		results []*agent.Message
	}
	var kept []*answer
	open := map[string]*answer{} // by call id: whose result is due
	summary := newestSummary(history)
	if summary != nil {
		packed := *summary
		packed.Parts = []agent.Part{agent.Text(PackSummary(summary))}
		kept = append(kept, &answer{msg: &packed})
	}
	for _, m := range history {
		if m.Hidden || m.Interrupted {
			continue
		}
		switch m.Role {
		case agent.RoleTool:
			if a := open[m.CallID]; a != nil {
				a.results = append(a.results, m)
				delete(open, m.CallID)
			}
		case agent.RoleUser, agent.RoleNotice, agent.RoleAssistant:
			if isEmpty(m) {
				continue
			}
			a := &answer{msg: m}
			if m.Role == agent.RoleAssistant {
				a.msg = withUniqueCalls(m)
				for _, c := range a.msg.Calls() {
					open[c.ID] = a
				}
			}
			kept = append(kept, a)
		}
	}
	var out []*agent.Message
	for _, a := range kept {
		out = append(out, a.msg)
		out = append(out, a.results...)
		out = append(out, missingResults(a.msg, a.results)...)
	}
	for len(out) > 0 && out[len(out)-1].Role == agent.RoleAssistant {
		out = out[:len(out)-1]
	}
	return out
}

// newestSummary stands for everything before it that is hidden; nil = none.
func newestSummary(history []*agent.Message) *agent.Message {
	for _, m := range slices.Backward(history) {
		if m.Role == agent.RoleSummary && !m.Hidden && !m.Interrupted && !isEmpty(m) {
			return m
		}
	}
	return nil
}

// missingResults makes results for the calls of an assistant message that have
// none.
func missingResults(m *agent.Message, results []*agent.Message) []*agent.Message {
	if m.Role != agent.RoleAssistant {
		return nil
	}
	var made []*agent.Message
	for _, c := range m.Calls() {
		if slices.ContainsFunc(results, func(r *agent.Message) bool { return r.CallID == c.ID }) {
			continue
		}
		made = append(made, &agent.Message{
			AgentID: m.AgentID, ConversationID: m.ConversationID, Seq: m.Seq, Role: agent.RoleTool,
			TurnID: m.TurnID, RunID: m.RunID, StepID: m.StepID, Name: c.Name, CallID: c.ID,
			Status: agent.StatusError, Parts: []agent.Part{agent.Text(InterruptedResult)}, CreatedAt: m.CreatedAt,
		})
	}
	return made
}

// withUniqueCalls is m, or a copy without calls whose id an earlier one of m has,
// or that have none.
func withUniqueCalls(m *agent.Message) *agent.Message {
	seen := map[string]bool{}
	repeated := func(p agent.Part) bool {
		if p.Kind != agent.PartToolCall {
			return false
		}
		if p.Call == nil || p.Call.ID == "" || seen[p.Call.ID] {
			return true
		}
		seen[p.Call.ID] = true
		return false
	}
	if !slices.ContainsFunc(m.Parts, repeated) {
		return m
	}
	clear(seen)
	copied := *m
	copied.Parts = slices.DeleteFunc(slices.Clone(m.Parts), repeated)
	return &copied
}

// isEmpty says that a message has nothing to send.
func isEmpty(m *agent.Message) bool {
	return m.Context == "" && !slices.ContainsFunc(m.Parts, func(p agent.Part) bool {
		switch p.Kind {
		case agent.PartText, agent.PartReasoning:
			return p.Text != "" || p.Signature != "" || len(p.Meta) > 0
		case agent.PartImage:
			return p.Data != ""
		case agent.PartToolCall:
			return p.Call != nil && p.Call.ID != ""
		}
		return false
	})
}
