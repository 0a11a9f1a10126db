package store

import (
	"iter"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// Text becomes words here, the same way for the index, for queries and on both
// databases: lower case, without accents, split where neither letters nor digits
// are. Scripts that are written without blanks are split into single characters
// and pairs of neighbours. Words that differ in their ending alone have one stem.
// When this changes, a migration must queue all messages to be indexed anew, as
// RebuildIndex does.

// maxWord is the longest word in bytes; what is longer is cut.
const maxWord = 64

// A word of a text, and what the index knows it by.
type word struct{ text, stem string }

// words yields the words of a text in order.
func words(text string) iter.Seq[word] {
	return func(yield func(word) bool) {
		for run := range runs(foldText(text)) {
			if first, _ := utf8.DecodeRuneInString(run); unspaced(first) {
				if !grams(run, yield) {
					return
				}
				continue
			}
			w := cutWord(run)
			if !yield(word{w, stem(w)}) {
				return
			}
		}
	}
}

// runs yields the stretches of letters and digits, split where a script with
// blanks meets one without.
func runs(text string) iter.Seq[string] {
	return func(yield func(string) bool) {
		start, packed := -1, false
		for i, r := range text {
			in := unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.IsMark(r)
			if start >= 0 && (!in || unspaced(r) != packed && !unicode.IsMark(r)) {
				if !yield(text[start:i]) {
					return
				}
				start = -1
			}
			if in && start < 0 && !unicode.IsMark(r) {
				start, packed = i, unspaced(r)
			}
		}
		if start >= 0 {
			yield(text[start:])
		}
	}
}

// unspaced tells scripts that are written without blanks between words, or, as
// Korean, with endings that a stem cannot cut.
func unspaced(r rune) bool {
	return r >= 0xe00 && unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul,
		unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar) || r == 'ー'
}

// grams yields each character and each pair of neighbours.
func grams(run string, yield func(word) bool) bool {
	prev := -1
	for i, r := range run {
		end := i + utf8.RuneLen(r)
		if prev >= 0 && !yield(word{run[prev:end], run[prev:end]}) {
			return false
		}
		if !yield(word{run[i:end], run[i:end]}) {
			return false
		}
		prev = i
	}
	return true
}

func cutWord(w string) string {
	if len(w) <= maxWord {
		return w
	}
	end := maxWord
	for !utf8.RuneStart(w[end]) {
		end--
	}
	return w[:end]
}

// foldText is a text in lower case without accents.
func foldText(s string) string {
	if ascii(s) {
		return strings.ToLower(s)
	}
	var b strings.Builder
	b.Grow(len(s))
	for _, r := range norm.NFKD.String(strings.ToValidUTF8(strings.ToLower(s), " ")) {
		if bare := bareLetter(r); bare != "" {
			b.WriteString(bare)
		} else if !accent(r) {
			b.WriteRune(r)
		}
	}
	return norm.NFC.String(b.String())
}

// bareLetter is what is written for a letter that no decomposition takes apart; ""
// for others.
func bareLetter(r rune) string {
	switch r {
	case 'ß':
		return "ss"
	case 'æ':
		return "ae"
	case 'œ':
		return "oe"
	case 'ø':
		return "o"
	case 'đ':
		return "d"
	case 'ł':
		return "l"
	case 'ı':
		return "i"
	case 'ς':
		return "σ"
	}
	return ""
}

// accent tells marks that writers may leave out: accents and vowel signs. Those of
// Indic and Thai letters and Japanese voicing stay.
func accent(r rune) bool {
	return r >= 0x300 && unicode.Is(unicode.Mn, r) && r != 0x3099 && r != 0x309a &&
		unicode.In(r, unicode.Inherited, unicode.Arabic, unicode.Hebrew)
}

