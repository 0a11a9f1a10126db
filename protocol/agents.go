package protocol

// AgentBody holds the fields of an agent that a client may set. Nil or missing
// fields are left as they are (spec/app-server-commands.md section 2.2).
type AgentBody struct {
	Name               *string          `json:"name,omitempty"`
	Description        Optional[string] `json:"description,omitzero"` // null clears
	System             *string          `json:"system,omitempty"`
	Model              *string          `json:"model,omitempty"`
	ModelSettings      Object           `json:"model_settings,omitzero"`
	ContextWindowLimit *int             `json:"context_window_limit,omitempty"` // tokens
	MaxTokens          *int             `json:"max_tokens,omitempty"`
	ParallelToolCalls  *bool            `json:"parallel_tool_calls,omitempty"`
	Tags               []string         `json:"tags,omitzero"` // replaces the whole list
	Hidden             *bool            `json:"hidden,omitempty"`
	CompactionSettings Optional[Object] `json:"compaction_settings,omitzero"`
	MemoryBlocks       []MemoryBlock    `json:"memory_blocks,omitzero"` // at creation only; nil = none given
	// Embedding is a mneme extension: the handle of the model that memory is
	// searched with, at creation only.
	Embedding *string `json:"embedding,omitempty"`
}

// A MemoryBlock is a memory file that a new agent starts with.
type MemoryBlock struct {
	Label       string  `json:"label"` // the server judges it; empty if missing
	Value       string  `json:"value"`
	Description *string `json:"description,omitempty"`
}

func (b *AgentBody) read(o *object) {
	// Clients send null for "not set"; only where null means something is it
	// told apart.
	o.nullOmits = true
	b.Name = o.optStr("name")
	b.Description = o.nullableStr("description")
	b.System = o.optStr("system")
	b.Model = o.optStr("model")
	b.ModelSettings = o.optRaw("model_settings")
	b.ContextWindowLimit = o.optInt("context_window_limit")
	b.MaxTokens = o.optInt("max_tokens")
	b.ParallelToolCalls = o.optBool("parallel_tool_calls")
	b.Tags = o.optStrings("tags")
	b.Hidden = o.optBool("hidden")
	b.CompactionSettings = o.nullableRaw("compaction_settings")
	if s, ok := o.maybeStr("embedding"); ok && s != "" {
		b.Embedding = &s // stock servers ignore the field, whatever it holds
	}
	if o.has("memory_blocks") {
		b.MemoryBlocks = []MemoryBlock{}
		for m := range o.objects("memory_blocks") {
			block := MemoryBlock{Description: m.optStr("description")}
			if s := m.optStr("label"); s != nil {
				block.Label = *s
			}
			if s := m.optStr("value"); s != nil {
				block.Value = *s
			}
			b.MemoryBlocks = append(b.MemoryBlocks, block)
		}
	}
}

// AgentState is an agent as the server shows it (spec/app-server-commands.md
// section 4.1).
type AgentState struct {
	ID                  string           `json:"id"`
	Name                string           `json:"name"`
	Description         *string          `json:"description"`
	System              string           `json:"system"`
	Tools               List[Object]     `json:"tools"` // always empty on this door
	Tags                List[string]     `json:"tags"`
	Model               string           `json:"model"` // a handle
	ModelSettings       Object           `json:"model_settings"`
	Hidden              *bool            `json:"hidden,omitempty"`
	CompactionSettings  Optional[Object] `json:"compaction_settings,omitzero"`
	MessageIDs          List[string]     `json:"message_ids"`
	InContextMessageIDs List[string]     `json:"in_context_message_ids"`
	LastRunCompletion   string           `json:"last_run_completion"`
	LLMConfig           LLMConfig        `json:"llm_config"`
	// What follows is only on mneme.
	CreatedAt       string           `json:"created_at,omitempty"`
	UpdatedAt       string           `json:"updated_at,omitempty"`
	PendingApproval *PendingApproval `json:"pending_approval"` // nil = not parked
}

// LLMConfig describes an agent's model.
type LLMConfig struct {
	Model             string  `json:"model"`
	ModelEndpointType *string `json:"model_endpoint_type"`
	ModelEndpoint     string  `json:"model_endpoint"`
	ContextWindow     int     `json:"context_window"` // tokens
	ReasoningEffort   *string `json:"reasoning_effort,omitempty"`
	EnableReasoner    *bool   `json:"enable_reasoner,omitempty"`
	MaxTokens         *int    `json:"max_tokens,omitempty"`
}

