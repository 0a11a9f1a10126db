package prompt

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"mneme/internal/memory"
)

// The bounds of the list of files outside system/ (spec/mcp.md section 5.2).
const (
	savedDir    = "saved/"
	maxSaved    = 30
	maxExternal = 300 // other files
)

const personaPath = "system/persona.md"

// hint explains the projection lines to the model.
const hint = "Reminder: <projection> names the file behind a part of your memory; $MEMORY_DIR is the directory that holds them all."

// projection shows a snapshot: the files below system/ in full, the others as a
// tree of names. "" if there is nothing to show.
func projection(s *memory.Snapshot) string {
	if s == nil {
		return ""
	}
	var persona *memory.File
	root := &node{}
	for _, f := range s.Under("system") {
		switch {
		case f.Path == personaPath && f.Label() != "":
			persona = f
		case f.Label() != "":
			root.add(strings.Split(f.Label(), "/"), f)
		}
	}
	external := externalTree(s)
	var parts []string
	if persona != nil {
		parts = append(parts, selfBlock(persona))
	}
	if len(root.children) > 0 || external != "" {
		var b strings.Builder
		b.WriteString("<memory>\n")
		for _, n := range root.children {
			n.write(&b, "")
		}
		b.WriteString(external)
		b.WriteString("</memory>")
		parts = append(parts, b.String())
	}
	if len(parts) == 0 {
		return ""
	}
	return hint + "\n\n" + strings.Join(parts, "\n\n")
}

func selfBlock(f *memory.File) string {
	var b strings.Builder
	b.WriteString("<self>\n")
	writeProjection(&b, "", f.Path)
	writeBody(&b, "", f)
	b.WriteString("</self>")
	return b.String()
}

func writeProjection(b *strings.Builder, indent, path string) {
	fmt.Fprintf(b, "%s<projection>$MEMORY_DIR/%s</projection>\n", indent, path)
}

// writeBody writes a file's text; only its first line is indented.
func writeBody(b *strings.Builder, indent string, f *memory.File) {
	body := strings.TrimRight(f.Body, " \t\r\n")
	if f.Oversized {
		body = "(too large to be shown)"
	}
	if body != "" {
		b.WriteString(indent + body + "\n")
	}
}

// A node is one tag: a file below system/, a directory, or both.
type node struct {
	name     string
	file     *memory.File
	children []*node // sorted by name
}

// add files f under the given names; files come sorted by path.
func (n *node) add(names []string, f *memory.File) {
	i, found := slices.BinarySearchFunc(n.children, names[0], func(c *node, name string) int { return cmp.Compare(c.name, name) })
	if !found {
		n.children = slices.Insert(n.children, i, &node{name: names[0]})
	}
	if len(names) == 1 {
		n.children[i].file = f
		return
	}
	n.children[i].add(names[1:], f)
}

func (n *node) write(b *strings.Builder, indent string) {
	tag := tagName(n.name)
	inner := indent + "  "
	fmt.Fprintf(b, "%s<%s>\n", indent, tag)
	if n.file != nil {
		writeProjection(b, inner, n.file.Path)
		if d := strings.TrimSpace(n.file.Description); d != "" {
			fmt.Fprintf(b, "%s<description>%s</description>\n", inner, d)
		}
		writeBody(b, inner, n.file)
	}
	for _, c := range n.children {
		c.write(b, inner)
	}
	fmt.Fprintf(b, "%s</%s>\n", indent, tag)
}

// tagName keeps a file name from ending its tag.
func tagName(name string) string {
	return strings.NewReplacer("<", "_", ">", "_").Replace(name)
}

// externalTree is the tree of Markdown files outside system/ and skills/, with
// its tags; "" if there are none. Its length is bounded.
func externalTree(s *memory.Snapshot) string {
	var saved, other []*memory.File
	for _, f := range s.Files {
		switch {
		case f.Kind != memory.KindMarkdown, strings.HasPrefix(f.Path, "system/"), strings.HasPrefix(f.Path, "skills/"):
		case strings.HasPrefix(f.Path, savedDir):
			saved = append(saved, f)
		default:
			other = append(other, f)
		}
	}
	if len(saved)+len(other) == 0 {
		return ""
	}
	root := &tree{}
	shown := other[:min(len(other), maxExternal)]
	for _, f := range append(newest(saved, maxSaved), shown...) {
		root.add(f.Path)
	}
	if more := len(saved) - maxSaved; more > 0 {
		root.dir(strings.TrimSuffix(savedDir, "/")).more = more
	}
	root.more = len(other) - len(shown)
	var b strings.Builder
	b.WriteString("<external_projection>\n${MEMORY_DIR}/\n")
	root.write(&b, "")
	b.WriteString("</external_projection>\n")
	return b.String()
}

// newest picks the n files that were made last, by the time in their front
// matter and then by path.
func newest(files []*memory.File, n int) []*memory.File {
	if len(files) <= n {
		return files
	}
	sorted := slices.SortedFunc(slices.Values(files), func(a, b *memory.File) int {
		return cmp.Or(cmp.Compare(createdAt(b), createdAt(a)), cmp.Compare(a.Path, b.Path))
	})
	return sorted[:n]
}

// createdAt is when a saved item was made, as its front matter says, in a form
// that sorts; "" if it does not say.
func createdAt(f *memory.File) string {
	switch t := f.Front["created_at"].(type) {
	case time.Time:
		return t.UTC().Format(time.RFC3339)
	case string:
		if parsed, err := time.Parse(time.RFC3339, t); err == nil {
			return parsed.UTC().Format(time.RFC3339)
		}
		return t
	}
	return ""
}

// A tree is a directory of the list of names.
type tree struct {
	name  string
	dirs  []*tree
	files []string
	more  int // files that are not shown
}

func (t *tree) add(path string) {
	name, rest, isDir := strings.Cut(path, "/")
	if !isDir {
		t.files = append(t.files, name)
		return
	}
	t.dir(name).add(rest)
}

// dir finds or makes a directory.
func (t *tree) dir(name string) *tree {
	for _, d := range t.dirs {
		if d.name == name {
			return d
		}
	}
	d := &tree{name: name}
	t.dirs = append(t.dirs, d)
	return d
}

func (t *tree) write(b *strings.Builder, indent string) {
	slices.SortFunc(t.dirs, func(a, b *tree) int { return cmp.Compare(a.name, b.name) })
	slices.Sort(t.files)
	left := len(t.dirs) + len(t.files)
	if t.more > 0 {
		left++
	}
	branch := func() (line, below string) {
		if left--; left == 0 {
			return indent + "└── ", indent + "    "
		}
		return indent + "├── ", indent + "│   "
	}
	for _, d := range t.dirs {
		line, below := branch()
		b.WriteString(line + d.name + "/\n")
		d.write(b, below)
	}
	for _, f := range t.files {
		line, _ := branch()
		b.WriteString(line + f + "\n")
	}
	if t.more > 0 {
		line, _ := branch()
		fmt.Fprintf(b, "%s… %d more, search them\n", line, t.more)
	}
}
