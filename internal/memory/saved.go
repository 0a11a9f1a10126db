package memory

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"mneme/internal/agent"
)

// The form of saved items (spec/mcp.md section 5.2).
const (
	savedDir       = "saved/"
	idPrefix       = "mem-"
	idDigits       = 16
	slugWords      = 6
	maxSlug        = 48 // bytes
	maxDescription = 120
	maxItemText    = 64 << 10 // bytes
	maxTags        = 32
	maxTag         = 64 // characters
	defaultSource  = "mcp"
)

// An Item is a text to be filed below saved/. The same text, whatever its blanks,
// is the same item.
type Item struct {
	Text   string // kept byte for byte
	Tags   []string
	Source string // who files it, in the front matter; "" = "mcp"
}

// A Saved item is where a text was filed.
type Saved struct {
	ID      string // "mem-" and 16 hex digits of the text's digest
	Path    string
	Commit  string // that holds it, flushed
	Tags    []string
	Created bool   // false: it was there
	Detail  string // one sentence with id, path and commit
}

// ItemID is the id of a text: of its digest in NFC with all blanks collapsed.
func ItemID(text string) string {
	sum := sha256.Sum256([]byte(collapse(norm.NFC.String(text))))
	return idPrefix + hex.EncodeToString(sum[:])[:idDigits]
}

// collapse makes each run of blanks one space and drops those at the ends.
func collapse(s string) string { return strings.Join(strings.Fields(s), " ") }

// Save files a text and returns once that is on disk. A text that is there
// already only gets the tags that it does not have; without any nothing is
// written. So it may be repeated at will.
func (m *Memory) Save(ctx context.Context, author Author, agentID string, item Item) (Saved, error) {
	var saved Saved
	message := "Save " + cutText(firstLine(item.Text), 60)
	commit, _, err := m.Update(ctx, author, agentID, message, func(s *Snapshot) (changes []FileChange, err error) {
		saved, changes, err = item.Plan(s, time.Now())
		return changes, err
	})
	if err != nil {
		return Saved{}, err
	}
	return saved.At(commit), nil
}

// At completes what was planned with the commit that was made of it.
func (s Saved) At(commit string) Saved {
	s.Commit = commit
	verb := "Kept"
	if s.Created {
		verb = "Saved"
	}
	s.Detail = fmt.Sprintf("%s %s as %s in commit %s.", verb, s.ID, s.Path, short(commit))
	return s
}

// Plan is what saving the item changes in a snapshot, nothing if it says so
// already. Errors are CodeInvalid and name the field, or CodeReadOnly.
func (i Item) Plan(s *Snapshot, now time.Time) (Saved, []FileChange, error) {
	if err := i.check(); err != nil {
		return Saved{}, nil, err
	}
	id := ItemID(i.Text)
	digits := strings.TrimPrefix(id, idPrefix)
	saved := Saved{ID: id, Path: savedDir + digits[:2] + "/" + slug(i.Text) + "--" + digits + ".md"}
	var doc Doc
	old := s.item(id, saved.Path)
	if old == nil {
		saved.Created = true
		err := setAll(&doc, []entry{
			{"description", cutText(firstLine(i.Text), maxDescription)},
			{"id", id},
			{"created_at", now.UTC().Format(time.RFC3339)},
			{"source", cmp.Or(i.Source, defaultSource)},
		})
		if err != nil {
			return Saved{}, nil, err
		}
	} else {
		saved.Path, saved.Tags = old.Path, old.Tags()
		doc = old.Doc()
	}
	known := len(saved.Tags)
	for _, t := range i.Tags {
		if t = strings.TrimSpace(t); !slices.Contains(saved.Tags, t) {
			saved.Tags = append(saved.Tags, t)
		}
	}
	// Somebody may have edited the file: what is reported as saved is there.
	stale := old == nil || ItemID(doc.Body) != id
	if len(saved.Tags) == known && !stale {
		return saved, nil, nil
	}
	if old != nil && old.ReadOnly {
		return Saved{}, nil, agent.Errorf(agent.CodeReadOnly, "%s is read-only", old.Path)
	}
	if len(saved.Tags) > known {
		if err := doc.Set("tags", saved.Tags); err != nil {
			return Saved{}, nil, err
		}
	}
	if stale {
		doc.Body = i.Text
	}
	return saved, []FileChange{{Path: saved.Path, Content: []byte(doc.String())}}, nil
}

// An entry is a key of front matter with its value.
type entry struct {
	key   string
	value any
}

func setAll(d *Doc, entries []entry) error {
	for _, e := range entries {
		if err := d.Set(e.key, e.value); err != nil {
			return err
		}
	}
	return nil
}

