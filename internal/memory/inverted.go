package memory

import (
	"path"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"
)

// The weights of the fields of a file, in halves (spec/mcp.md section 5.2).
const (
	titleUnits = 6
	tagUnits   = 4
	aboutUnits = 4 // the description
	pathUnits  = 3
	bodyUnits  = 2
)

// An Index ranks the files of a snapshot for queries: a list of the chunks that
// hold each term. It is brought in line with another snapshot by their
// difference, and answers exactly as one made afresh would. It is safe for
// concurrent use.
type Index struct {
	mu     sync.RWMutex // guards what follows
	snap   *Snapshot
	ids    map[string]uint32 // of terms
	terms  []indexTerm       // by id
	grams  map[gram][]uint32 // the terms that hold a trigram, for typos
	chunks []indexChunk
	files  map[string]*indexFile // by path
	dead   int                   // chunks of files that are gone
	live   int
	length int64 // of all live chunks, in units
	bytes  int   // estimate of what all this takes
}

// An indexTerm is one term. Files counts those that hold it now; the postings of
// files that are gone stay until the index is rebuilt.
type indexTerm struct {
	text     string
	files    int
	postings []posting // ascending by chunk
}

// A posting says that a chunk holds a term, and how much of it in units: halves
// of an occurrence in the body.
type posting struct{ chunk, units uint32 }

// An indexChunk is a live chunk, or a dead one if file is nil.
type indexChunk struct {
	file   *indexFile
	length uint32 // units
	at     chunk
	digest [16]byte // of its passage
}

// An indexFile is what the index knows of a file.
type indexFile struct {
	file  *File
	first int // its chunks are chunks[first:first+count]
	count int
	terms []uint32 // distinct, ascending
	tags  []string // folded
}

// NewIndex makes an index of nothing.
func NewIndex() *Index {
	x := &Index{}
	x.reset()
	return x
}

func (x *Index) reset() {
	x.snap = &Snapshot{}
	x.ids, x.terms = map[string]uint32{}, nil
	x.grams, x.chunks = map[gram][]uint32{}, nil
	x.files = map[string]*indexFile{}
	x.dead, x.live, x.length, x.bytes = 0, 0, 0, 0
}

// Update brings the index in line with a snapshot.
func (x *Index) Update(s *Snapshot) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.update(s)
}

func (x *Index) update(s *Snapshot) {
	for _, o := range diff(x.snap, s) {
		if o.old != nil {
			x.remove(o.path)
		}
		if o.file != nil {
			x.add(o.file)
		}
	}
	x.snap = s
	if x.dead > 1000 && x.dead > x.live {
		x.reset()
		for _, f := range s.Files {
			x.add(f)
		}
		x.snap = s
	}
}

// size estimates what the index holds, in bytes, the texts included. The lock is
// held.
func (x *Index) size() int { return x.bytes + cost(x.snap) }

// What things cost, in bytes.
const (
	termCost    = 160
	gramCost    = 8
	postingCost = 8
	chunkCost   = 80
	indexedCost = 240
)

// remove forgets a file.
func (x *Index) remove(p string) {
	f := x.files[p]
	if f == nil {
		return
	}
	delete(x.files, p)
	for _, id := range f.terms {
		x.terms[id].files--
	}
	for i := f.first; i < f.first+f.count; i++ {
		x.length -= int64(x.chunks[i].length)
		x.chunks[i] = indexChunk{}
	}
	x.dead += f.count
	x.live -= f.count
	x.bytes -= indexedCost + 4*len(f.terms)
}

// add takes a file up.
func (x *Index) add(file *File) {
	if file.Kind != KindMarkdown || !file.Served() || file.Oversized || file.generated() {
		return
	}
	f := &indexFile{file: file, first: len(x.chunks)}
	for _, t := range file.Tags() {
		f.tags = append(f.tags, fold(t))
	}
	head := newCounter()
	head.count(file.title(), titleUnits)
	head.count(strings.Join(file.Tags(), "\n"), tagUnits)
	head.count(file.Description, aboutUnits)
	head.count(file.FrontText("id"), pathUnits)
	head.count(strings.TrimSuffix(file.Path, ".md"), pathUnits)
	all := map[uint32]bool{}
	for _, at := range chunksOf(file.Body) {
		c := newCounter()
		c.count(at.heading, titleUnits)
		c.count(file.Body[at.from:at.to], bodyUnits)
		c.add(head)
		id := uint32(len(x.chunks))
		x.chunks = append(x.chunks, indexChunk{file: f, length: c.length, at: at})
		x.chunks[id].digest = keyOf("", x.passage(id)).digest
		x.length += int64(c.length)
		for _, text := range c.order {
			t := x.term(text)
			x.terms[t].postings = append(x.terms[t].postings, posting{chunk: id, units: c.units[text]})
			all[t] = true
		}
		x.bytes += chunkCost + postingCost*len(c.order)
		f.count++
	}
	for t := range all {
		x.terms[t].files++
		f.terms = append(f.terms, t)
	}
	slices.Sort(f.terms)
	x.files[file.Path] = f
	x.live += f.count
	x.bytes += indexedCost + 4*len(f.terms)
}

// term finds or makes a term.
func (x *Index) term(text string) uint32 {
	id, ok := x.ids[text]
	if ok {
		return id
	}
	id = uint32(len(x.terms))
	text = strings.Clone(text)
	x.ids[text] = id
	x.terms = append(x.terms, indexTerm{text: text})
	x.bytes += termCost
	for g := range gramsOf(text) {
		x.grams[g] = append(x.grams[g], id)
		x.bytes += gramCost
	}
	return id
}

// title is the name a file goes by: its front matter's, else its file name.
func (f *File) title() string {
	for _, key := range []string{"title", "name"} {
		if t := f.FrontText(key); t != "" {
			return t
		}
	}
	name := strings.TrimSuffix(path.Base(f.Path), ".md")
	if f.Saved() { // the digits behind the words say nothing
		name, _, _ = strings.Cut(name, "--")
	}
	return name
}

// A counter adds up the terms of one chunk.
type counter struct {
	units  map[string]uint32
	order  []string // of the terms, as they came
	length uint32
}

func newCounter() *counter { return &counter{units: map[string]uint32{}} }

// count adds a field's text.
func (c *counter) count(text string, units uint32) {
	for t := range textTokens(text) {
		if _, ok := c.units[t.term]; !ok {
			c.order = append(c.order, t.term)
		}
		c.units[t.term] += units
		if !t.extra {
			c.length += units
		}
	}
}

func (c *counter) add(other *counter) {
	for _, t := range other.order {
		if _, ok := c.units[t]; !ok {
			c.order = append(c.order, t)
		}
		c.units[t] += other.units[t]
	}
	c.length += other.length
}

// A gram is three characters of a term, of which the first two and the last may
// be its ends.
type gram [3]rune

const edge = rune(0)

// gramsOf yields the distinct trigrams of a term as it would stand between
// blanks; those of scripts without blanks have none.
func gramsOf(term string) func(yield func(gram) bool) {
	return func(yield func(gram) bool) {
		if r, _ := utf8.DecodeRuneInString(term); isDense(r) {
			return
		}
		var seen []gram
		g := gram{edge, edge, edge}
		next := func(r rune) bool {
			g = gram{g[1], g[2], r}
			if slices.Contains(seen, g) {
				return true
			}
			seen = append(seen, g)
			return yield(g)
		}
		for _, r := range term {
			if !next(r) {
				return
			}
		}
		next(edge)
	}
}
