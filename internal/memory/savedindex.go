package memory

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// The optional list of saved items in the core memory (spec/mcp.md section 5.2).
const (
	savedIndexPath = systemDir + "saved-index.md"
	savedIndexLen  = 50
)

// savedIndex is the change that brings the list in line with the saved items
// after a change: added is new, gone is no longer there; either may be nil.
func (s *Snapshot) savedIndex(added, gone *File) (FileChange, error) {
	var items []*File
	for _, f := range s.Under(savedDir) {
		if f.Saved() && f != gone && (added == nil || f.Path != added.Path) {
			items = append(items, f)
		}
	}
	if added != nil {
		items = append(items, added)
	}
	slices.SortFunc(items, func(a, b *File) int {
		return cmp.Or(b.Created().Compare(a.Created()), cmp.Compare(a.Path, b.Path))
	})
	var b strings.Builder
	for _, f := range items[:min(len(items), savedIndexLen)] {
		fmt.Fprintf(&b, "- %s: %s\n", f.Path, f.Description)
	}
	if more := len(items) - savedIndexLen; more > 0 {
		fmt.Fprintf(&b, "- … %d more, search them\n", more)
	}
	doc := Doc{}
	if old := s.File(savedIndexPath); old != nil {
		doc = old.Doc()
	} else if err := setAll(&doc, []entry{
		{"description", "The items saved last, newest first"},
		{"source", defaultSource},
	}); err != nil {
		return FileChange{}, err
	}
	doc.Body = b.String()
	return FileChange{Path: savedIndexPath, Content: []byte(doc.String()), Force: true}, nil
}

// hasSavedIndex says whether the list is kept.
func (s *Snapshot) hasSavedIndex() bool {
	f := s.File(savedIndexPath)
	return f != nil && f.FrontText("source") == defaultSource
}

// Created is when the file was made, by its front matter; zero if that does not
// say.
func (f *File) Created() time.Time {
	switch t := f.Front["created_at"].(type) {
	case time.Time:
		return t.UTC()
	case string:
		if parsed, err := time.Parse(time.RFC3339, t); err == nil {
			return parsed.UTC()
		}
	}
	return time.Time{}
}
