package rest

import (
	"context"
	"strconv"

	"mneme/internal/agent"
)

// initialMessages are the messages that a new agent's own conversation begins with.
func (d *Door) initialMessages(ctx context.Context, given []initial) ([]agent.InputMessage, error) {
	var out []agent.InputMessage
	for i, m := range given {
		where := "body.initial_message_sequence." + strconv.Itoa(i)
		role, ok := sentRoles[m.Role]
		if !ok {
			return nil, unprocessable(where+".role", "%s is not one of user, system, assistant", quoted(m.Role))
		}
		parts, fetches, err := readContent(where+".content", m.Content, role)
		if err != nil {
			return nil, err
		}
		if err := d.load(ctx, fetches); err != nil {
			return nil, err
		}
		if role == agent.RoleSystem {
			role = agent.RoleNotice // the system message is made by us
		}
		out = append(out, agent.InputMessage{
			Role: role, Parts: parts, Name: m.Name.Or(""), OTID: m.OTID.Or(agent.NewUUID()), SenderID: m.SenderID.Or(""),
		})
	}
	return out, nil
}

// setContext says what the model sees of the agent's own conversation.
func (d *Door) setContext(ctx context.Context, ag *agent.Agent, ids []string) error {
	own, err := d.store.OwnConversation(ctx, ag.ID)
	if err != nil {
		return agentGone(err)
	}
	return d.roster.SetContext(ctx, own.ID, ids)
}
