package store

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"mneme/internal/agent"
)

const (
	blockKeyColumns   = `id, tenant, created_ns`
	blockStateColumns = `label, char_limit, read_only, hidden, version, updated_ns, description, tags, metadata, extra, value, filed`
	blockColumns      = blockKeyColumns + ", " + blockStateColumns
)

// Blocks that are being deleted are seen by nobody but those who remove their
// files.
var (
	sqlPutBlock = "INSERT INTO blocks (" + blockColumns + ") VALUES (" + marks(blockColumns) + `)
		ON CONFLICT (id) DO UPDATE SET ` + updates(blockStateColumns) + ` WHERE blocks.tenant = excluded.tenant`
	sqlBlock       = "SELECT " + blockColumns + " FROM blocks WHERE id = ? AND deleted = 0 AND tenant = ?"
	sqlBlockExists = `SELECT 1 FROM blocks WHERE id = ? AND tenant = ?`
	sqlBlockAlive  = `SELECT 1 FROM blocks WHERE id = ? AND deleted = 0 AND tenant = ?`
	sqlDropBlock   = `DELETE FROM blocks WHERE id = ? AND tenant = ? AND (filed = 1 OR deleted = 1)
		AND NOT EXISTS (SELECT 1 FROM agent_blocks WHERE block_id = blocks.id)`
	sqlDeleteBlock = `UPDATE blocks SET deleted = 1 WHERE id = ? AND deleted = 0 AND tenant = ?`
	// Files that were in line with a row stay so when nothing of theirs changed.
	sqlFollow = `UPDATE agent_blocks SET version = ? WHERE block_id = ? AND version = ? AND tenant = ?`
)

func (e *encoder) block(b *agent.Block, filed bool) []any {
	return []any{
		b.ID, e.s.tenant, ns(b.CreatedAt), clean(b.Label), int64(b.Limit), bit(b.ReadOnly), optBit(b.Hidden), b.Version, ns(b.UpdatedAt),
		optText(b.Description), list(e, b.Tags), rawText(b.Metadata), rawText(b.Extra), clean(b.Value), bit(filed),
	}
}

// blockDest is where the columns of a block are read to.
func blockDest(b *agent.Block, filed *bool) []any {
	return []any{
		&b.ID, new(string), scanTime{&b.CreatedAt}, &b.Label, &b.Limit, scanBit{&b.ReadOnly}, scanOptBit{&b.Hidden}, &b.Version, scanTime{&b.UpdatedAt},
		scanOptText{&b.Description}, scanJSON{&b.Tags}, scanRaw{&b.Metadata}, scanRaw{&b.Extra}, &b.Value, scanBit{filed},
	}
}

func scanBlock(r scanner) (*agent.Block, error) {
	b := new(agent.Block)
	return b, r.Scan(blockDest(b, new(bool))...)
}

func (s *Store) putBlock(t *tx, b *agent.Block, filed bool) error {
	e := &encoder{s: s}
	args := e.block(b, filed)
	if e.err != nil {
		return e.err
	}
	return t.run([]statement{{what: "block " + b.ID, query: sqlPutBlock, args: args}})
}

// CreateBlock stores a new block that is attached to nobody. An id that exists is
// CodeConflict.
func (s *Store) CreateBlock(ctx context.Context, b *agent.Block) error {
	return s.write(ctx, "create block "+b.ID, func(t *tx) error {
		if found, err := t.exists(sqlBlockExists, b.ID, s.tenant); err != nil || found {
			return conflictIf(found, err, "Block", b.ID)
		}
		return s.putBlock(t, b, false)
	})
}

// Block returns one block, or CodeNotFound.
func (s *Store) Block(ctx context.Context, id string) (*agent.Block, error) {
	return get(ctx, s.pool(), "Block", id, scanBlock, sqlBlock, id, s.tenant)
}

// UpdateBlock reads a block, lets fn change it and stores the result as the next
// version, as UpdateAgent does. When fn changed nothing that is in the block's
// files, they stay in line with it; otherwise they are to be written.
func (s *Store) UpdateBlock(ctx context.Context, id string, fn func(*agent.Block) error) (*agent.Block, error) {
	var b *agent.Block
	err := s.write(ctx, "change block "+id, func(t *tx) error {
		b = new(agent.Block)
		filed := false
		found, err := t.one(func(r scanner) error { return r.Scan(blockDest(b, &filed)...) }, sqlBlock, id, s.tenant)
		if err != nil {
			return err
		}
		if !found {
			return notFound("Block", id)
		}
		old := *b
		if err := fn(b); err != nil {
			return err
		}
		b.ID, b.CreatedAt, b.Version = old.ID, old.CreatedAt, old.Version+1
		if sameFile(&old, b) {
			if _, err := t.exec(sqlFollow, b.Version, b.ID, old.Version, s.tenant); err != nil {
				return err
			}
		}
		return s.putBlock(t, b, filed)
	})
	if err != nil {
		return nil, err
	}
	return b, nil
}

