package memory

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"golang.org/x/text/unicode/norm"

	"mneme/internal/agent"
)

// maxNamed is how many candidates an ambiguity names.
const maxNamed = 10

// A Removed item is what DeleteItem took away.
type Removed struct {
	Path   string
	Whole  bool   // the file went, else a piece of it
	Text   string // what went; of a file its description or first line
	Commit string // that no longer holds it
	Before string // that still holds it
	Detail string // one sentence with all of that
}

// DeleteItem removes the one thing that ref names (spec/mcp.md section 5.2): a
// saved item by its id, a file by its path, a core block by its label, or what
// contains a text: a saved item, or a list item or paragraph of another file.
// The commit before still holds it. Errors: CodeNotFound, CodeAmbiguous with the
// candidates, CodeReadOnly, CodeInvalid for paths that leave the memory.
func (m *Memory) DeleteItem(ctx context.Context, author Author, agentID, ref string) (Removed, error) {
	var removed Removed
	message := "Delete " + cutText(firstLine(ref), 60)
	commit, _, err := m.Update(ctx, author, agentID, message, func(s *Snapshot) (changes []FileChange, err error) {
		removed, changes, err = s.PlanDelete(ref)
		return changes, err
	})
	if err != nil {
		return Removed{}, err
	}
	return removed.At(commit), nil
}

// At completes what was planned with the commit that was made of it.
func (r Removed) At(commit string) Removed {
	r.Commit = commit
	what := fmt.Sprintf("Removed the file %s", r.Path)
	if !r.Whole {
		what = fmt.Sprintf("Removed %q from %s", cutText(collapse(r.Text), 80), r.Path)
	}
	r.Detail = fmt.Sprintf("%s in commit %s; commit %s still holds it.", what, short(commit), short(r.Before))
	return r
}

// A hit is a thing that a reference may mean.
type hit struct {
	file       *File
	from, to   int // the piece of the body; from < 0 = the whole file
	text, name string
}

// PlanDelete is what removing the thing that ref names changes.
func (s *Snapshot) PlanDelete(ref string) (Removed, []FileChange, error) {
	trimmed := strings.TrimSpace(ref)
	if trimmed == "" {
		return Removed{}, nil, agent.Invalid("id", "id must not be blank")
	}
	if leaves(trimmed) {
		return Removed{}, nil, agent.Invalid("id", "id must not be a path that leaves the memory")
	}
	hits := s.named(trimmed)
	if len(hits) == 0 {
		hits = s.containing(trimmed)
	}
	switch {
	case len(hits) == 0:
		return Removed{}, nil, agent.Errorf(agent.CodeNotFound, "nothing in the memory is or contains %q", cutText(trimmed, 80))
	case len(hits) > 1:
		return Removed{}, nil, ambiguous(trimmed, hits)
	}
	h := hits[0]
	if h.file.ReadOnly {
		return Removed{}, nil, agent.Errorf(agent.CodeReadOnly, "%s is read-only", h.file.Path)
	}
	r := Removed{Path: h.file.Path, Whole: h.from < 0, Text: h.text, Before: s.Commit}
	if r.Whole {
		return r, []FileChange{{Path: h.file.Path, Delete: true}}, nil
	}
	return r, withBody(h.file, cutPiece(h.file.Body, h.from, h.to)), nil
}

// leaves tells paths that are absolute, climb, or are git's.
func leaves(ref string) bool {
	if strings.HasPrefix(ref, "/") {
		return true
	}
	for segment := range strings.SplitSeq(ref, "/") {
		if segment == ".." || isGitName(segment) {
			return true
		}
	}
	return false
}

func ambiguous(ref string, hits []hit) error {
	names := make([]string, 0, maxNamed)
	for _, h := range hits[:min(len(hits), maxNamed)] {
		names = append(names, h.name)
	}
	more := ""
	if n := len(hits) - len(names); n > 0 {
		more = fmt.Sprintf("; and %d more", n)
	}
	return agent.Errorf(agent.CodeAmbiguous, "%q fits %d things: %s%s", cutText(ref, 80), len(hits), strings.Join(names, "; "), more)
}

func wholeFile(f *File) hit {
	text := f.Description
	if text == "" {
		text = firstLine(f.Body)
	}
	return hit{file: f, from: -1, text: text, name: f.Path}
}

// named finds what ref is the id, path or label of.
func (s *Snapshot) named(ref string) []hit {
	var hits []hit
	if strings.HasPrefix(ref, idPrefix) {
		for _, f := range s.Files {
			if f.Served() && f.FrontText("id") == ref {
				hits = append(hits, wholeFile(f))
			}
		}
	}
	if len(hits) > 0 {
		return hits
	}
	paths := []func(string) (string, error){CleanPath, LabelPath}
	for _, find := range paths {
		p, err := find(ref)
		if err != nil {
			continue // no path: a text
		}
		if f := s.File(p); f != nil && f.Served() {
			return []hit{wholeFile(f)}
		}
	}
	return nil
}

