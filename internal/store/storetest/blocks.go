package storetest

import (
	"testing"

	"mneme/internal/agent"
	"mneme/internal/store"
)

func newBlock(label, value string) *agent.Block {
	return &agent.Block{ID: agent.NewID("block"), Label: label, Value: value, Limit: agent.DefaultBlockLimit, Version: 1, CreatedAt: start, UpdatedAt: start}
}

func blockID(b *agent.Block) string { return b.ID }

// link attaches blocks to an agent, their files in line with them.
func link(t *testing.T, s *store.Store, agentID string, filed bool, blocks ...*agent.Block) {
	t.Helper()
	must(s.ChangeCoreMemory(t.Context(), agentID, func(c *store.CoreMemory) error {
		for _, b := range blocks {
			c.Links = append(c.Links, &store.BlockLink{AgentID: agentID, Block: b, Label: b.Label, AttachedAt: at(1), Digest: "d1", Version: b.Version, Filed: filed})
		}
		c.Commit = "c1"
		return nil
	}))(t)
}

func testBlocks(t *testing.T, s *store.Store) {
	ctx := t.Context()
	b := newBlock("human/name", "Bo \x00")
	b.Value = "Bo <&>\n"
	b.Description, b.Limit, b.ReadOnly, b.Hidden = ptr(""), 10, true, ptr(false)
	b.Tags, b.Metadata, b.Extra = []string{"a", `b"`}, []byte(`{"k":"<1>"}`), []byte(`{"project_id":"p"}`)
	ok(t, s.CreateBlock(ctx, b))
	same(t, "block", must(s.Block(ctx, b.ID))(t), b)
	wantCode(t, s.CreateBlock(ctx, b), agent.CodeConflict)
	got := must(s.UpdateBlock(ctx, b.ID, func(b *agent.Block) error {
		b.ID, b.Version = "block-x", 50 // not for us to change
		b.Value, b.Description, b.Hidden, b.Tags, b.Metadata, b.Extra, b.UpdatedAt = "Ada", nil, nil, nil, nil, nil, at(1)
		return nil
	}))(t)
	want := &agent.Block{ID: b.ID, Label: b.Label, Value: "Ada", Limit: 10, ReadOnly: true, Version: 2, CreatedAt: start, UpdatedAt: at(1)}
	same(t, "changed", got, want)
	same(t, "stored", must(s.Block(ctx, b.ID))(t), want)
	_, err := s.UpdateBlock(ctx, b.ID, func(*agent.Block) error { return agent.Invalid("value", "no") })
	wantCode(t, err, agent.CodeInvalid)
	same(t, "stored", must(s.Block(ctx, b.ID))(t), want)
	ok(t, s.DeleteBlock(ctx, b.ID))
	_, err = s.Block(ctx, b.ID)
	wantCode(t, err, agent.CodeNotFound)
	wantCode(t, s.DeleteBlock(ctx, b.ID), agent.CodeNotFound)
	_, err = s.UpdateBlock(ctx, b.ID, func(*agent.Block) error { return nil })
	wantCode(t, err, agent.CodeNotFound)
	ok(t, s.CreateBlock(ctx, b))
}

