package store

import (
	"context"

	"mneme/internal/agent"
)

const (
	messageKeyColumns   = `id, tenant, agent_id, conversation_id, seq, role, created_ns, client_key, otid, sender_id, call_id, copy_of`
	messageStateColumns = `turn_id, run_id, step_id, name, status, hidden, interrupted, stats, output, context, parts`
	messageColumns      = messageKeyColumns + ", " + messageStateColumns
)

var (
	sqlPutMessage = upsert("messages", "id", messageColumns, messageStateColumns)
	sqlMessage    = "SELECT " + messageColumns + " FROM messages WHERE id = ? AND tenant = ?"
	// copy_of <> '' is written out so that the partial index serves it.
	sqlMessageCopy  = "SELECT " + messageColumns + " FROM messages WHERE copy_of = ? AND copy_of <> '' AND tenant = ? ORDER BY id LIMIT 1"
	sqlMessagePlace = `SELECT id, conversation_id, agent_id, run_id, step_id, seq, created_ns FROM messages WHERE id = ? AND tenant = ?`
	sqlCopyPlace    = `SELECT id, conversation_id, agent_id, run_id, step_id, seq, created_ns FROM messages
		WHERE copy_of = ? AND copy_of <> '' AND tenant = ? AND (conversation_id = ? OR ? = '') ORDER BY id LIMIT 1`
	sqlContext = "SELECT " + messageColumns + ` FROM messages
		WHERE conversation_id = ? AND hidden = 0 AND tenant = ? ORDER BY seq`
	sqlLastSeq    = `SELECT coalesce(max(seq), 0) FROM messages WHERE conversation_id = ? AND tenant = ?`
	sqlContextIDs = `SELECT id FROM messages
		WHERE conversation_id = ? AND hidden = 0 AND interrupted = 0 AND tenant = ?
		AND role IN ('user', 'assistant', 'tool', 'summary') ORDER BY seq`
	// The tenant is looked up once, so that counting reads the index alone.
	sqlMessageCount = `SELECT count(*) FROM messages WHERE conversation_id = ?
		AND EXISTS (SELECT 1 FROM conversations WHERE id = ? AND tenant = ?)`
)

// An output is what a tool wrote, as stored.
type output struct {
	Stdout []string `json:"stdout,omitempty"`
	Stderr []string `json:"stderr,omitempty"`
}

func (e *encoder) message(m *agent.Message) {
	var out any
	if len(m.Stdout)+len(m.Stderr) > 0 {
		out = e.json(output{m.Stdout, m.Stderr})
	}
	e.add("message", m.ID, sqlPutMessage, []any{
		m.ID, e.s.tenant, m.AgentID, m.ConversationID, m.Seq, string(m.Role), ns(m.CreatedAt), clean(m.ClientKey), clean(m.OTID),
		clean(m.SenderID), clean(m.CallID), m.CopyOf, m.TurnID, m.RunID, m.StepID, clean(m.Name), string(m.Status), bit(m.Hidden), bit(m.Interrupted),
		rawText(m.Stats), out, clean(m.Context), list(e, m.Parts),
	})
	e.enqueue(m)
}

func scanMessage(r scanner) (*agent.Message, error) {
	m := new(agent.Message)
	var tenant string
	var out output
	err := r.Scan(
		&m.ID, &tenant, &m.AgentID, &m.ConversationID, &m.Seq, (*string)(&m.Role), scanTime{&m.CreatedAt}, &m.ClientKey, &m.OTID,
		&m.SenderID, &m.CallID, &m.CopyOf, &m.TurnID, &m.RunID, &m.StepID, &m.Name, (*string)(&m.Status), scanBit{&m.Hidden}, scanBit{&m.Interrupted},
		scanRaw{&m.Stats}, scanJSON{&out}, &m.Context, scanJSON{&m.Parts},
	)
	m.Stdout, m.Stderr = out.Stdout, out.Stderr
	return m, err
}

// A MessageFilter selects messages of one conversation, of one agent over all its
// conversations, or of all agents. Positions are exclusive and chronological whatever the
// order; both ends may be given.
type MessageFilter struct {
	ConversationID string
	AgentID        string // where ConversationID is empty; "" = all
	// BeforeSeq and AfterSeq are positions within a conversation, 0 = none.
	BeforeSeq, AfterSeq int64
	// BeforeID and AfterID are messages; one that is not of the conversation or
	// agent is CodeNotFound.
	BeforeID, AfterID string
	Roles             []agent.Role // empty = all
	// VisibleOnly leaves out what is hidden from the model.
	VisibleOnly bool
	// SkipInterrupted leaves out partial texts of aborted or cut steps.
	SkipInterrupted bool
	Limit           int // 0 = no limit
	Desc            bool
	runID, stepID   string // set by MessagesOfRun and MessagesOfStep
}

