package protocol

// ConversationBody holds the fields of a conversation that a client may set.
// Missing fields are left as they are (spec/app-server-commands.md section
// 2.3). AgentID counts at creation, Archived and LastMessageAt at an update.
type ConversationBody struct {
	AgentID            *string          `json:"agent_id,omitempty"`
	Summary            Optional[string] `json:"summary,omitzero"`
	Model              Optional[string] `json:"model,omitzero"`
	ModelSettings      Optional[Object] `json:"model_settings,omitzero"`
	System             *string          `json:"system,omitempty"` // agent-free conversations only
	MaxTokens          *int             `json:"max_tokens,omitempty"`
	ContextWindowLimit *int             `json:"context_window_limit,omitempty"` // tokens
	Hidden             *bool            `json:"hidden,omitempty"`
	Tags               []string         `json:"tags,omitzero"`
	// Archived: null is the same as false.
	Archived      *bool   `json:"archived,omitempty"`
	LastMessageAt *string `json:"last_message_at,omitempty"` // stored verbatim
}

func (b *ConversationBody) read(o *object) {
	o.nullOmits = true
	b.AgentID = o.optStr("agent_id")
	b.Summary = o.nullableStr("summary")
	b.Model = o.nullableStr("model")
	b.ModelSettings = o.nullableRaw("model_settings")
	b.System = o.optStr("system")
	b.MaxTokens = o.optInt("max_tokens")
	b.ContextWindowLimit = o.optInt("context_window_limit")
	b.Hidden = o.optBool("hidden")
	b.Tags = o.optStrings("tags")
	b.Archived = o.optBool("archived")
	if o.isNull("archived") {
		b.Archived = new(bool)
	}
	b.LastMessageAt = o.optStr("last_message_at")
}

// Conversation is a conversation as the server shows it
// (spec/app-server-commands.md section 4.2).
type Conversation struct {
	ID                  string       `json:"id"`
	AgentID             string       `json:"agent_id"`
	Archived            bool         `json:"archived"`
	ArchivedAt          *string      `json:"archived_at"`
	CreatedAt           string       `json:"created_at"`
	UpdatedAt           string       `json:"updated_at"`
	LastMessageAt       *string      `json:"last_message_at"`
	Summary             *string      `json:"summary"`
	InContextMessageIDs List[string] `json:"in_context_message_ids"`
	// What follows is there only if it was ever set.
	Model              Optional[string] `json:"model,omitzero"`
	ModelSettings      Optional[Object] `json:"model_settings,omitzero"`
	ContextWindowLimit *int             `json:"context_window_limit,omitempty"`
	Hidden             *bool            `json:"hidden,omitempty"`
	Tags               []string         `json:"tags,omitzero"`
}

// ConversationList lists conversations.
type ConversationList struct {
	Query *ConversationQuery `json:"query,omitempty"`
}

// ConversationQuery filters [ConversationList].
type ConversationQuery struct {
	AgentID       *string `json:"agent_id,omitempty"`
	Limit         *int    `json:"limit,omitempty"`
	After         *string `json:"after,omitempty"`
	SummarySearch *string `json:"summary_search,omitempty"`
	IncludeHidden *bool   `json:"include_hidden,omitempty"`
}

// CommandType returns "conversation_list".
func (*ConversationList) CommandType() string { return "conversation_list" }

// NewResponse makes the empty response.
func (*ConversationList) NewResponse() *ConversationListResponse {
	return new(ConversationListResponse)
}

func (c *ConversationList) decode(o *object) {
	if !o.has("query") {
		return
	}
	q := o.child("query")
	q.nullOmits = true
	c.Query = &ConversationQuery{
		AgentID:       q.optStr("agent_id"),
		Limit:         q.optInt("limit"),
		After:         q.optStr("after"),
		SummarySearch: q.optStr("summary_search"),
		IncludeHidden: q.optBool("include_hidden"),
	}
}

// ConversationListResponse answers [ConversationList].
type ConversationListResponse struct {
	Conversations List[Conversation] `json:"conversations"`
}

// ConversationRetrieve reads one conversation.
type ConversationRetrieve struct {
	ConversationID string `json:"conversation_id"`
}

// CommandType returns "conversation_retrieve".
func (*ConversationRetrieve) CommandType() string { return "conversation_retrieve" }

