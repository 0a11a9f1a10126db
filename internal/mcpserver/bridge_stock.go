package mcpserver

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"mneme/internal/agent"
	"mneme/internal/memory"
	"mneme/protocol"
)

// A stock App Server has no extension commands. Its memory is listed whole, its
// newest commit is asked for apart, and searching is done here.

// maxIndexes is how many agents of a stock server have an index.
const maxIndexes = 16

// indexCache holds the indexes of agents that were searched last.
type indexCache struct {
	mu    sync.Mutex
	order []string // agent ids, the oldest first
	byID  map[string]*memory.Index
}

// of is an agent's index, which may be an empty one.
func (c *indexCache) of(agentID string) *memory.Index {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byID == nil {
		c.byID = map[string]*memory.Index{}
	}
	x := c.byID[agentID]
	if x == nil {
		x = memory.NewIndex()
		c.byID[agentID] = x
	}
	c.order = append(slices.DeleteFunc(c.order, func(id string) bool { return id == agentID }), agentID)
	if len(c.order) > maxIndexes {
		delete(c.byID, c.order[0])
		c.order = c.order[1:]
	}
	return x
}

// stockMemory lists an agent's memory. Commits that came between the listing and
// the commit's id are not told apart; the server has no way to.
func (b *Bridge) stockMemory(ctx context.Context, agentID string) (*Memory, error) {
	if _, err := b.Agent(ctx, agentID); err != nil {
		return nil, err // the server would make a repository for anybody
	}
	commit, err := b.head(ctx, agentID)
	if err != nil {
		return nil, err
	}
	list, err := read(ctx, b, &protocol.ListMemory{AgentID: agentID})
	if err != nil {
		return nil, err
	}
	m := &Memory{Snapshot: &memory.Snapshot{Commit: commit}, Times: map[string]time.Time{}}
	for _, e := range list.Entries {
		f := fileOf(e.RelativePath, e.Kind, e.Size, e.Description, nil)
		f.Body = e.Content
		f.Oversized = false
		m.Files = append(m.Files, f)
	}
	sortFiles(m.Files)
	b.compare(agentID, commit)
	return m, nil
}

// compare tells those who watch when others have changed a memory: the server
// does not.
func (b *Bridge) compare(agentID, commit string) {
	b.mu.Lock()
	before, known := b.heads[agentID]
	b.heads[agentID] = commit
	b.mu.Unlock()
	if known && before != commit {
		b.changed(Change{AgentID: agentID, Commit: commit, Paths: []string{"*"}})
	}
}

// itemFile is the name of a saved item's file, by the digits of its id.
var itemFile = regexp.MustCompile(`--([0-9a-f]{16})\.md$`)

// itemPrefix begins the ids of saved items.
const itemPrefix = "mem-"

// idOfFile is the id that the name of a file holds; "" = none.
func idOfFile(p string) string {
	if m := itemFile.FindStringSubmatch(p); m != nil && strings.HasPrefix(p, savedDir) {
		return itemPrefix + m[1]
	}
	return ""
}

// stockFiles is a snapshot of some files as they are stored. Those that are gone
// are left out.
func (b *Bridge) stockFiles(ctx context.Context, agentID, commit string, paths []string) (*memory.Snapshot, error) {
	texts := map[string]string{}
	for _, p := range paths {
		data, err := b.MemoryFile(ctx, agentID, p)
		if agent.CodeOf(err) == agent.CodeNotFound {
			continue
		}
		if err != nil {
			return nil, err
		}
		texts[p] = string(data)
	}
	return memory.NewSnapshot(commit, texts), nil
}

// stockItem is itemFiles for a stock server. Its listings show no front matter,
// so an item is looked for by its file's name.
func (b *Bridge) stockItem(ctx context.Context, agentID, id string) (*memory.Snapshot, error) {
	m, err := b.stockMemory(ctx, agentID)
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, f := range m.Files {
		if idOfFile(f.Path) == id {
			paths = append(paths, f.Path)
		}
	}
	return b.stockFiles(ctx, agentID, m.Commit, paths)
}

