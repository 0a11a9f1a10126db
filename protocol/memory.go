package protocol

// An Encoding says how file content is carried.
type Encoding string

// The encodings. The empty one means UTF8.
const (
	UTF8   Encoding = "utf8"
	Base64 Encoding = "base64"
)

var encodings = []Encoding{UTF8, Base64}

// ListMemory lists an agent's memory files (spec/app-server-commands.md section
// 2.7). The answer comes in frames of five entries; see
// [ListMemoryResponse.More].
type ListMemory struct {
	AgentID           string `json:"agent_id"`
	IncludeReferences *bool  `json:"include_references,omitempty"`
}

// CommandType returns "list_memory".
func (*ListMemory) CommandType() string { return "list_memory" }

// NewResponse makes the empty response.
func (*ListMemory) NewResponse() *ListMemoryResponse { return new(ListMemoryResponse) }

func (c *ListMemory) decode(o *object) {
	c.AgentID = o.str("agent_id")
	c.IncludeReferences = o.optBool("include_references")
}

// ListMemoryResponse is one frame of the answer to [ListMemory].
type ListMemoryResponse struct {
	Entries          List[MemoryEntry] `json:"entries"`
	Done             bool              `json:"done"`
	Total            int               `json:"total"` // of all frames
	MemfsEnabled     bool              `json:"memfs_enabled"`
	MemfsInitialized bool              `json:"memfs_initialized"`
}

// More reports whether another frame follows.
func (r *ListMemoryResponse) More() bool { return !r.Done }

// Add appends what the next frame brought.
func (r *ListMemoryResponse) Add(next *ListMemoryResponse) {
	entries := append(r.Entries, next.Entries...)
	*r = *next
	r.Entries = entries
}

// A MemoryEntry is one memory file (spec/app-server-commands.md section 4.5).
type MemoryEntry struct {
	RelativePath string   `json:"relative_path"`
	IsSystem     bool     `json:"is_system"` // below system/
	Description  *string  `json:"description"`
	Content      string   `json:"content"` // without front matter; empty for images
	Size         int      `json:"size"`    // characters of the content; bytes of an image
	References   []string `json:"references,omitzero"`
	Kind         string   `json:"kind"` // "markdown" or "image"
	MimeType     string   `json:"mime_type"`
}

// MemoryHistory lists the commits of an agent's memory, newest first.
type MemoryHistory struct {
	AgentID  string  `json:"agent_id"`
	FilePath *string `json:"file_path,omitempty"` // nil = of all files
	Limit    *int    `json:"limit,omitempty"`     // nil = 50
}

// CommandType returns "memory_history".
func (*MemoryHistory) CommandType() string { return "memory_history" }

// NewResponse makes the empty response.
func (*MemoryHistory) NewResponse() *MemoryHistoryResponse { return new(MemoryHistoryResponse) }

func (c *MemoryHistory) decode(o *object) {
	c.AgentID = o.str("agent_id")
	c.FilePath = o.optStr("file_path")
	c.Limit = o.optInt("limit")
}

// MemoryHistoryResponse answers [MemoryHistory].
type MemoryHistoryResponse struct {
	FilePath string             `json:"file_path"` // empty = all
	Commits  List[MemoryCommit] `json:"commits"`
}

// A MemoryCommit is one commit.
type MemoryCommit struct {
	SHA        string `json:"sha"`
	Message    string `json:"message"` // subject line
	Timestamp  string `json:"timestamp"`
	AuthorName string `json:"author_name"`
}

// MemoryFileAtRef reads a memory file as of a commit.
type MemoryFileAtRef struct {
	AgentID  string `json:"agent_id"`
	FilePath string `json:"file_path"`
	Ref      string `json:"ref"`
}

// CommandType returns "memory_file_at_ref".
func (*MemoryFileAtRef) CommandType() string { return "memory_file_at_ref" }

// NewResponse makes the empty response.
func (*MemoryFileAtRef) NewResponse() *MemoryFileAtRefResponse { return new(MemoryFileAtRefResponse) }

func (c *MemoryFileAtRef) decode(o *object) {
	c.AgentID = o.str("agent_id")
	c.FilePath = o.str("file_path")
	c.Ref = o.str("ref")
}

// MemoryFileAtRefResponse answers [MemoryFileAtRef].
type MemoryFileAtRefResponse struct {
	FilePath string  `json:"file_path"`
	Ref      string  `json:"ref"`
	Content  *string `json:"content"`
}

// MemoryCommitDiff reads what a commit changed.
type MemoryCommitDiff struct {
	AgentID string `json:"agent_id"`
	SHA     string `json:"sha"`
}

