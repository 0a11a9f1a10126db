package store

import (
	"context"

	"mneme/internal/agent"
)

const (
	conversationKeyColumns   = `id, tenant, agent_id, own, created_ns, foreign_id`
	conversationStateColumns = `updated_ns, last_message_ns, sort_ns, archived_ns, hidden, context_limit, mode, cwd, toolset,
		rules, model, model_settings, tags, summary, description, search`
	conversationColumns = conversationKeyColumns + ", " + conversationStateColumns
)

var (
	sqlPutConversation = "INSERT INTO conversations (" + conversationColumns + ") VALUES (" + marks(conversationColumns) + `)
		ON CONFLICT (id) DO UPDATE SET ` + updates(conversationStateColumns) + ` WHERE conversations.tenant = excluded.tenant`
	sqlConversation        = "SELECT " + conversationColumns + " FROM conversations WHERE id = ? AND tenant = ?"
	sqlForeignConversation = "SELECT " + conversationColumns + " FROM conversations WHERE tenant = ? AND foreign_id = ?"
	sqlOwnConversation     = "SELECT " + conversationColumns + " FROM conversations WHERE agent_id = ? AND own = 1 AND tenant = ?"
)

const (
	sqlConversationExists = `SELECT 1 FROM conversations WHERE id = ? AND tenant = ?`
	// What a runtime owns of its conversation. A last message never goes back.
	sqlConversationState = `UPDATE conversations SET mode = ?, cwd = ?, toolset = ?, rules = ?, updated_ns = ?,
		last_message_ns = CASE WHEN last_message_ns < ? THEN ? ELSE last_message_ns END,
		sort_ns = CASE WHEN last_message_ns > ? THEN last_message_ns ELSE ? END
		WHERE id = ? AND tenant = ?`
)

// sortTime is what lists are ordered by (spec/app-server-commands.md section 2.3).
func sortTime(c *agent.Conversation) int64 {
	switch {
	case !c.LastMessageAt.IsZero():
		return ns(c.LastMessageAt)
	case !c.UpdatedAt.IsZero():
		return ns(c.UpdatedAt)
	}
	return ns(c.CreatedAt)
}

func (e *encoder) conversationState(c *agent.Conversation) {
	e.mine("conversation", c.ID, c.ID)
	last := ns(c.LastMessageAt)
	e.add("conversation", c.ID, sqlConversationState, []any{
		string(c.Mode), clean(c.Cwd), clean(c.Toolset), list(e, c.Rules), ns(c.UpdatedAt),
		last, last, last, sortTime(c), c.ID, e.s.tenant,
	})
}

func (s *Store) encodeConversation(c *agent.Conversation) (statement, error) {
	e := &encoder{s: s}
	summary := ""
	if c.Summary != nil {
		summary = *c.Summary
	}
	e.add("conversation", c.ID, sqlPutConversation, []any{
		c.ID, s.tenant, c.AgentID, bit(c.Own), ns(c.CreatedAt), orNull(c.ForeignID),
		ns(c.UpdatedAt), ns(c.LastMessageAt), sortTime(c), ns(c.ArchivedAt), optBit(c.Hidden), int64(c.ContextLimit),
		string(c.Mode), clean(c.Cwd), clean(c.Toolset), list(e, c.Rules), optText(c.Model), rawText(c.ModelSettings),
		list(e, c.Tags), optText(c.Summary), optText(c.Description), fold(summary + "\x1f" + c.ID),
	})
	return e.stmts[0], e.err
}

func (s *Store) putConversation(t *tx, c *agent.Conversation) error {
	st, err := s.encodeConversation(c)
	if err != nil {
		return err
	}
	return t.run([]statement{st})
}

func scanConversation(r scanner) (*agent.Conversation, error) {
	c := new(agent.Conversation)
	var tenant, search string
	var sort int64
	err := r.Scan(
		&c.ID, &tenant, &c.AgentID, scanBit{&c.Own}, scanTime{&c.CreatedAt}, scanText{&c.ForeignID},
		scanTime{&c.UpdatedAt}, scanTime{&c.LastMessageAt}, &sort, scanTime{&c.ArchivedAt}, scanOptBit{&c.Hidden}, &c.ContextLimit,
		(*string)(&c.Mode), &c.Cwd, &c.Toolset, scanJSON{&c.Rules}, scanOptText{&c.Model}, scanRaw{&c.ModelSettings},
		scanJSON{&c.Tags}, scanOptText{&c.Summary}, scanOptText{&c.Description}, &search,
	)
	return c, err
}