// stockBodies is a snapshot of what the server lists, in which saved items have
// their ids.
func (b *Bridge) stockBodies(ctx context.Context, agentID string) (*memory.Snapshot, error) {
	m, err := b.stockMemory(ctx, agentID)
	if err != nil {
		return nil, err
	}
	texts := map[string]string{}
	for _, f := range m.Files {
		body := f.Body
		switch id := idOfFile(f.Path); {
		case id != "":
			body = "---\nid: " + id + "\n---\n" + body
		case f.Path == indexPath:
			body = indexFront + body
		case strings.HasPrefix(body, "---\n"):
			body = "---\n---\n" + body // or it would be taken for front matter
		}
		texts[f.Path] = body
	}
	return memory.NewSnapshot(m.Commit, texts), nil
}

// stockFind finds the one thing that a reference means in what the server lists,
// and returns that file as it is stored, with the reference that finds the thing
// there.
func (b *Bridge) stockFind(ctx context.Context, agentID, ref string) (*memory.Snapshot, string, error) {
	bodies, err := b.stockBodies(ctx, agentID)
	if err != nil {
		return nil, "", err
	}
	found, _, err := bodies.PlanDelete(ref)
	if err != nil {
		return nil, "", err
	}
	if found.Whole {
		ref = found.Path // whatever it was found by
	}
	snap, err := b.stockFiles(ctx, agentID, bodies.Commit, []string{found.Path})
	return snap, ref, err
}

// stockSearch searches here what the server lists.
func (b *Bridge) stockSearch(ctx context.Context, agentID string, q memory.Query) (*SearchResult, error) {
	snap, err := b.stockBodies(ctx, agentID)
	if err != nil {
		return nil, err
	}
	x := b.indexes.of(agentID)
	x.Update(snap)
	return &SearchResult{Mode: memory.ModeLexical, Results: hits(x.Search(q))}, nil
}

// changedPaths is what commits after one changed, as far as the server tells.
func (b *Bridge) changedPaths(ctx context.Context, agentID, before string) ([]string, error) {
	list, err := b.history(ctx, agentID, "", memory.DefaultHistory)
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, c := range list {
		if c.SHA == before {
			break
		}
		r, err := read(ctx, b, &protocol.MemoryCommitDiff{AgentID: agentID, SHA: c.SHA})
		if err != nil {
			return nil, err
		}
		if r.Diff != nil {
			paths = append(paths, pathsOfDiff(*r.Diff)...)
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths), nil
}

// lockedText is what the model of a stock server reads instead of a tool's
// result: there is no other way to keep it from writing.
const lockedText = "storage_locked: this conversation can only read. Nothing was run and nothing was changed. Answer with what you know."

// stockDecide denies whatever asks.
func stockDecide(*Approval) Decision { return Decision{Message: lockedText} }

// stockStorage looks for what a turn has changed all the same.
func (b *Bridge) stockStorage(ctx context.Context, agentID, before string, blocked int) (Storage, string, error) {
	after, err := b.head(ctx, agentID)
	if err != nil {
		return Storage{}, "", err
	}
	s := Storage{Locked: true, CommitBefore: orNull(before), CommitAfter: orNull(after), WritesBlocked: blocked}
	if before == after {
		return s, "", nil
	}
	s.Locked = false
	if s.Changed, err = b.changedPaths(ctx, agentID, before); err != nil {
		return Storage{}, "", err
	}
	b.compare(agentID, after)
	return s, "The memory was changed while the agent answered, by this turn or by somebody else.", nil
}

// hide puts away the conversation of a turn, which cannot be deleted over the
// protocol.
func (b *Bridge) hide(ctx context.Context, conversationID string) string {
	yes := true
	_, err := write(ctx, b, &protocol.ConversationUpdate{ConversationID: conversationID, Body: protocol.ConversationBody{Archived: &yes, Hidden: &yes}})
	if err != nil && agent.CodeOf(err) != agent.CodeNotFound {
		b.log.Debug("conversation not archived", "conversation", conversationID, "err", err)
		return "The App Server keeps the conversation " + conversationID + " of this question."
	}
	return "The App Server keeps the conversation " + conversationID + " of this question, archived and hidden."
}
