package rest

import (
	"encoding/json"
	"net/http"
	"strings"

	"mneme/internal/agent"
	"mneme/internal/roster"
	"mneme/internal/store"
)

var conversationRoutes = []route{
	{"POST", "/v1/conversations", (*Door).createConversation, doc{
		summary: "Make a conversation of an agent", query: ofAgent{}, body: conversationCreate{}, optional: true, answer: conversationState{}}},
	{"GET", "/v1/conversations", (*Door).listConversations, doc{summary: "List conversations", query: conversationList{}, answer: []conversationState{}}},
	{"GET", "/v1/conversations/{conversation_id}", (*Door).getConversation, doc{summary: "Show a conversation", answer: conversationState{}}},
	{"PATCH", "/v1/conversations/{conversation_id}", (*Door).updateConversation, doc{
		summary: "Change a conversation", body: conversationPatch{}, answer: conversationState{}}},
	{"DELETE", "/v1/conversations/{conversation_id}", (*Door).deleteConversation, doc{summary: "Delete a conversation", answer: (*none)(nil)}},
	{"POST", "/v1/conversations/{conversation_id}/fork", (*Door).forkConversation, doc{
		summary: "Make a conversation that goes on from what another one knows", query: forkQuery{}, answer: conversationState{}}},
	{"POST", "/v1/conversations/{conversation_id}/recompile", (*Door).recompileConversation, doc{
		summary: "Compile the system message of a conversation anew", query: recompileQuery{}, body: recompileBody{}, optional: true, answer: ""}},
}

// A conversationState is a conversation as answers show it
// (spec/rest.md section 9.2).
type conversationState struct {
	ID              string   `json:"id"`
	AgentID         string   `json:"agent_id"`
	Summary         *string  `json:"summary"`
	Description     *string  `json:"description"`
	Archived        bool     `json:"archived"`
	ArchivedAt      stamp    `json:"archived_at"`
	Model           *string  `json:"model"`
	ModelSettings   object   `json:"model_settings"`
	ContextLimit    *int     `json:"context_window_limit"`
	MessageIDs      []string `json:"in_context_message_ids"`
	BlockIDs        []string `json:"isolated_block_ids"`
	LastMessageAt   stamp    `json:"last_message_at"`
	CreatedAt       stamp    `json:"created_at"`
	UpdatedAt       stamp    `json:"updated_at"`
	CreatedByID     *string  `json:"created_by_id"`
	LastUpdatedByID *string  `json:"last_updated_by_id"`
}

// conversationState shows a conversation. ids are those of its context.
func (d *Door) conversationState(r *http.Request, c *agent.Conversation, ids []string) conversationState {
	st := conversationState{
		ID: c.ID, AgentID: c.AgentID, Summary: c.Summary, Description: c.Description, Archived: !c.ArchivedAt.IsZero(),
		ArchivedAt: stamp(c.ArchivedAt), Model: c.Model, MessageIDs: orEmpty(ids), BlockIDs: []string{},
		LastMessageAt: stamp(c.LastMessageAt), CreatedAt: stamp(c.CreatedAt), UpdatedAt: stamp(c.UpdatedAt),
	}
	if c.ContextLimit > 0 {
		st.ContextLimit = &c.ContextLimit
	}
	if notNull(c.ModelSettings) != nil {
		handle := ""
		if c.Model != nil {
			handle = *c.Model
		}
		config, _ := d.llmConfig(r.Context(), handle, nil, 0)
		st.ModelSettings = settingsState(c.ModelSettings, config.EndpointType)
	}
	return st
}

// replyConversation answers with a conversation and the ids of its context.
func (d *Door) replyConversation(w http.ResponseWriter, r *http.Request, c *agent.Conversation) error {
	ids, err := d.contextIDs(r.Context(), c.ID)
	if err != nil {
		return err
	}
	return reply(w, d.conversationState(r, c, ids))
}

// ofAgent names the agent.
type ofAgent struct {
	AgentID string `query:"agent_id"`
}

