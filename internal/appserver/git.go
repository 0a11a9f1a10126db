package appserver

import (
	"bufio"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"mneme/protocol"
)

const (
	gitFresh    = 15 * time.Second // how old an answer may be
	gitBranches = 10               // branches shown
	gitScan     = 2000             // branches looked at
	gitEntries  = 1000             // directories remembered
)

// A gitCache knows the git state of working directories. It reads git's own
// files instead of running git: that takes some 50 microseconds.
type gitCache struct {
	work *sync.WaitGroup // refreshes that run

	mu   sync.Mutex // guards dirs; not held while files are read
	dirs map[string]*gitEntry
}

type gitEntry struct {
	context *protocol.GitContext // nil = not in a repository
	at      time.Time
	reading bool
}

func newGitCache(work *sync.WaitGroup) *gitCache {
	return &gitCache{work: work, dirs: map[string]*gitEntry{}}
}

// context returns what is known, without touching a disk. What is stale is read
// anew beside it, for the next one who asks.
func (g *gitCache) context(dir string) *protocol.GitContext {
	g.mu.Lock()
	defer g.mu.Unlock()
	e := g.dirs[dir]
	if e == nil {
		if len(g.dirs) >= gitEntries {
			clear(g.dirs)
		}
		e = &gitEntry{}
		g.dirs[dir] = e
	}
	if !e.reading && time.Since(e.at) > gitFresh {
		e.reading = true
		g.work.Go(func() { g.read(dir, e) })
	}
	return e.context
}

// refresh reads the state now if what is known is stale. It blocks for some
// file reads.
func (g *gitCache) refresh(dir string) {
	g.mu.Lock()
	e := g.dirs[dir]
	if e == nil {
		e = &gitEntry{}
		g.dirs[dir] = e
	}
	stale := time.Since(e.at) > gitFresh
	g.mu.Unlock()
	if stale {
		g.read(dir, e)
	}
}

func (g *gitCache) read(dir string, e *gitEntry) {
	context := readGit(dir)
	g.mu.Lock()
	defer g.mu.Unlock()
	e.context, e.at, e.reading = context, time.Now(), false
}

// readGit reads the branch and the branches used last of the repository around
// dir; nil if there is none.
func readGit(dir string) *protocol.GitContext {
	gitDir := findGit(dir)
	if gitDir == "" {
		return nil
	}
	head, err := readLine(filepath.Join(gitDir, "HEAD"))
	if err != nil {
		return nil
	}
	ctx := &protocol.GitContext{}
	if branch, ok := strings.CutPrefix(head, "ref: refs/heads/"); ok {
		ctx.Branch = &branch
	}
	common := gitDir
	if rel, err := readLine(filepath.Join(gitDir, "commondir")); err == nil { // a linked work tree
		common = rel
		if !filepath.IsAbs(rel) {
			common = filepath.Join(gitDir, rel)
		}
	}
	ctx.RecentBranches = recentBranches(common)
	return ctx
}

// findGit returns the git directory of the repository around dir.
func findGit(dir string) string {
	for dir = filepath.Clean(dir); filepath.IsAbs(dir); dir = filepath.Dir(dir) {
		path := filepath.Join(dir, ".git")
		if info, err := os.Stat(path); err == nil {
			if info.IsDir() {
				return path
			}
			line, err := readLine(path)
			target, ok := strings.CutPrefix(line, "gitdir: ")
			if err != nil || !ok {
				return ""
			}
			if !filepath.IsAbs(target) {
				target = filepath.Join(dir, target)
			}
			return target
		}
		if dir == filepath.Dir(dir) {
			break
		}
	}
	return ""
}

// recentBranches lists local branches: those written to last first, then packed
// ones.
func recentBranches(gitDir string) []string {
	type ref struct {
		name string
		at   time.Time
	}
	var refs []ref
	root := filepath.Join(gitDir, "refs", "heads")
	seen := 0
	// A directory that cannot be read has no branches to show.
	_ = filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if seen++; err != nil || seen > gitScan {
			return fs.SkipAll
		}
		info, err := e.Info()
		if e.IsDir() || err != nil || strings.HasSuffix(path, ".lock") {
			return nil
		}
		if name, err := filepath.Rel(root, path); err == nil {
			refs = append(refs, ref{filepath.ToSlash(name), info.ModTime()})
		}
		return nil
	})
	slices.SortStableFunc(refs, func(a, b ref) int { return b.at.Compare(a.at) })
	var names []string
	for _, r := range refs {
		names = append(names, r.name)
	}
	if len(names) < gitBranches {
		for _, name := range packedBranches(gitDir) {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names[:min(len(names), gitBranches)]
}

func packedBranches(gitDir string) (names []string) {
	f, err := os.Open(filepath.Join(gitDir, "packed-refs"))
	if err != nil {
		return nil
	}
	defer f.Close()
	lines := bufio.NewScanner(io.LimitReader(f, 1<<20))
	for lines.Scan() && len(names) < gitBranches {
		if _, name, ok := strings.Cut(lines.Text(), " refs/heads/"); ok {
			names = append(names, name)
		}
	}
	return names
}

// readLine reads the first line of a small file.
func readLine(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, 4096))
	line, _, _ := strings.Cut(string(b), "\n")
	return strings.TrimSpace(line), err
}
