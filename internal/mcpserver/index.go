package mcpserver

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"mneme/internal/memory"
)

// The optional index of saved items (MCP_MEMORY_INDEX, spec/mcp.md section 5.2):
// a core memory file, so that the agent has the newest descriptions before it
// without searching.
const (
	savedDir   = "saved/"
	indexPath  = "system/saved-index.md"
	indexItems = 50
	// indexFront says that the file is made from others, so that deleting by a
	// text passes it over.
	indexFront = "---\ndescription: The newest saved items\ngenerated: true\n---\n"
)

// index brings the index of an agent's saved items up to date. Calls wait for
// each other, so that the last one writes what is newest.
func (s *Server) index(ctx context.Context, agentID string) error {
	select {
	case s.indexing <- struct{}{}:
		defer func() { <-s.indexing }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	snap, err := s.backend.Memory(ctx, agentID, Dated)
	if err != nil {
		return err
	}
	return s.backend.WriteFile(ctx, agentID, indexPath, indexOf(snap), "Update the index of saved items")
}

// indexOf is the text of the index.
func indexOf(snap *Memory) string {
	items := slices.DeleteFunc(slices.Clone(snap.Under(strings.TrimSuffix(savedDir, "/"))), func(f *memory.File) bool { return f.Kind != memory.KindMarkdown })
	created := func(f *memory.File) string { return cmp.Or(f.FrontText("created_at"), timeOf(snap.updated(f))) }
	slices.SortStableFunc(items, func(a, b *memory.File) int { return cmp.Compare(created(b), created(a)) })
	var b strings.Builder
	b.WriteString(indexFront)
	for _, f := range items[:min(len(items), indexItems)] {
		fmt.Fprintf(&b, "- %s (%s)\n", cmp.Or(line(f.Description), "(no description)"), f.Path)
	}
	if n := len(items) - indexItems; n > 0 {
		fmt.Fprintf(&b, "- … %d more, search them\n", n)
	}
	return b.String()
}
