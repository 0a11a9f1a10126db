package memory

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"mneme/internal/agent"
)

// The times around git's lock files.
const (
	// staleLock is the age at which a ref's lock file belongs to a dead process:
	// git holds it for one small write and flush.
	staleLock = 3 * time.Second
	lockPoll  = 10 * time.Millisecond
	lockWait  = 15 * time.Second // before a write gives up
)

// errMoved says that the branch moved while we made a commit.
var errMoved = errors.New("the memory branch moved")

// A commitInput is one commit to make.
type commitInput struct {
	agentID string
	parent  string // "" = the first commit
	author  Author
	message string
	when    time.Time
	ops     []op
}

// commit makes the commit and moves the branch from parent to it; errMoved if
// the branch is elsewhere by now. When it returns everything is flushed.
func (m *Memory) commit(ctx context.Context, dir string, in commitInput) (string, error) {
	if in.parent != "" {
		return m.importInto(ctx, dir, in)
	}
	_, err := os.Lstat(filepath.Join(dir, ".git"))
	if err == nil {
		if err := checkUnborn(filepath.Join(dir, ".git")); err != nil {
			return "", err
		}
		return m.importInto(ctx, dir, in)
	}
	if !isAbsent(err) {
		return "", fmt.Errorf("memory repository: %w", err)
	}
	return m.create(ctx, dir, in)
}

// checkUnborn refuses to start a second history beside one that is there under
// another name.
func checkUnborn(gitDir string) error {
	var found string
	filepath.WalkDir(filepath.Join(gitDir, "refs", "heads"), func(p string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && !strings.HasSuffix(p, ".lock") {
			found = filepath.Base(p)
		}
		return nil
	})
	if packed, err := os.ReadFile(filepath.Join(gitDir, "packed-refs")); err == nil && bytes.Contains(packed, []byte(" refs/heads/")) {
		found = "packed"
	}
	if found != "" {
		return agent.Errorf(agent.CodeMemoryConflict, "the memory repository has no branch main, but others; bring it back with git branch main <commit>")
	}
	return nil
}

// create makes a repository with its first commit out of sight and moves it to
// its place as one whole.
func (m *Memory) create(ctx context.Context, dir string, in commitInput) (string, error) {
	staging := filepath.Join(filepath.Dir(dir), ".new")
	if err := os.RemoveAll(staging); err != nil {
		return "", fmt.Errorf("make memory repository: %w", err)
	}
	defer os.RemoveAll(staging)
	if err := os.MkdirAll(staging, 0o700); err != nil {
		return "", fmt.Errorf("make memory repository: %w", err)
	}
	if _, err := m.git.run(ctx, gitCall{dir: staging, args: []string{"init", "--quiet", "--template=", "--initial-branch=main", "--object-format=sha1"}}); err != nil {
		return "", fmt.Errorf("make memory repository: %w", err)
	}
	gitDir := filepath.Join(staging, ".git")
	if err := m.writeConfig(gitDir, in.agentID); err != nil {
		return "", fmt.Errorf("make memory repository: %w", err)
	}
	commit, err := m.importInto(ctx, staging, in)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("make memory repository: %w", err)
	}
	for _, name := range []string{"HEAD", "config", "objects", "refs", "."} {
		if err := syncPath(filepath.Join(gitDir, name)); err != nil {
			return "", err
		}
	}
	if err := os.Rename(gitDir, filepath.Join(dir, ".git")); err != nil {
		return "", fmt.Errorf("make memory repository: %w", err)
	}
	for _, d := range []string{dir, filepath.Dir(dir), m.root, filepath.Dir(m.root)} {
		if err := syncPath(d); err != nil {
			return "", err
		}
	}
	return commit, nil
}

