package store

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"mneme/internal/agent"
)

// Messages are searched through an index that follows the messages a moment later,
// so that no turn waits for it. A Commit leaves a row in search_queue for each
// message with text; the indexer takes these rows in order, some at a time, and
// replaces each by an entry of the index, in one transaction: none is lost by a
// crash or indexed twice, whoever else works on the same database. A search first
// sees to what still waits, unless that is very much (SearchMessages).

const (
	// indexDelay is how long the indexer waits for more messages to come.
	indexDelay = 200 * time.Millisecond
	// indexBatch bounds the messages of one transaction, which holds up others.
	indexBatch = 64
	// indexRetry is when a failed indexer tries again.
	indexRetry = 10 * time.Second
	// maxIndexed bounds the text of a message that can be found, in bytes. Of tool
	// results it is much less: what they say is seldom looked for.
	maxIndexed     = 256 << 10
	maxIndexedTool = 8 << 10
	// maxStems bounds the different words of a message.
	maxStems = 10_000
)

const (
	sqlEnqueue = `INSERT INTO search_queue (tenant, message_id) VALUES (?, ?)`
	sqlDequeue = `DELETE FROM search_queue WHERE ord = ? AND tenant = ?`
	sqlUnlist  = `DELETE FROM message_index WHERE message_id = ? AND tenant = ? RETURNING ord`
	sqlList    = `INSERT INTO message_index (tenant, message_id, created_ns) VALUES (?, ?, ?) RETURNING ord`
	sqlUnindex = `DELETE FROM message_fts WHERE rowid = ?`
	sqlWaiting = `SELECT count(*), coalesce(min(m.created_ns), 0) FROM search_queue q
		LEFT JOIN messages m ON m.id = q.message_id WHERE q.tenant = ?`
)

// An indexer fills the index of messages. Its token is held by whoever does so.
type indexer struct {
	s     *Store
	log   *slog.Logger
	wake  chan struct{} // something was written
	token chan struct{} // holds one
	stop  context.CancelFunc
	ended sync.WaitGroup
}

func newIndexer(s *Store) *indexer {
	x := &indexer{s: s, log: s.log, wake: make(chan struct{}, 1), token: make(chan struct{}, 1)}
	x.token <- struct{}{}
	x.wake <- struct{}{} // what waits since the last time
	ctx, cancel := context.WithCancel(context.Background())
	x.stop = cancel
	x.ended.Go(func() { x.loop(ctx) })
	return x
}

// close stops the indexer and waits for it. What waits stays for the next start.
func (x *indexer) close() {
	x.stop()
	x.ended.Wait()
}

// nudge says that there may be something to index.
func (x *indexer) nudge() {
	select {
	case x.wake <- struct{}{}:
	default:
	}
}

func (x *indexer) loop(ctx context.Context) {
	for {
		select {
		case <-x.wake:
		case <-ctx.Done():
			return
		}
		if !pause(ctx, indexDelay) {
			return
		}
		for again := true; again; {
			n, err := x.batch(ctx)
			if err != nil && ctx.Err() == nil {
				x.log.Error("messages cannot be indexed for search", "error", err)
				pause(ctx, indexRetry)
			}
			again = (n > 0 || err != nil) && ctx.Err() == nil
		}
	}
}

// pause waits; false if ctx ended.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// catchUp indexes what waits, but no more than some batches.
func (x *indexer) catchUp(ctx context.Context, batches int) error {
	for range batches {
		if n, err := x.batch(ctx); err != nil || n < indexBatch {
			return err
		}
	}
	return nil
}

// A queued message is one that waits for the index; msg is nil if it is gone.
type queued struct {
	ord       int64
	messageID string
	msg       *agent.Message
	tokens    string // "" = nothing to index
}

