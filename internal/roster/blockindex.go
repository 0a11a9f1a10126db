package roster

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"sync"
	"time"

	"mneme/internal/agent"
	"mneme/internal/memory"
	"mneme/internal/store"
)

// Files become rows here. The rows remember which commit they are in line with and
// which digest each file had, so that a file that changed can be told from one that
// is only behind its row. What changed:
//
//	the file changed            the row takes it over, version + 1
//	the file was renamed        so is the block, and keeps its id
//	the file is gone            the block is detached; it goes too if a file is
//	                            all it ever was
//	a file without a row        gets one
//	a file as we wrote it       is in line with the version that was written
//
// Indexing an agent's memory is serialised by a lock per agent, which is held across
// the work on git: an I/O lock by purpose.

// A keyLock is a lock per key.
type keyLock struct {
	mu   sync.Mutex // guards held
	held map[string]*keyHolder
}

type keyHolder struct {
	token chan struct{}
	users int // that hold or want it
}

// lock takes the lock of a key unless ctx ends first.
func (k *keyLock) lock(ctx context.Context, key string) (unlock func(), err error) {
	k.mu.Lock()
	h := k.held[key]
	if h == nil {
		h = &keyHolder{token: make(chan struct{}, 1)}
		if k.held == nil {
			k.held = map[string]*keyHolder{}
		}
		k.held[key] = h
	}
	h.users++
	k.mu.Unlock()
	leave := func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		if h.users--; h.users == 0 {
			delete(k.held, key)
		}
	}
	select {
	case h.token <- struct{}{}:
		return func() { <-h.token; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
}

// index brings the rows of an agent in line with its memory and returns them.
func (r *Roster) index(ctx context.Context, agentID string) (*store.CoreMemory, error) {
	unlock, err := r.cores.lock(ctx, agentID)
	if err != nil {
		return nil, err
	}
	defer unlock()
	return r.indexLocked(ctx, agentID)
}

// indexLocked is index for those who hold the agent's lock.
func (r *Roster) indexLocked(ctx context.Context, agentID string) (*store.CoreMemory, error) {
	core, err := r.store.CoreMemory(ctx, agentID)
	if err != nil {
		return nil, err
	}
	head, err := r.memory.Head(agentID)
	if err != nil {
		return nil, err
	}
	if head == core.Commit || head == "" {
		r.see(agentID, head)
		return core, nil // a memory that is missing says nothing about blocks
	}
	return r.reindex(ctx, agentID, func(*store.CoreMemory) {})
}

// reindex takes over the newest commit, whatever was indexed before. more changes
// what comes of it, in the same transaction. Blocks that others have too are
// written to their files by the job.
func (r *Roster) reindex(ctx context.Context, agentID string, more func(*store.CoreMemory)) (*store.CoreMemory, error) {
	snap, err := r.memory.Snapshot(ctx, agentID, "")
	if err != nil {
		return nil, err
	}
	now := time.Now().UTC()
	core, err := r.store.ChangeCoreMemory(ctx, agentID, func(c *store.CoreMemory) error {
		reconcile(c, snap, now)
		more(c)
		return nil
	})
	if err != nil {
		return nil, err
	}
	r.see(agentID, core.Commit)
	r.nudge() // other agents may have the blocks too
	return core, nil
}

// reconcile brings what the rows know in line with a commit.
func reconcile(c *store.CoreMemory, snap *memory.Snapshot, now time.Time) {
	files := map[string]*memory.File{}
	var order []string
	for _, f := range snap.Under("system") {
		if label := f.Label(); label != "" {
			files[label] = f
			order = append(order, label)
		}
	}
	used := map[string]bool{}
	var lost []*store.BlockLink
	for _, l := range c.Links {
		if f := files[l.Label]; f != nil {
			used[l.Label] = true
			follow(l, f, now)
		} else if l.Digest != "" {
			lost = append(lost, l)
		}
	}
	for _, l := range lost {
		if label := renamedTo(l, files, order, used); label != "" {
			used[label] = true
			l.Label = label
			if digest(files[label]) == l.NextDigest && l.NextVersion > 0 {
				written(l)
				continue
			}
			l.Block.Label = label
			takeOver(l.Block, files[label])
			newVersion(l, digest(files[label]), now)
			continue
		}
		c.Links = without(c.Links, l)
	}
	for _, label := range order {
		if !used[label] && !files[label].Oversized {
			c.Links = append(c.Links, fromFile(label, files[label], now))
		}
	}
	c.Commit = snap.Commit
}

// follow brings a link in line with its file.
func follow(l *store.BlockLink, f *memory.File, now time.Time) {
	d := digest(f)
	switch {
	case d == l.Digest || l.Leaving || f.Oversized: // the latter has no text that we know
	case d == l.NextDigest && l.NextVersion > 0:
		written(l)
	case inLine(l.Block, f):
		l.Digest, l.Version = d, l.Block.Version
	default:
		takeOver(l.Block, f)
		newVersion(l, d, now)
	}
}

// written notes that a file is as it was to be written.
func written(l *store.BlockLink) {
	l.Digest, l.Version = l.NextDigest, l.NextVersion
	l.NextDigest, l.NextVersion = "", 0
}

// newVersion notes that a block follows its file.
func newVersion(l *store.BlockLink, digest string, now time.Time) {
	l.Block.Version++
	l.Block.UpdatedAt = now
	l.Digest, l.Version = digest, l.Block.Version
	l.NextDigest, l.NextVersion = "", 0
}

// renamedTo finds the file that a lost one has become: the same text below another
// label.
func renamedTo(l *store.BlockLink, files map[string]*memory.File, order []string, used map[string]bool) string {
	if l.Leaving {
		return ""
	}
	for _, label := range order {
		if d := digest(files[label]); !used[label] && (d == l.Digest || d == l.NextDigest) {
			return label
		}
	}
	return ""
}

func without(links []*store.BlockLink, l *store.BlockLink) []*store.BlockLink {
	kept := make([]*store.BlockLink, 0, len(links))
	for _, other := range links {
		if other != l {
			kept = append(kept, other)
		}
	}
	return kept
}

// fromFile makes the block of a file.
func fromFile(label string, f *memory.File, now time.Time) *store.BlockLink {
	b := &agent.Block{ID: agent.NewID("block"), Label: label, Version: 1, CreatedAt: now, UpdatedAt: now}
	takeOver(b, f)
	if f.Description == "" {
		b.Description = nil
	}
	return &store.BlockLink{Block: b, Label: label, AttachedAt: now, Digest: digest(f), Version: 1, Filed: true}
}

// digest tells texts of files apart.
func digest(f *memory.File) string { return digestOf(f.Text) }

func digestOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:16])
}

// takeOver makes a block what its file says.
func takeOver(b *agent.Block, f *memory.File) {
	b.Value, b.Limit, b.ReadOnly = cleanValue(f.Body), f.Limit, f.ReadOnly
	if !sameDescription(b, f) {
		b.Description = &f.Description
	}
}

// inLine says whether a block is what its file says.
func inLine(b *agent.Block, f *memory.File) bool {
	return b.Value == cleanValue(f.Body) && b.Limit == f.Limit && b.ReadOnly == f.ReadOnly && sameDescription(b, f)
}

// sameDescription: a block without a description has a file with one that says
// nothing.
func sameDescription(b *agent.Block, f *memory.File) bool {
	if b.Description == nil || *b.Description == "" {
		return f.Description == "" || f.Description == defaultDescription(f.Label())
	}
	return *b.Description == f.Description
}

func defaultDescription(label string) string { return "Memory block " + label }

// cleanValue is a value as rows and files hold it.
func cleanValue(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "")
}
