package memory

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"mneme/internal/agent"
)

const branch = "refs/heads/main"

// Head is the commit that the agent's memory is at, "" if nothing was written
// yet. It reads one small file and starts no process.
func (m *Memory) Head(agentID string) (string, error) {
	if err := checkID(agentID); err != nil {
		return "", err
	}
	return readRef(filepath.Join(m.Dir(agentID), ".git"))
}

// readRef reads the branch: its own file, or the packed ones.
func readRef(gitDir string) (string, error) {
	loose, err := os.ReadFile(filepath.Join(gitDir, branch))
	if err == nil {
		if sha := strings.TrimSpace(string(loose)); isSHA(sha) && len(sha) >= 40 {
			return sha, nil
		}
		return "", agent.Errorf(agent.CodeInternal, "the memory branch main is damaged")
	}
	if !isAbsent(err) {
		return "", fmt.Errorf("read memory branch: %w", err)
	}
	packed, err := os.ReadFile(filepath.Join(gitDir, "packed-refs"))
	if isAbsent(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read memory branch: %w", err)
	}
	for line := range strings.Lines(string(packed)) {
		if sha, ref, ok := strings.Cut(strings.TrimSpace(line), " "); ok && ref == branch && isSHA(sha) {
			return sha, nil
		}
	}
	return "", nil
}