func testBlockList(t *testing.T, s *store.Store) {
	ctx := t.Context()
	sc, other := newScene(t, s), newScene(t, s)
	var all []*agent.Block
	for i, label := range []string{"human", "persona", "human", "Ärger/x", "rules", "facts"} {
		b := newBlock(label, "value "+label)
		b.CreatedAt = at(i / 2)
		switch i {
		case 0:
			b.Tags = []string{"x", "y"}
		case 1:
			b.Description, b.Tags = ptr("Who I AM"), []string{"y"}
		case 4:
			b.Hidden = ptr(true)
		case 5:
			b.Value, b.Hidden = "ÜBER 100%", ptr(false)
		}
		ok(t, s.CreateBlock(ctx, b))
		all = append(all, b)
	}
	link(t, s, sc.agent.ID, false, all[1], all[2])
	link(t, s, other.agent.ID, false, all[1])
	list := func(f store.BlockFilter) []string {
		f.Asc = true
		return ids(must(s.Blocks(ctx, f))(t), blockID)
	}
	for _, c := range []struct {
		name   string
		filter store.BlockFilter
		want   []int
	}{
		{"all", store.BlockFilter{}, []int{0, 1, 2, 3, 5}},
		{"hidden too", store.BlockFilter{IncludeHidden: true}, []int{0, 1, 2, 3, 4, 5}},
		{"label", store.BlockFilter{Label: "human"}, []int{0, 2}},
		{"label in part", store.BlockFilter{LabelSearch: "äRG"}, []int{3}},
		{"value", store.BlockFilter{ValueSearch: "über 100%"}, []int{5}},
		{"description", store.BlockFilter{DescriptionSearch: "i am", ValueSearch: "pers"}, []int{1}},
		{"tag", store.BlockFilter{Tags: []string{"y"}}, []int{0, 1}},
		{"all tags", store.BlockFilter{Tags: []string{"y", "x"}}, []int{0}},
		{"any tag", store.BlockFilter{Tags: []string{"z", "y"}, AnyTag: true}, []int{0, 1}},
		{"agent", store.BlockFilter{AgentID: sc.agent.ID}, []int{1, 2}},
		{"over", store.BlockFilter{AgentsOver: ptr(0)}, []int{1, 2}},
		{"under", store.BlockFilter{AgentsUnder: ptr(1)}, []int{0, 3, 5}},
		{"exactly", store.BlockFilter{AgentsExactly: []int{2, 7}}, []int{1}},
		{"limit of a search", store.BlockFilter{ValueSearch: "value", Page: store.Page{Limit: 2}}, []int{0, 1}},
	} {
		got := list(c.filter)
		var want []string
		for _, i := range c.want {
			want = append(want, all[i].ID)
		}
		same(t, c.name+" number", len(got), len(want))
		for _, id := range want { // two each are of one instant: their ids decide
			if c.filter.Limit == 0 {
				same(t, c.name, count(got, id), 1)
			}
		}
	}
	for _, f := range []store.BlockFilter{{}, {Page: store.Page{Asc: true}}, {LabelSearch: "a"}, {LabelSearch: "a", Page: store.Page{Asc: true}}} {
		f.IncludeHidden = true
		for len(all) < 20 {
			b := newBlock([]string{"Extra", "other"}[len(all)%2], "")
			ok(t, s.CreateBlock(ctx, b))
			all = append(all, b)
		}
		whole := ids(must(s.Blocks(ctx, f))(t), blockID)
		bothWays(t, "blocks "+f.LabelSearch, whole, f.Asc, func(p store.Page) []string {
			f.Page = p
			return ids(must(s.Blocks(ctx, f))(t), blockID)
		})
	}
	_, err := s.Blocks(ctx, store.BlockFilter{Page: store.Page{After: "block-none"}})
	wantCode(t, err, agent.CodeNotFound)
	same(t, "agents of a block", len(must(s.Agents(ctx, store.AgentFilter{BlockID: all[1].ID}))(t)), 2)
}