// writeConfig adds what the agent's own git needs to know (spec/harness.md
// section 4.1).
func (m *Memory) writeConfig(gitDir, agentID string) error {
	f, err := os.OpenFile(filepath.Join(gitDir, "config"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	quote := strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace
	self := m.authorOf(Author{}, agentID)
	_, err = fmt.Fprintf(f, `[core]
	fsync = all
	hooksPath = /dev/null
[commit]
	gpgsign = false
[gc]
	auto = 0
[user]
	name = "%s"
	email = "%s"
[letta]
	agentId = %s
`, quote(self.Name), quote(self.Email), agentID)
	return err
}

// importInto makes the commit in a repository that exists.
func (m *Memory) importInto(ctx context.Context, dir string, in commitInput) (string, error) {
	gitDir := filepath.Join(dir, ".git")
	noted, err := notePending(gitDir, in.parent)
	if err != nil {
		return "", err
	}
	commit, err := m.fastImport(ctx, dir, in)
	if err != nil && noted {
		clearPending(gitDir) // nothing was committed
	}
	if err != nil {
		return "", err
	}
	return commit, syncCommit(gitDir)
}

// fastImport hands the commit to git, again while others hold the branch.
func (m *Memory) fastImport(ctx context.Context, dir string, in commitInput) (string, error) {
	gitDir := filepath.Join(dir, ".git")
	stream := in.stream()
	deadline := time.Now().Add(lockWait)
	for {
		out, err := m.git.run(ctx, gitCall{
			dir:   dir,
			args:  []string{"fast-import", "--quiet", "--done", "--date-format=raw"},
			stdin: bytes.NewReader(stream),
		})
		made := strings.TrimSpace(string(out))
		if err == nil && isSHA(made) {
			return made, nil
		}
		if err == nil {
			err = fmt.Errorf("git fast-import named no commit")
		}
		removeCrashReports(gitDir)
		now, refErr := readRef(gitDir)
		if refErr != nil {
			return "", refErr
		}
		switch now {
		case in.parent:
		case made:
			return made, nil // it came to its end, but not in time
		default:
			return "", errMoved
		}
		if time.Now().After(deadline) || !m.awaitLocks(gitDir) {
			return "", fmt.Errorf("commit memory: %w", err)
		}
	}
}

// stream is the commit in the language of git fast-import.
func (in commitInput) stream() []byte {
	var b bytes.Buffer
	who := fmt.Sprintf("%s <%s> %d +0000", in.author.Name, in.author.Email, in.when.Unix())
	message := strings.TrimSpace(strings.ReplaceAll(strings.ToValidUTF8(in.message, "\uFFFD"), "\x00", ""))
	if message == "" {
		message = "Update memory"
	}
	fmt.Fprintf(&b, "commit %s\nmark :1\nauthor %s\ncommitter %s\ndata %d\n%s\n\n", branch, who, who, len(message)+1, message)
	if in.parent != "" {
		fmt.Fprintf(&b, "from %s\n", in.parent)
	}
	quote := func(p string) string { return `"` + strings.ReplaceAll(p, `"`, `\"`) + `"` }
	for _, o := range in.ops {
		if o.file == nil {
			fmt.Fprintf(&b, "D %s\n", quote(o.path))
		}
	}
	for _, o := range in.ops {
		switch {
		case o.file == nil:
		case o.data == nil:
			fmt.Fprintf(&b, "M %s %s %s\n", o.file.Mode, o.file.Blob, quote(o.path))
		default:
			fmt.Fprintf(&b, "M %s inline %s\ndata %d\n", o.file.Mode, quote(o.path), len(o.data))
			b.Write(o.data)
			b.WriteByte('\n')
		}
	}
	b.WriteString("get-mark :1\ndone\n")
	return b.Bytes()
}

// syncCommit makes the names durable: git flushes files, not the directories
// that name them. Objects first, so that no ref can outlive its objects.
func syncCommit(gitDir string) error {
	for _, d := range []string{"objects/pack", "refs/heads"} {
		if err := syncPath(filepath.Join(gitDir, d)); err != nil {
			return err
		}
	}
	return nil
}

// syncPath flushes a file or directory.
func syncPath(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("flush memory: %w", err)
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("flush memory: %w", err)
	}
	return nil
}

// awaitLocks waits until nobody holds the branch, and removes the lock files of
// dead processes. It says whether a lock was in the way.
func (m *Memory) awaitLocks(gitDir string) (seen bool) {
	for _, name := range []string{"HEAD.lock", branch + ".lock"} {
		file := filepath.Join(gitDir, name)
		first, err := os.Lstat(file)
		if err != nil {
			continue
		}
		seen = true
		since := time.Now()
		for {
			info, err := os.Lstat(file)
			if err != nil || !os.SameFile(info, first) || !info.ModTime().Equal(first.ModTime()) {
				break
			}
			if time.Since(since) > staleLock || time.Since(info.ModTime()) > staleLock {
				m.log.Warn("remove the lock file of a dead git process", "file", name, "age", time.Since(info.ModTime()))
				os.Remove(file)
				break
			}
			time.Sleep(lockPoll)
		}
	}
	return seen
}

// removeCrashReports drops what fast-import writes when it fails.
func removeCrashReports(gitDir string) {
	reports, _ := filepath.Glob(filepath.Join(gitDir, "fast_import_crash_*"))
	for _, r := range reports {
		os.Remove(r)
	}
}
