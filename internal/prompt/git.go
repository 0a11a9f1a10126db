package prompt

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// A GitInfo is what a reminder says of a git work tree.
type GitInfo struct {
	Branch  string // "" = detached
	User    string // name <email>
	Commits string // one line each
	Status  string // short form, "" = clean
}

// The bounds of looking at a work tree.
const (
	gitTimeout   = time.Second
	gitFreshness = 15 * time.Second
	gitCacheSize = 64
	maxStatus    = 30 // lines
)

// A Git looks at work trees for reminders. Outside of one it starts no process;
// inside, what it saw holds for a quarter of a minute. It is safe for concurrent
// use.
type Git struct {
	mu   sync.Mutex
	seen map[string]seenTree
}

type seenTree struct {
	at   time.Time
	info *GitInfo
}

// NewGit makes a Git.
func NewGit() *Git { return &Git{seen: map[string]seenTree{}} }

// Look is what git says of the work tree around dir, nil outside of one. What
// takes too long is left out.
func (g *Git) Look(ctx context.Context, dir string) *GitInfo {
	if !inWorkTree(dir) {
		return nil
	}
	g.mu.Lock()
	s, ok := g.seen[dir]
	g.mu.Unlock()
	if ok && time.Since(s.at) < gitFreshness {
		return s.info
	}
	info := look(ctx, dir)
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.seen) >= gitCacheSize {
		clear(g.seen)
	}
	g.seen[dir] = seenTree{at: time.Now(), info: info}
	return info
}

// inWorkTree walks up to a .git, as git does.
func inWorkTree(dir string) bool {
	if !filepath.IsAbs(dir) {
		return false
	}
	for {
		if _, err := os.Lstat(filepath.Join(dir, ".git")); err == nil {
			return true
		}
		up := filepath.Dir(dir)
		if up == dir {
			return false
		}
		dir = up
	}
}

// look asks git three questions at once. Nobody else's locks are taken and no
// program of the repository's configuration is run.
func look(ctx context.Context, dir string) *GitInfo {
	ctx, cancel := context.WithTimeout(ctx, gitTimeout)
	defer cancel()
	var status, log, user string
	var wg sync.WaitGroup
	ask := func(into *string, args ...string) {
		wg.Go(func() {
			cmd := exec.CommandContext(ctx, "git", append([]string{"-c", "core.fsmonitor=false", "-c", "core.quotePath=false", "-c", "log.showSignature=false"}, args...)...)
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "GIT_OPTIONAL_LOCKS=0", "GIT_TERMINAL_PROMPT=0", "LC_ALL=C")
			cmd.WaitDelay = gitTimeout
			if out, err := cmd.Output(); err == nil {
				*into = strings.TrimRight(string(out), "\n")
			}
		})
	}
	ask(&status, "status", "--short", "--branch")
	ask(&log, "log", "-n", "5", "--no-color", "--format=%h %s")
	ask(&user, "config", "--get-regexp", `^user\.(name|email)$`)
	wg.Wait()
	info := &GitInfo{Commits: log, User: userOf(user)}
	head, rest, _ := strings.Cut(status, "\n")
	info.Branch = branchOf(head)
	info.Status = clipLines(rest, maxStatus)
	return info
}

// branchOf reads the first line of git status --branch.
func branchOf(line string) string {
	name := strings.TrimPrefix(line, "## ")
	name = strings.TrimPrefix(name, "No commits yet on ")
	name, _, _ = strings.Cut(name, "...")
	if strings.HasPrefix(name, "HEAD (") {
		return ""
	}
	return name
}

// userOf reads the two lines of git config; the last of a kind holds.
func userOf(config string) string {
	var name, email string
	for line := range strings.Lines(config) {
		line = strings.TrimRight(line, "\n")
		if v, ok := strings.CutPrefix(line, "user.name "); ok {
			name = v
		}
		if v, ok := strings.CutPrefix(line, "user.email "); ok {
			email = "<" + v + ">"
		}
	}
	return strings.TrimSpace(name + " " + email)
}

// clipLines keeps the first n lines and says how many there were.
func clipLines(s string, n int) string {
	lines := strings.Split(s, "\n")
	if len(lines) <= n {
		return s
	}
	return strings.Join(append(lines[:n:n], "…"), "\n")
}
