package store

import (
	"context"
	"time"

	"mneme/internal/agent"
)

const (
	sqlAcquire = `INSERT INTO leases (conversation_id, tenant, owner, epoch, expires_ns)
		SELECT id, tenant, CAST(? AS TEXT), 1, CAST(? AS BIGINT) FROM conversations WHERE id = ? AND tenant = ?
		ON CONFLICT (conversation_id) DO UPDATE
		SET owner = excluded.owner, epoch = leases.epoch + 1, expires_ns = excluded.expires_ns
		WHERE leases.owner = excluded.owner OR leases.expires_ns <= ?
		RETURNING epoch`
	sqlHolder = `SELECT owner, expires_ns FROM leases WHERE conversation_id = ? AND tenant = ?`
	sqlFence  = `UPDATE leases SET expires_ns = ? WHERE conversation_id = ? AND owner = ? AND epoch = ? AND tenant = ?`
	// A released lease changes its epoch too: nobody can write with it again.
	sqlRelease = `UPDATE leases SET expires_ns = 0, epoch = epoch + 1
		WHERE conversation_id = ? AND owner = ? AND epoch = ? AND tenant = ?`
	sqlTakeOver = `UPDATE leases SET expires_ns = 0, epoch = epoch + 1 WHERE owner = ? AND tenant = ?`
)

// Acquire takes the lease of a conversation. It fails with CodeLeaseLost while
// another owner holds it unexpired, and with CodeNotFound if there is no such
// conversation. The epoch grows with every Acquire, so that of two lease values
// of the same owner only the later one can write.
func (s *Store) Acquire(ctx context.Context, conversationID string) (Lease, error) {
	var l Lease
	err := s.write(ctx, "take the lease of conversation "+conversationID, func(t *tx) error {
		now := time.Now()
		l = Lease{ConversationID: conversationID, Owner: s.owner, Expires: now.Add(s.term)}
		found, err := t.one(func(r scanner) error { return r.Scan(&l.Epoch) },
			sqlAcquire, s.owner, ns(l.Expires), conversationID, s.tenant, ns(now))
		if err != nil {
			return err
		}
		if found {
			t.dirty = true
			return nil
		}
		var holder string
		var until time.Time
		found, err = t.one(func(r scanner) error { return r.Scan(&holder, scanTime{&until}) },
			sqlHolder, conversationID, s.tenant)
		if err != nil {
			return err
		}
		if !found {
			return notFound("Conversation", conversationID)
		}
		return &agent.Error{Code: agent.CodeLeaseLost, Ref: conversationID, Retryable: true,
			Message: "Conversation " + conversationID + " is at work in another process.",
			Detail:  "held by " + holder + " until " + until.Format(time.RFC3339)}
	})
	if err != nil {
		return Lease{}, err
	}
	return l, nil
}

// Release gives a lease back, so that another process can take it at once. A
// lease that was lost already is no error.
func (s *Store) Release(ctx context.Context, l Lease) error {
	return s.write(ctx, "release the lease of conversation "+l.ConversationID, func(t *tx) error {
		_, err := t.exec(sqlRelease, l.ConversationID, l.Owner, l.Epoch, s.tenant)
		return err
	})
}

// TakeOver frees every lease that an earlier process of this owner left behind
// and makes its late writes fail. To be called at start, when a lock on the
// state tells that the process is dead.
func (s *Store) TakeOver(ctx context.Context) error {
	return s.write(ctx, "take over leases", func(t *tx) error {
		_, err := t.exec(sqlTakeOver, s.owner, s.tenant)
		return err
	})
}

// fence is the statement that renews the lease, to a time its runner sets, and hits
// no row if the lease is no longer held.
func (s *Store) fence(l Lease) statement {
	return statement{
		what: "lease of " + l.ConversationID, query: sqlFence,
		args: []any{nil, l.ConversationID, l.Owner, l.Epoch, s.tenant},
		miss: &agent.Error{Code: agent.CodeLeaseLost, Ref: l.ConversationID,
			Message: "Conversation " + l.ConversationID + " was taken over by another process."},
	}
}

func notFound(noun, id string) error {
	return &agent.Error{Code: agent.CodeNotFound, Message: noun + " " + id + " not found", Ref: id}
}
