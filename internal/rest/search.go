package rest

import (
	"net/http"

	"mneme/internal/agent"
	"mneme/internal/store"
)

var searchRoutes = []route{
	{"POST", "/v1/messages/search", (*Door).searchMessages, doc{summary: "Find messages by their text", body: searchBody{}, answer: []searchHit{}}},
}

// A searchBody says what to look for. All modes search the text: there are no
// embeddings.
type searchBody struct {
	Query          *string          `json:"query"`
	Mode           optional[string] `json:"search_mode"` // hybrid, fts or vector
	AgentID        optional[string] `json:"agent_id"`
	ConversationID optional[string] `json:"conversation_id"`
	Limit          optional[int]    `json:"limit"` // 1 to 100
	From           optional[date]   `json:"start_date"`
	To             optional[date]   `json:"end_date"`
}

const defaultHits = 50

func (b *searchBody) check() error {
	if b.Query == nil {
		return unprocessable("body.query", "Field required")
	}
	switch mode := b.Mode.Or("hybrid"); mode {
	case "hybrid", "fts", "vector":
	default:
		return unprocessable("body.search_mode", "%s is not one of hybrid, fts, vector", quoted(mode))
	}
	if n := b.Limit.Or(defaultHits); n < 1 || n > 100 {
		return unprocessable("body.limit", "Input should be between 1 and 100")
	}
	return nil
}

// A searchHit is a message that was found. Reasoning has its text in a field of
// its own.
type searchHit struct {
	Type           string  `json:"message_type"`
	Content        *string `json:"content,omitempty"`
	Reasoning      *string `json:"reasoning,omitempty"`
	MessageID      string  `json:"message_id"`
	AgentID        *string `json:"agent_id"`
	ConversationID *string `json:"conversation_id"`
	CreatedAt      stamp   `json:"created_at"`
}

func (d *Door) searchMessages(w http.ResponseWriter, r *http.Request) error {
	b, err := decodeBody[searchBody](d, w, r)
	if err != nil {
		return err
	}
	f := store.SearchFilter{
		Query: *b.Query, AgentID: b.AgentID.Or(""), ConversationID: b.ConversationID.Or(""), Limit: b.Limit.Or(defaultHits),
		Roles: []agent.Role{agent.RoleUser, agent.RoleAssistant, agent.RoleSummary, agent.RoleSystem},
		From:  b.From.Value.Time, To: b.To.Value.Time,
	}
	if f.ConversationID == agent.DefaultConversation && f.AgentID != "" {
		own, err := d.store.OwnConversation(r.Context(), f.AgentID)
		if err != nil {
			return err
		}
		f.ConversationID = own.ID
	}
	hits, err := d.store.SearchMessages(r.Context(), f)
	if err != nil {
		return err
	}
	names := conversationNames{d: d}
	out := []searchHit{}
	seen := map[string]bool{}
	for _, h := range hits {
		m := h.Message
		if asOriginals([]*agent.Message{m}); seen[m.ID] {
			continue // in a fork, too
		}
		seen[m.ID] = true
		wire, err := names.wire(r.Context(), m.ConversationID)
		if err != nil {
			return err
		}
		hit := searchHit{MessageID: m.ID, AgentID: &m.AgentID, ConversationID: wire, CreatedAt: stamp(m.CreatedAt)}
		hit.show(m, h.Part)
		out = append(out, hit)
	}
	return reply(w, out)
}

// show puts in what matched.
func (h *searchHit) show(m *agent.Message, part agent.PartKind) {
	content := agent.TextOf(m.Parts)
	switch m.Role {
	case agent.RoleAssistant:
		h.Type, h.Content = typeAssistant, &content
		if part == agent.PartReasoning || content == "" {
			var said string
			for _, p := range m.Parts {
				if p.Kind == agent.PartReasoning {
					said += p.Text
				}
			}
			h.Type, h.Content, h.Reasoning = typeReasoning, nil, &said
		}
	case agent.RoleSystem:
		h.Type, h.Content = typeSystem, &content
	default:
		h.Type, h.Content = typeUser, &content
	}
}
