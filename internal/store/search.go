package store

import (
	"cmp"
	"context"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"mneme/internal/agent"
)

const (
	// searchBatches bounds what a search indexes before it looks.
	searchBatches = 8
	// maxMatches bounds the messages that are looked at for one word: the newest.
	maxMatches = 5000
	// maxCandidates bounds the messages that are read and ranked.
	maxCandidates = 400
	maxHits       = 1000
)

// A SearchFilter says which messages are looked for.
type SearchFilter struct {
	// Query is a question or some words in any language; a message with some of
	// them is found, the more telling ones count most. "" lists the newest messages.
	Query          string
	AgentID        string // "" = all
	ConversationID string
	Roles          []agent.Role // empty = user, assistant and summary; tool and system can be asked for
	// From and To bound the date, both included; zero = open.
	From, To time.Time
	Limit    int // 0 = 50, at most 1000
}

// A SearchHit is a message that was found.
type SearchHit struct {
	Message *agent.Message
	// Part is what matched best: PartText or, of an assistant message,
	// PartReasoning.
	Part  agent.PartKind
	Score float64
}

// SearchMessages finds messages by their text, the best first, equally good ones
// by date; results of tools and system messages come after all others. Messages that the model no longer sees are found too; partial texts of
// cut steps and system messages that were replaced are not.
//
// The index follows the messages within some 200 ms, and a search indexes what
// still waits before it looks, up to 512 messages. Only after a large import does
// it take longer until everything is found; IndexLag tells.
//
// Of a word that very many messages have, the newest 5000 count. Ranking is BM25
// over texts as they are, done here, so that all databases answer alike.
func (s *Store) SearchMessages(ctx context.Context, f SearchFilter) ([]SearchHit, error) {
	if f.Limit <= 0 {
		f.Limit = 50
	}
	f.Limit = min(f.Limit, maxHits)
	if len(f.Roles) == 0 {
		f.Roles = []agent.Role{agent.RoleUser, agent.RoleAssistant, agent.RoleSummary}
	}
	if strings.TrimSpace(f.Query) == "" {
		return s.newest(ctx, f)
	}
	terms := queryTerms(f.Query)
	if len(terms) == 0 {
		return nil, nil
	}
	if err := s.indexer.catchUp(ctx, searchBatches); err != nil {
		return nil, err
	}
	var hits []SearchHit
	for _, roles := range apart(f.Roles) {
		f.Roles = roles
		some, err := s.candidates(ctx, f, terms)
		if err != nil {
			return nil, s.dialect.fault("search messages", err)
		}
		if hits = append(hits, rank(some, terms)...); len(hits) >= f.Limit {
			break
		}
	}
	return hits[:min(len(hits), f.Limit)], nil
}

// apart takes what was said, which comes first, apart from texts that hold words of
// any query, and would leave no room for it.
func apart(roles []agent.Role) (groups [][]agent.Role) {
	var said, other []agent.Role
	for _, r := range roles {
		if r == agent.RoleTool || r == agent.RoleSystem {
			other = append(other, r)
		} else {
			said = append(said, r)
		}
	}
	for _, group := range [][]agent.Role{said, other} {
		if len(group) > 0 {
			groups = append(groups, group)
		}
	}
	return groups
}

// newest lists messages by date alone.
func (s *Store) newest(ctx context.Context, f SearchFilter) ([]SearchHit, error) {
	q := &selection{}
	q.where("tenant = ?", s.tenant)
	if f.ConversationID != "" {
		q.where("conversation_id = ?", f.ConversationID)
	}
	if f.AgentID != "" {
		q.where("agent_id = ?", f.AgentID)
	}
	q.where(in("role", len(f.Roles)), texts(f.Roles)...)
	f.dates(q, "created_ns")
	q.where(shown)
	var all []*agent.Message
	query := "SELECT " + messageColumns + " FROM messages" + q.text() + orderBy(true, "created_ns", "id") + limitTo(f.Limit)
	if err := s.pool().eachOf(ctx, appendTo(&all, scanMessage), query, q.args...); err != nil {
		return nil, s.dialect.fault("list the newest messages", err)
	}
	hits := make([]SearchHit, len(all))
	for i, m := range all {
		hits[i] = SearchHit{Message: m, Part: agent.PartText}
	}
	return hits, nil
}

// shown leaves out what no search finds.
const shown = "interrupted = 0 AND NOT (role = 'system' AND hidden = 1)"

func (f *SearchFilter) dates(q *selection, column string) {
	if !f.From.IsZero() {
		q.where(column+" >= ?", ns(f.From))
	}
	if !f.To.IsZero() {
		q.where(column+" <= ?", ns(f.To))
	}
}

// labels are the groups of tokens that narrow the search.
func (s *Store) labels(f *SearchFilter) [][]string {
	groups := [][]string{{tenantLabel(s.tenant)}}
	if f.AgentID != "" {
		groups = append(groups, []string{agentLabel(f.AgentID)})
	}
	if f.ConversationID != "" {
		groups = append(groups, []string{conversationLabel(f.ConversationID)})
	}
	var roles []string
	for _, r := range f.Roles {
		roles = append(roles, roleLabel(r))
	}
	return append(groups, roles)
}

