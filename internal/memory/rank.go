package memory

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
	"strings"
	"unicode/utf8"
)

// How chunks are ranked.
const (
	bm25K1 = 1.2
	bm25B  = 0.75
	// A chunk that holds all terms of the query, weighed by how rare they are,
	// gains half its score; terms that stand together as in the query, a third.
	coverageGain = 0.5
	nearnessGain = 0.33
	// maxQueryTerms is how many terms of a query count; more would say no more.
	maxQueryTerms = 64
	// maxNear is how many files are looked at for terms that stand together.
	maxNear = 60
)

// A queryTerm is one word of a query with the indexed terms that it may mean.
type queryTerm struct {
	text    string
	extra   bool // another form of a word: no part of the coverage
	meaning []meaning
	rarity  float64 // the greatest of its meanings
}

// A meaning is an indexed term and how sure it is meant, up to 1.
type meaning struct {
	id     uint32
	weight float64
	idf    float64
}

// A found chunk with what it scored.
type foundChunk struct {
	chunk uint32
	mask  uint64 // the query terms it holds
	score float64
}

// A foundFile is a file with its best chunk.
type foundFile struct {
	file  *File
	best  foundChunk
	score float64 // final
}

// queryTerms reads a query. Words that say nothing count only if there are no
// others.
func queryTerms(text string) []queryTerm {
	var all, telling []queryTerm
	seen := map[string]bool{}
	for t := range textTokens(text) {
		// One character of several means too much; compounds as one word do not.
		if r, n := utf8.DecodeRuneInString(t.term); seen[t.term] || t.extra && isDense(r) && n == len(t.term) {
			continue
		}
		seen[t.term] = true
		q := queryTerm{text: t.term, extra: t.extra}
		all = append(all, q)
		if !stopWords[t.term] {
			telling = append(telling, q)
		}
	}
	if len(telling) > 0 {
		all = telling
	}
	return all[:min(len(all), maxQueryTerms)]
}

// resolve finds the indexed terms for a query: themselves; with prefix what the
// last one begins; and for those that nothing holds, what looks alike.
func (x *Index) resolve(terms []queryTerm, prefix bool) {
	hit := false
	for i := range terms {
		if id, ok := x.ids[terms[i].text]; ok && x.terms[id].files > 0 {
			terms[i].meaning = append(terms[i].meaning, meaning{id: id, weight: 1})
			hit = hit || !terms[i].extra
		}
	}
	if last := lastWord(terms); prefix && last >= 0 {
		t := &terms[last]
		for _, m := range x.beginning(t.text) {
			if len(t.meaning) == 0 || m.id != t.meaning[0].id {
				t.meaning = append(t.meaning, m)
			}
		}
		hit = hit || len(t.meaning) > 0
	}
	for i := range terms {
		if t := &terms[i]; len(t.meaning) == 0 && !t.extra {
			t.meaning = x.alike(t.text, !hit)
		}
	}
	n := float64(len(x.files))
	for i := range terms {
		for j := range terms[i].meaning {
			m := &terms[i].meaning[j]
			df := float64(x.terms[m.id].files)
			m.idf = math.Log(1 + (n-df+0.5)/(df+0.5))
			terms[i].rarity = max(terms[i].rarity, m.idf*m.weight)
		}
	}
}

func lastWord(terms []queryTerm) int {
	for i := len(terms) - 1; i >= 0; i-- {
		if !terms[i].extra {
			return i
		}
	}
	return -1
}