// sameFile says whether two versions of a block have the same file.
func sameFile(a, b *agent.Block) bool {
	text := func(s *string) string {
		if s == nil {
			return ""
		}
		return *s
	}
	return a.Label == b.Label && a.Value == b.Value && a.Limit == b.Limit && a.ReadOnly == b.ReadOnly &&
		text(a.Description) == text(b.Description)
}

// DeleteBlock makes a block disappear. Where it is attached, its files are to be
// removed, see PendingLinks; the row goes with the last of them. An unknown block
// is CodeNotFound.
func (s *Store) DeleteBlock(ctx context.Context, id string) error {
	return s.write(ctx, "delete block "+id, func(t *tx) error {
		n, err := t.exec(sqlDeleteBlock, id, s.tenant)
		if err == nil && n == 0 {
			err = notFound("Block", id)
		}
		for _, query := range []string{`UPDATE agent_blocks SET leaving = 1 WHERE block_id = ? AND tenant = ?`, sqlDropBlock} {
			if err == nil {
				_, err = t.exec(query, id, s.tenant)
			}
		}
		return err
	})
}

// A BlockFilter selects blocks for a list, by default the newest first.
type BlockFilter struct {
	AgentID string // attached to it; "" = all
	Label   string
	// LabelSearch, ValueSearch and DescriptionSearch are substrings, ignoring case.
	LabelSearch, ValueSearch, DescriptionSearch string
	Tags                                        []string // all must match
	AnyTag                                      bool     // one of Tags is enough
	IncludeHidden                               bool
	// How many agents a block is attached to: more than, less than, one of.
	AgentsOver, AgentsUnder *int
	AgentsExactly           []int
	Page
}

const sqlBlockAgents = `(SELECT count(*) FROM agent_blocks WHERE block_id = blocks.id AND leaving = 0)`

// errEnough ends a query that has what it was made for.
var errEnough = errors.New("enough")

// Blocks lists blocks in the order in which they were made.
func (s *Store) Blocks(ctx context.Context, f BlockFilter) ([]*agent.Block, error) {
	q := &selection{}
	q.where("tenant = ? AND deleted = 0", s.tenant)
	if !f.IncludeHidden {
		q.where("coalesce(hidden, 0) = 0")
	}
	if f.AgentID != "" {
		q.where("EXISTS (SELECT 1 FROM agent_blocks WHERE block_id = blocks.id AND agent_id = ? AND leaving = 0)", f.AgentID)
	}
	if f.Label != "" {
		q.where("label = ?", clean(f.Label))
	}
	groups := [][]string{f.Tags}
	if !f.AnyTag {
		groups = slices.Collect(slices.Chunk(f.Tags, 1))
	}
	for _, tags := range groups {
		if err := q.anyListed("tags", tags); err != nil {
			return nil, err
		}
	}
	if f.AgentsOver != nil {
		q.where(sqlBlockAgents+" > ?", int64(*f.AgentsOver))
	}
	if f.AgentsUnder != nil {
		q.where(sqlBlockAgents+" < ?", int64(*f.AgentsUnder))
	}
	if len(f.AgentsExactly) > 0 {
		args := make([]any, len(f.AgentsExactly))
		for i, n := range f.AgentsExactly {
			args[i] = int64(n)
		}
		q.where(in(sqlBlockAgents, len(args)), args...)
	}
	return s.searchBlocks(ctx, q, f)
}

// searchBlocks reads the blocks that match what the databases cannot compare alike.
func (s *Store) searchBlocks(ctx context.Context, q *selection, f BlockFilter) ([]*agent.Block, error) {
	p := f.Page
	if f.Limit > 0 && f.LabelSearch+f.ValueSearch+f.DescriptionSearch != "" {
		p.Limit = -1 // kept here
	}
	tail, reverse, err := s.page(ctx, q, listing{noun: "Block", from: "blocks", id: "id", tenant: "tenant", keys: []string{"created_ns", "id"}}, p)
	if err != nil {
		return nil, err
	}
	has := func(text, part string) bool { return part == "" || strings.Contains(fold(text), fold(part)) }
	var all []*agent.Block
	err = s.pool().eachOf(ctx, func(r scanner) error {
		b, err := scanBlock(r)
		if err != nil {
			return err
		}
		description := ""
		if b.Description != nil {
			description = *b.Description
		}
		if has(b.Label, f.LabelSearch) && has(description, f.DescriptionSearch) && has(b.Value, f.ValueSearch) {
			all = append(all, b)
		}
		if f.Limit > 0 && len(all) == f.Limit {
			return errEnough
		}
		return nil
	}, "SELECT "+blockColumns+" FROM blocks"+q.text()+tail, q.args...)
	if err != nil && !errors.Is(err, errEnough) {
		return nil, s.dialect.fault("list blocks", err)
	}
	if reverse {
		slices.Reverse(all)
	}
	return all, nil
}

