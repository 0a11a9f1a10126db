package memory

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"mneme/internal/agent"
)

// Read returns a file as the work tree has it, edits that nobody committed
// included; At reads the committed one. It never leaves the memory root, never
// shows git's own files and follows no symbolic link. A file that is not there
// is CodeNotFound.
func (m *Memory) Read(ctx context.Context, agentID, p string) ([]byte, error) {
	if err := checkID(agentID); err != nil {
		return nil, err
	}
	p, err := CleanPath(p)
	if err != nil {
		return nil, err
	}
	m.resume(ctx, agentID)
	root, err := os.OpenRoot(m.Dir(agentID))
	if isAbsent(err) {
		return nil, notFound(p)
	}
	if err != nil {
		return nil, readFailed(p, err)
	}
	defer root.Close()
	for d := p; d != "."; d = path.Dir(d) {
		info, err := root.Lstat(d)
		if err == nil && info.Mode()&os.ModeSymlink != 0 {
			return nil, agent.Invalid("path", notInside)
		}
	}
	// O_NONBLOCK: a pipe in the way must not hold us.
	f, err := root.OpenFile(p, os.O_RDONLY|nonBlock, 0)
	if err != nil {
		return nil, readFailed(p, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, readFailed(p, err)
	}
	switch {
	case info.IsDir():
		return nil, agent.Invalid("path", "%s is a directory", p)
	case !info.Mode().IsRegular():
		return nil, agent.Invalid("path", "%s is not a file", p)
	case info.Size() > gitMaxOutput:
		return nil, agent.Errorf(agent.CodeTooLarge, "%s is larger than %d MiB", p, gitMaxOutput>>20)
	}
	data, err := io.ReadAll(io.LimitReader(f, gitMaxOutput))
	if err != nil {
		return nil, readFailed(p, err)
	}
	return data, nil
}

func notFound(p string) error {
	return agent.Errorf(agent.CodeNotFound, "there is no memory file %s", p)
}

// readFailed says what went wrong without the place on this machine.
func readFailed(p string, err error) error {
	if isAbsent(err) {
		return notFound(p)
	}
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		err = pathErr.Err
	}
	return agent.Errorf(agent.CodeInvalid, "%s cannot be read: %v", p, err)
}

// checkRef accepts HEAD, meaning the branch, and hexadecimal commit ids, whole or
// their start: nothing that git could take for an option or an expression.
func checkRef(field, ref string) (string, error) {
	if ref == "HEAD" {
		return branch, nil
	}
	if ref = strings.ToLower(ref); !isSHA(ref) {
		return "", agent.Invalid(field, "%s must be HEAD or a commit id of 4 to 64 hexadecimal digits", field)
	}
	return ref, nil
}

// At returns a file as a commit has it. ref is HEAD or a commit id.
func (m *Memory) At(ctx context.Context, agentID, p, ref string) ([]byte, error) {
	if err := checkID(agentID); err != nil {
		return nil, err
	}
	p, err := CleanPath(p)
	if err != nil {
		return nil, err
	}
	rev, err := checkRef("ref", ref)
	if err != nil {
		return nil, err
	}
	if err := m.checkWritten(agentID, ref); err != nil {
		return nil, err
	}
	objects, err := m.git.openObjects(ctx, m.Dir(agentID))
	if err != nil {
		return nil, err
	}
	defer objects.close()
	var found []object
	err = objects.each([]string{"info " + rev + "^{commit}", "contents " + rev + ":" + p}, gitMaxOutput, func(_ int, o object) error {
		found = append(found, o)
		return nil
	})
	switch {
	case err != nil:
		return nil, err
	case found[0].kind != "commit":
		return nil, noCommit(ref)
	case found[1].kind == "tree":
		return nil, agent.Invalid("path", "%s is a directory", p)
	case found[1].kind != "blob":
		return nil, agent.Errorf(agent.CodeNotFound, "there is no memory file %s at %s", p, ref)
	case found[1].cut:
		return nil, agent.Errorf(agent.CodeTooLarge, "%s is larger than %d MiB", p, gitMaxOutput>>20)
	}
	return found[1].data, nil
}

func noCommit(ref string) error {
	return agent.Errorf(agent.CodeNotFound, "there is no memory commit %s", ref)
}

