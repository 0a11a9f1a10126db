// Package memory keeps the memory of agents: one git repository of Markdown
// files per agent, at <root>/<agent_id>/memory, made at the first write. Until
// then everything reads as empty.
//
// The branch main is the truth; the work tree is a copy for shells and file
// tools. A write never depends on it:
//
//	read the ref -> plan against that commit -> one `git fast-import`: objects
//	flushed, then the ref moved if it still is where it was -> flush the
//	directories -> check the touched paths out -> bring the index in line
//
// So after a write returns, its commit survives a power cut, and a process
// killed at any instant leaves the old commit or the new one. What a kill can
// leave behind is put right by the next write: a checkout that was not finished
// (the file .git/mneme/pending says since which commit), and lock files of dead
// processes. A path with uncommitted edits in the work tree is refused with
// CodeMemoryConflict; other dirty paths never matter.
//
// Writes to one repository are serialised by a lock that is held across the git
// work: it is an I/O lock by purpose, and waiting for it ends with the caller's
// context. Agents also commit with git from their shells; such a commit between
// our read and our move of the ref makes the write start over on the new commit,
// so no side's work is ever overwritten.
//
// Reads come from a Snapshot: all files of one commit, parsed, immutable, cached
// by commit, so that reading costs no process while the ref stands still. Search
// ranks the chunks of a snapshot by an Index: an inverted list of folded terms
// that is brought from one commit to the next by their difference and answers as
// one made afresh would. Snapshots, indexes and vectors are caches, bounded by
// bytes; all of them can be lost at any time. Reading and searching write nothing.
//
// Save, Get and DeleteItem are the memory as programs want it: items with ids
// below saved/. What they do is planned on a Snapshot (Item.Plan,
// Snapshot.PlanDelete), so that a client that only has the files can do the same.
package memory

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"sync"

	"mneme/internal/agent"
)

// Options are what a Memory may be told. The zero value works.
type Options struct {
	Logger *slog.Logger // nil = silent
	// AuthorName gives an agent's name for its commits; nil or "" = the id.
	AuthorName func(agentID string) string
	// OnCommit are called after each commit made here, before the write returns
	// and outside all locks; and for commits that others made, once we see them,
	// with "*" for the paths if they are not known. Commits of concurrent writers
	// may be told in either order: Head knows the newest.
	OnCommit []func(agentID, commit string, paths []string)
	// Git is the git program; "" = git from the PATH.
	Git string
}

// A Memory serves the repositories below one root. It is safe for concurrent
// use; only one process may write below a root at a time.
type Memory struct {
	root    string
	opts    Options
	log     *slog.Logger
	git     *git
	cache   *cache
	indexes *indexes
	vectors *vectors

	stop   context.Context // ends the background work
	cancel context.CancelFunc
	work   sync.WaitGroup
	gcSlot chan struct{} // one gc at a time

	mu         sync.Mutex // guards what follows
	repos      map[string]*repo
	embeddings map[string]*embedding // by agent and model: at work, or failed lately
	closed     bool
}

// A repo is what the process knows of one agent's repository.
type repo struct {
	write chan struct{} // held while writing, across git's work
	load  chan struct{} // held while a snapshot is read
	// Guarded by write:
	cleaned bool        // leftovers of an earlier process are gone
	commits int         // since the last gc; counted from the packs at first
	stuck   os.FileInfo // an index.lock of somebody else that we waited for in vain
	told    string      // the newest commit that OnCommit was told of, or that was there when we first looked
	// Guarded by Memory.mu:
	gcRunning bool
}

// New serves the repositories below root, which need not exist yet.
func New(root string, opts Options) *Memory {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.Git == "" {
		opts.Git = "git"
	}
	if abs, err := filepath.Abs(root); err == nil {
		root = abs
	}
	stop, cancel := context.WithCancel(context.Background())
	return &Memory{
		root: root, opts: opts, log: opts.Logger,
		git:        &git{program: opts.Git, root: root, slots: make(chan struct{}, max(4, 2*runtime.NumCPU()))},
		cache:      newCache(cacheBudget),
		indexes:    newIndexes(indexBudget),
		vectors:    newVectors(vectorBudget),
		embeddings: map[string]*embedding{},
		stop:       stop,
		cancel:     cancel,
		gcSlot:     make(chan struct{}, 1),
		repos:      map[string]*repo{},
	}
}

// Close stops the background work and waits for it. Writes that run finish;
// later ones are refused.
func (m *Memory) Close() error {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	m.cancel()
	m.work.Wait()
	return nil
}

// Dir is where the agent's files are, whether or not they exist yet. The id
// must be valid, see Head.
func (m *Memory) Dir(agentID string) string {
	return filepath.Join(m.root, agentID, "memory")
}

var agentIDs = regexp.MustCompile(`^[A-Za-z0-9_-]{1,200}$`)

// checkID refuses what must not become part of a path.
func checkID(agentID string) error {
	if !agentIDs.MatchString(agentID) {
		return agent.Invalid("agent_id", "agent id %q is not valid", agentID)
	}
	return nil
}

// repo finds or makes the process's view of a repository.
func (m *Memory) repo(agentID string) *repo {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.repos[agentID]
	if r == nil {
		r = &repo{write: make(chan struct{}, 1), load: make(chan struct{}, 1)}
		m.repos[agentID] = r
	}
	return r
}

// take takes a lock of a repo unless ctx ends first.
func take(ctx context.Context, lock chan struct{}) error {
	select {
	case lock <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// begin counts a writer in, so that Close waits for it.
func (m *Memory) begin() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return agent.Errorf(agent.CodeShutdown, "the server is stopping")
	}
	m.work.Add(1)
	return nil
}

// Delete removes the agent's repository and everything beside it. A repository
// that does not exist is no error.
func (m *Memory) Delete(ctx context.Context, agentID string) error {
	if err := checkID(agentID); err != nil {
		return err
	}
	if err := m.begin(); err != nil {
		return err
	}
	defer m.work.Done()
	r := m.repo(agentID)
	if err := take(ctx, r.write); err != nil {
		return err
	}
	defer func() { <-r.write }()
	r.cleaned, r.commits, r.told = false, 0, ""
	m.cache.drop(agentID)
	m.indexes.drop(agentID)
	// Out of sight first: what a crash leaves of it is in the bin.
	bin := filepath.Join(m.root, ".trash")
	if err := os.MkdirAll(bin, 0o700); err != nil {
		return fmt.Errorf("delete memory: %w", err)
	}
	defer os.RemoveAll(bin)
	err := os.Rename(filepath.Join(m.root, agentID), filepath.Join(bin, agent.NewID(agentID)))
	if err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("delete memory: %w", err)
	}
	return nil
}
