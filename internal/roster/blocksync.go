package roster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"mneme/internal/agent"
	"mneme/internal/memory"
	"mneme/internal/store"
)

// Rows become files here. A link whose version is behind its block's, or that is
// leaving, is the job: it is a row, so it outlives the process. Whoever changed a
// block does the first of them himself; the rest, and what failed, is done by Serve.
// Before a file is written its digest is stored, so that after a crash it is not
// taken for somebody's change.

const (
	// inlineSyncs bounds the files that a change waits for.
	inlineSyncs = 16
	// syncRetry is when Serve tries again what failed.
	syncRetry = 30 * time.Second
	// syncTries is how often a file that changes meanwhile is written anew.
	syncTries = 3
)

// spread writes a block to the files that are behind, as far as a caller waits.
func (r *Roster) spread(ctx context.Context, blockID string) {
	links, err := r.store.BlockLinks(ctx, blockID)
	if err != nil {
		r.nudge() // Serve meets the same trouble, or none
		return
	}
	var behind []*store.BlockLink
	for _, l := range links {
		if l.Leaving || l.Version < l.Block.Version {
			behind = append(behind, l)
		}
	}
	r.syncAll(ctx, behind)
}

// syncAll brings links in line; what takes too long or fails is left to Serve.
func (r *Roster) syncAll(ctx context.Context, links []*store.BlockLink) {
	for i, l := range links {
		if i == inlineSyncs {
			r.nudge()
			return
		}
		if err := r.sync(ctx, l.AgentID, l.Block.ID); err != nil {
			r.log.Warn("a memory block is not written to an agent's memory yet", "agent", l.AgentID, "block", l.Block.ID, "err", err)
			r.nudge()
		}
	}
}

// sync brings the file of one link in line with its block.
func (r *Roster) sync(ctx context.Context, agentID, blockID string) error {
	unlock, err := r.cores.lock(ctx, agentID)
	if err != nil {
		return err
	}
	defer unlock()
	return r.syncLocked(ctx, agentID, blockID)
}

func (r *Roster) syncLocked(ctx context.Context, agentID, blockID string) error {
	for range syncTries {
		core, err := r.indexLocked(ctx, agentID)
		if err != nil {
			return err
		}
		l := findLink(core, blockID)
		switch {
		case l == nil:
			return nil
		case l.Leaving:
			err = r.removeFile(ctx, agentID, l)
		case l.Version < l.Block.Version:
			err = r.writeFile(ctx, agentID, l)
		default:
			return nil
		}
		if !errors.Is(err, errFileMoved) {
			return err
		}
	}
	return changesTooOften(agentID)
}

func changesTooOften(agentID string) error {
	return &agent.Error{Code: agent.CodeMemoryConflict, Retryable: true,
		Message: "The memory of agent " + agentID + " changes too often to be written"}
}

// errFileMoved says that a file is not what the rows say any more.
var errFileMoved = errors.New("the file changed meanwhile")

// removeFile removes the file of a link that is leaving, and the link.
func (r *Roster) removeFile(ctx context.Context, agentID string, l *store.BlockLink) error {
	if l.Digest != "" || l.NextDigest != "" {
		path, err := memory.LabelPath(l.Label)
		if err != nil {
			return err
		}
		_, _, err = r.memory.Write(ctx, memory.Author{}, agentID, []memory.FileChange{{Path: path, Delete: true, Force: true}},
			"Detach memory block "+l.Label)
		if err != nil {
			return err
		}
	}
	return r.dropLink(ctx, agentID, l.Block.ID)
}

// dropLink forgets a link and takes over what else is new.
func (r *Roster) dropLink(ctx context.Context, agentID, blockID string) error {
	_, err := r.reindex(ctx, agentID, func(c *store.CoreMemory) {
		if l := findLink(c, blockID); l != nil {
			c.Links = without(c.Links, l)
		}
	})
	return err
}

// writeFile writes a block to its file.
func (r *Roster) writeFile(ctx context.Context, agentID string, l *store.BlockLink) error {
	if _, err := r.commitBlock(ctx, agentID, l, l.Block, false); err != nil {
		return err
	}
	_, err := r.reindex(ctx, agentID, func(c *store.CoreMemory) {
		// A file that had this text before: nothing was committed.
		if now := findLink(c, l.Block.ID); now != nil && now.Digest == now.NextDigest {
			written(now)
		}
	})
	return err
}

