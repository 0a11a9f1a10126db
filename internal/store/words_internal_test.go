package store

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func TestWords(t *testing.T) {
	for text, want := range map[string]string{
		"":                              "",
		" -- ... !? 🙂 ":                 "",
		"Hello, World":                  "hello world",
		"My sister's e-mail: a_b@c.org": "my sister s e mail a b c org",
		"Crème BRÛLÉE İstanbul Straße":  "creme brulee istanbul strasse",
		"ＡＢＣ １２":                        "abc 12",
		"ﬁne Łódź Ærø":                  "fine lodz aero",
		"東京タワー":                         "東 東京 京 京タ タ タワ ワ ワー ー",
		"iPhone15を買う":                   "iphone15 を を買 買 買う う",
		"ガ か\u3099":                     "ガ が",
		"안녕 여보":                         "안 안녕 녕 여 여보 보",
		"สวัสดี":                        "ส สว ว วั ั ัส ส สด ด ดี ี",
		"שָׁלוֹם":                       "שלום",
		"हिन्दी":                        "हिन्दी",
		"a\xffb\x00c":                   "a b c",
		"u+2028\u2028line":              "u 2028 line",
	} {
		var got []string
		for w := range words(text) {
			got = append(got, w.text)
		}
		if diff := cmp.Diff(want, strings.Join(got, " ")); diff != "" {
			t.Errorf("%q (-want +got):\n%s", text, diff)
		}
	}
	long := strings.Repeat("ä1", 60)
	for w := range words(long) {
		if len(w.text) > maxWord {
			t.Errorf("a word has %d bytes", len(w.text))
		}
	}
}

func TestStem(t *testing.T) {
	for _, same := range []string{
		"wedding weddings", "story stories", "move moves moved moving", "run running runs", "box boxes", "class classes",
		"plan plans planned planning", "Hund Hunde", "Katze Katzen", "ciudad ciudades", "работа работы работу", "church churches",
	} {
		var first string
		for w := range words(same) {
			if first == "" {
				first = w.stem
			}
			if w.stem != first {
				t.Errorf("%s has the stem %q, others of it %q", w.text, w.stem, first)
			}
		}
	}
	for _, w := range []string{"bus", "this", "thing", "king", "red", "2024s", "as", "paris", "glass"} {
		if got := stem(w); got != w {
			t.Errorf("%s became %s", w, got)
		}
	}
}

func TestQueryTerms(t *testing.T) {
	for query, want := range map[string]string{
		"What did I say about my sister's weddings?": "sister weddings",
		"The Who":                   "the who", // nothing but fillers
		"Wie heißt mein Hund?":      "heisst hund",
		"c 7":                       "7",
		"x":                         "x",
		"猫":                         "猫",
		"東京の猫":                      "東京 京の の猫",
		"again AGAIN budget Budget": "budget",
		"!?":                        "",
	} {
		var got []string
		for _, term := range queryTerms(query) {
			got = append(got, term.text)
		}
		if diff := cmp.Diff(want, strings.Join(got, " ")); diff != "" {
			t.Errorf("%q (-want +got):\n%s", query, diff)
		}
	}
	if n := len(queryTerms(strings.Repeat("ab1 cd2 ", 1) + manyWords(100))); n != maxTerms {
		t.Errorf("%d terms", n)
	}
}

func manyWords(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(" w")
		b.WriteString(strings.Repeat("x", i+1))
	}
	return b.String()
}

// FuzzWords: words are short, folded, valid and made of what words are made of,
// whatever the text; the index relies on it.
func FuzzWords(f *testing.F) {
	for _, text := range []string{"Hello", "東京タワーです", "a\xff\x00b", "İıŁ ǆ", strings.Repeat("é", 99), "\u0301\u0301x", "กำ"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for w := range words(text) {
			if w.text == "" || len(w.text) > maxWord || len(w.stem) == 0 || len(w.stem) > len(w.text)+1 || !utf8.ValidString(w.text) {
				t.Fatalf("word %q, stem %q", w.text, w.stem)
			}
			for _, r := range w.text + w.stem {
				if !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.IsMark(r) {
					t.Fatalf("word %q has %q", w.text, r)
				}
			}
		}
	})
}
