package mcpserver

import (
	"context"
	"fmt"
	"strings"

	"mneme/internal/agent"
	"mneme/internal/memory"
	"mneme/protocol"
)

const (
	maxText  = 64 << 10 // bytes of a saved text
	maxQuery = 2000     // characters
	maxTopK  = 20
	maxFiles = 500 // listed by memory_get
)

func memoryTools(cfg *Config) []*tool {
	return []*tool{
		{
			name: "memory_save", title: "Save to memory",
			about: "File a text in an agent's memory, word for word, for good. No model is asked. Saving the same text again changes nothing, so a call may be repeated. One fact per call is found best.",
			params: []param{
				agentParam(),
				{name: "text", kind: kindText, required: true, max: maxText, bytes: true, about: "What to remember. At most 64 KiB."},
				{name: "tags", kind: kindTags, about: "Words to find it by."},
			},
			data: `{"type":"object","required":["saved","agent_id","agent_name","tags","detail","id","path","commit","created"],"properties":{"saved":{"const":true},` + agentIDs + `,` +
				`"tags":{"type":"array","items":{"type":"string"}},"detail":{"type":"string"},"id":{"type":"string"},"path":{"type":"string"},"commit":{"type":"string"},"created":{"type":"boolean"}}}`,
			hints: hints{idempotent: true},
			run:   saveMemory,
		},
		{
			name: "memory_search", title: "Search memory",
			about: "Search an agent's memory and get the passages that fit best, with their files. Questions in plain language work. Nothing is changed and no model is asked; to have the agent reason, use session_ask.",
			params: []param{
				agentParam(),
				{name: "query", kind: kindText, required: true, max: maxQuery, about: "What to look for."},
				{name: "top_k", kind: kindInt, min: 1, max: maxTopK, preset: cfg.TopK, about: "How many results at most."},
			},
			data: `{"type":"object","required":["agent_id","agent_name","query","top_k","answer","results","mode"],"properties":{` + agentIDs + `,` +
				`"query":{"type":"string"},"top_k":{"type":"integer"},"answer":{"type":"string"},"mode":{"enum":["lexical","hybrid"]},` +
				`"results":{"type":"array","items":{"type":"object","required":["id","path","uri","label","score","snippet","tags","updated_at"],"properties":{` +
				`"id":{"type":"string"},"path":{"type":"string"},"uri":{"type":"string"},"label":{"type":"string"},"score":{"type":"number"},"snippet":{"type":"string"},"tags":{"type":"array","items":{"type":"string"}},"updated_at":{"type":"string"}}}}}}`,
			hints: hints{readOnly: true, idempotent: true},
			run:   searchMemory,
		},
		{
			name: "memory_get", title: "Read memory",
			about:  "Read an agent's core memory in full (its blocks, which are always before it) and list its other memory files. To find something in those, use memory_search.",
			params: []param{agentParam()},
			data: `{"type":"object","required":["agent_id","agent_name","blocks","files","commit"],"properties":{` + agentIDs + `,"commit":{"type":["string","null"]},` +
				`"blocks":{"type":"array","items":{"type":"object","required":["label","value","description","path","size","read_only"],"properties":{"label":{"type":"string"},"value":{"type":"string"},"description":{"type":["string","null"]},"path":{"type":"string"},"size":{"type":"integer"},"limit":{"type":"integer"},"read_only":{"type":"boolean"}}}},` +
				`"files":{"type":"array","items":{"type":"object","required":["path","description","size"],"properties":{"path":{"type":"string"},"description":{"type":["string","null"]},"size":{"type":"integer"}}}}}}`,
			hints: hints{readOnly: true, idempotent: true},
			run:   getMemory,
		},
		{
			name: "memory_delete", title: "Delete from memory",
			about: "Delete one thing from an agent's memory: a saved item by its id, a file by its path, a block by its label, or the one item or paragraph that contains a text. Anything else than exactly one hit changes nothing. The commit named in the answer still holds what was deleted.",
			params: []param{
				agentParam(),
				{name: "id", kind: kindText, required: true, max: maxQuery, about: "Id of a saved item, path of a file, label of a block, or a text that only one place contains."},
			},
			data: `{"type":"object","required":["deleted","agent_id","agent_name","ref","detail","path","commit"],"properties":{"deleted":{"const":true},` + agentIDs + `,` +
				`"ref":{"type":"string"},"detail":{"type":"string"},"path":{"type":"string"},"commit":{"type":"string"}}}`,
			hints: hints{destructive: true, idempotent: true},
			run:   deleteMemory,
		},
	}
}

func saveMemory(ctx context.Context, c *call) (any, error) {
	ag, err := c.agent(ctx)
	if err != nil {
		return nil, err
	}
	saved, err := c.backend.Save(ctx, ag.ID, memory.Item{Text: c.args.text("text"), Tags: c.args.tags("tags")})
	if err != nil {
		return nil, agentGone(err)
	}
	if c.cfg.MemoryIndex && saved.Created {
		if err := c.index(ctx, ag.ID); err != nil {
			c.warn("The text is saved, but the index of saved items could not be brought up to date: " + line(explain(err).Message))
		}
	}
	return struct {
		Saved     bool                  `json:"saved"`
		AgentID   string                `json:"agent_id"`
		AgentName string                `json:"agent_name"`
		Tags      protocol.List[string] `json:"tags"`
		Detail    string                `json:"detail"`
		ID        string                `json:"id"`
		Path      string                `json:"path"`
		Commit    string                `json:"commit"`
		Created   bool                  `json:"created"`
	}{true, ag.ID, ag.Name, saved.Tags, saved.Detail, saved.ID, saved.Path, saved.Commit, saved.Created}, nil
}

