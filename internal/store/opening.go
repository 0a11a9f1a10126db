package store

import (
	"cmp"
	"context"

	"mneme/internal/agent"
)

// An Opening is what a conversation holds from the moment it exists. It is
// written with the conversation, in one transaction.
type Opening struct {
	Prompt   *agent.Prompt    // nil = none
	Messages []*agent.Message // their Seq grows from 1
	// Core is the core memory of a new agent, whose own conversation this is; nil =
	// none.
	Core *CoreMemory
}

// encodeOpening turns openings of one conversation into statements.
func (s *Store) encodeOpening(c *agent.Conversation, openings []Opening) ([]statement, error) {
	e := &encoder{s: s, conversation: c.ID}
	for _, o := range openings {
		for _, m := range o.Messages {
			e.mine("message", m.ID, m.ConversationID)
			e.message(m)
		}
		if o.Prompt != nil {
			e.prompt(o.Prompt)
		}
	}
	return e.stmts, e.err
}

// runSome is run where there may be nothing to do.
func (t *tx) runSome(stmts []statement) error {
	if len(stmts) == 0 {
		return nil
	}
	return t.run(stmts)
}

// SystemMessageID is the id of the system message that a conversation was compiled
// with last, "" if it never was.
func (s *Store) SystemMessageID(ctx context.Context, conversationID string) (id string, err error) {
	_, err = s.pool().one(ctx, func(r scanner) error { return r.Scan(&id) }, sqlSystemMessage, conversationID, s.tenant)
	return id, s.dialect.fault("find the system message of "+conversationID, err)
}

// ListedContext lists the ids under which REST shows what the model sees of a
// conversation, oldest first: like ContextIDs, but the results of a step are one
// message, and copies go by the id of their original.
func (s *Store) ListedContext(ctx context.Context, conversationID string) ([]string, error) {
	ids := []string{}
	grouped := map[string]bool{} // steps whose results are in
	err := s.pool().each(ctx, func(r scanner) error {
		var id, copyOf, role, step string
		if err := r.Scan(&id, &copyOf, &role, &step); err != nil {
			return err
		}
		if role == string(agent.RoleTool) && step != "" {
			if grouped[step] {
				return nil
			}
			grouped[step] = true
		}
		ids = append(ids, cmp.Or(copyOf, id))
		return nil
	}, sqlListedContext, conversationID, s.tenant)
	return ids, s.dialect.fault("list context of conversation "+conversationID, err)
}

// LastSeq is the position of the last message of a conversation, 0 if there is none.
func (s *Store) LastSeq(ctx context.Context, conversationID string) (seq int64, err error) {
	_, err = s.pool().one(ctx, func(r scanner) error { return r.Scan(&seq) }, sqlLastSeq, conversationID, s.tenant)
	return seq, s.dialect.fault("find the end of conversation "+conversationID, err)
}

const sqlListedContext = `SELECT id, copy_of, role, step_id FROM messages
	WHERE conversation_id = ? AND hidden = 0 AND interrupted = 0 AND tenant = ?
	AND role IN ('user', 'assistant', 'tool', 'summary') ORDER BY role <> 'summary', seq` // the model reads the summary first

// The role is written out so that the partial index serves it.
const sqlSystemMessage = `SELECT id FROM messages
	WHERE conversation_id = ? AND role = 'system' AND tenant = ? ORDER BY seq DESC LIMIT 1`