// A conversationCreate is the body of a new conversation. Isolated blocks are
// accepted and not kept: no client of today knows them.
type conversationCreate struct {
	Summary       optional[string] `json:"summary"`
	Description   optional[string] `json:"description"`
	Model         optional[string] `json:"model"`
	ModelSettings optional[object] `json:"model_settings"`
	ContextLimit  optional[int]    `json:"context_window_limit"`
	Hidden        optional[bool]   `json:"hidden"`
}

func (b *conversationCreate) check() error {
	if limit := b.ContextLimit.Ptr(); limit != nil && *limit < 1 {
		return unprocessable("body.context_window_limit", "Input should be greater than 0")
	}
	_, err := settingsMap(json.RawMessage(b.ModelSettings.Value), "body.model_settings")
	return err
}

// settings are the model settings to store.
func (b *conversationCreate) settings() (json.RawMessage, error) {
	m, err := settingsMap(json.RawMessage(b.ModelSettings.Value), "body.model_settings")
	if err != nil || m == nil {
		return nil, err
	}
	return json.Marshal(m)
}

func (d *Door) createConversation(w http.ResponseWriter, r *http.Request) error {
	q, err := decodeQuery[ofAgent](r)
	if err != nil {
		return err
	}
	if q.AgentID == "" {
		return unprocessable("query.agent_id", "Field required")
	}
	b, err := decodeOptional[conversationCreate](d, w, r)
	if err != nil {
		return err
	}
	ag, err := d.agentByID(r, q.AgentID)
	if err != nil {
		return err
	}
	if model := b.Model.Ptr(); model != nil {
		if err := d.checkModel(r.Context(), *model); err != nil {
			return err
		}
	}
	settings, err := b.settings()
	if err != nil {
		return err
	}
	conv, err := d.roster.CreateConversation(r.Context(), roster.ConversationSpec{
		AgentID: ag.ID, Summary: b.Summary.Ptr(), Description: b.Description.Ptr(), Model: b.Model.Ptr(), ModelSettings: settings,
		ContextLimit: b.ContextLimit.Value, Hidden: b.Hidden.Ptr(), Compiled: true,
	})
	if err != nil {
		return agentGone(err)
	}
	return d.replyConversation(w, r, conv)
}

func (d *Door) getConversation(w http.ResponseWriter, r *http.Request) error {
	conv, err := d.conversation(r)
	if err != nil {
		return err
	}
	return d.replyConversation(w, r, conv)
}

// A conversationPatch is the body of a change.
type conversationPatch struct {
	conversationCreate
	Archived      optional[bool] `json:"archived"`
	LastMessageAt optional[date] `json:"last_message_at"`
}

func (d *Door) updateConversation(w http.ResponseWriter, r *http.Request) error {
	b, err := decodeBody[conversationPatch](d, w, r)
	if err != nil {
		return err
	}
	conv, err := d.conversation(r)
	if err != nil {
		return err
	}
	p := roster.ConversationPatch{
		Archived: b.Archived.Ptr(), Summary: b.Summary.Patch(), Description: b.Description.Patch(), Model: b.Model.Patch(),
		Hidden: b.Hidden.Patch(),
	}
	if model := b.Model.Ptr(); model != nil {
		if err := d.checkModel(r.Context(), *model); err != nil {
			return err
		}
	}
	if b.ModelSettings.Set {
		settings, err := b.settings()
		if err != nil {
			return err
		}
		p.ModelSettings = &settings
	}
	if b.ContextLimit.Set {
		p.ContextLimit = &b.ContextLimit.Value
	}
	if at := b.LastMessageAt.Ptr(); at != nil {
		p.LastMessageAt = &at.Time
	}
	conv, err = d.roster.UpdateConversation(r.Context(), conv.ID, p)
	if err != nil {
		return err
	}
	return d.replyConversation(w, r, conv)
}

