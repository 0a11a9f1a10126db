package rest

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"mneme/internal/agent"
	"mneme/internal/store"
)

var messageRoutes = []route{
	{"GET", "/v1/agents/{agent_id}/messages", (*Door).listAgentMessages, doc{
		summary: "List the messages of an agent, from the oldest to the newest; order says which end limit cuts",
		query:   agentMessagesQuery{}, answer: []variant{}}},
	{"PATCH", "/v1/agents/{agent_id}/messages/{message_id}", (*Door).editMessage, doc{summary: "Messages are immutable: always 405"}},
	{"GET", "/v1/conversations/{conversation_id}/messages", (*Door).listConversationMessages, doc{
		summary: "List the messages of a conversation, the newest first; cursors follow the order",
		query:   conversationMessagesQuery{}, answer: []variant{}}},
	{"GET", "/v1/messages", (*Door).listAllMessages, doc{
		summary: "List the messages of all agents, as those of one", query: allMessagesQuery{}, answer: []variant{}}},
	{"GET", "/v1/messages/{message_id}", (*Door).getMessage, doc{
		summary: "The variants of one stored message", answer: []variant{}}},
}

// messageLimit is the limit of a list of messages, 0 to 1000.
type messageLimit struct {
	Limit int `query:"limit" default:"100" min:"0" max:"1000" doc:"how many stored messages; one can show as several items"`
}

// An agentMessagesQuery has chronological cursors whatever the order.
type agentMessagesQuery struct {
	messageLimit
	After          string   `query:"after" doc:"id of a message: only newer ones"`
	Before         string   `query:"before" doc:"id of a message: only older ones"`
	Order          string   `query:"order" default:"desc" enum:"asc,desc" doc:"desc: the newest limit, asc: the oldest limit"`
	OrderBy        string   `query:"order_by" default:"created_at" enum:"created_at"`
	GroupID        string   `query:"group_id" doc:"ignored: there are no groups"`
	ConversationID string   `query:"conversation_id" doc:"default: only the agent's own conversation"`
	IncludeErr     bool     `query:"include_err" doc:"partial texts of failed, aborted and cut steps as well"`
	Types          []string `query:"include_return_message_types" enum:"system_message,user_message,assistant_message,reasoning_message,hidden_reasoning_message,tool_call_message,tool_return_message,approval_request_message,approval_response_message,summary_message,event_message"`
	UseAssistant   bool     `query:"use_assistant_message" default:"true" doc:"deprecated"`
	ToolName       string   `query:"assistant_message_tool_name" default:"send_message" doc:"deprecated"`
	ToolArg        string   `query:"assistant_message_tool_kwarg" default:"message" doc:"deprecated"`
}

// A conversationMessagesQuery has cursors that follow the order.
type conversationMessagesQuery struct {
	messageLimit
	paging
	OrderBy    string   `query:"order_by" default:"created_at" enum:"created_at"`
	AgentID    string   `query:"agent_id" doc:"the agent, for the path id default"`
	GroupID    string   `query:"group_id" doc:"ignored: there are no groups"`
	IncludeErr bool     `query:"include_err"`
	Types      []string `query:"include_return_message_types" enum:"system_message,user_message,assistant_message,reasoning_message,hidden_reasoning_message,tool_call_message,tool_return_message,approval_request_message,approval_response_message,summary_message,event_message"`
}

type allMessagesQuery struct {
	messageLimit
	After          string   `query:"after" doc:"id of a message: only newer ones"`
	Before         string   `query:"before" doc:"id of a message: only older ones"`
	Order          string   `query:"order" default:"desc" enum:"asc,desc"`
	OrderBy        string   `query:"order_by" default:"created_at" enum:"created_at"`
	ConversationID string   `query:"conversation_id"`
	Types          []string `query:"include_return_message_types" enum:"system_message,user_message,assistant_message,reasoning_message,hidden_reasoning_message,tool_call_message,tool_return_message,approval_request_message,approval_response_message,summary_message,event_message"`
}

func (d *Door) listAgentMessages(w http.ResponseWriter, r *http.Request) error {
	q, err := decodeQuery[agentMessagesQuery](r)
	if err != nil {
		return err
	}
	ag, err := d.agent(r)
	if err != nil {
		return err
	}
	f := store.MessageFilter{AgentID: ag.ID}
	if q.ConversationID != "" {
		conv, err := d.conversationOf(r.Context(), ag, q.ConversationID)
		if err != nil {
			return err
		}
		f.ConversationID = conv.ID
	}
	l := d.listing(q.Types)
	l.failed = q.IncludeErr
	if l.view.SpeakTool, l.view.SpeakArg, err = speaker(ag, q.UseAssistant, q.ToolName, q.ToolArg); err != nil {
		return err
	}
	return d.chronological(w, r, l, f, q.After, q.Before, q.Order == "desc", q.Limit)
}

func (d *Door) listAllMessages(w http.ResponseWriter, r *http.Request) error {
	q, err := decodeQuery[allMessagesQuery](r)
	if err != nil {
		return err
	}
	f := store.MessageFilter{}
	if q.ConversationID != "" {
		conv, err := d.roster.Conversation(r.Context(), q.ConversationID)
		if err != nil {
			return err
		}
		f.ConversationID = conv.ID
	}
	return d.chronological(w, r, d.listing(q.Types), f, q.After, q.Before, q.Order == "desc", q.Limit)
}

// conversationOf finds a conversation of an agent: by its id, or as "default" its
// own.
func (d *Door) conversationOf(ctx context.Context, ag *agent.Agent, id string) (*agent.Conversation, error) {
	if id == agent.DefaultConversation {
		return d.store.OwnConversation(ctx, ag.ID)
	}
	conv, err := d.roster.Conversation(ctx, id)
	if agent.CodeOf(err) == agent.CodeNotFound || err == nil && conv.AgentID != ag.ID {
		return nil, notFound("Conversation not found with id='%s'", id)
	}
	return conv, err
}