// isAbsent tells a missing file, or one below what is no directory.
func isAbsent(err error) bool {
	return errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// isSHA accepts what may name a commit, or the start of its name.
func isSHA(s string) bool {
	if len(s) < 4 || len(s) > 64 {
		return false
	}
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// Snapshot reads all files of a commit, "" meaning the newest. It costs no
// process while the same commit was read or written lately.
func (m *Memory) Snapshot(ctx context.Context, agentID, commit string) (*Snapshot, error) {
	if err := checkID(agentID); err != nil {
		return nil, err
	}
	if commit != "" && (!isSHA(commit) || len(commit) < 40) {
		return nil, agent.Invalid("ref", "ref must be a full commit id")
	}
	m.resume(ctx, agentID)
	newest := commit == ""
	if newest {
		head, err := m.Head(agentID)
		if err != nil {
			return nil, err
		}
		if head == "" {
			return &Snapshot{}, nil
		}
		commit = head
	}
	s, err := m.snapshot(ctx, agentID, commit)
	if errors.Is(err, errMissing) && !newest {
		return nil, noCommit(commit)
	}
	if err == nil && newest {
		m.observe(agentID, s)
	}
	return s, err
}

// snapshot reads a commit through the cache.
func (m *Memory) snapshot(ctx context.Context, agentID, commit string) (*Snapshot, error) {
	if s := m.cache.get(agentID, commit); s != nil {
		return s, nil
	}
	r := m.repo(agentID)
	if err := take(ctx, r.load); err != nil {
		return nil, err
	}
	defer func() { <-r.load }()
	if s := m.cache.get(agentID, commit); s != nil {
		return s, nil // read while we waited
	}
	s, err := m.readCommit(ctx, m.Dir(agentID), commit, m.cache.newest(agentID))
	if err != nil {
		return nil, err
	}
	m.cache.put(agentID, s)
	return s, nil
}

// readCommit reads the trees of a commit and the texts that known does not
// have yet, with one process.
func (m *Memory) readCommit(ctx context.Context, dir, commit string, known *Snapshot) (*Snapshot, error) {
	objects, err := m.git.openObjects(ctx, dir)
	if err != nil {
		return nil, err
	}
	defer objects.close()
	l := &loader{objects: objects, snap: &Snapshot{Commit: commit}, known: map[string]*File{}}
	if known != nil {
		for _, f := range known.Files {
			l.known[f.Blob+f.Path] = f
		}
	}
	level := []treeRef{{name: commit + "^{tree}"}}
	for len(level) > 0 {
		if level, err = l.readTrees(level); err != nil {
			return nil, err
		}
	}
	if err := l.readBlobs(); err != nil {
		return nil, err
	}
	return l.snap, nil
}

// A loader gathers one snapshot.
type loader struct {
	objects *objectReader
	snap    *Snapshot
	known   map[string]*File // by blob and path
	wanted  []*File          // to be read
}

// A treeRef is a directory to read: git's name for it and its path with slash.
type treeRef struct{ name, prefix string }

// readTrees reads directories and returns those below them.
func (l *loader) readTrees(level []treeRef) (below []treeRef, err error) {
	requests := make([]string, len(level))
	for i, t := range level {
		requests[i] = "contents " + t.name
	}
	err = l.objects.each(requests, maxText, func(i int, o object) error {
		if o.kind != "tree" || o.cut {
			return fmt.Errorf("memory tree %q: %w", level[i].prefix, errMissing)
		}
		found, err := l.addTree(o.data, level[i].prefix, len(o.name)/2)
		below = append(below, found...)
		return err
	})
	return below, err
}

// addTree notes the entries of a tree object: mode, space, name, NUL, raw id.
func (l *loader) addTree(data []byte, prefix string, idLen int) (below []treeRef, err error) {
	for len(data) > 0 {
		head, rest, ok := bytes.Cut(data, []byte{0})
		mode, name, ok2 := strings.Cut(string(head), " ")
		if !ok || !ok2 || len(rest) < idLen {
			return nil, fmt.Errorf("memory tree %q is damaged", prefix)
		}
		id := hex.EncodeToString(rest[:idLen])
		data = rest[idLen:]
		p := prefix + name
		switch {
		case mode == "40000":
			below = append(below, treeRef{name: id, prefix: p + "/"})
		case mode == "160000":
			// a submodule: not ours to show
		default:
			f := l.known[id+p]
			if f == nil || f.Mode != mode {
				f = &File{Path: p, Mode: mode, Blob: id}
				l.wanted = append(l.wanted, f)
			}
			l.snap.Files = append(l.snap.Files, f)
		}
	}
	return below, nil
}

// readBlobs fills in the files that were not known: texts of Markdown, sizes of
// the rest.
func (l *loader) readBlobs() error {
	requests := make([]string, len(l.wanted))
	for i, f := range l.wanted {
		requests[i] = "info " + f.Blob
		if kindOf(f.Path) == KindMarkdown && isRegular(f.Mode) {
			requests[i] = "contents " + f.Blob
		}
	}
	err := l.objects.each(requests, maxText, func(i int, o object) error {
		f := l.wanted[i]
		if o.kind != "blob" {
			return fmt.Errorf("memory file %q: %w", f.Path, errMissing)
		}
		*f = *newFile(f.Path, f.Mode, f.Blob, o.size, string(o.data))
		f.Oversized = o.cut
		return nil
	})
	if err != nil {
		return err
	}
	slices.SortFunc(l.snap.Files, func(a, b *File) int { return cmp.Compare(a.Path, b.Path) })
	for _, f := range l.snap.Files {
		l.snap.size += len(f.Text)
	}
	return nil
}

var errMissing = errors.New("the object is missing")

// An objectReader is one `git cat-file` that answers requests in order.
type objectReader struct {
	git    *git
	ctx    context.Context
	call   gitCall
	cmd    *exec.Cmd
	cancel context.CancelFunc
	in     io.WriteCloser
	out    *bufio.Reader
	stderr *capped
}

// An object is an answer. kind is "missing" or "ambiguous" if there is none.
type object struct {
	name, kind string
	size       int64
	data       []byte
	cut        bool // larger than asked for; data is empty
}

// openObjects starts the process; close it in any case.
func (g *git) openObjects(ctx context.Context, dir string) (*objectReader, error) {
	if err := take(ctx, g.slots); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, gitTimeout)
	r := &objectReader{git: g, ctx: ctx, cancel: cancel, stderr: &capped{max: gitMaxErrors}}
	r.call = gitCall{dir: dir, args: []string{"cat-file", "--batch-command", "--buffer"}}
	r.cmd = g.command(ctx, r.call)
	r.cmd.Stderr = r.stderr
	in, err := r.cmd.StdinPipe()
	if err == nil {
		r.in = in
		var out io.ReadCloser
		if out, err = r.cmd.StdoutPipe(); err == nil {
			r.out = bufio.NewReaderSize(out, 64<<10)
			err = r.cmd.Start()
		}
	}
	if err != nil {
		cancel()
		<-g.slots
		return nil, g.failed(ctx, r.call, err, nil)
	}
	return r, nil
}

// close ends the process and waits for it.
func (r *objectReader) close() {
	r.in.Close()
	r.cancel() // it has said all we asked for
	r.cmd.Wait()
	<-r.git.slots
}

// each sends requests ("contents X" or "info X") and hands the answers to got,
// in order. Contents beyond limit bytes are dropped, see object.cut.
func (r *objectReader) each(requests []string, limit int64, got func(i int, o object) error) error {
	sent := make(chan error, 1)
	go func() {
		_, err := io.WriteString(r.in, strings.Join(append(requests, "flush"), "\n")+"\n")
		sent <- err
	}()
	err := r.receive(requests, limit, got)
	if err != nil {
		r.cancel() // unblocks the sender
	}
	if sendErr := <-sent; err == nil {
		err = sendErr
	}
	return err
}

func (r *objectReader) receive(requests []string, limit int64, got func(i int, o object) error) error {
	for i, request := range requests {
		o, err := r.next(strings.HasPrefix(request, "contents"), limit)
		if err != nil {
			return r.git.failed(r.ctx, r.call, err, r.stderr.buf.Bytes())
		}
		if err := got(i, o); err != nil {
			return err
		}
	}
	return nil
}

// next reads one answer.
func (r *objectReader) next(contents bool, limit int64) (o object, err error) {
	line, err := r.out.ReadString('\n')
	if err != nil {
		return o, fmt.Errorf("read objects: %w", err)
	}
	line = strings.TrimSuffix(line, "\n")
	if name, ok := strings.CutSuffix(line, " missing"); ok {
		return object{name: name, kind: "missing"}, nil
	}
	if name, ok := strings.CutSuffix(line, " ambiguous"); ok {
		return object{name: name, kind: "ambiguous"}, nil
	}
	fields := strings.Fields(line)
	if len(fields) != 3 {
		return o, fmt.Errorf("read objects: unexpected answer %q", line)
	}
	o.name, o.kind = fields[0], fields[1]
	if o.size, err = strconv.ParseInt(fields[2], 10, 64); err != nil {
		return o, fmt.Errorf("read objects: %w", err)
	}
	if !contents {
		return o, nil
	}
	if o.size > limit {
		o.cut = true
		_, err = io.CopyN(io.Discard, r.out, o.size+1)
		return o, err
	}
	o.data = make([]byte, o.size+1) // a newline follows
	if _, err = io.ReadFull(r.out, o.data); err != nil {
		return o, fmt.Errorf("read objects: %w", err)
	}
	o.data = o.data[:o.size]
	return o, nil
}