// CreateConversation stores a new conversation with what it holds. An unknown agent
// is CodeNotFound, an id or foreign id that exists, or a second own conversation,
// CodeConflict.
func (s *Store) CreateConversation(ctx context.Context, c *agent.Conversation, opening ...Opening) error {
	first, err := s.encodeOpening(c, opening)
	if err != nil {
		return err
	}
	return s.write(ctx, "create conversation "+c.ID, func(t *tx) error {
		if err := s.insertConversation(t, c); err != nil {
			return err
		}
		return t.runSome(first)
	})
}

func (s *Store) insertConversation(t *tx, c *agent.Conversation) error {
	if found, err := t.exists(sqlAgentExists, c.AgentID, s.tenant); err != nil {
		return err
	} else if !found {
		return notFound("Agent", c.AgentID)
	}
	if found, err := t.exists(sqlConversationExists, c.ID, s.tenant); err != nil || found {
		return conflictIf(found, err, "Conversation", c.ID)
	}
	return s.putConversation(t, c)
}

// Conversation returns the conversation with the id, or with the id it was
// imported under.
func (s *Store) Conversation(ctx context.Context, id string) (*agent.Conversation, error) {
	c, err := get(ctx, s.pool(), "Conversation", id, scanConversation, sqlConversation, id, s.tenant)
	if agent.CodeOf(err) == agent.CodeNotFound && id != "" {
		return get(ctx, s.pool(), "Conversation", id, scanConversation, sqlForeignConversation, s.tenant, clean(id))
	}
	return c, err
}

// OwnConversation returns the agent's own conversation, shown as "default".
func (s *Store) OwnConversation(ctx context.Context, agentID string) (*agent.Conversation, error) {
	c, err := get(ctx, s.pool(), "Conversation", agentID, scanConversation, sqlOwnConversation, agentID, s.tenant)
	if agent.CodeOf(err) == agent.CodeNotFound {
		return nil, notFound("Agent", agentID)
	}
	return c, err
}

// UpdateConversation reads the conversation, lets fn change it and stores the
// result, as UpdateAgent does. Id, agent, Own and creation stay what they are.
func (s *Store) UpdateConversation(ctx context.Context, id string, fn func(*agent.Conversation) error) (*agent.Conversation, error) {
	var c *agent.Conversation
	err := s.write(ctx, "change conversation "+id, func(t *tx) (err error) {
		if c, err = s.conversationIn(t, id); err != nil {
			return err
		}
		fixed := *c
		if err := fn(c); err != nil {
			return err
		}
		c.ID, c.AgentID, c.Own, c.ForeignID, c.CreatedAt = fixed.ID, fixed.AgentID, fixed.Own, fixed.ForeignID, fixed.CreatedAt
		return s.putConversation(t, c)
	})
	if err != nil {
		return nil, err
	}
	return c, nil
}

func (s *Store) conversationIn(t *tx, id string) (c *agent.Conversation, err error) {
	scan := func(r scanner) (err error) {
		c, err = scanConversation(r)
		return err
	}
	found, err := t.one(scan, sqlConversation, id, s.tenant)
	if err == nil && !found && id != "" {
		found, err = t.one(scan, sqlForeignConversation, s.tenant, clean(id))
	}
	if err == nil && !found {
		err = notFound("Conversation", id)
	}
	return c, err
}

// A ConversationOrder is what a list of conversations is sorted by.
type ConversationOrder string

// The orders. With the last two, conversations without a message or run come last
// whatever the direction (spec/rest.md section 9.3).
const (
	// By the newest message; one without messages counts by its last change.
	ConversationsByActivity   ConversationOrder = ""
	ConversationsByCreation   ConversationOrder = "created_at"
	ConversationsByMessage    ConversationOrder = "last_message_at"
	ConversationsByCompletion ConversationOrder = "last_run_completion"
)