// chronological answers with messages from the oldest to the newest, whatever end
// of them the limit cuts.
func (d *Door) chronological(w http.ResponseWriter, r *http.Request, l *listing, f store.MessageFilter, after, before string, desc bool, limit int) error {
	var err error
	if f.AfterID, err = d.cursor(r.Context(), after); err != nil {
		return err
	}
	if f.BeforeID, err = d.cursor(r.Context(), before); err != nil {
		return err
	}
	f.Desc = desc
	items, err := l.page(r.Context(), f, limit)
	if err != nil {
		return err
	}
	if desc {
		slices.Reverse(items)
	}
	return reply(w, flat(items))
}

// listConversationMessages lists the newest first. Cursors follow the order: after
// is later in the listing. An unknown cursor gives an empty page.
func (d *Door) listConversationMessages(w http.ResponseWriter, r *http.Request) error {
	q, err := decodeQuery[conversationMessagesQuery](r)
	if err != nil {
		return err
	}
	conv, err := d.conversationOrOwn(r, q.AgentID)
	if err != nil {
		return err
	}
	l := d.listing(q.Types)
	l.failed = q.IncludeErr
	items, err := d.relative(r.Context(), l, store.MessageFilter{ConversationID: conv.ID}, q.paging, q.asc(false), q.Limit)
	if agent.CodeOf(err) == agent.CodeNotFound {
		return reply(w, []variant{})
	}
	if err != nil {
		return err
	}
	return reply(w, flat(items))
}

// relative reads a page whose cursors follow the order. With before alone it is the
// page that ends at the cursor.
func (d *Door) relative(ctx context.Context, l *listing, f store.MessageFilter, p paging, asc bool, limit int) ([]item, error) {
	after, err := d.cursor(ctx, p.After)
	if err != nil {
		return nil, err
	}
	before, err := d.cursor(ctx, p.Before)
	if err != nil {
		return nil, err
	}
	f.AfterID, f.BeforeID = after, before
	if !asc {
		f.AfterID, f.BeforeID = before, after
	}
	backwards := before != "" && after == ""
	f.Desc = asc == backwards
	items, err := l.page(ctx, f, limit)
	if backwards {
		slices.Reverse(items)
	}
	return items, err
}

// cursor gives the stored message that an id in a list stands for: that of an
// approval request belongs to the message that asked.
func (d *Door) cursor(ctx context.Context, id string) (string, error) {
	if id == "" {
		return "", nil
	}
	m, err := d.message(ctx, id)
	if err != nil {
		return "", err
	}
	return m.ID, nil
}

// message finds a stored message by any id that it is shown under.
func (d *Door) message(ctx context.Context, id string) (*agent.Message, error) {
	m, err := d.store.MessageByID(ctx, id)
	if err == nil {
		asOriginals([]*agent.Message{m})
	}
	if agent.CodeOf(err) != agent.CodeNotFound || !strings.HasPrefix(id, "message-") {
		return m, err
	}
	owner, err2 := d.store.MessageByID(ctx, requestOwner(id))
	if agent.CodeOf(err2) == agent.CodeNotFound {
		return nil, err
	}
	return owner, err2
}

// listing makes a listing of stored messages. types is nil for all.
func (d *Door) listing(types []string) *listing {
	return &listing{view: view{Types: types}, store: d.store, query: d.store.Messages}
}

func (d *Door) getMessage(w http.ResponseWriter, r *http.Request) error {
	m, err := d.message(r.Context(), r.PathValue("message_id"))
	if err != nil {
		return missing(err, r, "message_id", "message", notFound("Message %s not found", r.PathValue("message_id")))
	}
	l := d.listing(nil)
	c, err := l.context(r.Context(), []*agent.Message{m})
	if err != nil {
		return err
	}
	if m.Role == agent.RoleTool {
		m = c.group(m).first // any result names them all
	}
	items := l.items(c, []*agent.Message{m})
	if len(items) == 0 {
		return notFound("Message %s not found", m.ID)
	}
	return reply(w, flat(items))
}

func (d *Door) editMessage(w http.ResponseWriter, r *http.Request) error {
	w.Header().Set("Allow", "GET")
	return &httpError{Status: http.StatusMethodNotAllowed, Final: true,
		Body: detail{"Messages are immutable: what was said is not changed afterwards"}}
}

// speaker gives the tool by which an agent speaks: agents of the older types have
// one, in views that want its calls as assistant messages. "" = text is what the
// agent says.
func speaker(ag *agent.Agent, use bool, name, arg string) (toolName, toolArg string, err error) {
	x, err := extraOf(ag)
	if err != nil || !use || x.AgentType == defaultAgentType || !slices.Contains(ag.Tools, name) {
		return "", "", err
	}
	return name, arg, nil
}

// pendingApproval is the approval request that a conversation waits on; nil if it
// does not wait.
func (d *Door) pendingApproval(ctx context.Context, conv *agent.Conversation) (variant, error) {
	s, err := d.rt.Status(ctx, agent.Scope{AgentID: conv.AgentID, ConversationID: conv.ID})
	if err != nil || len(s.Pending) == 0 {
		return nil, err
	}
	m, err := d.store.MessageByID(ctx, s.Pending[0].MessageID)
	if err != nil {
		return nil, err
	}
	items, err := d.listing([]string{typeRequest}).render(ctx, []*agent.Message{m})
	if err != nil || len(items) == 0 {
		return nil, err
	}
	return items[0][0], nil
}