func (d *Door) deleteConversation(w http.ResponseWriter, r *http.Request) error {
	conv, err := d.conversation(r)
	if err != nil {
		return err
	}
	if err := d.roster.DeleteConversation(r.Context(), conv.ID); err != nil {
		return err
	}
	return reply(w, nil)
}

// A conversationList are the parameters of the list of conversations.
type conversationList struct {
	AgentID string `query:"agent_id" doc:"conversations of one agent"`
	Search  string `query:"summary_search" doc:"part of the summary, ignoring case"`
	Archive string `query:"archive_status" default:"unarchived" enum:"unarchived,archived,all"`
	OrderBy string `query:"order_by" default:"created_at" enum:"created_at,last_run_completion,last_message_at"`
	Limit   int    `query:"limit" default:"50" min:"0" max:"1000"`
	paging
}

func (d *Door) listConversations(w http.ResponseWriter, r *http.Request) error {
	q, err := decodeQuery[conversationList](r)
	if err != nil {
		return err
	}
	f := store.ConversationFilter{SummarySearch: q.Search, Order: store.ConversationOrder(q.OrderBy)}
	if q.AgentID != "" {
		ag, err := d.agentByID(r, q.AgentID)
		if err != nil {
			return err
		}
		f.AgentID = ag.ID
	}
	if q.Limit == 0 {
		return reply(w, []conversationState{})
	}
	if q.Archive != "all" {
		f.Archived = new(q.Archive == "archived")
	}
	list := listName("conversations", q.OrderBy, q.asc(false))
	at := func(c *agent.Conversation) (string, int64) {
		if f.Order == store.ConversationsByMessage {
			return c.ID, timeValue(c.LastMessageAt, q.asc(false))
		}
		return c.ID, timeValue(c.CreatedAt, q.asc(false))
	}
	byEnd := f.Order == store.ConversationsByCompletion // whose value is not known here
	fetch := func(p store.Page) ([]*agent.Conversation, error) {
		if byEnd {
			p.AfterValue, p.BeforeValue = nil, nil
		}
		f.Page = p
		return d.store.Conversations(r.Context(), f)
	}
	// The store also searches the ids.
	search := strings.ToLower(q.Search)
	found, err := scan(d.places.page(list, q.paging, false), q.Limit, func(c *agent.Conversation) bool {
		return search == "" || c.Summary != nil && strings.Contains(strings.ToLower(*c.Summary), search)
	}, fetch, at)
	if err != nil {
		return err
	}
	if !byEnd {
		noteEnds(d.places, list, found, at)
	}
	out := []conversationState{}
	for _, c := range found {
		out = append(out, d.conversationState(r, c, nil))
	}
	return reply(w, out)
}

// A forkQuery says where a fork begins.
type forkQuery struct {
	ofAgent
	Hidden    *bool  `query:"hidden" doc:"leave the fork out of lists"`
	MessageID string `query:"message_id" doc:"last message that the fork knows"`
}

func (d *Door) forkConversation(w http.ResponseWriter, r *http.Request) error {
	q, err := decodeQuery[forkQuery](r)
	if err != nil {
		return err
	}
	from, err := d.conversationOrOwn(r, q.AgentID)
	if err != nil {
		return err
	}
	conv, err := d.roster.ForkContext(r.Context(), from.ID, q.MessageID, q.Hidden)
	if err != nil {
		return err
	}
	return d.replyConversation(w, r, conv)
}

// A recompileBody names the agent for the path "default". Settings of the
// compaction are accepted and mean nothing here.
type recompileBody struct {
	AgentID optional[string] `json:"agent_id"`
}

func (d *Door) recompileConversation(w http.ResponseWriter, r *http.Request) error {
	q, err := decodeQuery[recompileQuery](r)
	if err != nil {
		return err
	}
	b, err := decodeOptional[recompileBody](d, w, r)
	if err != nil {
		return err
	}
	conv, err := d.conversationOrOwn(r, b.AgentID.Value)
	if err != nil {
		return err
	}
	return d.replyCompiled(w, r, conv.ID, q.DryRun)
}