// A ConversationFilter selects conversations for a list.
type ConversationFilter struct {
	AgentID       string // "" = all
	SummarySearch string // substring of summary or id, ignoring case
	Archived      *bool  // nil = both
	IncludeHidden bool
	IncludeOwn    bool // the agents' own conversations
	Order         ConversationOrder
	Page
}

// Conversations lists conversations, by default the one with the newest message
// first. Archived ones are included.
func (s *Store) Conversations(ctx context.Context, f ConversationFilter) ([]*agent.Conversation, error) {
	l := listing{noun: "Conversation", from: "conversations", id: "id", tenant: "tenant"}
	switch f.Order {
	case ConversationsByCreation:
		l.keys = []string{"created_ns", "id"}
	case ConversationsByMessage:
		l.keys = []string{nullsLast("last_message_ns", f.Asc), "id"}
	case ConversationsByCompletion:
		l.keys = []string{nullsLast(sqlCompletion, f.Asc), "id"}
	default:
		l.keys = []string{"sort_ns", "id"}
	}
	q := &selection{}
	q.where("tenant = ?", s.tenant)
	if f.AgentID != "" {
		q.where("agent_id = ?", f.AgentID)
	}
	if !f.IncludeHidden {
		q.where("coalesce(hidden, 0) = 0")
	}
	if !f.IncludeOwn {
		q.where("own = 0")
	}
	if f.SummarySearch != "" {
		q.contains("search", f.SummarySearch)
	}
	if f.Archived != nil {
		q.where(map[bool]string{true: "archived_ns > 0", false: "archived_ns = 0"}[*f.Archived])
	}
	return listPage(ctx, s, q, l, f.Page, conversationColumns, scanConversation)
}

// sqlCompletion is the end of a conversation's last run, 0 if it never ran.
const sqlCompletion = `coalesce((SELECT runs.ended_ns FROM runs
	WHERE runs.conversation_id = conversations.id AND runs.ended = 1 ORDER BY runs.ord DESC LIMIT 1), 0)`

// DeleteConversation deletes a conversation with its messages and journal. Whoever
// still holds its lease can write no more.
func (s *Store) DeleteConversation(ctx context.Context, id string) error {
	return s.write(ctx, "delete conversation "+id, func(t *tx) error {
		if found, err := t.exists(sqlConversationExists, id, s.tenant); err != nil {
			return err
		} else if !found {
			return notFound("Conversation", id)
		}
		return s.deleteConversation(t, id)
	})
}

// sqlDeleteConversation deletes the rows of the journal, children first, and last
// the conversation, which takes its prompt and lease with it.
var sqlDeleteConversation = []string{
	`DELETE FROM run_events WHERE run_id IN (SELECT id FROM runs WHERE conversation_id = ?) AND tenant = ?`,
	`DELETE FROM tool_calls WHERE step_id IN (SELECT id FROM steps WHERE conversation_id = ?) AND tenant = ?`,
	`DELETE FROM steps WHERE conversation_id = ? AND tenant = ?`,
	`DELETE FROM callbacks WHERE run_id IN (SELECT id FROM runs WHERE conversation_id = ?) AND tenant = ?`,
	`DELETE FROM runs WHERE conversation_id = ? AND tenant = ?`,
	`DELETE FROM turns WHERE conversation_id = ? AND tenant = ?`,
	`DELETE FROM inputs WHERE conversation_id = ? AND tenant = ?`,
	`DELETE FROM input_keys WHERE conversation_id = ? AND tenant = ?`,
	`DELETE FROM message_fts WHERE rowid IN (SELECT ord FROM message_index WHERE message_id IN
		(SELECT id FROM messages WHERE conversation_id = ? AND tenant = ?))`,
	`DELETE FROM message_index WHERE message_id IN (SELECT id FROM messages WHERE conversation_id = ?) AND tenant = ?`,
	`DELETE FROM messages WHERE conversation_id = ? AND tenant = ?`,
	`DELETE FROM conversations WHERE id = ? AND tenant = ?`,
}

func (s *Store) deleteConversation(t *tx, id string) error {
	for _, query := range sqlDeleteConversation {
		if _, err := t.exec(query, id, s.tenant); err != nil {
			return err
		}
	}
	return nil
}
