package memory

import (
	"cmp"
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"mneme/internal/agent"
)

// maxFile bounds a file that is written, in bytes.
const maxFile = 16 << 20

// tries is how often a write starts over because somebody else committed.
const tries = 3

// An Author is whom a commit names. An empty Name is the agent's, an empty
// Email is <agent_id>@letta.com.
type Author struct{ Name, Email string }

// A FileChange is one path of a commit.
type FileChange struct {
	Path    string
	Content []byte // the whole file
	Delete  bool   // the file goes; one that is not there is no error
	// Force lets the owner of the agent change a file that is read_only.
	Force bool

	keep *File // the content is this file's, unchanged
}

// An op is a checked change: file replaces old; nil means absent.
type op struct {
	path      string
	old, file *File
	data      []byte // of file; nil = its blob exists already
}

// Write creates, replaces and deletes files in one commit. changed is false,
// and commit the current one, if everything was so already. Errors: CodeInvalid
// for paths and contents that break the rules and for read_only files,
// CodeMemoryConflict for paths with uncommitted edits in the work tree.
func (m *Memory) Write(ctx context.Context, author Author, agentID string, changes []FileChange, message string) (commit string, changed bool, err error) {
	return m.Update(ctx, author, agentID, message, func(*Snapshot) ([]FileChange, error) { return changes, nil })
}

// Update is Write with changes that depend on what is there: edit is given the
// commit that the new one will follow, and is asked again if another commit came
// in between. An error of edit ends it. edit must not write this memory.
func (m *Memory) Update(ctx context.Context, author Author, agentID, message string, edit func(*Snapshot) ([]FileChange, error)) (commit string, changed bool, err error) {
	if err := checkID(agentID); err != nil {
		return "", false, err
	}
	if err := m.begin(); err != nil {
		return "", false, err
	}
	defer m.work.Done()
	r := m.repo(agentID)
	if err := take(ctx, r.write); err != nil {
		return "", false, err
	}
	commit, ops, foreign, err := m.update(ctx, r, m.authorOf(author, agentID), agentID, message, edit)
	collect := err == nil && len(ops) > 0 && r.commits >= gcAfter
	<-r.write
	foreign.tell(m)
	if err != nil || len(ops) == 0 {
		return commit, false, err
	}
	if collect {
		m.collect(agentID, r)
	}
	paths := make([]string, len(ops))
	for i, o := range ops {
		paths[i] = o.path
	}
	news{agentID, commit, paths}.tell(m)
	return commit, true, nil
}

func (m *Memory) authorOf(a Author, agentID string) Author {
	if a.Name == "" && m.opts.AuthorName != nil {
		a.Name = m.opts.AuthorName(agentID)
	}
	a.Name, a.Email = identity(a.Name), identity(a.Email)
	if a.Name == "" {
		a.Name = agentID
	}
	if a.Email == "" {
		a.Email = agentID + "@letta.com"
	}
	return a
}

// identity drops what git's author line cannot hold.
func identity(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	return strings.Join(strings.FieldsFunc(s, func(r rune) bool {
		return r <= ' ' || r == 0x7f || r == '<' || r == '>'
	}), " ")
}

