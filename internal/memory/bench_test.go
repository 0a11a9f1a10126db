package memory_test

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"mneme/internal/memory"
)

// filled is a memory of one agent with n files below saved/.
func filled(b *testing.B, n int) *memory.Memory {
	b.Helper()
	m := memory.New(filepath.Join(b.TempDir(), "memfs"), memory.Options{})
	b.Cleanup(func() { m.Close() })
	changes := []memory.FileChange{file("system/persona.md", "---\ndescription: p\n---\nI am.")}
	for i := range n {
		changes = append(changes, file(fmt.Sprintf("saved/%02x/note-%d.md", i%256, i), fmt.Sprintf("---\ndescription: note %d\nid: mem-%d\ntags:\n- a\n- b\ncreated_at: 2026-01-02T03:04:05Z\nsource: mcp\n---\nThe text of note %d.\n", i, i, i)))
	}
	if _, _, err := m.Write(b.Context(), memory.Author{}, id, changes, "fill"); err != nil {
		b.Fatal(err)
	}
	return m
}

func BenchmarkWrite(b *testing.B) {
	for _, n := range []int{3, 5000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			m := filled(b, n)
			for i := 0; b.Loop(); i++ {
				if _, _, err := m.Write(b.Context(), memory.Author{}, id, []memory.FileChange{file(fmt.Sprintf("saved/%02x/new-%d.md", i%256, i), "x")}, "bench"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkSnapshot(b *testing.B) {
	for _, n := range []int{3, 5000} {
		m := filled(b, n)
		b.Run(fmt.Sprint("cached/", n), func(b *testing.B) {
			for b.Loop() {
				if _, err := m.Snapshot(b.Context(), id, ""); err != nil {
					b.Fatal(err)
				}
			}
		})
		root := filepath.Dir(filepath.Dir(m.Dir(id)))
		b.Run(fmt.Sprint("fresh/", n), func(b *testing.B) {
			for b.Loop() {
				fresh := memory.New(root, memory.Options{})
				if _, err := fresh.Snapshot(b.Context(), id, ""); err != nil {
					b.Fatal(err)
				}
				fresh.Close()
			}
		})
	}
}

func BenchmarkHead(b *testing.B) {
	m := filled(b, 3)
	for b.Loop() {
		if _, err := m.Head(id); err != nil {
			b.Fatal(err)
		}
	}
}

// prose makes n files of some 80 words, common and rare ones.
func prose(n int) []memory.FileChange {
	r := rand.New(rand.NewPCG(1, 2))
	z := rand.NewZipf(r, 1.1, 4, 30_000)
	var changes []memory.FileChange
	for i := range n {
		var b strings.Builder
		fmt.Fprintf(&b, "---\ndescription: about topic%d and word%d\nid: mem-%016x\ntags: [t%d]\n---\n", i%500, i, i, i%40)
		for w := range 80 {
			fmt.Fprintf(&b, "word%d ", z.Uint64())
			if w%12 == 11 {
				b.WriteString("\n\n")
			}
		}
		changes = append(changes, file(fmt.Sprintf("saved/%02x/note-%d--%016x.md", i%256, i, i), b.String()))
	}
	return changes
}

func proseMemory(b *testing.B, n int) *memory.Memory {
	b.Helper()
	m := memory.New(filepath.Join(b.TempDir(), "memfs"), memory.Options{})
	b.Cleanup(func() { m.Close() })
	if _, _, err := m.Write(b.Context(), memory.Author{}, id, prose(n), "fill"); err != nil {
		b.Fatal(err)
	}
	return m
}

func BenchmarkSearch(b *testing.B) {
	m := proseMemory(b, 5000)
	for name, text := range map[string]string{
		"question": "What do I know about word7, word120 and the topic33 of word4000?",
		"rare":     "word20111",
		"typo":     "wrod123 topik77",
		"long":     strings.Repeat("word1 word2 word3 word4 word5 word6 word7 word8 ", 20),
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				found, err := m.Search(b.Context(), id, memory.Query{Text: text})
				if err != nil || len(found.Hits) == 0 {
					b.Fatal(found, err)
				}
			}
		})
	}
	b.Run("fresh", func(b *testing.B) {
		for b.Loop() {
			fresh := memory.New(filepath.Dir(filepath.Dir(m.Dir(id))), memory.Options{})
			if _, err := fresh.Search(b.Context(), id, memory.Query{Text: "word7"}); err != nil {
				b.Fatal(err)
			}
			fresh.Close()
		}
	})
	b.Run("after a save", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			b.StopTimer()
			if _, err := m.Save(b.Context(), memory.Author{}, id, memory.Item{Text: fmt.Sprint("fact ", i)}); err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
			if _, err := m.Search(b.Context(), id, memory.Query{Text: "word7 fact"}); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkIndex(b *testing.B) {
	texts := map[string]string{}
	for _, c := range prose(5000) {
		texts[c.Path] = string(c.Content)
	}
	s := memory.NewSnapshot("c", texts)
	for b.Loop() {
		memory.NewIndex().Update(s)
	}
}

func BenchmarkGet(b *testing.B) {
	for _, n := range []int{20, 5000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			m := proseMemory(b, n)
			for b.Loop() {
				c, err := m.Get(b.Context(), id)
				if err != nil || len(c.Files) != n {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkSave(b *testing.B) {
	for _, n := range []int{1, 5000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			m := proseMemory(b, n)
			for i := 0; b.Loop(); i++ {
				if _, err := m.Save(b.Context(), memory.Author{}, id, memory.Item{Text: fmt.Sprint("fact number ", i), Tags: []string{"a"}}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
