package store

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
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
	// indexBatch bounds the messages of one transaction, which holds up others; a
	// power of four.
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
	sqlUnindex = `DELETE FROM message_fts WHERE rowid = ?`
	sqlHead    = `SELECT q.ord, q.message_id, coalesce(m.agent_id, ''), coalesce(m.conversation_id, ''), coalesce(m.role, ''),
			coalesce(m.interrupted, 0), coalesce(m.created_ns, 0), m.parts
		FROM search_queue q LEFT JOIN messages m ON m.id = q.message_id WHERE q.tenant = ? ORDER BY q.ord LIMIT ?`
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
			// What came meanwhile has its own nudge: many at a time cost less.
			again = (n == indexBatch || err != nil) && ctx.Err() == nil
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

// A queued message is one that waits for the index. One that is gone has only an
// ID.
type queued struct {
	place  int64 // in the queue
	msg    agent.Message
	tokens string // "" = not found by its text
	entry  int64  // in the index
}

// errRaced says that somebody else took messages of a batch.
var errRaced = errors.New("the queue changed meanwhile")

// batch indexes the messages that wait longest and returns how many it took.
func (x *indexer) batch(ctx context.Context) (int, error) {
	select {
	case <-x.token:
		defer func() { x.token <- struct{}{} }()
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	for {
		batch, err := x.s.waiting(ctx)
		if err != nil || len(batch) == 0 {
			return 0, err
		}
		for _, q := range batch {
			q.tokens = x.s.tokens(&q.msg)
		}
		err = x.s.write(ctx, "index messages", func(t *tx) error { return x.s.index(t, batch) })
		if !errors.Is(err, errRaced) {
			return len(batch), err
		}
	}
}

// waiting reads the head of the queue.
func (s *Store) waiting(ctx context.Context) ([]*queued, error) {
	var batch []*queued
	err := s.pool().each(ctx, func(r scanner) error {
		q := new(queued)
		batch = append(batch, q)
		return r.Scan(&q.place, &q.msg.ID, &q.msg.AgentID, &q.msg.ConversationID, (*string)(&q.msg.Role),
			scanBit{&q.msg.Interrupted}, scanTime{&q.msg.CreatedAt}, scanJSON{&q.msg.Parts})
	}, sqlHead, s.tenant, indexBatch)
	return batch, s.dialect.fault("read what is to be indexed", err)
}

// index replaces rows of the queue by entries of the index, some per statement.
func (s *Store) index(t *tx, batch []*queued) error {
	for some := range portions(batch) {
		if err := s.indexSome(t, some); err != nil {
			return err
		}
	}
	return nil
}

// portions yields parts of a batch that have few different sizes, so that few
// statements are prepared for them.
func portions(batch []*queued) iter.Seq[[]*queued] {
	return func(yield func([]*queued) bool) {
		for len(batch) > 0 {
			n := indexBatch
			for n > len(batch) {
				n /= 4
			}
			if !yield(batch[:n]) {
				return
			}
			batch = batch[n:]
		}
	}
}

func (s *Store) indexSome(t *tx, batch []*queued) error {
	places, ids := []any{s.tenant}, []any{s.tenant}
	for _, q := range batch {
		places, ids = append(places, q.place), append(ids, q.msg.ID)
	}
	n, err := t.exec("DELETE FROM search_queue WHERE tenant = ? AND "+in("ord", len(batch)), places...)
	if err != nil {
		return err
	}
	if n != int64(len(batch)) {
		return errRaced
	}
	var old []int64
	err = t.each(func(r scanner) error {
		var entry int64
		err := r.Scan(&entry)
		old = append(old, entry)
		return err
	}, "DELETE FROM message_index WHERE tenant = ? AND "+in("message_id", len(batch))+" RETURNING ord", ids...)
	if err != nil {
		return err
	}
	for _, entry := range old {
		if _, err := t.exec(sqlUnindex, entry); err != nil {
			return err
		}
	}
	return s.addEntries(t, batch)
}

// addEntries adds what has tokens to the index.
func (s *Store) addEntries(t *tx, batch []*queued) error {
	byID := map[string]*queued{} // a message may wait twice
	for _, q := range batch {
		if q.tokens != "" {
			byID[q.msg.ID] = q
		}
	}
	batch = slices.DeleteFunc(slices.Clone(batch), func(q *queued) bool { return byID[q.msg.ID] != q })
	for some := range portions(batch) {
		if err := s.addSome(t, some, byID); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) addSome(t *tx, batch []*queued, byID map[string]*queued) error {
	var entries, tokens []any
	for _, q := range batch {
		entries = append(entries, s.tenant, q.msg.ID, ns(q.msg.CreatedAt))
	}
	more := len(batch) - 1
	err := t.each(func(r scanner) error {
		var id string
		var entry int64
		err := r.Scan(&id, &entry)
		byID[id].entry = entry
		return err
	}, "INSERT INTO message_index (tenant, message_id, created_ns) VALUES (?, ?, ?)"+strings.Repeat(", (?, ?, ?)", more)+
		" RETURNING message_id, ord", entries...)
	if err != nil {
		return err
	}
	for _, q := range batch {
		tokens = append(tokens, q.entry, q.tokens)
	}
	row := "(?, " + s.dialect.fullText.tokens + ")"
	_, err = t.exec("INSERT INTO message_fts (rowid, tokens) VALUES "+row+strings.Repeat(", "+row, more), tokens...)
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
	if m.Interrupted || m.Role == agent.RoleNotice || m.Role == agent.RoleApproval {
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