// commitBlock commits a block as the file of a link, which has the text that the
// link knows, or fails with errFileMoved. ahead says that the block is more than
// the row is yet, so that the row will follow the file; else the file follows it,
// below its old label where the new one is taken.
func (r *Roster) commitBlock(ctx context.Context, agentID string, l *store.BlockLink, b *agent.Block, ahead bool) (changed bool, err error) {
	from, err := memory.LabelPath(l.Label)
	if err != nil {
		return false, err
	}
	to, err := memory.LabelPath(b.Label)
	if err != nil {
		return false, err
	}
	if b.Label == l.Block.Label && ahead {
		to = from
	}
	snap, err := r.memory.Snapshot(ctx, agentID, "")
	if err != nil {
		return false, err
	}
	if to != from && snap.File(to) != nil {
		if ahead {
			return false, labelTaken(agentID, b.Label)
		}
		to = from
	}
	text, err := fileText(snap.File(from), b)
	if err != nil {
		return false, err
	}
	if !ahead || to != from {
		_, err := r.store.ChangeCoreMemory(ctx, agentID, func(c *store.CoreMemory) error {
			if l := findLink(c, b.ID); l != nil {
				l.NextDigest, l.NextVersion = digestOf(text), b.Version
				if ahead {
					l.NextVersion = 0 // there is none yet
				}
			}
			return nil
		})
		if err != nil {
			return false, err
		}
	}
	_, changed, err = r.memory.Update(ctx, memory.Author{}, agentID, "Update memory block "+b.Label, func(s *memory.Snapshot) ([]memory.FileChange, error) {
		if f := s.File(from); f == nil && l.Digest != "" || f != nil && digest(f) != l.Digest || to != from && s.File(to) != nil {
			return nil, errFileMoved
		}
		changes := []memory.FileChange{{Path: to, Content: []byte(text), Force: true}}
		if to != from {
			changes = append(changes, memory.FileChange{Path: from, Delete: true, Force: true})
		}
		return changes, nil
	})
	return changed, err
}

// fileText is a block as a file. What else the front matter of its file says stays.
func fileText(f *memory.File, b *agent.Block) (string, error) {
	var doc memory.Doc
	if f != nil {
		doc = f.Doc()
	}
	doc.Body = b.Value
	description := defaultDescription(b.Label)
	if b.Description != nil && strings.TrimSpace(*b.Description) != "" {
		description = *b.Description
	}
	front := map[string]any{"description": description, "read_only": nil, "limit": nil}
	if b.ReadOnly {
		front["read_only"] = true
	}
	if b.Limit != memory.DefaultLimit {
		front["limit"] = b.Limit
	}
	for _, key := range []string{"description", "read_only", "limit"} {
		if err := doc.Set(key, front[key]); err != nil {
			return "", err
		}
	}
	return doc.String(), nil
}

// MemoryChanged says that an agent's memory may have a new commit. It returns at
// once: Serve looks after it.
func (r *Roster) MemoryChanged(agentID string) {
	r.seenMu.Lock()
	r.dirty[agentID] = true
	r.seenMu.Unlock()
	r.nudge()
}

// MemoryAt says at which commit an agent's memory is, as MemoryChanged if that is
// new. It is cheap enough to be called before each step.
func (r *Roster) MemoryAt(agentID, commit string) {
	r.seenMu.Lock()
	known := r.seen[agentID]
	r.seenMu.Unlock()
	if commit != known {
		r.MemoryChanged(agentID)
	}
}

// see notes the commit that the rows of an agent are in line with; "" forgets it.
func (r *Roster) see(agentID, commit string) {
	r.seenMu.Lock()
	defer r.seenMu.Unlock()
	if commit == "" {
		delete(r.seen, agentID)
	} else {
		r.seen[agentID] = commit
	}
}

// nudge wakes Serve.
func (r *Roster) nudge() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Serve keeps blocks and files in line until ctx ends: at first those that a crash
// or a shell left apart, then whatever MemoryChanged tells of and changes of blocks
// leave behind. It is to be run once.
func (r *Roster) Serve(ctx context.Context) {
	if err := r.indexAll(ctx); err != nil && ctx.Err() == nil {
		r.log.Error("memory blocks are not compared with the files", "err", err)
	}
	retry := time.NewTimer(0)
	defer retry.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.wake:
		case <-retry.C:
		}
		if !r.settle(ctx) {
			retry.Reset(syncRetry)
		}
	}
}

// indexAll indexes the agents whose memory has moved.
func (r *Roster) indexAll(ctx context.Context) error {
	heads, err := r.store.MemoryHeads(ctx)
	if err != nil {
		return err
	}
	for id, indexed := range heads {
		if err := ctx.Err(); err != nil {
			return err
		}
		head, err := r.memory.Head(id)
		if err == nil && head != "" && head != indexed {
			_, err = r.index(ctx, id)
		}
		if err != nil && agent.CodeOf(err) != agent.CodeNotFound {
			r.log.Warn("memory is not indexed", "agent", id, "err", err)
		}
	}
	return nil
}

// settle does what waits; false if something failed and is to be tried again.
func (r *Roster) settle(ctx context.Context) bool {
	r.seenMu.Lock()
	dirty := r.dirty
	r.dirty = map[string]bool{}
	r.seenMu.Unlock()
	ok := true
	note := func(what string, err error) {
		// An agent may be deleted, or not be made yet.
		if err != nil && ctx.Err() == nil && agent.CodeOf(err) != agent.CodeNotFound {
			r.log.Warn(what, "err", err)
			ok = false
		}
	}
	for id := range dirty {
		_, err := r.index(ctx, id)
		note(fmt.Sprintf("memory of agent %s is not indexed", id), err)
	}
	pending, err := r.store.PendingLinks(ctx)
	note("pending memory blocks are not read", err)
	for _, p := range pending {
		if ctx.Err() != nil {
			return true
		}
		note(fmt.Sprintf("memory block %s is not written to the memory of agent %s", p[1], p[0]), r.sync(ctx, p[0], p[1]))
	}
	return ok
}