// Messages lists messages: of a conversation by Seq, else by time and id.
// Paging with the last message as the next position neither skips nor repeats one,
// whatever is written meanwhile.
func (s *Store) Messages(ctx context.Context, f MessageFilter) ([]*agent.Message, error) {
	q := &selection{}
	switch {
	case f.runID != "":
		q.where("run_id = ? AND run_id <> ''", f.runID)
	case f.ConversationID != "":
		q.where("conversation_id = ?", f.ConversationID)
	case f.AgentID != "":
		q.where("agent_id = ?", f.AgentID)
	case f.BeforeID == "" && f.AfterID == "":
		q.where("created_ns >= 0") // leads SQLite to the index, as cursors do
	}
	q.where("tenant = ?", s.tenant)
	if f.runID != "" || f.ConversationID == "" {
		q.where(original)
	}
	if f.stepID != "" {
		q.where("step_id = ?", f.stepID)
	}
	if f.BeforeSeq > 0 {
		q.where("seq < ?", f.BeforeSeq)
	}
	if f.AfterSeq > 0 {
		q.where("seq > ?", f.AfterSeq)
	}
	if err := s.placeMessage(ctx, q, f, f.BeforeID, "<"); err != nil {
		return nil, err
	}
	if err := s.placeMessage(ctx, q, f, f.AfterID, ">"); err != nil {
		return nil, err
	}
	if f.VisibleOnly {
		q.where("hidden = 0")
	}
	if f.SkipInterrupted {
		q.where("interrupted = 0")
	}
	if len(f.Roles) > 0 {
		q.where(in("role", len(f.Roles)), texts(f.Roles)...)
	}
	keys := []string{"created_ns", "id"}
	if f.bySeq() {
		keys = []string{"seq"}
	}
	query := "SELECT " + messageColumns + " FROM messages" + q.text() + orderBy(f.Desc, keys...) + limitTo(f.Limit)
	var all []*agent.Message
	err := s.pool().eachOf(ctx, appendTo(&all, scanMessage), query, q.args...)
	return all, s.dialect.fault("list messages", err)
}

// original leaves out copies that stand for a message that is there, or that another
// copy stands for.
const original = `(copy_of = '' OR NOT EXISTS (SELECT 1 FROM messages o WHERE o.id = messages.copy_of)
	AND NOT EXISTS (SELECT 1 FROM messages o WHERE o.copy_of = messages.copy_of AND o.copy_of <> '' AND o.id < messages.id))`

// placeMessage adds the condition that rows lie on one side of a message, which in a
// fork may be named by the message that it stands for.
func (s *Store) placeMessage(ctx context.Context, q *selection, f MessageFilter, id, side string) error {
	if id == "" {
		return nil
	}
	var row, conversation, owner, run, step string
	var seq, created int64
	scan := func(r scanner) error { return r.Scan(&row, &conversation, &owner, &run, &step, &seq, &created) }
	found, err := s.pool().one(ctx, scan, sqlMessagePlace, id, s.tenant)
	if err == nil && (!found || f.ConversationID != "" && f.ConversationID != conversation) {
		found, err = s.pool().one(ctx, scan, sqlCopyPlace, id, s.tenant, f.ConversationID, f.ConversationID)
	}
	is := func(want, got string) bool { return want == "" || want == got }
	switch {
	case err != nil:
		return s.dialect.fault("find message "+id, err)
	case !found, !is(f.runID, run), !is(f.stepID, step), !is(f.ConversationID, conversation), f.ConversationID == "" && !is(f.AgentID, owner):
		return notFound("Message", id)
	case f.bySeq():
		q.where("seq "+side+" ?", seq)
	default:
		q.where("(created_ns, id) "+side+" (?, ?)", created, row)
	}
	return nil
}

// bySeq says whether all messages are of one conversation.
func (f MessageFilter) bySeq() bool { return f.ConversationID != "" || f.runID != "" }

// MessageByID returns one message, or CodeNotFound. Where the message itself is gone
// it is a copy of it.
func (s *Store) MessageByID(ctx context.Context, id string) (*agent.Message, error) {
	m, err := get(ctx, s.pool(), "Message", id, scanMessage, sqlMessage, id, s.tenant)
	if agent.CodeOf(err) == agent.CodeNotFound && id != "" {
		return get(ctx, s.pool(), "Message", id, scanMessage, sqlMessageCopy, id, s.tenant)
	}
	return m, err
}

// MessageCount counts the messages of a conversation, hidden ones included.
func (s *Store) MessageCount(ctx context.Context, conversationID string) (int, error) {
	var n int
	_, err := s.pool().one(ctx, func(r scanner) error { return r.Scan(&n) }, sqlMessageCount, conversationID, conversationID, s.tenant)
	return n, s.dialect.fault("count messages", err)
}

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
