package memory

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func TestIndexesAreBounded(t *testing.T) {
	m := New(filepath.Join(t.TempDir(), "memfs"), Options{})
	defer m.Close()
	m.indexes.budget = 600_000
	text := strings.Repeat("some words of a text ", 20)
	for a := range 12 {
		var changes []FileChange
		for i := range 60 {
			changes = append(changes, FileChange{Path: fmt.Sprintf("d/f%d.md", i), Content: fmt.Appendf(nil, "%s number%d agent%d", text, i, a)})
		}
		if _, _, err := m.Write(t.Context(), Author{}, fmt.Sprint("agent-", a), changes, "fill"); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		for a := range 12 {
			agentID := fmt.Sprint("agent-", a)
			found, err := m.Search(t.Context(), agentID, Query{Text: fmt.Sprintf("number7 agent%d", a)})
			if err != nil || len(found.Hits) == 0 || found.Hits[0].Path != "d/f7.md" {
				t.Errorf("%s: %+v %v", agentID, found, err)
			}
			sum := 0
			for e := m.indexes.order.Front(); e != nil; e = e.Next() {
				sum += e.Value.(*kept).size
			}
			if m.indexes.used != sum || sum > m.indexes.budget || len(m.indexes.agents) != m.indexes.order.Len() {
				t.Fatalf("%d indexes of %d bytes, counted as %d", m.indexes.order.Len(), sum, m.indexes.used)
			}
		}
	}
	if n := m.indexes.order.Len(); n < 2 || n > 11 {
		t.Errorf("%d indexes are kept", n)
	}
}

// Changes that replace files do not make an index grow for ever.
func TestIndexForgets(t *testing.T) {
	x := NewIndex()
	peak := 0
	for step := range 120 {
		texts := map[string]string{}
		for i := range 100 {
			texts[fmt.Sprintf("f%d.md", i)] = fmt.Sprintf("word%d unique%dx%d", i, step, i)
		}
		x.Update(NewSnapshot(fmt.Sprint("c", step), texts))
		if step < 30 {
			peak = max(peak, x.bytes)
		}
		if x.live != 100 || x.dead > 1100 || len(x.chunks) != x.live+x.dead {
			t.Fatalf("step %d: %d live, %d dead of %d", step, x.live, x.dead, len(x.chunks))
		}
		if x.bytes > peak+peak/10 {
			t.Fatalf("step %d: %d bytes, at first there were %d", step, x.bytes, peak)
		}
	}
}

func TestVectorsAreBounded(t *testing.T) {
	v := newVectors(10 * (vectorCost + 40))
	for i := range 100 {
		v.put(keyOf("m", fmt.Sprint(i%50)), make([]float32, 10))
		if v.used > v.budget || v.order.Len() != len(v.byKey) || v.used != v.order.Len()*(vectorCost+40) {
			t.Fatalf("%d bytes for %d vectors", v.used, v.order.Len())
		}
	}
	if v.order.Len() != 10 {
		t.Errorf("%d vectors are kept", v.order.Len())
	}
}

type oneVector []float32

func (o oneVector) Embed(_ context.Context, texts []string) ([][]float32, error) {
	out := make([][]float32, len(texts))
	for i := range out {
		out[i] = o
	}
	return out, nil
}

// A memory whose vectors do not fit is searched by full text.
func TestTooManyVectors(t *testing.T) {
	m := New(filepath.Join(t.TempDir(), "memfs"), Options{})
	defer m.Close()
	m.vectors.budget = 5000
	var changes []FileChange
	for i := range 100 {
		changes = append(changes, FileChange{Path: fmt.Sprintf("f%d.md", i), Content: fmt.Appendf(nil, "number%d", i)})
	}
	if _, _, err := m.Write(t.Context(), Author{}, "agent-1", changes, "fill"); err != nil {
		t.Fatal(err)
	}
	found, err := m.Search(t.Context(), "agent-1", Query{Text: "number7", Embedder: oneVector{1, 2, 3}, Model: "m"})
	if err != nil || found.Mode != ModeLexical || !strings.Contains(found.Warning, "more than fits") || len(found.Hits) != 1 {
		t.Errorf("%+v %v", found, err)
	}
	if m.vectors.used > m.vectors.budget {
		t.Errorf("%d bytes of vectors", m.vectors.used)
	}
}