// score gives each chunk that holds a term its BM25 and its coverage. only, if
// not nil, says which files count.
func (x *Index) score(terms []queryTerm, only func(*indexFile) bool) []foundChunk {
	at := make([]int32, len(x.chunks)) // 1 + the place in found
	var found []foundChunk
	average := float64(x.length) / float64(max(x.live, 1))
	for i, t := range terms {
		for _, m := range t.meaning {
			for _, p := range x.terms[m.id].postings {
				c := &x.chunks[p.chunk]
				if c.file == nil || only != nil && !only(c.file) {
					continue
				}
				if at[p.chunk] == 0 {
					found = append(found, foundChunk{chunk: p.chunk})
					at[p.chunk] = int32(len(found))
				}
				f := &found[at[p.chunk]-1]
				tf := float64(p.units) / bodyUnits
				norm := bm25K1 * (1 - bm25B + bm25B*float64(c.length)/average)
				f.score += m.weight * m.idf * tf * (bm25K1 + 1) / (tf + norm)
				f.mask |= 1 << i
			}
		}
	}
	whole := 0.0
	for _, t := range terms {
		if !t.extra {
			whole += t.rarity
		}
	}
	for i := range found {
		found[i].score *= 1 + coverageGain*covered(terms, found[i].mask)/max(whole, 1e-9)
	}
	return found
}

// covered is how much of the query a mask stands for.
func covered(terms []queryTerm, mask uint64) (sum float64) {
	for m := mask; m != 0; m &= m - 1 {
		if t := terms[bits.TrailingZeros64(m)]; !t.extra {
			sum += t.rarity
		}
	}
	return sum
}

// lexical ranks the files for a query, best first, at most max.
func (x *Index) lexical(q Query, max int) ([]foundFile, []queryTerm) {
	terms := queryTerms(q.Text)
	x.resolve(terms, q.Prefix)
	files := x.bestChunks(x.score(terms, q.filter()))
	slices.SortFunc(files, compareFound)
	for i := range files[:min(len(files), maxNear)] {
		f := &files[i]
		f.score *= 1 + nearnessGain*nearness(terms, x.occurrences(terms, f.best.chunk))
	}
	for i := range files {
		files[i].score = math.Round(files[i].score*1e4) / 1e4
	}
	slices.SortFunc(files, compareFound)
	return files[:min(len(files), max)], terms
}

// compareFound sorts by score, then newer first, then by path.
func compareFound(a, b foundFile) int {
	if c := cmp.Compare(b.score, a.score); c != 0 {
		return c
	}
	return cmp.Or(cmp.Compare(b.file.unix(), a.file.unix()), cmp.Compare(a.file.Path, b.file.Path))
}

// bestChunks keeps the best chunk of each file.
func (x *Index) bestChunks(found []foundChunk) []foundFile {
	best := make(map[*indexFile]int, len(found))
	files := make([]foundFile, 0, len(found))
	for _, f := range found {
		file := x.chunks[f.chunk].file
		i, ok := best[file]
		switch {
		case !ok:
			best[file] = len(files)
			files = append(files, foundFile{file: file.file, best: f, score: f.score})
		case f.score > files[i].score || f.score == files[i].score && f.chunk < files[i].best.chunk:
			files[i].best, files[i].score = f, f.score
		}
	}
	return files
}

// An occurrence is where a chunk's text holds a term of the query.
type occurrence struct{ term, pos, from, to int }

// occurrences finds the query's terms in a chunk's text.
func (x *Index) occurrences(terms []queryTerm, id uint32) []occurrence {
	meant := map[string]int{}
	for i := len(terms) - 1; i >= 0; i-- {
		for _, m := range terms[i].meaning {
			meant[x.terms[m.id].text] = i
		}
	}
	var found []occurrence
	for t := range textTokens(x.text(id)) {
		if i, ok := meant[t.term]; ok {
			found = append(found, occurrence{term: i, pos: t.pos, from: t.from, to: t.to})
		}
	}
	return found
}

// text is a chunk's text.
func (x *Index) text(id uint32) string {
	c := x.chunks[id]
	return c.file.file.Body[c.at.from:c.at.to]
}

// nearness says how much of a query stands together in a text, from 0 to 1: 1 if
// each two neighbours in the query are neighbours there, in any order.
func nearness(terms []queryTerm, found []occurrence) float64 {
	last := -1
	sum, pairs := 0.0, 0
	for i := range terms {
		if terms[i].extra {
			continue
		}
		if last >= 0 {
			pairs++
			if d := distance(found, last, i); d > 0 {
				sum += 1 / float64(d)
			}
		}
		last = i
	}
	if pairs == 0 {
		return 0
	}
	return sum / float64(pairs)
}

