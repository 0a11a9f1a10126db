package roster

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"
	"unicode/utf8"

	"mneme/internal/agent"
	"mneme/internal/memory"
	"mneme/internal/store"
)

// A block is a row; attached to an agent it is also the file system/<label>.md of
// that agent's memory (spec/harness.md section 4.1). How the two are kept in line
// is in blockindex.go and blocksync.go.

// A BlockPatch changes a block. A nil field is left as it is; for a field with two
// stars, a pointer to nil clears it.
type BlockPatch struct {
	Label       *string
	Value       *string
	Description **string
	Limit       *int
	ReadOnly    *bool
	Hidden      **bool
	Tags        *[]string        // the whole list
	Metadata    *json.RawMessage // the whole object; null clears
	Extra       *json.RawMessage // likewise
}

// Label is the form in which a block's label is stored: without a leading "system/"
// and a trailing ".md". One that breaks the rules is CodeInvalid with Field "label".
func Label(label string) (string, error) {
	path, err := memory.LabelPath(label)
	if err != nil {
		return "", err
	}
	label, _ = memory.PathLabel(path)
	return label, nil
}

// apply changes a block as a door asks for.
func (p *BlockPatch) apply(b *agent.Block) (err error) {
	if p.Label != nil {
		if b.Label, err = Label(*p.Label); err != nil {
			return err
		}
	}
	set(&b.Description, p.Description)
	set(&b.Limit, p.Limit)
	set(&b.ReadOnly, p.ReadOnly)
	set(&b.Hidden, p.Hidden)
	if p.Value != nil {
		b.Value = cleanValue(*p.Value)
	}
	if p.Tags != nil {
		b.Tags = cleanTags(*p.Tags)
	}
	if p.Metadata != nil {
		b.Metadata = orNone(*p.Metadata)
	}
	if p.Extra != nil {
		b.Extra = orNone(*p.Extra)
	}
	return checkBlock(b)
}

// checkBlock holds a block to its limit. The limit is Field "limit" or "value".
func checkBlock(b *agent.Block) error {
	if b.Limit < 1 {
		return agent.Invalid("limit", "memory block %q: the limit must be positive", b.Label)
	}
	if n := utf8.RuneCountInString(b.Value); n > b.Limit {
		return agent.Invalid("value", "memory block %q has %d characters, more than its limit of %d", b.Label, n, b.Limit)
	}
	return nil
}

// newBlock makes the row of a spec.
func newBlock(s BlockSpec) (*agent.Block, error) {
	now := time.Now().UTC()
	b := &agent.Block{ID: agent.NewID("block"), Limit: agent.DefaultBlockLimit, Version: 1, CreatedAt: now, UpdatedAt: now, Hidden: s.Hidden}
	p := BlockPatch{Label: &s.Label, Value: &s.Value, Description: &s.Description, Limit: s.Limit, ReadOnly: &s.ReadOnly,
		Tags: &s.Tags, Metadata: &s.Metadata, Extra: &s.Extra}
	return b, p.apply(b)
}

// CreateBlock makes a block that is attached to nobody.
func (r *Roster) CreateBlock(ctx context.Context, spec BlockSpec) (*agent.Block, error) {
	b, err := newBlock(spec)
	if err != nil {
		return nil, err
	}
	return b, r.store.CreateBlock(ctx, b)
}

// Block returns one block, in line with the files that it is.
func (r *Roster) Block(ctx context.Context, id string) (*agent.Block, error) {
	links, err := r.store.BlockLinks(ctx, id)
	if err != nil {
		return nil, err
	}
	for _, l := range links[:min(len(links), inlineSyncs)] {
		if _, err := r.index(ctx, l.AgentID); err != nil {
			return nil, err
		}
	}
	return r.store.Block(ctx, id)
}

// Blocks lists blocks. Those of one agent are in line with its files; of others a
// commit that a shell made a moment ago may be missing.
func (r *Roster) Blocks(ctx context.Context, f store.BlockFilter) ([]*agent.Block, error) {
	if f.AgentID != "" {
		if _, err := r.index(ctx, f.AgentID); err != nil {
			return nil, err
		}
	}
	return r.store.Blocks(ctx, f)
}

// AgentBlocks lists the blocks of an agent in the order in which they were attached.
func (r *Roster) AgentBlocks(ctx context.Context, agentID string) ([]*agent.Block, error) {
	core, err := r.index(ctx, agentID)
	if err != nil {
		return nil, err
	}
	var blocks []*agent.Block
	for _, l := range core.Links {
		if !l.Leaving {
			blocks = append(blocks, l.Block)
		}
	}
	return blocks, nil
}