// containing finds what holds a text.
func (s *Snapshot) containing(ref string) []hit {
	want := plainText(ref)
	var hits []hit
	for _, f := range s.Files {
		if f.Kind != KindMarkdown || !f.Served() || f.generated() || !strings.Contains(plainText(f.Body), want) {
			continue
		}
		if f.Saved() {
			hits = append(hits, wholeFile(f))
			continue
		}
		for _, p := range pieces(f.Body) {
			if strings.Contains(plainText(f.Body[p.from:p.own]), want) {
				text := strings.TrimSpace(f.Body[p.from:p.to])
				hits = append(hits, hit{file: f, from: p.from, to: p.to, text: text,
					name: fmt.Sprintf("%s: %q", f.Path, cutText(firstLine(text), 60))})
			}
		}
	}
	return hits
}

// generated says whether the file only repeats what others hold, as an index of
// them does: a text in it means the others.
func (f *File) generated() bool { return f.Front["generated"] == true }

// Saved says whether the file is a saved item.
func (f *File) Saved() bool {
	return strings.HasPrefix(f.Path, savedDir) && strings.HasPrefix(f.FrontText("id"), idPrefix)
}

// plainText is the form in which texts are looked for: any case, any blanks.
func plainText(s string) string { return collapse(strings.ToLower(norm.NFC.String(s))) }

// A piece is a list item, a heading, a block of code or a paragraph: its own
// text is body[from:own]; body[own:to] are the items below it, which go with it.
type piece struct{ from, own, to int }

var (
	listItem = regexp.MustCompile(`^([ \t]*)(?:[-*+]|[0-9]{1,9}[.)])(?:[ \t]|$)`)
	heading  = regexp.MustCompile(`^ {0,3}#{1,6}(?:[ \t]|$)`)
	codeRow  = regexp.MustCompile("^[ \t]*(```+|~~~+)")
)

// A pieceReader cuts a body line by line.
type pieceReader struct {
	found []piece
	open  []openItem // list items that later lines may still belong to
	last  int        // the piece that the line before belongs to; -1 = none
	fence string     // ends the block of code we are in
}

// An openItem is a list item with the column of its marker.
type openItem struct{ index, indent int }

// pieces cuts a body. The pieces come in order; those below an item follow it.
func pieces(body string) []piece {
	r := &pieceReader{last: -1}
	at := 0
	for line := range strings.Lines(body) {
		r.line(strings.TrimRight(line, "\r\n"), at, at+len(line))
		at += len(line)
	}
	return r.found
}

func (r *pieceReader) line(line string, from, to int) {
	if r.fence != "" {
		r.extend(to)
		if strings.HasPrefix(strings.TrimSpace(line), r.fence) {
			r.fence, r.last = "", -1
		}
		return
	}
	if strings.TrimSpace(line) == "" {
		r.last = -1
		return
	}
	indent := indentOf(line)
	item := listItem.FindString(line) != ""
	switch {
	case item:
		r.closeItems(indent)
		r.start(from, to)
		r.open = append(r.open, openItem{index: r.last, indent: indent})
	case r.last >= 0 && codeRow.FindString(line) == "" && heading.FindString(line) == "":
		r.extend(to) // the paragraph or item goes on
	default:
		// After a blank line an indented text still is the item's.
		r.closeItems(indent)
		if n := len(r.open); n > 0 {
			r.last = r.open[n-1].index
			if r.found[r.last].own == r.found[r.last].to {
				r.found[r.last].own = to
			} else {
				r.start(from, to)
			}
			r.extend(to)
		} else {
			r.start(from, to)
		}
		if m := codeRow.FindStringSubmatch(line); m != nil {
			r.fence = m[1]
		} else if heading.FindString(line) != "" {
			r.last = -1
		}
	}
}

// closeItems ends the items that a line with this indent is not below.
func (r *pieceReader) closeItems(indent int) {
	for n := len(r.open); n > 0 && r.open[n-1].indent >= indent; n-- {
		r.open = r.open[:n-1]
	}
}

// start begins a piece; the items around it reach as far.
func (r *pieceReader) start(from, to int) {
	r.found = append(r.found, piece{from: from, own: to, to: to})
	r.last = len(r.found) - 1
	r.reach(to)
}

// extend adds a line to the piece that is being read.
func (r *pieceReader) extend(to int) {
	if r.last < 0 {
		return
	}
	r.found[r.last].own, r.found[r.last].to = to, to
	r.reach(to)
}

func (r *pieceReader) reach(to int) {
	for _, o := range r.open {
		r.found[o.index].to = max(r.found[o.index].to, to)
	}
}

// indentOf counts the columns before the text; a tab is four.
func indentOf(line string) int {
	n := 0
	for _, c := range line {
		switch c {
		case ' ':
			n++
		case '\t':
			n += 4
		default:
			return n
		}
	}
	return n
}

// cutPiece removes a piece and what would be a second blank line.
func cutPiece(body string, from, to int) string {
	before, after := body[:from], body[to:]
	if before == "" || strings.HasSuffix(before, "\n\n") || strings.HasSuffix(before, "\r\n\r\n") {
		after = strings.TrimLeft(after, "\r\n")
	}
	if after == "" {
		before = strings.TrimRight(before, "\r\n")
		if before != "" {
			before += "\n"
		}
	}
	return before + after
}
