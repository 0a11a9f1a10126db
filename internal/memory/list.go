package memory

import (
	"cmp"
	"context"
	"path"
	"regexp"
	"slices"
	"strings"
)

// An Entry is one file of a listing (spec/app-server-commands.md section 4.5).
type Entry struct {
	Path        string
	System      bool    // below system/
	Description *string // nil = none
	Content     string  // the body; "" for images
	Size        int64   // characters of the body; bytes of an image
	Kind        Kind
	MediaType   string
}

// List is the Markdown files and images of the newest commit, in the order of
// Snapshot.Entries.
func (m *Memory) List(ctx context.Context, agentID string) ([]Entry, error) {
	s, err := m.Snapshot(ctx, agentID, "")
	if err != nil {
		return nil, err
	}
	return s.Entries(), nil
}

// Entries lists Markdown files and images: depth first, directories before
// files, system first of all, then by name regardless of case. Names that begin
// with a dot are left out.
func (s *Snapshot) Entries() []Entry {
	var files []*File
	for _, f := range s.Files {
		if f.Served() {
			files = append(files, f)
		}
	}
	slices.SortStableFunc(files, func(a, b *File) int { return treeOrder(a.Path, b.Path) })
	entries := make([]Entry, len(files))
	for i, f := range files {
		entries[i] = f.entry()
	}
	return entries
}

func (f *File) entry() Entry {
	e := Entry{Path: f.Path, System: strings.HasPrefix(f.Path, systemDir), Kind: f.Kind, Size: f.Size, MediaType: MediaType(f.Path)}
	if f.Kind == KindMarkdown {
		e.Content = f.Body
		e.Size = int64(f.Chars())
		if f.Description != "" {
			e.Description = &f.Description
		}
	}
	return e
}

// treeOrder compares paths as a tree shows them.
func treeOrder(a, b string) int {
	if c := cmp.Compare(rank(a), rank(b)); c != 0 {
		return c
	}
	for {
		nameA, restA, dirA := strings.Cut(a, "/")
		nameB, restB, dirB := strings.Cut(b, "/")
		if nameA == nameB && dirA && dirB {
			a, b = restA, restB
			continue
		}
		if dirA != dirB {
			if dirA {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(strings.ToLower(nameA), strings.ToLower(nameB)), cmp.Compare(nameA, nameB))
	}
}

func rank(p string) int {
	if strings.HasPrefix(p, systemDir) {
		return 0
	}
	return 1
}

var wikiLink = regexp.MustCompile(`\[\[([^\[\]\n]+)\]\]`)

// References are the files that a file's [[links]] lead to, in order of mention,
// without itself and without repeats.
func (s *Snapshot) References(f *File) []string {
	var refs []string
	for _, match := range wikiLink.FindAllStringSubmatch(f.Body, -1) {
		target := s.resolve(f.Path, match[1])
		if target != "" && target != f.Path && !slices.Contains(refs, target) {
			refs = append(refs, target)
		}
	}
	return refs
}

// resolve finds the file that a link in the file from means, "" if there is none.
func (s *Snapshot) resolve(from, link string) string {
	link, _, _ = strings.Cut(link, "|")
	link = strings.Trim(strings.TrimSpace(link), "<>")
	link, _, _ = strings.Cut(link, "#")
	link, _, _ = strings.Cut(link, "?")
	link = strings.TrimSpace(link)
	lower := strings.ToLower(link)
	for _, scheme := range []string{"http:", "https:", "mailto:"} {
		if strings.HasPrefix(lower, scheme) {
			return ""
		}
	}
	if link == "" {
		return ""
	}
	if kindOf(link) == KindOther {
		link += ".md"
	}
	here := path.Join(path.Dir(from), link)
	candidates := []string{path.Clean(link), here, systemDir + path.Clean(link)}
	if strings.HasPrefix(link, "./") || strings.HasPrefix(link, "../") {
		candidates = []string{here}
	}
	for _, c := range candidates {
		if f := s.File(c); f != nil && f.Kind != KindOther {
			return c
		}
	}
	return ""
}