// CommandType returns "memory_commit_diff".
func (*MemoryCommitDiff) CommandType() string { return "memory_commit_diff" }

// NewResponse makes the empty response.
func (*MemoryCommitDiff) NewResponse() *MemoryCommitDiffResponse {
	return new(MemoryCommitDiffResponse)
}

func (c *MemoryCommitDiff) decode(o *object) {
	c.AgentID = o.str("agent_id")
	c.SHA = o.str("sha")
}

// MemoryCommitDiffResponse answers [MemoryCommitDiff].
type MemoryCommitDiffResponse struct {
	SHA  string  `json:"sha"`
	Diff *string `json:"diff"` // unified
}

// ReadMemoryFile reads a memory file with its front matter.
type ReadMemoryFile struct {
	AgentID  string   `json:"agent_id"`
	Path     string   `json:"path"`
	Encoding Encoding `json:"encoding,omitempty"`
}

// CommandType returns "read_memory_file".
func (*ReadMemoryFile) CommandType() string { return "read_memory_file" }

// NewResponse makes the empty response.
func (*ReadMemoryFile) NewResponse() *ReadMemoryFileResponse { return new(ReadMemoryFileResponse) }

func (c *ReadMemoryFile) decode(o *object) {
	c.AgentID = o.str("agent_id")
	c.Path = o.str("path")
	c.Encoding = optOneOf(o, "encoding", encodings)
}

// ReadMemoryFileResponse answers [ReadMemoryFile].
type ReadMemoryFileResponse struct {
	AgentID  string   `json:"agent_id"`
	Path     string   `json:"path"` // normalised
	Content  *string  `json:"content"`
	Encoding Encoding `json:"encoding"`
}

// WriteMemoryFile writes a memory file and commits it.
type WriteMemoryFile struct {
	AgentID       string   `json:"agent_id"`
	Path          string   `json:"path"`
	Content       string   `json:"content"`
	Encoding      Encoding `json:"encoding,omitempty"`
	CommitMessage *string  `json:"commit_message,omitempty"`
}

// CommandType returns "write_memory_file".
func (*WriteMemoryFile) CommandType() string { return "write_memory_file" }

// NewResponse makes the empty response.
func (*WriteMemoryFile) NewResponse() *WriteMemoryFileResponse { return new(WriteMemoryFileResponse) }

func (c *WriteMemoryFile) decode(o *object) {
	c.AgentID = o.str("agent_id")
	c.Path = o.str("path")
	c.Content = o.str("content")
	c.Encoding = optOneOf(o, "encoding", encodings)
	c.CommitMessage = o.optStr("commit_message")
}

// WriteMemoryFileResponse answers [WriteMemoryFile].
type WriteMemoryFileResponse struct {
	AgentID   string `json:"agent_id"`
	Path      string `json:"path"`
	Committed bool   `json:"committed"` // false: nothing changed
	CommitSHA string `json:"commit_sha,omitempty"`
}

// DeleteMemoryFile removes a memory file and commits that.
type DeleteMemoryFile struct {
	AgentID       string  `json:"agent_id"`
	Path          string  `json:"path"`
	CommitMessage *string `json:"commit_message,omitempty"`
}

// CommandType returns "delete_memory_file".
func (*DeleteMemoryFile) CommandType() string { return "delete_memory_file" }

// NewResponse makes the empty response.
func (*DeleteMemoryFile) NewResponse() *DeleteMemoryFileResponse {
	return new(DeleteMemoryFileResponse)
}

func (c *DeleteMemoryFile) decode(o *object) {
	c.AgentID = o.str("agent_id")
	c.Path = o.str("path")
	c.CommitMessage = o.optStr("commit_message")
}

// DeleteMemoryFileResponse answers [DeleteMemoryFile].
type DeleteMemoryFileResponse struct {
	AgentID   string `json:"agent_id"`
	Path      string `json:"path"`
	Committed bool   `json:"committed"` // false: there was no such file
	CommitSHA string `json:"commit_sha,omitempty"`
}

// EnableMemfs gives an agent its memory repository.
type EnableMemfs struct {
	AgentID string `json:"agent_id"`
}

// CommandType returns "enable_memfs".
func (*EnableMemfs) CommandType() string { return "enable_memfs" }

// NewResponse makes the empty response.
func (*EnableMemfs) NewResponse() *EnableMemfsResponse { return new(EnableMemfsResponse) }

func (c *EnableMemfs) decode(o *object) { c.AgentID = o.str("agent_id") }

// EnableMemfsResponse answers [EnableMemfs]. The directory is missing in a
// failure.
type EnableMemfsResponse struct {
	MemoryDirectory string `json:"memory_directory,omitempty"`
}