func TestTokens(t *testing.T) {
	for text, want := range map[string][]string{
		"":                               nil,
		"The QUICK, brown foxes' jumps!": {"the", "quick", "brown", "fox", "jump"},
		"planning planned plans plan":    {"plan", "plan", "plan", "plan"},
		"cities city's":                  {"city", "city"},
		"boxes caches classes bus":       {"box", "cach", "class", "bus"},
		"don't l'école":                  {"dont", "l", "ecol"},
		"snake_case":                     {"snak", "cas", "+snakecas"},
		"camelCase HTTPServer":           {"camel", "cas", "+camelcas", "http", "serv" + "er", "+httpserver"},
		"e-mail":                         {"e", "mail", "+email"},
		"v1.2.3 0x7f":                    {"v1", "2", "3", "0x7f"},
		"C++ C# c":                       {"c", "+c++", "c", "+c#", "c"},
		"naïve Ångström ﬁne":             {"naiv", "angstrom", "fin"},
		"数据库":                            {"+数", "数据", "+据", "据库", "+库"},
		"猫 cat猫":                         {"猫", "cat", "猫"},
		"ﾃｽﾄ":                            {"+テ", "テス", "+ス", "スト", "+ト"},
		"Привет, Ёжик":                   {"привет", "ежик"},
		"ΑΒΓ αβγ":                        {"αβγ", "αβγ"},
		"a-b-c-d-e-f-g-h-i":              {"a", "b", "c", "d", "e", "f", "g", "h", "i"},
	} {
		var got []string
		for tok := range textTokens(text) {
			mark := ""
			if tok.extra {
				mark = "+"
			}
			got = append(got, mark+tok.term)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q: %s", text, diff)
		}
	}
}

func FuzzTokens(f *testing.F) {
	for _, s := range []string{"The e-mail's HTTPServer", "数据库 猫cat ｶﾞｷﾞ", "a\xff\u0301b", "don’t' '", "Å-ﬁ_x", strings.Repeat("aB", 100), "C++#", "각\u1100"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		from, pos := 0, 0
		for tok := range textTokens(text) {
			if tok.from < 0 || tok.from >= tok.to || tok.to > len(text) {
				t.Fatalf("%q: token %+v", text, tok)
			}
			if tok.term == "" || len(tok.term) > maxTerm+2 || !utf8.ValidString(tok.term) {
				t.Fatalf("%q: term %q", text, tok.term)
			}
			if !tok.extra && (tok.from < from || tok.pos < pos) {
				t.Fatalf("%q: token %+v goes back", text, tok)
			}
			if !tok.extra {
				from, pos = tok.from, tok.pos
			}
		}
	})
}

func FuzzChunks(f *testing.F) {
	f.Add("# a\n\ntext\n\n```\n# b\n\n```\n## c\nmore")
	f.Add(strings.Repeat("word ", 600) + "\n\n" + strings.Repeat("字。", 900))
	f.Fuzz(func(t *testing.T, body string) {
		var joined strings.Builder
		at := 0
		for i, c := range chunksOf(body) {
			if c.from < at || c.to < c.from || c.to > len(body) || c.to == c.from && i > 0 {
				t.Fatalf("%q: chunk %+v", body, c)
			}
			if n := utf8.RuneCountInString(body[c.from:c.to]); n > maxChunk {
				t.Fatalf("a chunk of %d characters", n)
			}
			joined.WriteString(body[c.from:c.to])
			at = c.to
		}
		if blanksOut(joined.String()) != blanksOut(body) {
			t.Fatalf("%q became %q", body, joined.String())
		}
	})
}

// blanksOut drops blanks, byte by byte: the text need not be valid.
func blanksOut(s string) string {
	return strings.NewReplacer(" ", "", "\t", "", "\r", "", "\n", "").Replace(s)
}

// Whatever is asked of whatever text, the answer keeps its form.
func FuzzSearch(f *testing.F) {
	f.Add("some text\n\n# with\nparts", "txt part")
	f.Add(strings.Repeat("长文字。", 300), "长")
	f.Fuzz(func(t *testing.T, body, query string) {
		x := NewIndex()
		x.Update(NewSnapshot("c", map[string]string{"a/b.md": body, "c.md": "other words"}))
		for _, h := range x.Search(Query{Text: query, Prefix: true}) {
			if n := utf8.RuneCountInString(h.Snippet); n > maxSnippet || strings.ContainsAny(h.Snippet, "\n") {
				t.Fatalf("snippet of %d characters: %q", n, h.Snippet)
			}
			if !(h.Score > 0) {
				t.Fatalf("score %v", h.Score)
			}
		}
		x.Update(NewSnapshot("d", nil))
		if x.live != 0 || x.length != 0 || len(x.files) != 0 {
			t.Fatal("an empty memory is not empty")
		}
	})
}