func ascii(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// stem cuts the endings that words take most often in European languages. Whether
// the rest is a word does not matter, only that the forms of one word share it: a
// match of stems alone counts less than one of words.
func stem(w string) string {
	switch {
	case len(w) <= 3 || w[0] <= '9':
		return w
	case !ascii(w):
		return stemCyrillic(w)
	}
	switch {
	case strings.HasSuffix(w, "ies") && len(w) > 4:
		w = w[:len(w)-3] + "y"
	case strings.HasSuffix(w, "sses"), strings.HasSuffix(w, "shes"), strings.HasSuffix(w, "ches"), strings.HasSuffix(w, "xes"):
		w = w[:len(w)-2]
	case strings.HasSuffix(w, "s") && !strings.HasSuffix(w, "ss") && !strings.HasSuffix(w, "us") && !strings.HasSuffix(w, "is"):
		w = w[:len(w)-1]
	}
	for _, end := range []string{"ing", "ed", "en"} {
		rest, ok := strings.CutSuffix(w, end)
		if !ok || len(rest) < 3 || !strings.ContainsAny(rest, "aeiouy") {
			continue
		}
		if n := len(rest); n > 3 && rest[n-1] == rest[n-2] && !strings.ContainsRune("lsz", rune(rest[n-1])) {
			rest = rest[:n-1] // running
		}
		w = rest
		break
	}
	if len(w) > 3 {
		w = strings.TrimSuffix(w, "e") // move, moving
	}
	return w
}

// stemCyrillic cuts the vowels at the end, which are what declension changes.
func stemCyrillic(w string) string {
	for range 2 {
		r, n := utf8.DecodeLastRuneInString(w)
		if len(w)-n < 6 || !strings.ContainsRune("аяоеиыуюйь", r) {
			break
		}
		w = w[:len(w)-n]
	}
	return w
}

// fillers are words that a question is made of rather than about, each between
// blanks.
const fillers = " a about after again all also am an and any are as at be because been before being but by can could " +
	"did didn do does doesn doing don for from had has have having he her here hers him his how i if in into is isn it its " +
	"just ll me more most my no nor not now of on once only or other our ours out over own please re s said same say she " +
	"should so some such t tell than that the their them then there these they this those through to too up us ve very was " +
	"wasn we were what when where which while who whom why will with won would you your yours " +
	"aber als auch auf aus bei bin bist da das dass dein dem den der des die doch du durch ein eine einem einen einer er es " +
	"fur hab habe haben hast hat ich ihm ihn ihr ihre im ist ja kann kein mein mich mir mit nach nicht noch nur ob oder sein " +
	"sich sie sind uber um und uns vom von vor wann warum wer wie wir wo zu zum zur " +
	"au aux avec ce ces cette comme dans de du elle en est et etait eux il ils je la le les leur lui ma mais mes moi mon ne " +
	"nos notre nous ou par pas pour qu que quel quelle qui quoi sa se ses son sur ta te tes toi ton tu un une vos votre " +
	"al con cual cuando del donde el ella era eso esta este fue ha hay las lo los mas mi mis muy para pero por porque quien si " +
	"sin sobre su sus y yo che chi della di dove e gli ho io mia mio non per perche piu quale quando sono sua suo ti " +
	"ao das dos em eu foi meu minha na nas nao o os pela pelo pour qual seu um uma voce "

func filler(w string) bool { return strings.Contains(fillers, " "+w+" ") }

// A term is a word that is searched for.
type term struct {
	text, stem string
	idf        float64
}

// maxTerms bounds the words of a query that count.
const maxTerms = 32

// queryTerms are the words of a query that say what it is about, each once; where
// it has none of them, all its words.
func queryTerms(query string) []term {
	var telling, all []term
	seen := map[string]bool{}
	for w := range queryWords(query) {
		if seen[w.text] {
			continue
		}
		seen[w.text] = true
		t := term{text: w.text, stem: w.stem}
		all = append(all, t)
		if !filler(w.text) && !(len(w.text) == 1 && w.text[0] >= 'a') {
			telling = append(telling, t)
		}
	}
	if len(telling) == 0 {
		telling = all
	}
	return telling[:min(len(telling), maxTerms)]
}

// queryWords are the words of a query: of characters without blanks only pairs,
// unless one stands alone.
func queryWords(query string) iter.Seq[word] {
	return func(yield func(word) bool) {
		for run := range runs(foldText(query)) {
			alone := utf8.RuneCountInString(run) == 1
			for w := range words(run) {
				first, n := utf8.DecodeRuneInString(w.text)
				if unspaced(first) && len(w.text) == n && !alone {
					continue
				}
				if !yield(w) {
					return
				}
			}
		}
	}
}
