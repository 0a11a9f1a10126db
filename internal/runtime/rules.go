package runtime

import (
	"encoding/json"
	"fmt"
	"slices"

	"mneme/internal/agent"
)

// A rule is one tool rule of an agent that the runtime acts on; others are
// stored and shown only (spec/rest.md section 4).
type rule struct {
	Type     string `json:"type"`
	ToolName string `json:"tool_name"`
	Max      int    `json:"max_count_limit"`
}

// The rules that act.
const (
	ruleApproval = "requires_approval"
	ruleExit     = "exit_loop"
	ruleMax      = "max_count_per_step"
)

// toolRules are the agent's rules, those it has no tool for included.
func (a *actor) toolRules() []rule {
	var rules []rule
	if len(a.agent.ToolRules) > 0 {
		if err := json.Unmarshal(a.agent.ToolRules, &rules); err != nil {
			a.m.log.Warn("tool rules not read", "agent", a.agent.ID, "err", err)
		}
	}
	return rules
}

func (a *actor) hasRule(kind, tool string) bool {
	return slices.ContainsFunc(a.toolRules(), func(r rule) bool { return r.Type == kind && r.ToolName == tool })
}

// overused says why a rule forbids one more call of a tool in this turn, ""
// if none does. earlier are calls of the same answer.
func (a *actor) overused(name string, earlier []*agent.ToolCall) string {
	for _, r := range a.toolRules() {
		if r.Type != ruleMax || r.ToolName != name || r.Max <= 0 {
			continue
		}
		n := 0
		for _, call := range earlier {
			if call.Name == name {
				n++
			}
		}
		for _, m := range a.history {
			if m.TurnID == a.turn.ID && m.Role == agent.RoleTool && m.Name == name {
				n++
			}
		}
		if n >= r.Max {
			return fmt.Sprintf("Tool %s may be called %d times in one turn, not more", name, r.Max)
		}
	}
	return ""
}

// oneCall says that of several calls in one answer only the first is kept: over
// REST where the settings switch parallel calls off, or where rules other than
// approval order the calls (spec/rest.md section 4).
func (a *actor) oneCall(settings json.RawMessage) bool {
	if a.turn.Door != agent.DoorREST {
		return false
	}
	var s struct {
		Parallel *bool `json:"parallel_tool_calls"`
	}
	if len(settings) > 0 && json.Unmarshal(settings, &s) == nil && s.Parallel != nil && !*s.Parallel {
		return true
	}
	return slices.ContainsFunc(a.toolRules(), func(r rule) bool { return r.Type != ruleApproval })
}

// exits says whether one of the calls that ran ends the turn by a rule.
func (a *actor) exits(calls []*agent.ToolCall) bool {
	return slices.ContainsFunc(calls, func(c *agent.ToolCall) bool { return a.hasRule(ruleExit, c.Name) })
}
