package protocol

// The commands of this file are mneme's own (spec/app-server-commands.md
// section 2.13). A client sends one only where [Capabilities] announces it.

// MemorySnapshot reads all memory files of an agent at one commit.
type MemorySnapshot struct {
	AgentID string  `json:"agent_id"`
	Ref     *string `json:"ref,omitempty"` // full commit id; nil = the newest
	// Paths are files and directories; none = all.
	Paths   []string `json:"paths,omitzero"`
	Content *bool    `json:"content,omitempty"` // nil = true
	Raw     *bool    `json:"raw,omitempty"`     // content with front matter; nil = false
	Offset  *int     `json:"offset,omitempty"`
	Limit   *int     `json:"limit,omitempty"`
}

// CommandType returns "memory_snapshot".
func (*MemorySnapshot) CommandType() string { return "memory_snapshot" }

// NewResponse makes the empty response.
func (*MemorySnapshot) NewResponse() *MemorySnapshotResponse { return new(MemorySnapshotResponse) }

func (c *MemorySnapshot) decode(o *object) {
	c.AgentID = o.str("agent_id")
	c.Ref = o.optStr("ref")
	c.Paths = o.optStrings("paths")
	c.Content = o.optBool("content")
	c.Raw = o.optBool("raw")
	c.Offset = o.optInt("offset")
	c.Limit = o.optInt("limit")
}

// MemorySnapshotResponse answers [MemorySnapshot], sorted by path.
type MemorySnapshotResponse struct {
	Commit    *string            `json:"commit"` // nil = nothing written yet
	Files     List[SnapshotFile] `json:"files"`
	Total     int                `json:"total"`
	Truncated bool               `json:"truncated"`
}

// A SnapshotFile is one file of a snapshot.
type SnapshotFile struct {
	RelativePath string       `json:"relative_path"`
	IsSystem     bool         `json:"is_system"`
	Description  *string      `json:"description"`
	Content      *string      `json:"content,omitempty"` // byte for byte; empty for images
	Size         int          `json:"size"`              // characters of the content; bytes of an image
	References   []string     `json:"references,omitzero"`
	Kind         string       `json:"kind"`
	MimeType     string       `json:"mime_type"`
	Tags         List[string] `json:"tags"`
	UpdatedAt    string       `json:"updated_at"`
	ReadOnly     bool         `json:"read_only,omitempty"`
	Limit        *int         `json:"limit,omitempty"` // characters, if the file names one
}

// MemorySearch ranks pieces of an agent's memory; no model, no write.
type MemorySearch struct {
	AgentID string `json:"agent_id"`
	Query   string `json:"query"`
	TopK    *int   `json:"top_k,omitempty"` // nil = 5, at most 20
}

// CommandType returns "memory_search".
func (*MemorySearch) CommandType() string { return "memory_search" }

// NewResponse makes the empty response.
func (*MemorySearch) NewResponse() *MemorySearchResponse { return new(MemorySearchResponse) }

func (c *MemorySearch) decode(o *object) {
	c.AgentID = o.str("agent_id")
	c.Query = o.str("query")
	c.TopK = o.optInt("top_k")
}

// MemorySearchResponse answers [MemorySearch].
type MemorySearchResponse struct {
	Commit  *string         `json:"commit"`
	Mode    string          `json:"mode"` // "lexical" or "hybrid"
	Results List[MemoryHit] `json:"results"`
	Warning string          `json:"warning,omitempty"` // why the mode is not hybrid though a model is set
}

// A MemoryHit is one result, at most one per file (spec/mcp.md section 5.2).
type MemoryHit struct {
	ID        string       `json:"id"`
	Path      string       `json:"path"`
	URI       string       `json:"uri"`
	Label     string       `json:"label"`
	Score     float64      `json:"score"`
	Snippet   string       `json:"snippet"`
	Tags      List[string] `json:"tags"`
	UpdatedAt string       `json:"updated_at"`
}

// WatchChanges turns the change events of all agents on or off for this
// connection.
type WatchChanges struct {
	Enabled bool `json:"enabled"`
}

// CommandType returns "watch_changes".
func (*WatchChanges) CommandType() string { return "watch_changes" }

// NewResponse makes the empty response.
func (*WatchChanges) NewResponse() *WatchChangesResponse { return new(WatchChangesResponse) }

func (c *WatchChanges) decode(o *object) { c.Enabled = o.boolean("enabled") }

// WatchChangesResponse answers [WatchChanges].
type WatchChangesResponse struct {
	Enabled bool `json:"enabled"`
}