// AgentBlock returns the block of an agent with the label.
func (r *Roster) AgentBlock(ctx context.Context, agentID, label string) (*agent.Block, error) {
	want, err := Label(label)
	if err != nil {
		return nil, blockNotFound(label)
	}
	blocks, err := r.AgentBlocks(ctx, agentID)
	if err != nil {
		return nil, err
	}
	for _, b := range blocks {
		if b.Label == want {
			return b, nil
		}
	}
	return nil, blockNotFound(label)
}

func blockNotFound(label string) error {
	return &agent.Error{Code: agent.CodeNotFound, Message: "Block " + label + " not found", Ref: label}
}

// UpdateAgentBlock is UpdateBlock of an agent's block with the label.
func (r *Roster) UpdateAgentBlock(ctx context.Context, agentID, label string, p BlockPatch) (*agent.Block, error) {
	b, err := r.AgentBlock(ctx, agentID, label)
	if err != nil {
		return nil, err
	}
	return r.updateThrough(ctx, agentID, b.ID, p)
}

// UpdateBlock changes a block and its files. Errors: CodeInvalid with Field
// "label", "limit" or "value"; CodeConflict for a label that one of its agents has
// already; CodeMemoryConflict for a file with uncommitted edits.
func (r *Roster) UpdateBlock(ctx context.Context, id string, p BlockPatch) (*agent.Block, error) {
	links, err := r.store.BlockLinks(ctx, id)
	if err != nil {
		return nil, err
	}
	for _, l := range links {
		if !l.Leaving {
			return r.updateThrough(ctx, l.AgentID, id, p)
		}
	}
	return r.store.UpdateBlock(ctx, id, func(b *agent.Block) error {
		b.UpdatedAt = time.Now().UTC()
		return p.apply(b)
	})
}

// updateThrough changes a block by the file that it is in one agent's memory: that
// is committed first, then the row follows, then the files of other agents.
func (r *Roster) updateThrough(ctx context.Context, agentID, id string, p BlockPatch) (*agent.Block, error) {
	for range syncTries {
		next, err := r.changeFile(ctx, agentID, id, p)
		switch {
		case errors.Is(err, errNoLink): // detached meanwhile
			return r.UpdateBlock(ctx, id, p)
		case errors.Is(err, errFileMoved):
			continue
		case err != nil:
			return nil, err
		}
		r.spread(ctx, id)
		return next, nil
	}
	return nil, changesTooOften(agentID)
}

// errNoLink says that a block is not attached.
var errNoLink = errors.New("the block is not attached")

func (r *Roster) changeFile(ctx context.Context, agentID, id string, p BlockPatch) (*agent.Block, error) {
	unlock, err := r.cores.lock(ctx, agentID)
	if err != nil {
		return nil, err
	}
	defer unlock()
	core, err := r.indexLocked(ctx, agentID)
	if err != nil {
		return nil, err
	}
	link := findLink(core, id)
	if link == nil || link.Leaving {
		return nil, errNoLink
	}
	if link.Digest == "" || link.Version < link.Block.Version {
		// Its file is behind: what is changed here must be the newest.
		if err := r.syncLocked(ctx, agentID, id); err != nil {
			return nil, err
		}
		if core, err = r.store.CoreMemory(ctx, agentID); err != nil {
			return nil, err
		}
		if link = findLink(core, id); link == nil {
			return nil, errNoLink
		}
	}
	next := *link.Block
	if err := p.apply(&next); err != nil {
		return nil, err
	}
	if next.Label != link.Block.Label {
		if err := r.labelFree(ctx, agentID, &next); err != nil {
			return nil, err
		}
	}
	changed, err := r.commitBlock(ctx, agentID, link, &next, true)
	if err != nil {
		return nil, err
	}
	if !changed { // the row alone
		return r.store.UpdateBlock(ctx, id, func(b *agent.Block) error {
			b.UpdatedAt = time.Now().UTC()
			return p.apply(b)
		})
	}
	// The row takes over the file, and what is no file's business.
	core, err = r.reindex(ctx, agentID, func(c *store.CoreMemory) {
		if l := findLink(c, id); l != nil && l.Block.Version > link.Block.Version {
			b := l.Block
			b.Description, b.Hidden, b.Tags, b.Metadata, b.Extra = next.Description, next.Hidden, next.Tags, next.Metadata, next.Extra
		}
	})
	if err != nil {
		return nil, err
	}
	if link = findLink(core, id); link == nil {
		return nil, errNoLink
	}
	return link.Block, nil
}