// A BlockLink ties a block to the file that it is in an agent's memory.
type BlockLink struct {
	AgentID    string
	Block      *agent.Block
	Label      string // of the file
	AttachedAt time.Time
	// Digest is what the file had when it was last in line with the row, at
	// Version; "" = it was not written yet.
	Digest  string
	Version int64
	// NextDigest and NextVersion are what is about to be written.
	NextDigest  string
	NextVersion int64
	Leaving     bool // the file is to be removed, then the link
	// Filed says of the block that it was made from a file: it goes with the last
	// one.
	Filed bool
}

// CoreMemory is what the rows know of an agent's core memory.
type CoreMemory struct {
	Commit string // that they are in line with; "" = none
	Links  []*BlockLink
}

const linkColumns = `agent_blocks.agent_id, agent_blocks.label, attached_ns, digest, agent_blocks.version, next_digest, next_version, leaving`

var (
	linkedBlock = "blocks." + strings.Join(strings.Fields(blockColumns), " blocks.")

	sqlLinks = "SELECT " + linkColumns + ", " + linkedBlock + ` FROM agent_blocks JOIN blocks ON blocks.id = agent_blocks.block_id
		WHERE agent_blocks.agent_id = ? AND agent_blocks.tenant = ? ORDER BY attached_ns, agent_blocks.label`
	sqlLinksOf = "SELECT " + linkColumns + ", " + linkedBlock + ` FROM agent_blocks JOIN blocks ON blocks.id = agent_blocks.block_id
		WHERE agent_blocks.block_id = ? AND agent_blocks.tenant = ? ORDER BY attached_ns, agent_blocks.agent_id`
	sqlPendingLinks = `SELECT agent_blocks.agent_id, agent_blocks.block_id FROM agent_blocks JOIN blocks ON blocks.id = agent_blocks.block_id
		WHERE (leaving = 1 OR agent_blocks.version < blocks.version) AND agent_blocks.tenant = ? ORDER BY blocks.updated_ns, attached_ns`
	sqlHeadOf  = `SELECT commit_id FROM memory_heads WHERE agent_id = ? AND tenant = ?`
	sqlHeads   = `SELECT id, coalesce(commit_id, '') FROM agents LEFT JOIN memory_heads ON agent_id = id WHERE agents.tenant = ? ORDER BY id`
	sqlPutHead = `INSERT INTO memory_heads (agent_id, tenant, commit_id) VALUES (?, ?, ?) ON CONFLICT (agent_id) DO UPDATE SET commit_id = excluded.commit_id`
	sqlPutLink = `INSERT INTO agent_blocks (agent_id, label, block_id, tenant, attached_ns, digest, version, next_digest, next_version, leaving)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`
	sqlDropLink = `DELETE FROM agent_blocks WHERE agent_id = ? AND block_id = ? AND tenant = ?`
)

func scanLink(r scanner) (*BlockLink, error) {
	l := &BlockLink{Block: new(agent.Block)}
	return l, r.Scan(append([]any{&l.AgentID, &l.Label, scanTime{&l.AttachedAt}, &l.Digest, &l.Version, &l.NextDigest, &l.NextVersion,
		scanBit{&l.Leaving}}, blockDest(l.Block, &l.Filed)...)...)
}

// CoreMemory reads what the rows know of an agent's core memory, links that are
// leaving included. Of an unknown agent that is nothing.
func (s *Store) CoreMemory(ctx context.Context, agentID string) (*CoreMemory, error) {
	c := new(CoreMemory)
	err := s.snapshot(ctx, func(r reader) error {
		if _, err := r.one(ctx, func(row scanner) error { return row.Scan(&c.Commit) }, sqlHeadOf, agentID, s.tenant); err != nil {
			return err
		}
		return r.each(ctx, appendTo(&c.Links, scanLink), sqlLinks, agentID, s.tenant)
	})
	return c, s.dialect.fault("read the core memory of "+agentID, err)
}