// NewResponse makes the empty response.
func (*ConversationRetrieve) NewResponse() *ConversationRetrieveResponse {
	return new(ConversationRetrieveResponse)
}

func (c *ConversationRetrieve) decode(o *object) { c.ConversationID = o.str("conversation_id") }

// ConversationRetrieveResponse answers [ConversationRetrieve].
type ConversationRetrieveResponse struct {
	Conversation *Conversation `json:"conversation"`
}

// ConversationCreate makes a conversation.
type ConversationCreate struct {
	Body         ConversationBody `json:"body"`
	ActingUserID *string          `json:"acting_user_id,omitempty"`
}

// CommandType returns "conversation_create".
func (*ConversationCreate) CommandType() string { return "conversation_create" }

// NewResponse makes the empty response.
func (*ConversationCreate) NewResponse() *ConversationCreateResponse {
	return new(ConversationCreateResponse)
}

func (c *ConversationCreate) decode(o *object) {
	c.Body.read(o.child("body"))
	c.ActingUserID = o.optStr("acting_user_id")
}

// ConversationCreateResponse answers [ConversationCreate].
type ConversationCreateResponse struct {
	Conversation *Conversation `json:"conversation"`
}

// ConversationUpdate changes a conversation.
type ConversationUpdate struct {
	ConversationID string           `json:"conversation_id"`
	Body           ConversationBody `json:"body"`
}

// CommandType returns "conversation_update".
func (*ConversationUpdate) CommandType() string { return "conversation_update" }

// NewResponse makes the empty response.
func (*ConversationUpdate) NewResponse() *ConversationUpdateResponse {
	return new(ConversationUpdateResponse)
}

func (c *ConversationUpdate) decode(o *object) {
	c.ConversationID = o.str("conversation_id")
	c.Body.read(o.child("body"))
}

// ConversationUpdateResponse answers [ConversationUpdate].
type ConversationUpdateResponse struct {
	Conversation *Conversation `json:"conversation"`
}

// ConversationRecompile compiles a conversation's system prompt anew.
type ConversationRecompile struct {
	ConversationID string         `json:"conversation_id"`
	Body           *RecompileBody `json:"body,omitempty"`
}

// RecompileBody is the body of [ConversationRecompile].
type RecompileBody struct {
	AgentID *string `json:"agent_id,omitempty"` // needed for "default"
	DryRun  *bool   `json:"dry_run,omitempty"`  // true: the result is not kept
}

// CommandType returns "conversation_recompile".
func (*ConversationRecompile) CommandType() string { return "conversation_recompile" }

// NewResponse makes the empty response.
func (*ConversationRecompile) NewResponse() *ConversationRecompileResponse {
	return new(ConversationRecompileResponse)
}

func (c *ConversationRecompile) decode(o *object) {
	c.ConversationID = o.str("conversation_id")
	if !o.has("body") {
		return
	}
	b := o.child("body")
	b.nullOmits = true
	c.Body = &RecompileBody{AgentID: b.optStr("agent_id"), DryRun: b.optBool("dry_run")}
}

// ConversationRecompileResponse answers [ConversationRecompile].
type ConversationRecompileResponse struct {
	Result *string `json:"result"` // the whole compiled prompt
}

// ConversationFork copies a conversation.
type ConversationFork struct {
	ConversationID string    `json:"conversation_id"`
	Body           *ForkBody `json:"body,omitempty"`
	ActingUserID   *string   `json:"acting_user_id,omitempty"`
}

// ForkBody is the body of [ConversationFork].
type ForkBody struct {
	// AgentID is needed for "default"; otherwise it gives the copy to that
	// agent.
	AgentID   Optional[string] `json:"agent_id,omitzero"`
	Hidden    *bool            `json:"hidden,omitempty"`
	MessageID *string          `json:"message_id,omitempty"` // the last message to copy
}

// CommandType returns "conversation_fork".
func (*ConversationFork) CommandType() string { return "conversation_fork" }

// NewResponse makes the empty response.
func (*ConversationFork) NewResponse() *ConversationForkResponse {
	return new(ConversationForkResponse)
}

func (c *ConversationFork) decode(o *object) {
	c.ConversationID = o.str("conversation_id")
	c.ActingUserID = o.optStr("acting_user_id")
	if !o.has("body") {
		return
	}
	b := o.child("body")
	c.Body = &ForkBody{
		AgentID:   b.nullableStr("agent_id"),
		Hidden:    b.optBool("hidden"),
		MessageID: b.optStr("message_id"),
	}
}

