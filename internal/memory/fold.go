package memory

import (
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// bareLetters are letters with strokes and ligatures that no decomposition
// takes apart.
var bareLetters = map[rune]string{
	'ß': "ss", 'ẞ': "SS", 'æ': "ae", 'Æ': "AE", 'œ': "oe", 'Œ': "OE", 'ø': "o", 'Ø': "O",
	'đ': "d", 'Đ': "D", 'ð': "d", 'Ð': "D", 'þ': "th", 'Þ': "TH", 'ł': "l", 'Ł': "L", 'ħ': "h", 'Ħ': "H",
	'ı': "i", 'ŧ': "t", 'Ŧ': "T", 'ŋ': "n", 'Ŋ': "N", 'ς': "σ",
}

// foldAccents drops what is written above, below and through letters, so that
// é, e and ｅ are one. Marks that make another letter stay: Japanese voicing,
// the vowels of Indic and Thai scripts.
func foldAccents(s string) string {
	if isASCII(s) {
		return s
	}
	var b strings.Builder
	for _, r := range norm.NFKD.String(s) {
		if isAccent(r) {
			continue
		}
		if bare, ok := bareLetters[r]; ok {
			b.WriteString(bare)
			continue
		}
		b.WriteRune(r)
	}
	return norm.NFC.String(b.String())
}

// isAccent tells marks that readers leave out when they type.
func isAccent(r rune) bool {
	if r < 0x300 || !unicode.Is(unicode.Mn, r) {
		return false
	}
	if r == 0x3099 || r == 0x309a {
		return false // が is not か
	}
	return unicode.In(r, unicode.Inherited, unicode.Hebrew, unicode.Arabic)
}

// fold is the form in which words are compared: without accents, in lower case.
func fold(s string) string { return strings.ToLower(foldAccents(s)) }

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}