// distance is the least distance of two terms in words; 0 = one is not there.
func distance(found []occurrence, a, b int) int {
	least := 0
	lastA, lastB := -1, -1
	for _, o := range found {
		switch o.term {
		case a:
			lastA = o.pos
		case b:
			lastB = o.pos
		default:
			continue
		}
		if lastA >= 0 && lastB >= 0 {
			d := max(lastA-lastB, lastB-lastA, 1)
			if least == 0 || d < least {
				least = d
			}
		}
	}
	return least
}

// How alike a term must be to stand for one that nothing holds.
const (
	leastAlike  = 0.3 // if no term of the query is held
	leastInPart = 0.5 // beside terms that are
	maxAlike    = 8
	minPart     = 3 // characters of a word that stands for longer ones
)

// alike finds the terms that look like one that nothing holds: with one or two
// slips of the keys, or longer ones that hold it. desperate takes what has some
// likeness.
func (x *Index) alike(text string, desperate bool) []meaning {
	var own []gram
	shared := map[uint32]int{}
	for g := range gramsOf(text) {
		own = append(own, g)
		for _, id := range x.grams[g] {
			shared[id]++
		}
	}
	if len(own) == 0 {
		return x.singles(text)
	}
	runes := len([]rune(text))
	var found []meaning
	for id, n := range shared {
		t := &x.terms[id]
		if t.files == 0 {
			continue
		}
		other := len([]rune(t.text)) + 1 // about as many trigrams
		likeness := float64(n) / float64(len(own)+other-n)
		weight := 0.0
		switch {
		case runes >= minPart && strings.HasPrefix(t.text, text):
			weight = 0.7
		case runes > minPart && strings.Contains(t.text, text):
			weight = 0.5
		case likeness >= leastAlike && runes > minPart && slips(text, t.text) <= 1+runes/8:
			weight = max(likeness, 0.6)
		case likeness >= leastInPart || desperate && likeness >= leastAlike:
			weight = likeness
		}
		if weight > 0 {
			found = append(found, meaning{id: id, weight: weight})
		}
	}
	return x.surest(found)
}

// beginning finds the terms that text begins.
func (x *Index) beginning(text string) []meaning {
	var found []meaning
	for i := range x.terms {
		if t := &x.terms[i]; t.files > 0 && t.text != text && strings.HasPrefix(t.text, text) {
			found = append(found, meaning{id: uint32(i), weight: 0.7})
		}
	}
	return x.surest(found)
}

// singles are the characters of two neighbours that nothing holds together.
func (x *Index) singles(text string) []meaning {
	var found []meaning
	runes := []rune(text)
	if len(runes) < 2 {
		return nil
	}
	for _, r := range runes {
		if id, ok := x.ids[string(r)]; ok && x.terms[id].files > 0 {
			found = append(found, meaning{id: id, weight: 0.3})
		}
	}
	return x.surest(found)
}

// surest keeps the meanings with the greatest weight.
func (x *Index) surest(found []meaning) []meaning {
	slices.SortFunc(found, func(a, b meaning) int {
		return cmp.Or(cmp.Compare(b.weight, a.weight), cmp.Compare(x.terms[a.id].text, x.terms[b.id].text))
	})
	return slices.CompactFunc(found[:min(len(found), maxAlike)], func(a, b meaning) bool { return a.id == b.id })
}

// slips is how many keys were hit wrongly, left out, hit twice or in the wrong
// order between two words.
func slips(a, b string) int {
	s, t := []rune(a), []rune(b)
	before, last, row := make([]int, len(t)+1), make([]int, len(t)+1), make([]int, len(t)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(s); i++ {
		row[0] = i
		for j := 1; j <= len(t); j++ {
			change := 1
			if s[i-1] == t[j-1] {
				change = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+change)
			if i > 1 && j > 1 && s[i-1] == t[j-2] && s[i-2] == t[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(t)]
}