// check holds an item to the limits.
func (i Item) check() error {
	switch {
	case strings.TrimSpace(i.Text) == "":
		return agent.Invalid("text", "text must not be blank")
	case len(i.Text) > maxItemText:
		return agent.Invalid("text", "text has %d bytes, the limit is %d", len(i.Text), maxItemText)
	case !utf8.ValidString(i.Text):
		return agent.Invalid("text", "text must be valid UTF-8")
	case len(i.Tags) > maxTags:
		return agent.Invalid("tags", "tags has %d entries, the limit is %d", len(i.Tags), maxTags)
	}
	for n, t := range i.Tags {
		switch chars := utf8.RuneCountInString(t); {
		case strings.TrimSpace(t) == "":
			return agent.Invalid("tags", "tags[%d] must not be blank", n)
		case chars > maxTag:
			return agent.Invalid("tags", "tags[%d] has %d characters, the limit is %d", n, chars, maxTag)
		case !utf8.ValidString(t) || strings.ContainsFunc(t, isForbidden):
			return agent.Invalid("tags", "tags[%d] holds control characters", n)
		}
	}
	return nil
}

func isForbidden(r rune) bool { return unicode.IsControl(r) && r != '\t' && r != '\n' }

// item finds a saved item by its id: where Save files it, in that directory
// under another slug, or wherever it was moved. nil = it is not there.
func (s *Snapshot) item(id, expected string) *File {
	if f := s.File(expected); f != nil && f.FrontText("id") == id {
		return f
	}
	for _, f := range s.Under(path.Dir(expected)) {
		if f.FrontText("id") == id {
			return f
		}
	}
	for _, f := range s.Files {
		if f.FrontText("id") == id {
			return f
		}
	}
	return nil
}

// slug is the start of a text in the form of a file name, "note" if none of it
// can be written so.
func slug(text string) string {
	words := strings.Fields(text)
	var b strings.Builder
	for _, w := range words[:min(len(words), slugWords)] {
		for _, r := range foldAccents(w) {
			if r < 0x80 && (unicode.IsLetter(r) || unicode.IsDigit(r)) {
				b.WriteRune(unicode.ToLower(r))
			} else if s := b.String(); s != "" && s[len(s)-1] != '-' {
				b.WriteByte('-')
			}
		}
		if s := b.String(); s != "" && s[len(s)-1] != '-' {
			b.WriteByte('-')
		}
	}
	s := b.String()
	return cmp.Or(strings.Trim(s[:min(len(s), maxSlug)], "-"), "note")
}

// firstLine is the first line that is not blank, without blanks around it.
func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return collapse(line)
}

// cutText shortens s to max characters, the last of which is then an ellipsis.
func cutText(s string, max int) string {
	if utf8.RuneCountInString(s) <= max {
		return s
	}
	runes := []rune(s)[:max-1]
	return strings.TrimRightFunc(string(runes), unicode.IsSpace) + "…"
}

// short is the form of a commit id for people.
func short(commit string) string { return commit[:min(len(commit), 7)] }

// Contents is all of a memory, as a program wants to see it.
type Contents struct {
	Commit string  // "" = nothing written yet
	Blocks []*File // the Markdown files below system/, sorted by path
	Files  []*File // the others that are served, sorted by path
}

// Get reads the newest commit.
func (m *Memory) Get(ctx context.Context, agentID string) (Contents, error) {
	s, err := m.Snapshot(ctx, agentID, "")
	if err != nil {
		return Contents{}, err
	}
	return s.Contents(), nil
}

// Contents divides the files that are served in core blocks and others.
func (s *Snapshot) Contents() Contents {
	c := Contents{Commit: s.Commit}
	for _, f := range s.Files {
		switch {
		case !f.Served():
		case f.Label() != "":
			c.Blocks = append(c.Blocks, f)
		default:
			c.Files = append(c.Files, f)
		}
	}
	return c
}

// Served says whether listings show the file: Markdown and images whose names
// do not begin with a dot.
func (f *File) Served() bool {
	return f.Kind != KindOther && !strings.HasPrefix(f.Path, ".") && !strings.Contains(f.Path, "/.")
}

// NewSnapshot makes a snapshot of texts that come from elsewhere, by path, so
// that they can be searched and planned with.
func NewSnapshot(commit string, texts map[string]string) *Snapshot {
	s := &Snapshot{Commit: commit}
	for p, text := range texts {
		s.Files = append(s.Files, newFile(p, "100644", blobID([]byte(text), 40), int64(len(text)), text))
		s.size += len(text)
	}
	slices.SortFunc(s.Files, func(a, b *File) int { return cmp.Compare(a.Path, b.Path) })
	return s
}
