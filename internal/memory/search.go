package memory

import (
	"context"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"mneme/internal/agent"
)

// The limits of a query (spec/mcp.md section 5).
const (
	DefaultTopK = 5
	MaxTopK     = 20
	maxQuery    = 2000 // characters
)

// A Query asks for pieces of an agent's memory.
type Query struct {
	Text string // words, or a question
	TopK int    // how many files at most; 0 = DefaultTopK
	// Tags must all be on a file for it to count, in any case; none = any file.
	Tags []string
	// Under is the directory that counts; "" = all.
	Under string
	// Prefix lets the last word be the beginning of one.
	Prefix bool
	// Embedder, if not nil, adds likeness of meaning. Model names what makes its
	// vectors: those of different names are never compared.
	Embedder Embedder
	Model    string
}

// The modes of an answer.
const (
	ModeLexical = "lexical" // full text only
	ModeHybrid  = "hybrid"  // full text and vectors
)

// Found answers a query.
type Found struct {
	Commit  string // that was searched; "" = nothing written yet
	Mode    string
	Hits    []Hit  // best first, one per file
	Warning string // why there are no vectors though asked for; "" = nothing
}

// A Hit is a file that fits.
type Hit struct {
	ID      string // of a saved item, else the path; DeleteItem takes it
	Path    string
	URI     string // letta://agents/<agent>/memory/<path>
	Label   string
	Score   float64 // comparable within one answer only
	Snippet string  // at most 400 characters, one line
	Tags    []string
	Updated time.Time // of the commit that last changed the file; zero = not known
}

// check brings a query into its normal form. Blank filters count as absent.
func (q *Query) check() error {
	q.Text = strings.TrimSpace(q.Text)
	switch n := utf8.RuneCountInString(q.Text); {
	case n == 0:
		return agent.Invalid("query", "query must not be blank")
	case n > maxQuery:
		return agent.Invalid("query", "query has %d characters, the limit is %d", n, maxQuery)
	}
	if q.TopK == 0 {
		q.TopK = DefaultTopK
	}
	if q.TopK < 1 || q.TopK > MaxTopK {
		return agent.Invalid("top_k", "top_k must be from 1 to %d", MaxTopK)
	}
	var tags []string
	for _, t := range q.Tags {
		if t = fold(strings.TrimSpace(t)); t != "" {
			tags = append(tags, t)
		}
	}
	q.Tags = tags
	q.Under = strings.Trim(strings.TrimSpace(q.Under), "/")
	return nil
}

// filter says which files count; nil = all.
func (q *Query) filter() func(*indexFile) bool {
	if len(q.Tags) == 0 && q.Under == "" {
		return nil
	}
	return func(f *indexFile) bool {
		if q.Under != "" && f.file.Path != q.Under && !strings.HasPrefix(f.file.Path, q.Under+"/") {
			return false
		}
		for _, want := range q.Tags {
			if !slices.Contains(f.tags, want) {
				return false
			}
		}
		return true
	}
}

// Search ranks the files of the newest commit for a query. It asks no model
// without an Embedder and never writes. The same query at the same commit gives
// the same answer; every commit made before the call is seen.
func (m *Memory) Search(ctx context.Context, agentID string, q Query) (Found, error) {
	if err := q.check(); err != nil {
		return Found{}, err
	}
	s, err := m.Snapshot(ctx, agentID, "")
	if err != nil {
		return Found{}, err
	}
	if s.Commit == "" {
		return Found{Mode: ModeLexical}, nil
	}
	if err := m.Date(ctx, agentID, s, s.Files); err != nil {
		return Found{}, err
	}
	found := Found{Mode: ModeLexical, Commit: s.Commit}
	if q.Embedder != nil {
		found.Hits, found.Warning = m.hybrid(ctx, agentID, s, q)
	}
	if q.Embedder == nil || found.Warning != "" {
		m.indexes.with(agentID, s, func(x *Index) { found.Hits = x.search(q) })
	} else {
		found.Mode = ModeHybrid
	}
	for i := range found.Hits {
		h := &found.Hits[i]
		h.URI = "letta://agents/" + agentID + "/memory/" + escapePath(h.Path)
	}
	return found, nil
}

func escapePath(p string) string {
	segments := strings.Split(p, "/")
	for i, s := range segments {
		segments[i] = url.PathEscape(s)
	}
	return strings.Join(segments, "/")
}

// Search ranks what the index shows. The query counts as checked: a bad one
// finds nothing. Hits have no URI.
func (x *Index) Search(q Query) []Hit {
	if q.check() != nil {
		return nil
	}
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.search(q)
}

func (x *Index) search(q Query) []Hit {
	files, terms := x.lexical(q, q.TopK)
	return x.hits(files, terms)
}

// hits shows what was found. The lock is held.
func (x *Index) hits(files []foundFile, terms []queryTerm) []Hit {
	hits := make([]Hit, len(files))
	for i, f := range files {
		h := Hit{
			ID: f.file.Path, Path: f.file.Path, Label: f.file.hitLabel(), Score: f.score,
			Tags: f.file.Tags(), Updated: f.file.Updated(),
			Snippet: snippet(x.text(f.best.chunk), terms, x.occurrences(terms, f.best.chunk)),
		}
		if f.file.Saved() {
			h.ID = f.file.FrontText("id")
		}
		if h.Snippet == "" {
			h.Snippet = f.file.describe()
		}
		hits[i] = h
	}
	return hits
}
