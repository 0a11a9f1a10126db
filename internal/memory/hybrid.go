package memory

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"mneme/internal/agent"
)

// How full text and vectors go together.
const (
	fusionK    = 60  // of reciprocal rank fusion (spec/mcp.md section 5.2)
	fusionList = 100 // files of each list

	embedBatch   = 64
	embedWait    = 3 * time.Second  // of a search, for texts without vectors
	embedTimeout = 60 * time.Second // of one request
	embedPause   = 30 * time.Second // after a failure
)

// An Embedder turns texts into vectors of equal length that are near where the
// meanings are: one for each text, in order. It is used beyond the search that
// brought it, in the background, and by several searches at once.
type Embedder interface {
	Embed(ctx context.Context, texts []string) ([][]float32, error)
}

// An embedding is the background work that makes the vectors of a memory.
type embedding struct {
	done   chan struct{}
	err    error // after done
	failed time.Time
}

// A passage is a chunk as it is embedded.
type passage struct {
	chunk uint32
	key   vectorKey
}

// hybrid ranks by full text and by vectors. Where there are no vectors yet, or
// the provider does not work, the answer is that of the full text and warning
// says why.
func (m *Memory) hybrid(ctx context.Context, agentID string, s *Snapshot, q Query) (hits []Hit, warning string) {
	if warning := m.embedAll(ctx, agentID, s, q); warning != "" {
		return nil, warning
	}
	query := keyOf(q.Model, "query: "+q.Text)
	asked := m.vectors.get([]vectorKey{query})[0]
	if asked == nil {
		ctx, cancel := context.WithTimeout(ctx, embedWait)
		defer cancel()
		found, err := embed(ctx, q.Embedder, []string{q.Text})
		if err != nil {
			return nil, noVectors(err)
		}
		m.vectors.put(query, found[0])
		asked = unit(found[0])
	}
	m.indexes.with(agentID, s, func(x *Index) {
		passages, _ := x.passages(q.Model, q.filter())
		known := m.vectors.get(keysOf(passages))
		if stale := mismatched(passages, known, len(asked)); len(stale) > 0 {
			m.vectors.drop(append(stale, query))
			warning = "The embedding model changed the length of its vectors; they are made anew. This answer is by full text only."
			return
		}
		hits = x.fused(q, passages, known, asked)
	})
	return hits, warning
}

func noVectors(err error) string {
	return fmt.Sprintf("The embedding model does not work (%v); this answer is by full text only.", err)
}

// mismatched is the keys of the vectors whose length is another.
func mismatched(passages []passage, known [][]float32, length int) []vectorKey {
	var stale []vectorKey
	for i, v := range known {
		if v != nil && len(v) != length {
			stale = append(stale, passages[i].key)
		}
	}
	return stale
}

func keysOf(passages []passage) []vectorKey {
	keys := make([]vectorKey, len(passages))
	for i, p := range passages {
		keys[i] = p.key
	}
	return keys
}

// passages is the live chunks and their texts. The index's lock is held.
func (x *Index) passages(model string, only func(*indexFile) bool) ([]passage, func(i int) string) {
	var list []passage
	for i, c := range x.chunks {
		if c.file == nil || only != nil && !only(c.file) {
			continue
		}
		list = append(list, passage{chunk: uint32(i), key: vectorKey{model: model, digest: c.digest}})
	}
	return list, func(i int) string { return x.passage(list[i].chunk) }
}

// passage is what of a chunk is embedded: its text below the names that it goes
// by.
func (x *Index) passage(id uint32) string {
	c := x.chunks[id]
	f := c.file.file
	var parts []string
	for _, p := range []string{f.title(), f.Description, c.at.heading, x.text(id)} {
		if p != "" {
			parts = append(parts, p)
		}
	}
	return strings.Join(parts, "\n")
}

