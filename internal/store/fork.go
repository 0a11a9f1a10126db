package store

import (
	"cmp"
	"context"
	"slices"

	"mneme/internal/agent"
)

// Fork creates the conversation fork with copies of the messages of another one up
// to and including a message ("" = all of them). The copies keep their order and
// dates, get new ids from ids and belong to fork and its agent; turns, runs and
// steps are not copied. What the model sees of the copy is what it saw of the
// original at that message, see forkMessages. All of it happens in one transaction.
// A message that is not of the source is CodeNotFound.
func (s *Store) Fork(ctx context.Context, from, upToMessageID string, fork *agent.Conversation, ids func() string) error {
	return s.ForkCut(ctx, from, upToMessageID, nil, fork, ids)
}

// ForkCut is Fork with a last message that is cut: cut, if not nil, is given the
// message upToMessageID before it is copied and may drop parts of it. An error of
// cut ends it.
func (s *Store) ForkCut(ctx context.Context, from, upToMessageID string, cut func(*agent.Message) error, fork *agent.Conversation, ids func() string) error {
	all, err := s.Messages(ctx, MessageFilter{ConversationID: from})
	if err != nil {
		return err
	}
	if len(all) == 0 {
		if _, err := s.Conversation(ctx, from); err != nil {
			return err
		}
	}
	end := len(all)
	if upToMessageID != "" {
		i := slices.IndexFunc(all, func(m *agent.Message) bool { return m.ID == upToMessageID })
		if i < 0 {
			return notFound("Message", upToMessageID)
		}
		if cut != nil {
			if err := cut(all[i]); err != nil {
				return err
			}
		}
		end = i + 1
	}
	e := &encoder{s: s, conversation: fork.ID}
	for _, m := range forkMessages(all[:end], all[end:]) {
		m.ID, m.AgentID, m.ConversationID = ids(), fork.AgentID, fork.ID
		m.TurnID, m.RunID, m.StepID, m.CopyOf = "", "", "", ""
		e.message(m)
	}
	if e.err != nil {
		return e.err
	}
	return s.write(ctx, "fork conversation "+from, func(t *tx) error {
		if err := s.insertConversation(t, fork); err != nil {
			return err
		}
		return t.run(e.stmts)
	})
}

// forkMessages adapts the messages that are copied; rest are those behind the cut.
//
// Hidden: a summary or reset behind the cut had not happened yet at the cut, so
// what it hid is shown again, except what a summary among the copies stands for.
//
// A call whose result lies behind the cut would leave a history that no model
// accepts. Its answer is kept as an interrupted one, listed but never sent, and so
// are the results of its other calls.
func forkMessages(copied, rest []*agent.Message) []*agent.Message {
	if len(copied) == 0 {
		return nil
	}
	isSummary := func(m *agent.Message) bool { return m.Role == agent.RoleSummary }
	if len(rest) > 0 && (copied[len(copied)-1].Hidden || slices.ContainsFunc(rest, isSummary)) {
		for _, m := range slices.Backward(copied) {
			m.Hidden = false
			if isSummary(m) {
				break
			}
		}
	}
	settled := map[string]bool{}
	for _, m := range copied {
		if m.Role == agent.RoleTool {
			settled[m.CallID] = true
		}
	}
	open := map[string]bool{}
	for _, m := range copied {
		calls := m.Calls()
		if slices.ContainsFunc(calls, func(c agent.CallPart) bool { return !settled[c.ID] }) {
			m.Interrupted = true
			for _, c := range calls {
				open[c.ID] = true
			}
		}
	}
	for _, m := range copied {
		if m.Role == agent.RoleTool && open[m.CallID] {
			m.Interrupted = true
		}
	}
	return copied
}

// ForkContext creates the conversation fork with what opening says, followed by
// copies of the messages that the model sees of another one, up to and including a
// message ("" = all of them). It happens in one transaction. The copies stand for
// the originals, see agent.Message.CopyOf, and keep their runs and steps. A message
// that is not in the context of the source is CodeNotFound.
func (s *Store) ForkContext(ctx context.Context, from, upToMessageID string, fork *agent.Conversation, opening Opening) error {
	seen, err := s.Messages(ctx, MessageFilter{ConversationID: from, VisibleOnly: true})
	if err != nil {
		return err
	}
	system := func(m *agent.Message) bool { return m.Role == agent.RoleSystem }
	end := len(seen)
	if upToMessageID != "" {
		i := slices.IndexFunc(seen, func(m *agent.Message) bool { return m.ID == upToMessageID || m.CopyOf == upToMessageID })
		if i < 0 {
			return notFound("Message", upToMessageID)
		}
		end = i + 1
	}
	seq := int64(len(opening.Messages))
	for _, m := range slices.DeleteFunc(forkMessages(seen[:end], nil), system) {
		seq++
		m.CopyOf = cmp.Or(m.CopyOf, m.ID)
		m.ID, m.AgentID, m.ConversationID, m.Seq = agent.NewID("message"), fork.AgentID, fork.ID, seq
		opening.Messages = append(opening.Messages, m)
	}
	return s.CreateConversation(ctx, fork, opening)
}
