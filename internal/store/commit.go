package store

import (
	"context"
	"fmt"
	"time"

	"mneme/internal/agent"
)

// A statement is one row to write, encoded on the caller's goroutine so that the
// committer only executes.
type statement struct {
	what  string // for error messages: "input input-1"
	query string // a fixed text
	args  []any
	miss  error // the error when no row was hit; nil = a conflict
	any   bool  // may hit any number of rows
}

// Commit writes one step of a conversation's journal: all of the change or none
// of it, and returns when it is on disk. It fails with CodeLeaseLost, having
// written nothing, when the lease is no longer held, and with CodeConflict when an
// input's key exists already in the conversation. Each Commit renews the lease.
//
// Of c.Conversation only what a runtime owns is written: Mode, Cwd, Toolset,
// Rules, UpdatedAt and LastMessageAt (which never goes back). The rest belongs to
// UpdateConversation, so that a runtime's older copy undoes nobody's change.
//
// A ctx that ends before the write began withdraws it; later the result is what
// really happened. When a database server went away during the commit itself, the
// error cannot tell whether the change was kept.
func (s *Store) Commit(ctx context.Context, l Lease, c *Change) error {
	stmts, err := s.encode(l, c)
	if err != nil {
		return fmt.Errorf("write journal of %s: %w", l.ConversationID, err)
	}
	return s.write(ctx, "write the journal of "+l.ConversationID, func(t *tx) error {
		stmts[0].args[0] = ns(time.Now().Add(s.term)) // of the fence
		return t.run(stmts)
	})
}

// run executes statements that must hit one row each. An upsert that hits none
// met a row of the same id that belongs to somebody else.
func (t *tx) run(stmts []statement) error {
	hits, err := t.execAll(stmts)
	for i, n := range hits {
		switch st := &stmts[i]; {
		case n == 1, st.any:
		case st.miss != nil:
			return st.miss
		default:
			return agent.Errorf(agent.CodeConflict,
				"Cannot store %s: the id belongs to another conversation, or the row is gone.", st.what)
		}
	}
	if err != nil && len(hits) < len(stmts) {
		return fmt.Errorf("store %s: %w", stmts[len(hits)].what, err)
	}
	return err
}

// An encoder collects the statements of a change. The first error stays.
type encoder struct {
	s            *Store
	conversation string
	stmts        []statement
	err          error
}

func (e *encoder) add(what, id, query string, args []any) {
	e.stmts = append(e.stmts, statement{what: what + " " + id, query: query, args: args})
}

func (e *encoder) fail(err error) {
	if e.err == nil {
		e.err = err
	}
}

// json encodes a nested value.
func (e *encoder) json(v any) string {
	text, err := jsonText(v)
	if err != nil {
		e.fail(err)
	}
	return text
}

// mine checks that a row is of the conversation whose lease guards the change.
func (e *encoder) mine(what, id, conversationID string) {
	if conversationID != e.conversation {
		e.fail(fmt.Errorf("%s %s is of conversation %q, the lease of %q", what, id, conversationID, e.conversation))
	}
}

func list[T any](e *encoder, items []T) any {
	if len(items) == 0 {
		return nil
	}
	return e.json(items)
}

func (e *encoder) fault(err *agent.Error) any {
	if err == nil {
		return nil
	}
	return e.json(err)
}

// encode turns a change into statements: the fence first, parents before children.
func (s *Store) encode(l Lease, c *Change) ([]statement, error) {
	n := len(c.Inputs) + len(c.Turns) + len(c.Runs) + len(c.Steps) + len(c.Messages) + len(c.Calls) + len(c.Events) + 4
	e := &encoder{s: s, conversation: l.ConversationID, stmts: make([]statement, 0, n)}
	e.stmts = append(e.stmts, s.fence(l))
	for _, in := range c.Inputs {
		e.input(in)
	}
	for _, t := range c.Turns {
		e.turn(t)
	}
	for _, r := range c.Runs {
		e.runRow(r)
	}
	for _, st := range c.Steps {
		e.step(st)
	}
	if c.HideThrough > 0 {
		e.stmts = append(e.stmts, statement{
			what: "context of " + l.ConversationID, query: sqlHide,
			args: []any{l.ConversationID, c.HideThrough, s.tenant}, any: true,
		})
	}
	for _, m := range c.Messages {
		e.mine("message", m.ID, m.ConversationID)
		e.message(m)
	}
	for _, call := range c.Calls {
		e.call(call)
	}
	for i := range c.Events {
		e.event(&c.Events[i])
	}
	if c.Conversation != nil {
		e.conversationState(c.Conversation)
	}
	if c.Prompt != nil {
		e.prompt(c.Prompt)
	}
	if !c.RunEnded.IsZero() {
		e.add("last run of agent of", l.ConversationID, sqlRunEnded,
			[]any{ns(c.RunEnded), ns(c.RunEnded), s.tenant, l.ConversationID})
	}
	return e.stmts, e.err
}

const sqlHide = `UPDATE messages SET hidden = 1 WHERE conversation_id = ? AND seq <= ? AND hidden = 0 AND tenant = ?`

// sqlRunEnded hits the agent's row even when a later run is recorded.
const sqlRunEnded = `UPDATE agents SET last_run_ns = CASE WHEN last_run_ns < ? THEN ? ELSE last_run_ns END
	WHERE tenant = ? AND id = (SELECT agent_id FROM conversations WHERE id = ?)`