// embedAll makes sure that all passages have vectors, or says why not.
func (m *Memory) embedAll(ctx context.Context, agentID string, s *Snapshot, q Query) (warning string) {
	var missing []string
	total := 0
	m.indexes.with(agentID, s, func(x *Index) {
		passages, text := x.passages(q.Model, nil)
		total = len(passages)
		for i, v := range m.vectors.get(keysOf(passages)) {
			if v == nil {
				missing = append(missing, text(i))
			}
		}
	})
	if len(missing) == 0 {
		return ""
	}
	job, err := m.startEmbedding(agentID, q, missing, total)
	if err != nil {
		return noVectors(err)
	}
	timer := time.NewTimer(embedWait)
	defer timer.Stop()
	select {
	case <-job.done:
		if job.err != nil {
			return noVectors(job.err)
		}
		return ""
	case <-timer.C:
	case <-ctx.Done():
	}
	return fmt.Sprintf("The vectors of %d of %d passages are still being made; this answer is by full text only.", len(missing), total)
}

// startEmbedding joins or starts the work on a memory; after a failure there is
// a pause, in which its error is the answer.
func (m *Memory) startEmbedding(agentID string, q Query, texts []string, total int) (*embedding, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := agentID + "\x00" + q.Model
	if job := m.embeddings[key]; job != nil {
		select {
		case <-job.done:
			if job.err != nil && time.Since(job.failed) < embedPause {
				return nil, job.err
			}
		default:
			return job, nil
		}
	}
	if m.closed {
		return nil, agent.Errorf(agent.CodeShutdown, "the server is stopping")
	}
	job := &embedding{done: make(chan struct{})}
	m.embeddings[key] = job
	m.work.Go(func() {
		job.err = m.embedTexts(q, texts, total)
		job.failed = time.Now()
		if job.err == nil {
			m.mu.Lock()
			delete(m.embeddings, key)
			m.mu.Unlock()
		}
		close(job.done)
	})
	return job, nil
}

// embedTexts makes vectors batch by batch.
func (m *Memory) embedTexts(q Query, texts []string, total int) error {
	for batch := range slices.Chunk(texts, embedBatch) {
		ctx, cancel := context.WithTimeout(m.stop, embedTimeout)
		found, err := embed(ctx, q.Embedder, batch)
		cancel()
		if err != nil {
			return err
		}
		if need := total * (vectorCost + 4*len(found[0])); need > m.vectors.budget {
			return fmt.Errorf("%d passages with vectors of %d numbers are more than fits", total, len(found[0]))
		}
		for i, text := range batch {
			m.vectors.put(keyOf(q.Model, text), found[i])
		}
	}
	return nil
}

// embed asks for vectors and checks what came.
func embed(ctx context.Context, e Embedder, texts []string) ([][]float32, error) {
	found, err := e.Embed(ctx, texts)
	if err != nil {
		return nil, err
	}
	if len(found) != len(texts) {
		return nil, fmt.Errorf("%d vectors came for %d texts", len(found), len(texts))
	}
	for _, v := range found {
		if len(v) == 0 || len(v) != len(found[0]) {
			return nil, fmt.Errorf("vectors of %d and %d numbers came", len(found[0]), len(v))
		}
	}
	return found, nil
}

// fused joins the ranks of both lists. The lock is held.
func (x *Index) fused(q Query, passages []passage, known [][]float32, asked []float32) []Hit {
	byText, terms := x.lexical(q, fusionList)
	var near []foundChunk
	for i, v := range known {
		if v == nil {
			continue
		}
		if likeness := dot(v, asked); likeness > 0 {
			near = append(near, foundChunk{chunk: passages[i].chunk, score: likeness})
		}
	}
	byMeaning := x.bestChunks(near)
	slices.SortFunc(byMeaning, compareFound)
	byMeaning = byMeaning[:min(len(byMeaning), fusionList)]
	at := map[string]int{}
	var files []foundFile
	for _, list := range [][]foundFile{byText, byMeaning} {
		for rank, f := range list {
			gain := 1 / float64(fusionK+rank+1)
			if i, ok := at[f.file.Path]; ok {
				files[i].score += gain
				continue
			}
			at[f.file.Path] = len(files)
			f.score = gain
			files = append(files, f)
		}
	}
	for i := range files {
		files[i].score = math.Round(files[i].score*1e6) / 1e6
	}
	slices.SortFunc(files, compareFound)
	return x.hits(files[:min(len(files), cmp.Or(q.TopK, DefaultTopK))], terms)
}