// batch indexes the messages that wait longest and returns how many it took.
func (x *indexer) batch(ctx context.Context) (int, error) {
	select {
	case <-x.token:
		defer func() { x.token <- struct{}{} }()
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	batch, err := x.s.waiting(ctx)
	if err != nil || len(batch) == 0 {
		return 0, err
	}
	for i := range batch {
		batch[i].tokens = x.s.tokens(batch[i].msg)
	}
	err = x.s.write(ctx, "index messages", func(t *tx) error {
		for _, q := range batch {
			if err := x.s.index(t, q); err != nil {
				return err
			}
		}
		return nil
	})
	return len(batch), err
}

// waiting reads the head of the queue.
func (s *Store) waiting(ctx context.Context) ([]queued, error) {
	var batch []queued
	err := s.snapshot(ctx, func(r reader) error {
		err := r.each(ctx, func(row scanner) error {
			var q queued
			err := row.Scan(&q.ord, &q.messageID)
			batch = append(batch, q)
			return err
		}, sqlHead, s.tenant, indexBatch)
		for i := range batch {
			if err == nil {
				batch[i].msg, err = maybe(ctx, r, scanMessage, sqlMessage, batch[i].messageID, s.tenant)
			}
		}
		return err
	})
	return batch, s.dialect.fault("read what is to be indexed", err)
}

const sqlHead = `SELECT ord, message_id FROM search_queue WHERE tenant = ? ORDER BY ord LIMIT ?`

// index replaces a row of the queue by an entry of the index. If the row is gone,
// somebody else did it.
func (s *Store) index(t *tx, q queued) error {
	if n, err := t.exec(sqlDequeue, q.ord, s.tenant); err != nil || n == 0 {
		return err
	}
	var ord int64
	scan := func(r scanner) error { return r.Scan(&ord) }
	found, err := t.one(scan, sqlUnlist, q.messageID, s.tenant)
	if err == nil && found {
		_, err = t.exec(sqlUnindex, ord)
	}
	if err != nil || q.tokens == "" {
		return err
	}
	if _, err := t.one(scan, sqlList, s.tenant, q.messageID, ns(q.msg.CreatedAt)); err != nil {
		return err
	}
	_, err = t.exec(s.dialect.fullText.put, ord, q.tokens)
	return err
}

// enqueue adds a message to the index, or changes its entry. Notices and approvals
// are ours: nobody looks for them.
func (e *encoder) enqueue(m *agent.Message) {
	switch m.Role {
	case agent.RoleUser, agent.RoleAssistant, agent.RoleTool, agent.RoleSystem, agent.RoleSummary:
		e.add("message", m.ID, sqlEnqueue, []any{e.s.tenant, m.ID})
	}
}

// tokens is what the index holds of a message: the stems of its words, each once,
// and labels that a search is narrowed by. "" = it is not found by its text: cut
// texts are shown to nobody.
func (s *Store) tokens(m *agent.Message) string {
	if m == nil || m.Interrupted || m.Role == agent.RoleNotice || m.Role == agent.RoleApproval {
		return ""
	}
	left := maxIndexed
	if m.Role == agent.RoleTool {
		left = maxIndexedTool
	}
	var b strings.Builder
	for _, label := range []string{tenantLabel(s.tenant), agentLabel(m.AgentID), conversationLabel(m.ConversationID), roleLabel(m.Role)} {
		b.WriteString(label)
		b.WriteByte(' ')
	}
	seen := map[string]bool{}
	for _, p := range m.Parts {
		text := cutText(p.Text, left)
		left -= len(text)
		for w := range words(text) {
			if len(seen) == maxStems {
				break
			}
			if !seen[w.stem] {
				seen[w.stem] = true
				b.WriteString(w.stem)
				b.WriteByte(' ')
			}
		}
	}
	if len(seen) == 0 {
		return ""
	}
	return strings.TrimSuffix(b.String(), " ")
}

func cutText(s string, n int) string {
	if len(s) > n {
		return s[:max(n, 0)]
	}
	return s
}

// The labels begin with a sign that no word has.

func tenantLabel(tenant string) string   { return "§t" + labelText(tenant) }
func agentLabel(id string) string        { return "§a" + labelText(id) }
func conversationLabel(id string) string { return "§c" + labelText(id) }
func roleLabel(role agent.Role) string   { return "§r" + string(role) }

// labelText writes an id so that it stays one token.
func labelText(id string) string {
	var b strings.Builder
	for i := range len(id) {
		switch c := id[i]; {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9':
			b.WriteByte(c)
		case c == '-':
			b.WriteString("§")
		default:
			fmt.Fprintf(&b, "¤%02x", c)
		}
	}
	return b.String()
}