func testCoreMemory(t *testing.T, s *store.Store) {
	ctx := t.Context()
	sc, other := newScene(t, s), newScene(t, s)
	id := sc.agent.ID
	same(t, "nothing", must(s.CoreMemory(ctx, id))(t), &store.CoreMemory{})
	one, two := newBlock("one", "1"), newBlock("two", "2")
	ok(t, s.CreateBlock(ctx, two))
	link(t, s, id, true, one)
	must(s.ChangeCoreMemory(ctx, id, func(c *store.CoreMemory) error {
		stale := *two
		stale.Value = "an older value" // a block that exists is not written
		c.Links = append(c.Links, &store.BlockLink{Block: &stale, Label: "two", AttachedAt: at(2)})
		return nil
	}))(t)
	c := must(s.CoreMemory(ctx, id))(t)
	same(t, "core memory", c, &store.CoreMemory{Commit: "c1", Links: []*store.BlockLink{
		{AgentID: id, Block: one, Label: "one", AttachedAt: at(1), Digest: "d1", Version: 1, Filed: true},
		{AgentID: id, Block: two, Label: "two", AttachedAt: at(2)},
	}})
	same(t, "to be written", must(s.PendingLinks(ctx))(t), [][2]string{{id, two.ID}})
	// One label is one block.
	_, err := s.ChangeCoreMemory(ctx, id, func(c *store.CoreMemory) error {
		c.Links = append(c.Links, &store.BlockLink{Block: newBlock("two", ""), Label: "two"})
		return nil
	})
	wantCode(t, err, agent.CodeConflict)
	// Labels are exchanged, a file has changed, another is about to be written.
	must(s.ChangeCoreMemory(ctx, id, func(c *store.CoreMemory) error {
		a, b := c.Links[0], c.Links[1]
		a.Label, b.Label = b.Label, a.Label
		a.Block.Value, a.Block.Version, a.Version, a.Digest = "new", 2, 2, "d2"
		b.NextDigest, b.NextVersion = "d3", 1
		b.Block.Value = "not a new version: not stored"
		c.Commit = "c2"
		return nil
	}))(t)
	c = must(s.CoreMemory(ctx, id))(t)
	same(t, "commit", c.Commit, "c2")
	same(t, "first", []any{c.Links[0].Label, c.Links[0].Block.Value, c.Links[0].Digest}, []any{"two", "new", "d2"})
	same(t, "second", []any{c.Links[1].Label, c.Links[1].Block.Value, c.Links[1].NextDigest, c.Links[1].NextVersion}, []any{"one", "2", "d3", int64(1)})
	same(t, "heads", must(s.MemoryHeads(ctx))(t), map[string]string{id: "c2", other.agent.ID: ""})

	// A shared block: what is no file's business leaves files in line.
	link(t, s, other.agent.ID, false, two)
	must(s.ChangeCoreMemory(ctx, id, func(c *store.CoreMemory) error { c.Links[1].Digest, c.Links[1].Version = "d3", 1; return nil }))(t)
	same(t, "to be written", len(must(s.PendingLinks(ctx))(t)), 0)
	must(s.UpdateBlock(ctx, two.ID, func(b *agent.Block) error { b.Tags = []string{"t"}; return nil }))(t)
	same(t, "to be written", len(must(s.PendingLinks(ctx))(t)), 0)
	must(s.UpdateBlock(ctx, two.ID, func(b *agent.Block) error { b.Value = "3"; return nil }))(t)
	same(t, "to be written", len(must(s.PendingLinks(ctx))(t)), 2)
	links := must(s.BlockLinks(ctx, two.ID))(t)
	same(t, "links", []string{links[0].AgentID, links[1].AgentID}, []string{other.agent.ID, id})

	// Deleted: gone at once, its links when the files are.
	ok(t, s.DeleteBlock(ctx, two.ID))
	_, err = s.Block(ctx, two.ID)
	wantCode(t, err, agent.CodeNotFound)
	same(t, "listed", len(must(s.Blocks(ctx, store.BlockFilter{Label: "two"}))(t)), 0)
	same(t, "of the agent", len(must(s.Blocks(ctx, store.BlockFilter{AgentID: other.agent.ID}))(t)), 0)
	same(t, "to be removed", len(must(s.PendingLinks(ctx))(t)), 2)
	drop := func(agentID, blockID string) {
		must(s.ChangeCoreMemory(ctx, agentID, func(c *store.CoreMemory) error {
			var kept []*store.BlockLink
			for _, l := range c.Links {
				if l.Block.ID != blockID {
					kept = append(kept, l)
				}
			}
			c.Links = kept
			return nil
		}))(t)
	}
	drop(id, two.ID)
	drop(other.agent.ID, two.ID)
	same(t, "to be removed", len(must(s.PendingLinks(ctx))(t)), 0)
	ok(t, s.CreateBlock(ctx, two)) // its id is free

	// A block that was made from a file goes with it, another stays.
	drop(id, one.ID)
	_, err = s.Block(ctx, one.ID)
	wantCode(t, err, agent.CodeNotFound)
	link(t, s, id, false, two)
	drop(id, two.ID)
	must(s.Block(ctx, two.ID))(t)
	_, err = s.ChangeCoreMemory(ctx, "agent-none", func(*store.CoreMemory) error { return nil })
	wantCode(t, err, agent.CodeNotFound)
}

func testBlocksOfAgents(t *testing.T, s *store.Store) {
	ctx := t.Context()
	free, shared, own := newBlock("free", ""), newBlock("shared", ""), newBlock("own", "")
	ok(t, s.CreateBlock(ctx, free))
	var agents []*agent.Agent
	for range 2 {
		a, conv := newAgent("Ada")
		core := &store.CoreMemory{Commit: "c1", Links: []*store.BlockLink{{Block: shared, Label: "shared", AttachedAt: at(1), Version: 1, Digest: "d", Filed: true}}}
		if len(agents) == 0 {
			core.Links = append(core.Links, &store.BlockLink{Block: free, Label: "free", AttachedAt: at(2), Version: 1, Digest: "d"},
				&store.BlockLink{Block: own, Label: "own", AttachedAt: at(3), Version: 1, Digest: "d", Filed: true})
		}
		ok(t, s.CreateAgent(ctx, a, conv, store.Opening{Core: core}))
		agents = append(agents, a)
	}
	c := must(s.CoreMemory(ctx, agents[0].ID))(t)
	same(t, "commit", c.Commit, "c1")
	same(t, "labels", ids(c.Links, func(l *store.BlockLink) string { return l.Label }), []string{"shared", "free", "own"})
	// A label twice: no agent at all.
	a, conv := newAgent("Eve")
	again := &store.CoreMemory{Links: []*store.BlockLink{{Block: newBlock("x", ""), Label: "x"}, {Block: newBlock("x", ""), Label: "x"}}}
	wantCode(t, s.CreateAgent(ctx, a, conv, store.Opening{Core: again}), agent.CodeConflict)
	_, err := s.Agent(ctx, a.ID)
	wantCode(t, err, agent.CodeNotFound)

	ok(t, s.DeleteAgent(ctx, agents[0].ID))
	must(s.Block(ctx, free.ID))(t)
	must(s.Block(ctx, shared.ID))(t)
	_, err = s.Block(ctx, own.ID)
	wantCode(t, err, agent.CodeNotFound)
	ok(t, s.DeleteAgent(ctx, agents[1].ID))
	_, err = s.Block(ctx, shared.ID)
	wantCode(t, err, agent.CodeNotFound)
}