// update does the work of Update under the write lock.
func (m *Memory) update(ctx context.Context, r *repo, author Author, agentID, message string, edit func(*Snapshot) ([]FileChange, error)) (commit string, done []op, foreign news, err error) {
	dir := m.Dir(agentID)
	m.settle(ctx, r, agentID)
	for range tries {
		head, err := m.Head(agentID)
		if err != nil {
			return "", nil, foreign, err
		}
		snap := &Snapshot{}
		if head != "" {
			if snap, err = m.snapshot(ctx, agentID, head); err != nil {
				return "", nil, foreign, err
			}
		}
		if n := m.news(r, agentID, snap); n.commit != "" {
			foreign = n
		}
		changes, err := edit(snap)
		if err != nil {
			return "", nil, foreign, err
		}
		ops, err := plan(snap, changes)
		if err != nil || len(ops) == 0 {
			return head, nil, foreign, err
		}
		if err := checkClean(dir, ops); err != nil {
			return "", nil, foreign, err
		}
		if err := ctx.Err(); err != nil {
			return "", nil, foreign, err
		}
		// From here on the caller's leaving changes nothing: a cut commit would
		// leave locks behind.
		in := commitInput{parent: head, author: author, message: message, when: time.Now(), ops: ops, agentID: agentID}
		commit, err := m.commitAndCheckOut(context.WithoutCancel(ctx), r, dir, in)
		if errors.Is(err, errMoved) {
			continue
		}
		if err != nil {
			return "", nil, foreign, err
		}
		r.told = commit
		for _, o := range ops {
			if o.file != nil {
				o.file.setUnix(in.when.Unix())
			}
		}
		m.cache.put(agentID, snap.with(commit, ops))
		r.commits++
		return commit, ops, foreign, nil
	}
	return "", nil, foreign, agent.Errorf(agent.CodeMemoryConflict, "the memory changed %d times while it was being written; try again", tries)
}

// commitAndCheckOut holds the lock of the shell's index from before the branch
// moves until the index shows the new commit. A shell that commits in between
// would otherwise put its old index on top of our commit and so undo it.
func (m *Memory) commitAndCheckOut(ctx context.Context, r *repo, dir string, in commitInput) (string, error) {
	gitDir := filepath.Join(dir, ".git")
	unlock, locked := m.lockIndex(r, gitDir)
	defer func() { unlock() }()
	commit, err := m.commit(ctx, dir, in)
	if err != nil {
		return "", err
	}
	if in.parent == "" {
		unlock()
		unlock, locked = m.lockIndex(r, gitDir) // the repository may be new
	}
	m.finishCheckout(ctx, dir, in.ops, locked)
	return commit, nil
}

// plan checks changes against a snapshot and drops those that change nothing.
// The rest is sorted by path.
func plan(snap *Snapshot, changes []FileChange) ([]op, error) {
	idLen := 40
	if snap.Commit != "" {
		idLen = len(snap.Commit)
	}
	var ops []op
	seen := map[string]bool{}
	for _, c := range changes {
		o, err := planOne(snap, c, idLen)
		if err != nil {
			return nil, err
		}
		if seen[o.path] {
			return nil, agent.Invalid("path", "path %q is changed twice", o.path)
		}
		seen[o.path] = true
		if o.old == o.file || o.old != nil && o.file != nil && o.old.Blob == o.file.Blob && o.old.Mode == o.file.Mode {
			continue
		}
		if o.old != nil && o.old.ReadOnly && !c.Force {
			return nil, agent.Invalid("path", "%s is read-only", o.path)
		}
		ops = append(ops, o)
	}
	slices.SortFunc(ops, func(a, b op) int { return cmp.Compare(a.path, b.path) })
	return ops, checkTree(snap.with("", ops), ops)
}

// planOne checks one change by itself.
func planOne(snap *Snapshot, c FileChange, idLen int) (op, error) {
	if c.Delete {
		p, err := CleanPath(c.Path)
		if err != nil {
			return op{}, err
		}
		if old := snap.File(p); old != nil {
			return op{path: p, old: old}, nil
		}
		if len(snap.Under(p)) > 0 {
			return op{}, agent.Invalid("path", "%s is a directory", p)
		}
		return op{path: p}, nil
	}
	p, err := writablePath(c.Path)
	if err != nil && c.keep == nil {
		return op{}, err
	}
	o := op{path: p, old: snap.File(p)}
	if c.keep != nil {
		if o.path, err = CleanPath(c.Path); err != nil {
			return op{}, err
		}
		if kindOf(o.path) != kindOf(c.keep.Path) {
			return op{}, agent.Invalid("path", "%s and %s are files of different kinds", c.keep.Path, o.path)
		}
		o.old = snap.File(o.path)
		o.file = newFile(o.path, c.keep.Mode, c.keep.Blob, c.keep.Size, c.keep.Text)
		return o, nil
	}
	if err := checkContent(p, c.Content); err != nil {
		return op{}, err
	}
	mode := "100644"
	if o.old != nil {
		if mode = o.old.Mode; !isRegular(mode) {
			return op{}, agent.Invalid("path", "%s is a symbolic link", p)
		}
	}
	o.data = c.Content
	if o.data == nil {
		o.data = []byte{}
	}
	o.file = newFile(p, mode, blobID(o.data, idLen), int64(len(o.data)), string(o.data))
	return o, nil
}