// labelFree checks that no agent of a block has another one with its label.
func (r *Roster) labelFree(ctx context.Context, agentID string, b *agent.Block) error {
	links, err := r.store.BlockLinks(ctx, b.ID)
	if err != nil {
		return err
	}
	for _, l := range links {
		core, err := r.store.CoreMemory(ctx, l.AgentID)
		if err != nil {
			return err
		}
		taken := slices.ContainsFunc(core.Links, func(o *store.BlockLink) bool { return o.Label == b.Label && o.Block.ID != b.ID })
		if taken {
			return labelTaken(l.AgentID, b.Label)
		}
	}
	return nil
}

func labelTaken(agentID, label string) error {
	return agent.Errorf(agent.CodeConflict, "Agent %s has a memory block with the label %q already", agentID, label)
}

// DeleteBlock deletes a block everywhere: it is gone at once, its files are removed
// by the job that does not rest until they are.
func (r *Roster) DeleteBlock(ctx context.Context, id string) error {
	links, err := r.store.BlockLinks(ctx, id)
	if err != nil {
		return err
	}
	if err := r.store.DeleteBlock(ctx, id); err != nil {
		return err
	}
	r.syncAll(ctx, links)
	return nil
}

// AttachBlock makes a block part of an agent's core memory. One that it is already
// stays as it is; another block, or a file, with its label is CodeConflict.
func (r *Roster) AttachBlock(ctx context.Context, agentID, id string) error {
	ag, err := r.Agent(ctx, agentID)
	if err != nil {
		return err
	}
	b, err := r.Block(ctx, id)
	if err != nil {
		return err
	}
	unlock, err := r.cores.lock(ctx, ag.ID)
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := r.indexLocked(ctx, ag.ID); err != nil {
		return err
	}
	fresh := false
	_, err = r.store.ChangeCoreMemory(ctx, ag.ID, func(c *store.CoreMemory) error {
		fresh = false
		if l := findLink(c, id); l != nil {
			if l.Leaving {
				return agent.Errorf(agent.CodeConflict, "Block %s is being detached from agent %s; try again", id, ag.ID)
			}
			return nil
		}
		if slices.ContainsFunc(c.Links, func(l *store.BlockLink) bool { return l.Label == b.Label }) {
			return labelTaken(ag.ID, b.Label)
		}
		fresh = true
		c.Links = append(c.Links, &store.BlockLink{Block: b, Label: b.Label, AttachedAt: time.Now().UTC()})
		return nil
	})
	if err != nil || !fresh {
		return err
	}
	if err := r.syncLocked(ctx, ag.ID, id); err != nil {
		return undo(err, func() error { return r.dropLink(context.WithoutCancel(ctx), ag.ID, id) })
	}
	return nil
}

// DetachBlock takes a block out of an agent's core memory: its file goes, the row
// stays with what the file said last. A block that is not attached is CodeNotFound.
func (r *Roster) DetachBlock(ctx context.Context, agentID, id string) error {
	ag, err := r.Agent(ctx, agentID)
	if err != nil {
		return err
	}
	unlock, err := r.cores.lock(ctx, ag.ID)
	if err != nil {
		return err
	}
	defer unlock()
	core, err := r.indexLocked(ctx, ag.ID)
	if err != nil {
		return err
	}
	if l := findLink(core, id); l == nil || l.Leaving {
		return blockNotFound(id)
	}
	mark := func(leaving bool) error {
		_, err := r.store.ChangeCoreMemory(ctx, ag.ID, func(c *store.CoreMemory) error {
			if l := findLink(c, id); l != nil {
				l.Leaving, l.Filed = leaving, l.Filed && !leaving
			}
			return nil
		})
		return err
	}
	if err := mark(true); err != nil {
		return err
	}
	if err := r.syncLocked(ctx, ag.ID, id); err != nil {
		return undo(err, func() error { return mark(false) })
	}
	return nil
}

// SetAgentBlocks makes these the blocks of an agent, and no others.
func (r *Roster) SetAgentBlocks(ctx context.Context, agentID string, ids []string) error {
	for _, id := range ids {
		if _, err := r.store.Block(ctx, id); err != nil {
			return err
		}
	}
	blocks, err := r.AgentBlocks(ctx, agentID)
	if err != nil {
		return err
	}
	for _, b := range blocks {
		if !slices.Contains(ids, b.ID) {
			if err := r.DetachBlock(ctx, agentID, b.ID); err != nil {
				return err
			}
		}
	}
	for _, id := range ids {
		if err := r.AttachBlock(ctx, agentID, id); err != nil {
			return err
		}
	}
	return nil
}

func findLink(c *store.CoreMemory, blockID string) *store.BlockLink {
	for _, l := range c.Links {
		if l.Block.ID == blockID {
			return l
		}
	}
	return nil
}