// checkWritten is CodeNotFound for any ref as long as nothing was written.
func (m *Memory) checkWritten(agentID, ref string) error {
	head, err := m.Head(agentID)
	if err == nil && head == "" {
		err = noCommit(ref)
	}
	return err
}

// A Commit is one entry of a history.
type Commit struct {
	SHA        string
	Message    string // the subject line
	Time       time.Time
	AuthorName string
}

// DefaultHistory is the length of a history when none is asked for.
const DefaultHistory = 50

// History lists the commits that changed a file or directory, newest first; path
// "" means all. limit <= 0 is DefaultHistory.
func (m *Memory) History(ctx context.Context, agentID, p string, limit int) ([]Commit, error) {
	head, err := m.Head(agentID)
	if err != nil {
		return nil, err
	}
	if p != "" {
		if p, err = CleanPath(p); err != nil {
			return nil, err
		}
	}
	if head == "" {
		return nil, nil
	}
	if limit <= 0 {
		limit = DefaultHistory
	}
	args := []string{"log", "-z", "--no-show-signature", "--no-color", "--format=%H%x00%ct%x00%an%x00%s", "-n", strconv.Itoa(limit), "--end-of-options", head, "--"}
	if p != "" {
		args = append(args, p)
	}
	out, err := m.git.run(ctx, gitCall{dir: m.Dir(agentID), args: args})
	if err != nil {
		return nil, err
	}
	fields := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
	var commits []Commit
	for ; len(fields) >= 4; fields = fields[4:] {
		seconds, err := strconv.ParseInt(fields[1], 10, 64)
		if err != nil {
			return nil, agent.Errorf(agent.CodeInternal, "git log gave the time %q", fields[1])
		}
		commits = append(commits, Commit{SHA: fields[0], Time: time.Unix(seconds, 0).UTC(), AuthorName: fields[2], Message: fields[3]})
	}
	return commits, nil
}

// Diff is the unified diff of a commit against its parent, without a header.
func (m *Memory) Diff(ctx context.Context, agentID, sha string) (string, error) {
	if err := checkID(agentID); err != nil {
		return "", err
	}
	rev, err := checkRef("sha", sha)
	if err != nil {
		return "", err
	}
	if err := m.checkWritten(agentID, sha); err != nil {
		return "", err
	}
	out, err := m.git.run(ctx, gitCall{dir: m.Dir(agentID), args: []string{
		"show", "--format=", "--no-color", "--no-ext-diff", "--no-textconv", "--no-show-signature",
		"--end-of-options", rev + "^{commit}", "--"}})
	var failed *gitError
	if errors.As(err, &failed) {
		return "", noCommit(sha)
	}
	return string(out), err
}

// Restore makes the memory as it was at a commit, by a new commit: nothing of
// the history is lost. ref is HEAD or a commit id.
func (m *Memory) Restore(ctx context.Context, author Author, agentID, ref string) (commit string, changed bool, err error) {
	if err := checkID(agentID); err != nil {
		return "", false, err
	}
	rev, err := checkRef("ref", ref)
	if err != nil {
		return "", false, err
	}
	if err := m.checkWritten(agentID, ref); err != nil {
		return "", false, err
	}
	full, err := m.git.run(ctx, gitCall{dir: m.Dir(agentID), args: []string{"rev-parse", "--verify", "--quiet", "--end-of-options", rev + "^{commit}"}})
	if err != nil {
		return "", false, noCommit(ref)
	}
	then, err := m.Snapshot(ctx, agentID, strings.TrimSpace(string(full)))
	if err != nil {
		return "", false, err
	}
	message := "Restore memory of " + then.Commit[:7]
	return m.Update(ctx, author, agentID, message, func(now *Snapshot) ([]FileChange, error) {
		var changes []FileChange
		for _, o := range diff(now, then) {
			changes = append(changes, FileChange{Path: o.path, Delete: o.file == nil, Force: true, keep: o.file})
		}
		return changes, nil
	})
}

// MediaType is what a memory file is served as.
func MediaType(p string) string {
	ext := strings.ToLower(filepath.Ext(p))
	if t := imageTypes[ext]; t != "" {
		return t
	}
	return "text/markdown"
}