// ConversationForkResponse answers [ConversationFork].
type ConversationForkResponse struct {
	Conversation *ForkedConversation `json:"conversation"`
}

// ForkedConversation names the copy.
type ForkedConversation struct {
	ID string `json:"id"`
}

// ConversationMessagesList reads a page of a conversation's messages
// (spec/app-server-commands.md section 2.3.1).
type ConversationMessagesList struct {
	ConversationID string        `json:"conversation_id"`
	Query          *MessageQuery `json:"query,omitempty"`
}

// MessageQuery selects the page. Before and After are message ids and mean time,
// whatever the order.
type MessageQuery struct {
	AgentID                   *string  `json:"agent_id,omitempty"` // needed for "default"
	Limit                     *int     `json:"limit,omitempty"`    // nil = 50
	Before                    *string  `json:"before,omitempty"`
	After                     *string  `json:"after,omitempty"`
	Order                     *string  `json:"order,omitempty"` // "asc"; anything else is desc
	IncludeReturnMessageTypes []string `json:"include_return_message_types,omitzero"`
}

// CommandType returns "conversation_messages_list".
func (*ConversationMessagesList) CommandType() string { return "conversation_messages_list" }

// NewResponse makes the empty response.
func (*ConversationMessagesList) NewResponse() *ConversationMessagesListResponse {
	return new(ConversationMessagesListResponse)
}

func (c *ConversationMessagesList) decode(o *object) {
	c.ConversationID = o.str("conversation_id")
	if !o.has("query") {
		return
	}
	q := o.child("query")
	q.nullOmits = true
	c.Query = &MessageQuery{
		AgentID:                   q.optStr("agent_id"),
		Limit:                     q.optInt("limit"),
		Before:                    q.optStr("before"),
		After:                     q.optStr("after"),
		Order:                     q.optStr("order"),
		IncludeReturnMessageTypes: q.optStrings("include_return_message_types"),
	}
}

// ConversationMessagesListResponse answers [ConversationMessagesList].
type ConversationMessagesListResponse struct {
	Messages   List[Message] `json:"messages"`
	NextBefore *string       `json:"next_before"` // id of the oldest message of the page
	HasMore    bool          `json:"has_more"`    // there are messages older than NextBefore
}

// A Message is a stored message as listings show it
// (spec/app-server-commands.md section 4.3). MessageType decides which fields
// are set.
type Message struct {
	ID             string `json:"id"`
	Date           string `json:"date"`
	AgentID        string `json:"agent_id"`
	ConversationID string `json:"conversation_id"`
	// MessageType is user_message, assistant_message, reasoning_message,
	// approval_request_message, tool_return_message or summary_message.
	MessageType string  `json:"message_type"`
	Role        string  `json:"role,omitempty"`
	Content     Content `json:"content,omitzero"`
	OTID        string  `json:"otid,omitempty"`
	// Interrupted marks the partial text of a step that was aborted or cut.
	Interrupted     bool             `json:"interrupted,omitempty"`
	Reasoning       *string          `json:"reasoning,omitempty"`
	ToolCall        *ToolCall        `json:"tool_call,omitempty"`
	ToolCallID      string           `json:"tool_call_id,omitempty"`
	Status          string           `json:"status,omitempty"` // "success" or "error"
	ToolReturn      Content          `json:"tool_return,omitzero"`
	Summary         *string          `json:"summary,omitempty"`
	CompactionStats *CompactionStats `json:"compaction_stats,omitempty"`
}

// A ToolCall is what the model asked for.
type ToolCall struct {
	ToolCallID string `json:"tool_call_id"`
	Name       string `json:"name"`
	Arguments  string `json:"arguments"` // JSON text as the model wrote it
}

// CompactionStats says what a compaction did.
type CompactionStats struct {
	Trigger             string `json:"trigger"` // manual, context_window_limit or context_window_overflow
	ContextTokensBefore int    `json:"context_tokens_before"`
	ContextTokensAfter  int    `json:"context_tokens_after"`
	ContextWindow       *int   `json:"context_window,omitempty"`
	MessagesCountBefore int    `json:"messages_count_before"`
	MessagesCountAfter  int    `json:"messages_count_after"`
}
