package memory_test

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mneme/internal/memory"
)

// A concepts embedder has one dimension for each group of words and some for the
// rest.
type concepts struct {
	dims   int
	mu     sync.Mutex
	asked  int
	fail   error
	block  chan struct{} // nil = answers at once
	mangle func([][]float32) [][]float32
}

var groups = [][]string{{"dog", "puppy", "hound"}, {"car", "automobile", "vehicle"}, {"doctor", "physician"}}

func (c *concepts) Embed(ctx context.Context, texts []string) ([][]float32, error) {
	c.mu.Lock()
	c.asked += len(texts)
	fail, block := c.fail, c.block
	c.mu.Unlock()
	if block != nil {
		select {
		case <-block:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if fail != nil {
		return nil, fail
	}
	var out [][]float32
	for _, text := range texts {
		v := make([]float32, c.dims)
		for word := range strings.FieldsSeq(strings.ToLower(text)) {
			word = strings.Trim(word, ".,?!")
			known := false
			for i, g := range groups {
				for _, w := range g {
					if w == word {
						v[i] += 5
						known = true
					}
				}
			}
			if !known {
				h := fnv.New32a()
				h.Write([]byte(word))
				v[3+int(h.Sum32())%(c.dims-3)] += 0.2
			}
		}
		out = append(out, v)
	}
	if c.mangle != nil {
		out = c.mangle(out)
	}
	return out, nil
}

func (c *concepts) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.asked
}

func hybridSetup(t *testing.T) *fixture {
	f := setup(t)
	f.put("pets.md", "We got a puppy last week.")
	f.put("garage.md", "The automobile is in the shop.")
	f.put("health.md", "See the physician in June.")
	f.put("dogma.md", "Dogma is a belief. The word dog is in it.")
	return f
}

func (f *fixture) ask(q memory.Query) memory.Found {
	f.t.Helper()
	found, err := f.Search(f.t.Context(), id, q)
	if err != nil {
		f.t.Fatal(err)
	}
	return found
}

func TestHybrid(t *testing.T) {
	f := hybridSetup(t)
	e := &concepts{dims: 40}
	found := f.ask(memory.Query{Text: "vehicle", Embedder: e, Model: "m", TopK: 1})
	if found.Mode != memory.ModeHybrid || found.Warning != "" {
		t.Errorf("mode %s, warning %q", found.Mode, found.Warning)
	}
	if diff := cmp.Diff([]string{"garage.md"}, paths(found.Hits)); diff != "" {
		t.Error(diff)
	}
	if s := found.Hits[0]; s.Snippet != "The automobile is in the shop." || s.URI == "" {
		t.Errorf("%+v", s)
	}
	// What fits by word and by meaning comes first.
	if got := paths(f.ask(memory.Query{Text: "dog", Embedder: e, Model: "m", TopK: 2}).Hits); !cmp.Equal([]string{"dogma.md", "pets.md"}, got) {
		t.Errorf("dog finds %v", got)
	}
	if n := e.count(); n != 4+2 {
		t.Errorf("%d texts were embedded, want each of 4 files and 2 queries once", n)
	}
	f.put("more.md", "A hound in the yard.")
	again := memory.Query{Text: "dog", Embedder: e, Model: "m", Under: "more.md"}
	if got := f.ask(again); len(got.Hits) != 1 || !cmp.Equal(got, f.ask(again)) {
		t.Errorf("%+v", got)
	}
	if n := e.count(); n != 4+2+1 {
		t.Errorf("%d texts were embedded, want one more", n)
	}
	// Another model has vectors of its own.
	if got := f.ask(memory.Query{Text: "dog", Embedder: &concepts{dims: 50}, Model: "other"}); got.Mode != memory.ModeHybrid {
		t.Errorf("%+v", got)
	}
}

// A provider that does not work costs the likeness, never the answer.
func TestHybridFallsBack(t *testing.T) {
	for name, e := range map[string]*concepts{
		"fails":   {dims: 40, fail: errors.New("no such model")},
		"too few": {dims: 40, mangle: func(v [][]float32) [][]float32 { return v[:len(v)-1] }},
		"uneven":  {dims: 40, mangle: func(v [][]float32) [][]float32 { v[0] = v[0][:3]; return v }},
		"empty":   {dims: 40, mangle: func(v [][]float32) [][]float32 { return make([][]float32, len(v)) }},
	} {
		t.Run(name, func(t *testing.T) {
			f := setup(t)
			f.put("a.md", "alpha beta")
			f.put("b.md", "gamma delta")
			found := f.ask(memory.Query{Text: "beta", Embedder: e, Model: "m"})
			if found.Mode != memory.ModeLexical || !strings.Contains(found.Warning, "full text only") || !cmp.Equal([]string{"a.md"}, paths(found.Hits)) {
				t.Errorf("%+v", found)
			}
			asked := e.count()
			if found := f.ask(memory.Query{Text: "delta", Embedder: e, Model: "m"}); found.Warning == "" || len(found.Hits) != 1 {
				t.Errorf("%+v", found)
			}
			if e.count() != asked {
				t.Error("the provider was asked again at once")
			}
		})
	}
}

// Vectors of another length are made anew, not compared.
func TestHybridNewDimensions(t *testing.T) {
	f := hybridSetup(t)
	if got := f.ask(memory.Query{Text: "vehicle", Embedder: &concepts{dims: 40}, Model: "m"}); got.Mode != memory.ModeHybrid {
		t.Fatalf("%+v", got)
	}
	e := &concepts{dims: 60}
	changed := f.ask(memory.Query{Text: "physician", Embedder: e, Model: "m"})
	if changed.Mode != memory.ModeLexical || changed.Warning == "" || len(changed.Hits) == 0 {
		t.Errorf("%+v", changed)
	}
	if got := f.ask(memory.Query{Text: "doctor", Embedder: e, Model: "m", TopK: 1}); got.Mode != memory.ModeHybrid || !cmp.Equal([]string{"health.md"}, paths(got.Hits)) {
		t.Errorf("%+v", got)
	}
}

// A slow provider holds no search up for long; its work goes on behind it.
func TestHybridSlow(t *testing.T) {
	f := hybridSetup(t)
	e := &concepts{dims: 40, block: make(chan struct{})}
	f.ask(memory.Query{Text: "warm"}) // reads and indexes
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	found, err := f.Search(ctx, id, memory.Query{Text: "puppy", Embedder: e, Model: "m"})
	if err != nil || found.Mode != memory.ModeLexical || !strings.Contains(found.Warning, "4 of 4") || len(found.Hits) != 1 {
		t.Errorf("%+v %v", found, err)
	}
	close(e.block)
	if got := f.ask(memory.Query{Text: "hound", Embedder: e, Model: "m"}); got.Mode != memory.ModeHybrid || got.Hits[0].Path != "pets.md" {
		t.Errorf("%+v", got)
	}
	if n := e.count(); n != 5 {
		t.Errorf("%d texts embedded, want 4 and the query", n)
	}
}

// Close does not wait for a provider that hangs.
func TestCloseEndsEmbedding(t *testing.T) {
	f := hybridSetup(t)
	e := &concepts{dims: 40, block: make(chan struct{})}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := f.Search(ctx, id, memory.Query{Text: "puppy", Embedder: e, Model: "m"}); err != nil {
		t.Error(err)
	}
	f.Close()
	if found, err := f.Search(t.Context(), id, memory.Query{Text: "puppy", Embedder: e, Model: "m"}); err != nil || found.Warning == "" {
		t.Errorf("%+v %v", found, err)
	}
}

func TestHybridSearchesSideBySide(t *testing.T) {
	f := hybridSetup(t)
	e := &concepts{dims: 40}
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			if i%4 == 3 {
				f.save(fmt.Sprint("another dog ", i))
			}
			for range 5 {
				found, err := f.Search(t.Context(), id, memory.Query{Text: "hound", Embedder: e, Model: "m"})
				if err != nil || found.Mode != memory.ModeHybrid || len(found.Hits) == 0 {
					t.Errorf("%+v %v", found, err)
				}
			}
		})
	}
	wg.Wait()
}