// PendingApproval is the call an agent waits for.
type PendingApproval struct {
	RequestID      string `json:"request_id"`
	ConversationID string `json:"conversation_id"`
	Kind           string `json:"kind"` // "permission", "question" or "client_tool"
	ToolName       string `json:"tool_name"`
	ToolCallID     string `json:"tool_call_id"`
	Input          Object `json:"input"`
}

// AgentList lists agents.
type AgentList struct {
	Query *AgentQuery `json:"query,omitempty"`
}

// AgentQuery filters [AgentList].
type AgentQuery struct {
	Limit     *int     `json:"limit,omitempty"`
	After     *string  `json:"after,omitempty"` // agent id
	Tags      []string `json:"tags,omitzero"`   // all must match
	QueryText *string  `json:"query_text,omitempty"`
	// IncludeHidden is a mneme extension; nil = false.
	IncludeHidden *bool `json:"include_hidden,omitempty"`
}

// CommandType returns "agent_list".
func (*AgentList) CommandType() string { return "agent_list" }

// NewResponse makes the empty response.
func (*AgentList) NewResponse() *AgentListResponse { return new(AgentListResponse) }

func (c *AgentList) decode(o *object) {
	if !o.has("query") {
		return
	}
	q := o.child("query")
	q.nullOmits = true
	c.Query = &AgentQuery{
		Limit:     q.optInt("limit"),
		After:     q.optStr("after"),
		Tags:      q.optStrings("tags"),
		QueryText: q.optStr("query_text"),

		IncludeHidden: q.optBool("include_hidden"),
	}
}

// AgentListResponse answers [AgentList].
type AgentListResponse struct {
	Agents List[AgentState] `json:"agents"`
}

// AgentRetrieve reads one agent.
type AgentRetrieve struct {
	AgentID string `json:"agent_id"`
}

// CommandType returns "agent_retrieve".
func (*AgentRetrieve) CommandType() string { return "agent_retrieve" }

// NewResponse makes the empty response.
func (*AgentRetrieve) NewResponse() *AgentRetrieveResponse { return new(AgentRetrieveResponse) }

func (c *AgentRetrieve) decode(o *object) { c.AgentID = o.str("agent_id") }

// AgentRetrieveResponse answers [AgentRetrieve].
type AgentRetrieveResponse struct {
	Agent *AgentState `json:"agent"`
}

// AgentCreate makes an agent.
type AgentCreate struct {
	Body AgentBody `json:"body"`
}

// CommandType returns "agent_create".
func (*AgentCreate) CommandType() string { return "agent_create" }

// NewResponse makes the empty response.
func (*AgentCreate) NewResponse() *AgentCreateResponse { return new(AgentCreateResponse) }

func (c *AgentCreate) decode(o *object) { c.Body.read(o.child("body")) }

// AgentCreateResponse answers [AgentCreate].
type AgentCreateResponse struct {
	Agent *AgentState `json:"agent"`
}

// AgentUpdate changes an agent.
type AgentUpdate struct {
	AgentID string    `json:"agent_id"`
	Body    AgentBody `json:"body"`
}

// CommandType returns "agent_update".
func (*AgentUpdate) CommandType() string { return "agent_update" }

// NewResponse makes the empty response.
func (*AgentUpdate) NewResponse() *AgentUpdateResponse { return new(AgentUpdateResponse) }

func (c *AgentUpdate) decode(o *object) {
	c.AgentID = o.str("agent_id")
	c.Body.read(o.child("body"))
}

// AgentUpdateResponse answers [AgentUpdate].
type AgentUpdateResponse struct {
	Agent *AgentState `json:"agent"`
}

// AgentDelete removes an agent and its conversations.
type AgentDelete struct {
	AgentID string `json:"agent_id"`
}

// CommandType returns "agent_delete".
func (*AgentDelete) CommandType() string { return "agent_delete" }

// NewResponse makes the empty response.
func (*AgentDelete) NewResponse() *AgentDeleteResponse { return new(AgentDeleteResponse) }

func (c *AgentDelete) decode(o *object) { c.AgentID = o.str("agent_id") }

// AgentDeleteResponse answers [AgentDelete].
type AgentDeleteResponse struct {
	AgentID string `json:"agent_id"`
}