// noMatch is what memory_search answers if there is nothing.
const noMatch = "No matching memory."

func searchMemory(ctx context.Context, c *call) (any, error) {
	ag, err := c.agent(ctx)
	if err != nil {
		return nil, err
	}
	query, k := c.args.text("query"), c.args.number("top_k", c.cfg.TopK)
	found, err := c.backend.Search(ctx, ag.ID, query, k)
	if err != nil {
		return nil, agentGone(err)
	}
	if found.Warning != "" {
		c.warn(found.Warning)
	}
	for i := range found.Results {
		found.Results[i].URI = fileURI(ag.ID, found.Results[i].Path)
	}
	return struct {
		AgentID   string                            `json:"agent_id"`
		AgentName string                            `json:"agent_name"`
		Query     string                            `json:"query"`
		TopK      int                               `json:"top_k"`
		Answer    string                            `json:"answer"`
		Results   protocol.List[protocol.MemoryHit] `json:"results"`
		Mode      string                            `json:"mode"`
	}{ag.ID, ag.Name, query, k, answerOf(found.Results), found.Results, found.Mode}, nil
}

// answerOf is the results as a numbered list.
func answerOf(results []protocol.MemoryHit) string {
	if len(results) == 0 {
		return noMatch
	}
	var b strings.Builder
	for i, r := range results {
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "%d. `%s`: %s", i+1, r.Path, line(r.Snippet))
	}
	return b.String()
}

// A block is a core memory file of memory_get.
type block struct {
	Label       string  `json:"label"`
	Value       string  `json:"value"`
	Description *string `json:"description"`
	Path        string  `json:"path"`
	Size        int     `json:"size"`            // characters
	Limit       int     `json:"limit,omitempty"` // characters, if the file names one
	ReadOnly    bool    `json:"read_only"`
}

// A listed file is any other one of memory_get.
type listedFile struct {
	Path        string  `json:"path"`
	Description *string `json:"description"`
	Size        int     `json:"size"` // characters; bytes of an image
}

func getMemory(ctx context.Context, c *call) (any, error) {
	ag, err := c.agent(ctx)
	if err != nil {
		return nil, err
	}
	snap, err := c.backend.Memory(ctx, ag.ID, Core)
	if err != nil {
		return nil, agentGone(err)
	}
	all := snap.Contents()
	blocks := make([]block, 0, len(all.Blocks))
	for _, f := range all.Blocks {
		b := block{Label: f.Label(), Value: f.Body, Description: described(f), Path: f.Path, Size: f.Chars(), ReadOnly: f.ReadOnly}
		if f.Front["limit"] != nil {
			b.Limit = f.Limit
		}
		blocks = append(blocks, b)
	}
	files := make([]listedFile, 0, min(maxFiles, len(all.Files)))
	for _, f := range all.Files[:min(maxFiles, len(all.Files))] {
		files = append(files, listedFile{Path: f.Path, Description: described(f), Size: sizeOf(f)})
	}
	if len(all.Files) > maxFiles {
		c.note("total", len(all.Files))
		c.note("truncated", true)
	}
	return struct {
		AgentID   string       `json:"agent_id"`
		AgentName string       `json:"agent_name"`
		Blocks    []block      `json:"blocks"`
		Files     []listedFile `json:"files"`
		Commit    *string      `json:"commit"`
	}{ag.ID, ag.Name, blocks, files, orNull(snap.Commit)}, nil
}

func described(f *memory.File) *string { return orNull(f.Description) }

// sizeOf is characters of a text, bytes of an image.
func sizeOf(f *memory.File) int {
	if f.Kind == memory.KindMarkdown && !f.Oversized {
		return f.Chars()
	}
	return int(f.Size)
}

// orNull is nil for "".
func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func deleteMemory(ctx context.Context, c *call) (any, error) {
	ag, err := c.agent(ctx)
	if err != nil {
		return nil, err
	}
	ref := c.args.text("id")
	removed, err := c.backend.DeleteItem(ctx, ag.ID, ref)
	switch agent.CodeOf(err) {
	case agent.CodeNotFound:
		return nil, itemNotFound(ctx, c.backend, ag, err)
	case agent.CodeAmbiguous:
		return nil, &Error{Code: CodeItemAmbiguous, Message: line(err.Error()), Err: err}
	}
	if err != nil {
		return nil, err
	}
	if c.cfg.MemoryIndex && strings.HasPrefix(removed.Path, savedDir) {
		if err := c.index(ctx, ag.ID); err != nil {
			c.warn("The text is deleted, but the index of saved items could not be brought up to date: " + line(explain(err).Message))
		}
	}
	return struct {
		Deleted   bool   `json:"deleted"`
		AgentID   string `json:"agent_id"`
		AgentName string `json:"agent_name"`
		Ref       string `json:"ref"`
		Detail    string `json:"detail"`
		Path      string `json:"path"`
		Commit    string `json:"commit"`
	}{true, ag.ID, ag.Name, ref, removed.Detail, removed.Path, removed.Commit}, nil
}

// itemNotFound tells a memory item that is not there from an agent that was
// deleted meanwhile: both are CodeNotFound.
func itemNotFound(ctx context.Context, b Backend, ag *Agent, err error) error {
	if _, gone := b.Agent(ctx, ag.ID); agent.CodeOf(gone) == agent.CodeNotFound {
		return agentGone(gone)
	}
	return &Error{Code: CodeItemNotFound, Message: line(err.Error()), Err: err}
}
