package memory

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// The size of a snippet, in characters.
const (
	maxSnippet = 400
	snippetRun = 360 // of them, at most, between the first and the last term
	leadIn     = 60  // before the first term
)

// snippet is the part of a text that shows most of the query, in one line of at
// most maxSnippet characters.
func snippet(text string, terms []queryTerm, found []occurrence) string {
	if one := strings.ToValidUTF8(collapse(text), "\uFFFD"); utf8.RuneCountInString(one) <= maxSnippet {
		return one
	}
	from, to := 0, 0
	best := -1.0
	for i, first := range found {
		var mask uint64
		end := first.to
		for _, o := range found[i:] {
			if utf8.RuneCountInString(text[first.from:o.to]) > snippetRun-leadIn {
				break
			}
			mask |= 1 << o.term
			end = o.to
		}
		if c := covered(terms, mask); c > best {
			best, from, to = c, first.from, end
		}
	}
	from = lead(text, from)
	return clip(text, from, max(to, from))
}

// lead goes back from a term to the start of its sentence or line, or to that of
// a word near by.
func lead(text string, at int) int {
	from := at
	word := at
	for n := 0; from > 0 && n < leadIn; n++ {
		r, size := utf8.DecodeLastRuneInString(text[:from])
		if r == '\n' || r == '。' || (r == '.' || r == '!' || r == '?') && from < len(text) && text[from] == ' ' {
			return from
		}
		from -= size
		if unicode.IsSpace(r) {
			word = from + size
		}
	}
	if from == 0 {
		return 0
	}
	return word
}

// clip cuts out what follows from, marking what is left out.
func clip(text string, from, to int) string {
	before, after := "", "…"
	if from > 0 {
		before = "… "
	}
	room := maxSnippet - utf8.RuneCountInString(before) - 2
	end := from
	word := 0 // the last end of a word that still fits
	for n := 0; n < room && end < len(text); n++ {
		r, size := utf8.DecodeRuneInString(text[end:])
		if unicode.IsSpace(r) {
			word = end
		}
		end += size
	}
	switch {
	case end >= len(text):
		end, after = len(text), ""
	case word >= to && word > from:
		end, after = word, " …"
	}
	return before + strings.ToValidUTF8(collapse(text[from:end]), "\uFFFD") + after
}

// describe is what a hit shows of a file whose text says nothing.
func (f *File) describe() string { return cutText(collapse(f.Description), maxSnippet) }

// HitLabel is what a hit is called: a core block's label, else the path without
// its ending.
func (f *File) hitLabel() string {
	if l := f.Label(); l != "" {
		return l
	}
	return strings.TrimSuffix(f.Path, ".md")
}
