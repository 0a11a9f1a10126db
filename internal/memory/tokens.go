package memory

import (
	"iter"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The bounds of what one word of a text may cost.
const (
	maxTerm  = 64 // bytes; the rest of a longer word is dropped
	maxParts = 8  // of a compound word
)

// A token is one indexed term of a text.
type token struct {
	term     string // folded, and stemmed if it looks English
	from, to int    // bytes of the text it stands for
	pos      int    // counts words
	// extra tokens are another form of a word: a compound written as one, one
	// character of a script without blanks. They match, but nobody asked for them.
	extra bool
}

// textTokens cuts a text into terms:
//
//   - words are letters and digits, folded to lower case without accents; English
//     endings go;
//   - memory-block, memory_block and memoryBlock are memory, block and, extra,
//     memoryblock; an apostrophe does not part a word;
//   - scripts that write no blanks give each two neighbours and, extra, each
//     character; a single character is a term of its own.
func textTokens(text string) iter.Seq[token] {
	return func(yield func(token) bool) { tokenise(text, yield) }
}

func tokenise(text string, yield func(token) bool) {
	t := &tokenizer{text: text, yield: yield}
	for at := 0; at < len(text) && !t.done; {
		r, n := utf8.DecodeRuneInString(text[at:])
		switch {
		case isDense(r):
			at = t.dense(at)
		case isWord(r):
			at = t.compound(at)
		default:
			at += n
		}
	}
}

type tokenizer struct {
	text  string
	yield func(token) bool
	pos   int
	done  bool
	parts []span // of the compound at hand
}

type span struct{ from, to int }

func (t *tokenizer) emit(tok token) {
	if tok.term == "" || t.done {
		return
	}
	t.done = !t.yield(tok)
}

func isWord(r rune) bool {
	if r < utf8.RuneSelf {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
	}
	return r != utf8.RuneError && (unicode.IsLetter(r) || unicode.IsNumber(r) || unicode.IsMark(r))
}

// isDense tells scripts whose words no blank parts. Hangul has blanks, but its
// particles stick to the words.
func isDense(r rune) bool {
	if r < 0xe00 {
		return false
	}
	return unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul, unicode.Bopomofo,
		unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar, unicode.Yi) || r == 'ー' || r == '々'
}

// word ends the run of word characters that begins at from.
func (t *tokenizer) word(from int) (to int) {
	for i, r := range t.text[from:] {
		if !isWord(r) || isDense(r) {
			return from + i
		}
	}
	return len(t.text)
}

// compound reads words that hyphens, underscores or capitals join.
func (t *tokenizer) compound(at int) (end int) {
	from := at
	t.parts = t.parts[:0]
	for {
		to := t.word(at)
		last := t.apostrophe(to)
		t.split(at, to)
		if last > to { // don't, Ada's
			t.parts[len(t.parts)-1].to = last
			to = last
		}
		at = to
		if to >= len(t.text) || t.text[to] != '-' && t.text[to] != '_' {
			break
		}
		if r, _ := utf8.DecodeRuneInString(t.text[to+1:]); !isWord(r) || isDense(r) {
			break
		}
		at = to + 1
	}
	first := t.pos
	for _, p := range t.parts {
		t.emit(token{term: term(t.text[p.from:p.to]), from: p.from, to: p.to, pos: t.pos})
		t.pos++
	}
	if n := len(t.parts); n > 1 && n <= maxParts && at-from <= maxTerm {
		var b strings.Builder
		for _, p := range t.parts {
			b.WriteString(t.text[p.from:p.to])
		}
		t.emit(token{term: term(b.String()), from: from, to: at, pos: first, extra: true})
	}
	for _, sign := range []string{"++", "#"} { // C++, F#
		if n := len(t.parts); n == 1 && strings.HasPrefix(t.text[at:], sign) {
			t.emit(token{term: fold(cutBytes(t.text[from:at], maxTerm)) + sign, from: from, to: at + len(sign), pos: first, extra: true})
		}
	}
	return at
}

// apostrophe is the end of a word that goes on behind an apostrophe; else to.
func (t *tokenizer) apostrophe(to int) int {
	rest := t.text[to:]
	n := 0
	switch {
	case strings.HasPrefix(rest, "'"):
		n = 1
	case strings.HasPrefix(rest, "’"):
		n = len("’")
	default:
		return to
	}
	end := t.word(to + n)
	switch strings.ToLower(t.text[to+n : end]) {
	case "s", "t", "d", "m", "re", "ve", "ll":
		return end
	}
	return to
}

