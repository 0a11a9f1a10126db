package roster

import (
	"context"
	"errors"
	"slices"

	"mneme/internal/agent"
	"mneme/internal/store"
)

// SetContext says which messages of a conversation the model sees from now on, by
// their ids; the system message is always among them. Their order is that in which
// they were said. Errors: CodeBusy while a turn runs; CodeParked while one waits;
// CodeInvalid for a message that is not of the conversation, and for a choice that
// separates tool calls from their results.
func (r *Roster) SetContext(ctx context.Context, conversationID string, ids []string) error {
	conv, err := r.Conversation(ctx, conversationID)
	if err != nil {
		return err
	}
	scope := agent.Scope{AgentID: conv.AgentID, ConversationID: conv.ID}
	state, err := r.runtime.Status(ctx, scope)
	if err != nil {
		return err
	}
	if len(state.Pending) > 0 {
		return agent.Errorf(agent.CodeParked, "The conversation waits for an approval")
	}
	return r.runtime.Quiet(ctx, scope, func() (err error) {
		all, err := r.store.Messages(ctx, store.MessageFilter{ConversationID: conv.ID})
		if err != nil {
			return err
		}
		changed, err := chooseContext(all, ids)
		if err != nil || len(changed) == 0 {
			return err
		}
		lease, err := r.store.Acquire(ctx, conv.ID)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, r.store.Release(context.WithoutCancel(ctx), lease)) }()
		return r.store.Commit(ctx, lease, &store.Change{Messages: changed})
	})
}

// chosen are the roles of messages that a context can be made of.
var chosen = []agent.Role{agent.RoleUser, agent.RoleAssistant, agent.RoleTool, agent.RoleSummary}

// chooseContext hides what is not named and shows what is. It returns the messages
// that change. What the harness added (notices, approvals) stays as it is.
func chooseContext(all []*agent.Message, ids []string) (changed []*agent.Message, err error) {
	named := map[string]bool{} // by the id of the row
	for _, id := range ids {
		i := slices.IndexFunc(all, func(m *agent.Message) bool { return m.ID == id || m.CopyOf == id })
		if i < 0 {
			return nil, agent.Invalid("message_ids", "Message %s is not of the agent's own conversation", id)
		}
		for _, m := range all { // the results of a step are one message
			if m == all[i] || m.Role == agent.RoleTool && m.StepID != "" && all[i].Role == agent.RoleTool && m.StepID == all[i].StepID {
				named[m.ID] = true
			}
		}
	}
	made, settled := map[string]bool{}, map[string]bool{} // call ids in the context
	for _, m := range all {
		if !slices.Contains(chosen, m.Role) {
			continue
		}
		if named[m.ID] {
			for _, call := range m.Calls() {
				made[call.ID] = true
			}
			if m.Role == agent.RoleTool {
				settled[m.CallID] = true
			}
		}
		if m.Hidden == named[m.ID] {
			m.Hidden = !named[m.ID]
			changed = append(changed, m)
		}
	}
	for _, m := range all {
		if !named[m.ID] || m.Interrupted {
			continue
		}
		for _, call := range m.Calls() {
			if !settled[call.ID] {
				return nil, agent.Invalid("message_ids", "Message %s has a tool call whose result is not among the messages", m.ID)
			}
		}
		if m.Role == agent.RoleTool && !made[m.CallID] {
			return nil, agent.Invalid("message_ids", "Message %s is the result of a tool call that is not among the messages", m.ID)
		}
	}
	return changed, nil
}
