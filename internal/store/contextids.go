package store

import "context"

const sqlContextIDs = `SELECT id FROM messages
	WHERE conversation_id = ? AND hidden = 0 AND interrupted = 0 AND tenant = ?
	AND role IN ('user', 'assistant', 'tool', 'summary') ORDER BY seq`

// ContextIDs lists the ids of the messages that the model sees of a
// conversation, oldest first, without reading the messages themselves. What the
// harness adds (notices, approvals, the system prompt) is not among them.
func (s *Store) ContextIDs(ctx context.Context, conversationID string) ([]string, error) {
	ids := []string{}
	err := s.pool().each(ctx, func(r scanner) error {
		var id string
		err := r.Scan(&id)
		ids = append(ids, id)
		return err
	}, sqlContextIDs, conversationID, s.tenant)
	return ids, s.dialect.fault("list context of conversation "+conversationID, err)
}