// split notes the parts of a word that capitals divide: memoryBlock, HTTPServer.
func (t *tokenizer) split(from, to int) {
	word := t.text[from:to]
	start := from
	if to-from <= maxTerm {
		var before, last rune
		for i, r := range word {
			next, _ := utf8.DecodeRuneInString(word[i+utf8.RuneLen(r):])
			camel := unicode.IsUpper(r) && (unicode.IsLower(last) || unicode.IsUpper(last) && unicode.IsLower(next) && before != 0)
			if camel && i > 0 {
				t.parts = append(t.parts, span{start, from + i})
				start = from + i
			}
			before, last = last, r
		}
	}
	t.parts = append(t.parts, span{start, to})
}

// dense reads a run of a script without blanks.
func (t *tokenizer) dense(from int) (end int) {
	end = len(t.text)
	for i, r := range t.text[from:] {
		if !isDense(r) && !unicode.IsMark(r) {
			end = from + i
			break
		}
	}
	run := t.text[from:end]
	folded := []rune(fold(run))
	at := make([]int, 0, len(folded)+1) // of the text's runes
	for i := range run {
		at = append(at, from+i)
	}
	at = append(at, end)
	where := func(i, n int) (int, int) {
		if len(at) != len(folded)+1 { // folding joined or parted characters
			return from, end
		}
		return at[i], at[i+n]
	}
	for i := range folded {
		f, to := where(i, 1)
		t.emit(token{term: string(folded[i]), from: f, to: to, pos: t.pos, extra: len(folded) > 1})
		if i+1 < len(folded) {
			f, to = where(i, 2)
			t.emit(token{term: string(folded[i : i+2]), from: f, to: to, pos: t.pos})
		}
		t.pos++
	}
	return end
}

// term is the indexed form of a word.
func term(word string) string {
	word = cutBytes(word, maxTerm)
	for _, mark := range []string{"'", "’"} {
		if before, after, ok := strings.Cut(word, mark); ok {
			if word = before + after; strings.EqualFold(after, "s") {
				word = before
			}
		}
	}
	return stem(cutBytes(fold(word), maxTerm))
}

// cutBytes cuts s to max bytes, between characters.
func cutBytes(s string, max int) string {
	if len(s) <= max {
		return s
	}
	for max > 0 && !utf8.RuneStart(s[max]) {
		max--
	}
	return s[:max]
}

// stem takes the common endings off an English word, so that plans, planned and
// planning are one. What else may look English comes to no harm: texts and
// queries are treated alike.
func stem(w string) string {
	if len(w) < 4 || !isPlain(w) {
		return w
	}
	switch {
	case strings.HasSuffix(w, "ies") && len(w) > 4:
		return w[:len(w)-3] + "y"
	case strings.HasSuffix(w, "ied") && len(w) > 4:
		return w[:len(w)-3] + "y"
	case strings.HasSuffix(w, "s") && !strings.HasSuffix(w, "ss") && !strings.HasSuffix(w, "us") && !strings.HasSuffix(w, "is"):
		w = w[:len(w)-1]
	}
	for _, ending := range []string{"ing", "ed"} {
		if base, ok := strings.CutSuffix(w, ending); ok && len(base) >= 3 && strings.ContainsAny(base, "aeiouy") {
			w = undouble(base)
			break
		}
	}
	if len(w) > 3 && w[len(w)-1] == 'e' {
		w = w[:len(w)-1]
	}
	return w
}

// undouble turns plann into plan, but keeps call, miss and buzz.
func undouble(w string) string {
	n := len(w)
	if c := w[n-1]; n > 3 && c == w[n-2] && !strings.ContainsRune("lszaeiou", rune(c)) {
		return w[:n-1]
	}
	return w
}

func isPlain(w string) bool {
	for i := range len(w) {
		if w[i] < 'a' || w[i] > 'z' {
			return false
		}
	}
	return true
}

// stopWords say nothing about what a question is about. They are stemmed.
var stopWords = stems(`a about again all also am an and any are as at be because been before being both but by
	can could did do does doing done don't for from get gets give had has have having he her here hers him his how i i'm
	if in into is isn't it it's its just let me mine more most much my no not now of off on one only or other our out
	over own please shall she should so some such tell than that that's the their them then there these they thing this
	those to too up us very was we were what what's when where which who who's whom whose why will with would you your`)

func stems(words string) map[string]bool {
	set := map[string]bool{}
	for w := range strings.FieldsSeq(words) {
		set[term(w)] = true
	}
	return set
}
