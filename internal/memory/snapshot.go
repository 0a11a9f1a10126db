package memory

import (
	"cmp"
	"path"
	"slices"
	"strings"
	"unicode/utf8"
)

// DefaultLimit is how many characters a file's body may have when its front
// matter names no limit (spec/harness.md section 4.1).
const DefaultLimit = 100_000

// maxText bounds the Markdown files whose text a snapshot holds, in bytes. A
// shell may commit larger ones; they are listed without text.
const maxText = 4 << 20

// A Kind tells what a file is.
type Kind string

// The kinds. Other files are the shell's business: kept, but not served.
const (
	KindMarkdown Kind = "markdown"
	KindImage    Kind = "image"
	KindOther    Kind = "other"
)

// kindOf goes by the name.
func kindOf(p string) Kind {
	ext := strings.ToLower(path.Ext(p))
	if ext == ".md" {
		return KindMarkdown
	}
	if imageTypes[ext] != "" {
		return KindImage
	}
	return KindOther
}

// A Snapshot is all files of one commit. It is immutable and shared: do not
// change it. The zero value is the memory of an agent that has none yet.
type Snapshot struct {
	Commit string  // "" = nothing written yet
	Files  []*File // sorted by path, bytewise
	size   int     // bytes of text
}

// A File is one file of a snapshot. Immutable.
type File struct {
	Path string
	Kind Kind
	Mode string // git's: 100644, 100755, 120000 for a symbolic link
	Blob string // git's id of the content
	Size int64  // bytes
	// What follows is of Markdown files that are no links and not oversized.
	Text        string // the whole file
	Body        string // Text without front matter
	Front       map[string]any
	Description string
	ReadOnly    bool
	Limit       int   // characters
	Oversized   bool  // the text was left out
	updated     int64 // atomic: seconds, see Updated; 0 = not asked yet
}

// newFile makes the file of a blob; text only counts for Markdown.
func newFile(p, mode, blob string, size int64, text string) *File {
	f := &File{Path: p, Kind: kindOf(p), Mode: mode, Blob: blob, Size: size, Limit: DefaultLimit}
	if !isRegular(mode) {
		f.Kind = KindOther
	}
	if f.Kind != KindMarkdown {
		return f
	}
	doc := ParseDoc(text)
	f.Text, f.Body, f.Front = text, doc.Body, doc.Fields()
	f.Description = f.FrontText("description")
	switch v := f.Front["read_only"].(type) {
	case bool:
		f.ReadOnly = v
	case string:
		f.ReadOnly = strings.EqualFold(v, "true")
	}
	if n, ok := f.Front["limit"].(int); ok && n > 0 {
		f.Limit = n
	}
	return f
}

// isRegular tells plain files from links and submodules.
func isRegular(mode string) bool { return strings.HasPrefix(mode, "100") }

// Doc is the file's text, split for editing.
func (f *File) Doc() Doc { return ParseDoc(f.Text) }

// Chars is the length of the body in characters.
func (f *File) Chars() int { return utf8.RuneCountInString(f.Body) }

// Label is the core block's label; "" for files outside system/.
func (f *File) Label() string {
	if f.Kind != KindMarkdown {
		return ""
	}
	label, _ := PathLabel(f.Path)
	return label
}

// FrontText is a key of the front matter that holds a text, else "".
func (f *File) FrontText(key string) string {
	s, _ := f.Front[key].(string)
	return s
}

// Tags are the texts below "tags" in the front matter, or what it names in one
// line, separated by commas.
func (f *File) Tags() []string {
	var tags []string
	switch v := f.Front["tags"].(type) {
	case []any:
		for _, item := range v {
			if s, ok := item.(string); ok {
				tags = append(tags, s)
			}
		}
	case string:
		for s := range strings.SplitSeq(v, ",") {
			if s = strings.TrimSpace(s); s != "" {
				tags = append(tags, s)
			}
		}
	}
	return tags
}

// File finds a file by its path; nil = there is none.
func (s *Snapshot) File(p string) *File {
	i, ok := s.find(p)
	if !ok {
		return nil
	}
	return s.Files[i]
}

func (s *Snapshot) find(p string) (int, bool) {
	return slices.BinarySearchFunc(s.Files, p, func(f *File, p string) int { return cmp.Compare(f.Path, p) })
}

// Under is the files below a directory, sorted by path.
func (s *Snapshot) Under(dir string) []*File {
	dir = strings.TrimSuffix(dir, "/") + "/"
	from, _ := s.find(dir)
	to := from
	for to < len(s.Files) && strings.HasPrefix(s.Files[to].Path, dir) {
		to++
	}
	return s.Files[from:to]
}

// with is the snapshot of the commit that applied ops to s.
func (s *Snapshot) with(commit string, ops []op) *Snapshot {
	next := &Snapshot{Commit: commit, Files: slices.Clone(s.Files), size: s.size}
	for _, o := range ops {
		i, found := next.find(o.path)
		if found {
			next.size -= len(next.Files[i].Text)
		}
		switch {
		case o.file == nil && found:
			next.Files = slices.Delete(next.Files, i, i+1)
		case o.file != nil && found:
			next.Files[i] = o.file
		case o.file != nil:
			next.Files = slices.Insert(next.Files, i, o.file)
		}
		if o.file != nil {
			next.size += len(o.file.Text)
		}
	}
	return next
}
