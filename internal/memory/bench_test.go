package memory_test

import (
	"fmt"
	"path/filepath"
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