// BlockLinks lists the links of a block, the oldest first.
func (s *Store) BlockLinks(ctx context.Context, blockID string) ([]*BlockLink, error) {
	var all []*BlockLink
	err := s.pool().each(ctx, appendTo(&all, scanLink), sqlLinksOf, blockID, s.tenant)
	return all, s.dialect.fault("list the agents of block "+blockID, err)
}

// PendingLinks lists the links whose files are behind their rows or to be removed,
// as pairs of agent and block.
func (s *Store) PendingLinks(ctx context.Context) (pending [][2]string, err error) {
	err = s.pool().each(ctx, func(r scanner) error {
		var p [2]string
		err := r.Scan(&p[0], &p[1])
		pending = append(pending, p)
		return err
	}, sqlPendingLinks, s.tenant)
	return pending, s.dialect.fault("list blocks to be written", err)
}

// MemoryHeads returns of all agents the commit that the rows are in line with, ""
// for none.
func (s *Store) MemoryHeads(ctx context.Context) (map[string]string, error) {
	heads := map[string]string{}
	err := s.pool().each(ctx, func(r scanner) error {
		var id, commit string
		err := r.Scan(&id, &commit)
		heads[id] = commit
		return err
	}, sqlHeads, s.tenant)
	return heads, s.dialect.fault("list memory commits", err)
}

// ChangeCoreMemory reads the core memory of an agent, lets fn change it and stores
// the result, as UpdateAgent does. fn may add links with new or existing blocks,
// drop links, and change links and the blocks behind them; a block is stored where
// fn raised its Version, changed Filed, or made it. Of what fn dropped, blocks that were made
// from files or are being deleted go too, once nothing links to them. An unknown
// agent is CodeNotFound.
func (s *Store) ChangeCoreMemory(ctx context.Context, agentID string, fn func(*CoreMemory) error) (*CoreMemory, error) {
	var c *CoreMemory
	err := s.write(ctx, "change the core memory of "+agentID, func(t *tx) error {
		if found, err := t.exists(sqlAgentExists, agentID, s.tenant); err != nil {
			return err
		} else if !found {
			return notFound("Agent", agentID)
		}
		c = new(CoreMemory)
		if _, err := t.one(func(r scanner) error { return r.Scan(&c.Commit) }, sqlHeadOf, agentID, s.tenant); err != nil {
			return err
		}
		if err := t.each(appendTo(&c.Links, scanLink), sqlLinks, agentID, s.tenant); err != nil {
			return err
		}
		before := map[string]BlockLink{}
		for _, l := range c.Links {
			old := *l
			block := *l.Block
			old.Block = &block
			before[block.ID] = old
		}
		commit := c.Commit
		if err := fn(c); err != nil {
			return err
		}
		if c.Commit != commit {
			if _, err := t.exec(sqlPutHead, agentID, s.tenant, c.Commit); err != nil {
				return err
			}
		}
		return s.writeLinks(t, agentID, before, c.Links)
	})
	if err != nil {
		return nil, err
	}
	return c, nil
}

// writeLinks stores links and blocks that differ from before, by block id.
func (s *Store) writeLinks(t *tx, agentID string, before map[string]BlockLink, links []*BlockLink) error {
	kept := map[string]bool{}
	var write []*BlockLink
	for _, l := range links {
		kept[l.Block.ID] = true
		old, known := before[l.Block.ID]
		exists := known
		if !known {
			var err error
			if exists, err = t.exists(sqlBlockAlive, l.Block.ID, s.tenant); err != nil {
				return err
			}
		}
		if !exists || known && (old.Block.Version != l.Block.Version || old.Filed != l.Filed) {
			if err := s.putBlock(t, l.Block, l.Filed); err != nil {
				return err
			}
		}
		now := *l
		now.AgentID, now.Block, old.Block = agentID, nil, nil
		if known && old == now {
			continue
		}
		write = append(write, l)
	}
	// All that move go first: labels may be exchanged.
	for id := range before {
		if kept[id] && !slices.ContainsFunc(write, func(l *BlockLink) bool { return l.Block.ID == id }) {
			continue
		}
		if _, err := t.exec(sqlDropLink, agentID, id, s.tenant); err != nil {
			return err
		}
		if !kept[id] {
			if _, err := t.exec(sqlDropBlock, id, s.tenant); err != nil {
				return err
			}
		}
	}
	for _, l := range write {
		if _, err := t.exec(sqlPutLink, agentID, clean(l.Label), l.Block.ID, s.tenant, ns(l.AttachedAt), l.Digest, l.Version,
			l.NextDigest, l.NextVersion, bit(l.Leaving)); err != nil {
			return err
		}
	}
	return nil
}