// checkContent holds a new file to the limits.
func checkContent(p string, content []byte) error {
	if len(content) > maxFile {
		return agent.Errorf(agent.CodeTooLarge, "%s: a memory file may have at most %d MiB", p, maxFile>>20)
	}
	if kindOf(p) != KindMarkdown {
		return nil
	}
	if !utf8.Valid(content) {
		return agent.Invalid("content", "%s: a Markdown file must be valid UTF-8", p)
	}
	f := newFile(p, "100644", "", 0, string(content))
	if n := f.Chars(); n > f.Limit {
		return agent.Invalid("content", "%s: the text has %d characters, the limit is %d", p, n, f.Limit)
	}
	return nil
}

// checkTree refuses files below files.
func checkTree(next *Snapshot, ops []op) error {
	for _, o := range ops {
		if o.file == nil {
			continue
		}
		if len(next.Under(o.path)) > 0 {
			return agent.Invalid("path", "%s is a directory", o.path)
		}
		for d := path.Dir(o.path); d != "."; d = path.Dir(d) {
			if next.File(d) != nil {
				return agent.Invalid("path", "%s is a file, so nothing can be below it", d)
			}
		}
	}
	return nil
}

// blobID is git's id of a content; idLen 64 means a SHA-256 repository.
func blobID(data []byte, idLen int) string {
	header := fmt.Appendf(nil, "blob %d\x00", len(data))
	if idLen == 64 {
		sum := sha256.Sum256(append(header, data...))
		return hex.EncodeToString(sum[:])
	}
	sum := sha1.Sum(append(header, data...))
	return hex.EncodeToString(sum[:])
}

// A Block is a core block to be filed.
type Block struct {
	Label       string
	Description string // "" = "Memory block <label>"
	Value       string
	Limit       int // characters; 0 = DefaultLimit
	ReadOnly    bool
}

// Text is the block's file: the value byte for byte, below front matter.
func (b Block) Text() (string, error) {
	doc := Doc{Body: strings.ReplaceAll(b.Value, "\x00", "")}
	if b.Description == "" {
		b.Description = "Memory block " + strings.TrimSuffix(strings.TrimPrefix(b.Label, systemDir), ".md")
	}
	if err := doc.Set("description", b.Description); err != nil {
		return "", err
	}
	if b.ReadOnly {
		if err := doc.Set("read_only", true); err != nil {
			return "", err
		}
	}
	if b.Limit > 0 && b.Limit != DefaultLimit {
		if err := doc.Set("limit", b.Limit); err != nil {
			return "", err
		}
	}
	return doc.String(), nil
}

// InitMessage is the subject of the commit that Blocks makes.
const InitMessage = "chore: initialize local memory"

// Blocks files the core blocks of a new agent in one commit. Without blocks
// nothing is made and commit is the current one.
func (m *Memory) Blocks(ctx context.Context, author Author, agentID string, blocks []Block) (commit string, err error) {
	changes := make([]FileChange, len(blocks))
	for i, b := range blocks {
		p, err := LabelPath(b.Label)
		if err != nil {
			return "", err
		}
		for _, c := range changes[:i] {
			if c.Path == p {
				return "", agent.Errorf(agent.CodeConflict, "two memory blocks have the label %q", b.Label)
			}
		}
		text, err := b.Text()
		if err != nil {
			return "", err
		}
		changes[i] = FileChange{Path: p, Content: []byte(text), Force: true}
	}
	commit, _, err = m.Write(ctx, author, agentID, changes, InitMessage)
	return commit, err
}
