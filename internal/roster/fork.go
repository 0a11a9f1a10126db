package roster

import (
	"context"
	"strconv"
	"strings"
	"time"

	"mneme/internal/agent"
)

// Fork copies a conversation up to and including the message listed as upTo ("" =
// all of it), to the same agent or to newAgentID. conversationID is a stored id:
// Resolve "default" first. The copy has the summary, model and settings of the
// original, new message ids and the original dates; a turn that is at work stays
// with the original.
func (r *Roster) Fork(ctx context.Context, conversationID, upTo, newAgentID string, hidden *bool) (*agent.Conversation, error) {
	from, err := r.Conversation(ctx, conversationID)
	if err != nil {
		return nil, err
	}
	owner := from.AgentID
	if newAgentID != "" {
		ag, err := r.Agent(ctx, newAgentID)
		if err != nil {
			return nil, err
		}
		owner = ag.ID
	}
	now := time.Now().UTC()
	conv := &agent.Conversation{
		ID: agent.NewID("conv"), AgentID: owner, Summary: from.Summary, Model: from.Model, ModelSettings: from.ModelSettings,
		Hidden: hidden, CreatedAt: now, UpdatedAt: now,
	}
	base, part, _ := strings.Cut(upTo, ":")
	unknown := agent.Errorf(agent.CodeNotFound, "Message %s not found", upTo)
	cut := func(m *agent.Message) error {
		if !cutMessage(m, part) {
			return unknown
		}
		return nil
	}
	err = r.store.ForkCut(ctx, from.ID, base, cut, conv, func() string { return agent.NewID("message") })
	if agent.CodeOf(err) == agent.CodeNotFound && upTo != "" {
		return nil, unknown
	}
	if err != nil {
		return nil, err
	}
	r.changed(conv.AgentID, conv.ID, agent.ChangeCreated)
	return conv, nil
}

// cutMessage drops the parts of an answer behind the one that a listed id names:
// "" is the first text, "reasoning:<i>", "assistant:<i>" and "tool:<call id>" the
// others (spec/app-server-commands.md section 1.6). Messages of other roles are
// whole. It is false if the message has no such part.
func cutMessage(m *agent.Message, part string) bool {
	if m.Role != agent.RoleAssistant {
		return part == ""
	}
	kind, rest, _ := strings.Cut(part, ":")
	index, err := strconv.Atoi(rest)
	if err != nil {
		index = -1
	}
	for i, p := range m.Parts {
		var here bool
		switch kind {
		case "":
			here = p.Kind == agent.PartText
		case "assistant":
			here = p.Kind == agent.PartText && i == index
		case "reasoning":
			here = p.Kind == agent.PartReasoning && i == index
		case "tool":
			here = p.Kind == agent.PartToolCall && p.Call.ID == rest
		}
		if here {
			m.Parts = m.Parts[:i+1]
			return true
		}
	}
	return part == "" // an answer without text is whole
}