// candidates reads the messages that are worth ranking: those whose words weigh
// most, of equal ones the newest. It fills in the weights of the terms.
func (s *Store) candidates(ctx context.Context, f SearchFilter, terms []term) ([]*agent.Message, error) {
	labels := s.labels(&f)
	weights := map[int64]float64{}
	var all []*agent.Message
	err := s.snapshot(ctx, func(r reader) error {
		n, err := r.matches(ctx, &f, labels, func(int64) {})
		if err != nil {
			return err
		}
		if n == maxMatches {
			n = 2 * maxMatches // more than that: a word they all have tells little
		}
		matched := map[string][]int64{} // by stem: several words may share one
		for i := range terms {
			t := &terms[i]
			found, done := matched[t.stem]
			if !done {
				if _, err := r.matches(ctx, &f, append(labels[:len(labels):len(labels)], []string{t.stem}), func(ord int64) {
					found = append(found, ord)
				}); err != nil {
					return err
				}
				matched[t.stem] = found
			}
			df := float64(len(found))
			t.idf = math.Log(1 + (float64(n)-df+0.5)/(df+0.5))
			if done {
				continue
			}
			for _, ord := range found {
				weights[ord] += t.idf
			}
		}
		all, err = r.messages(ctx, best(weights))
		return err
	})
	return all, err
}

// best are the rows with the greatest weights, of equal ones the newest.
func best(weights map[int64]float64) []int64 {
	ords := slices.Collect(maps.Keys(weights))
	slices.SortFunc(ords, func(a, b int64) int {
		return cmp.Or(cmp.Compare(weights[b], weights[a]), cmp.Compare(b, a))
	})
	return ords[:min(len(ords), maxCandidates)]
}

// matches calls visit for the newest entries of the index that match the groups of
// tokens, and returns their number.
func (r reader) matches(ctx context.Context, f *SearchFilter, groups [][]string, visit func(ord int64)) (n int, err error) {
	q := &selection{}
	text := r.s.dialect.fullText
	q.where(text.match, text.expression(groups...))
	from := "message_fts"
	if !f.From.IsZero() || !f.To.IsZero() {
		from += " JOIN message_index ON message_index.ord = message_fts.rowid"
		f.dates(q, "created_ns")
	}
	err = r.eachOf(ctx, func(row scanner) error {
		var ord int64
		err := row.Scan(&ord)
		n++
		visit(ord)
		return err
	}, "SELECT message_fts.rowid FROM "+from+q.text()+" ORDER BY message_fts.rowid DESC"+limitTo(maxMatches), q.args...)
	return n, err
}

// messages reads the messages of entries of the index.
func (r reader) messages(ctx context.Context, ords []int64) ([]*agent.Message, error) {
	if len(ords) == 0 {
		return nil, nil
	}
	args := make([]any, len(ords), len(ords)+1)
	for i, ord := range ords {
		args[i] = ord
	}
	var all []*agent.Message
	err := r.eachOf(ctx, appendTo(&all, scanMessage), "SELECT "+messageColumns+` FROM messages WHERE id IN
		(SELECT message_id FROM message_index WHERE `+in("ord", len(ords))+") AND tenant = ? AND "+shown,
		append(args, r.s.tenant)...)
	return all, err
}

// The constants of BM25, and what a word counts that shares the stem only.
const (
	bm25Repeat = 1.2
	bm25Length = 0.75
	stemWeight = 0.7
)

// A field is a text of a candidate: all its text, or all its reasoning.
type field struct {
	message *agent.Message
	part    agent.PartKind
	counts  []float64 // per term, how often
	length  float64
}

// rank scores the candidates by the better of their two fields.
func rank(candidates []*agent.Message, terms []term) []SearchHit {
	var fields []field
	total := 0.0
	for _, m := range candidates {
		for _, part := range []agent.PartKind{agent.PartText, agent.PartReasoning} {
			f := count(m, part, terms)
			if f.length > 0 {
				fields = append(fields, f)
				total += f.length
			}
		}
	}
	var hits []SearchHit
	for _, f := range fields {
		score := 0.0
		norm := bm25Repeat * (1 - bm25Length + bm25Length*f.length*float64(len(fields))/total)
		for i, n := range f.counts {
			score += terms[i].idf * n * (bm25Repeat + 1) / (n + norm)
		}
		last := len(hits) - 1
		switch {
		case score == 0:
		case last >= 0 && hits[last].Message == f.message:
			if score > hits[last].Score {
				hits[last].Part, hits[last].Score = f.part, score
			}
		default:
			hits = append(hits, SearchHit{f.message, f.part, score})
		}
	}
	slices.SortFunc(hits, func(a, b SearchHit) int {
		return cmp.Or(cmp.Compare(b.Score, a.Score), b.Message.CreatedAt.Compare(a.Message.CreatedAt), cmp.Compare(b.Message.ID, a.Message.ID))
	})
	return hits
}

// count counts the terms in one field of a message.
func count(m *agent.Message, part agent.PartKind, terms []term) field {
	f := field{message: m, part: part, counts: make([]float64, len(terms))}
	left := maxIndexed
	for _, p := range m.Parts {
		if p.Kind != part {
			continue
		}
		text := cutText(p.Text, left)
		left -= len(text)
		for w := range words(text) {
			f.length++
			for i := range terms {
				switch {
				case terms[i].text == w.text:
					f.counts[i]++
				case terms[i].stem == w.stem:
					f.counts[i] += stemWeight
				}
			}
		}
	}
	return f
}

// IndexLag tells how many messages wait to be indexed, and since when the oldest of
// them has been there; zero if none waits.
func (s *Store) IndexLag(ctx context.Context) (waiting int, oldest time.Time, err error) {
	_, err = s.pool().one(ctx, func(r scanner) error { return r.Scan(&waiting, scanTime{&oldest}) }, sqlWaiting, s.tenant)
	return waiting, oldest, s.dialect.fault("look at the search queue", err)
}
