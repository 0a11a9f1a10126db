package rest

import (
	"bytes"
	"encoding/json"
	"net/http"

	"mneme/internal/agent"
	"mneme/internal/runtime"
)

var compactRoutes = []route{
	{"PATCH", "/v1/agents/{agent_id}/reset-messages", (*Door).resetMessages, doc{
		summary: "Take everything but a fresh system message out of the context", body: resetBody{}, answer: agentState{}}},
	{"POST", "/v1/agents/{agent_id}/summarize", (*Door).summarizeAgent, doc{
		summary: "Sum up older messages of an agent", body: compactBody{}, optional: true, answer: compactAnswer{}}},
	{"POST", "/v1/conversations/{conversation_id}/compact", (*Door).compactConversation, doc{
		summary: "Sum up older messages of a conversation", body: compactBody{}, optional: true, answer: compactAnswer{}}},
}

// A resetBody resets a context. The agent types that are made here have no default
// first messages to be added.
type resetBody struct {
	AddDefault optional[bool] `json:"add_default_initial_messages"`
}

// A compactBody overrides the agent's settings field by field.
type compactBody struct {
	AgentID  optional[string] `json:"agent_id"`
	Settings object           `json:"compaction_settings"`
}

// A compactAnswer counts context messages, the system message included.
type compactAnswer struct {
	Summary string `json:"summary"`
	Before  int    `json:"num_messages_before"`
	After   int    `json:"num_messages_after"`
}

func (b *compactBody) check() error { return checkCompaction(b.Settings) }

func (d *Door) resetMessages(w http.ResponseWriter, r *http.Request) error {
	if _, err := decodeBody[resetBody](d, w, r); err != nil {
		return err
	}
	ag, err := d.agent(r)
	if err != nil {
		return err
	}
	own, err := d.store.OwnConversation(r.Context(), ag.ID)
	if err != nil {
		return err
	}
	if err := d.rt.Reset(r.Context(), agent.Scope{AgentID: ag.ID, ConversationID: own.ID}); err != nil {
		return err
	}
	return d.replyAgent(w, r, ag, everything)
}

func (d *Door) summarizeAgent(w http.ResponseWriter, r *http.Request) error {
	b, err := decodeOptional[compactBody](d, w, r)
	if err != nil {
		return err
	}
	ag, err := d.agent(r)
	if err != nil {
		return err
	}
	own, err := d.store.OwnConversation(r.Context(), ag.ID)
	if err != nil {
		return err
	}
	c, err := d.compact(r, own, b.Settings)
	if err != nil {
		return err
	}
	return reply(w, compactAnswer{c.Summary, c.Before, c.After})
}

func (d *Door) compactConversation(w http.ResponseWriter, r *http.Request) error {
	b, err := decodeOptional[compactBody](d, w, r)
	if err != nil {
		return err
	}
	conv, err := d.conversationOrOwn(r, b.AgentID.Or(""))
	if err != nil {
		return err
	}
	c, err := d.compact(r, conv, b.Settings)
	if err != nil {
		return err
	}
	if c.NothingToDo && c.Summary == "" {
		return badRequest("Summarization failed to reduce the number of messages: the conversation has nothing to sum up")
	}
	return reply(w, compactAnswer{c.Summary, c.Before, c.After})
}

func (d *Door) compact(r *http.Request, conv *agent.Conversation, settings object) (*runtime.Compaction, error) {
	var over *runtime.CompactSettings
	if settings != nil {
		over = new(runtime.CompactSettings)
		if err := json.Unmarshal(settings, over); err != nil {
			return nil, unprocessable("body.compaction_settings", "%v", err)
		}
		var given map[string]json.RawMessage
		if json.Unmarshal(settings, &given) == nil && bytes.Equal(given["clip_chars"], []byte("null")) {
			over.ClipChars = new(0) // no limit
		}
	}
	ctx, cancel := d.request(r)
	defer cancel()
	return d.rt.Compact(ctx, agent.Scope{AgentID: conv.AgentID, ConversationID: conv.ID}, over)
}
