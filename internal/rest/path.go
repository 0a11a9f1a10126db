package rest

import (
	"net/http"
	"regexp"
	"strings"

	"mneme/internal/agent"
)

var uuid4 = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)

// isID says whether s is an id of the kind that prefix names.
func isID(prefix, s string) bool {
	rest, ok := strings.CutPrefix(s, prefix+"-")
	return ok && uuid4.MatchString(rest)
}

// exampleUUID is shown to who sends a malformed id.
const exampleUUID = "123e4567-e89b-42d3-8456-426614174000"

// badID is the 422 of a malformed id in the path.
func badID(param, prefix, got string) error {
	return &httpError{Status: http.StatusUnprocessableEntity, Body: validation{
		Detail:   "path." + param + ": " + quoted(got) + " is not an id of the form " + prefix + "-<uuid4>",
		Examples: []string{prefix + "-" + exampleUUID},
	}}
}

// quoted shortens what a client sent, for messages.
func quoted(s string) string {
	const most = 80
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return `"` + s + `"`
}

// pathID is an id in the path that nothing is imported under: a malformed one is
// 422.
func pathID(r *http.Request, param, prefix string) (string, error) {
	id := r.PathValue(param)
	if !isID(prefix, id) {
		return "", badID(param, prefix, id)
	}
	return id, nil
}

// missing turns the failure of looking up the id in the path into its answer. An
// imported id has any shape, so the shape counts only once nothing was found:
// malformed is 422, else it is the given 404.
func missing(err error, r *http.Request, param, prefix string, unknown error) error {
	if agent.CodeOf(err) != agent.CodeNotFound {
		return err
	}
	if id := r.PathValue(param); !isID(prefix, id) {
		return badID(param, prefix, id)
	}
	return unknown
}

// errAgent is the 404 of an unknown agent.
func errAgent() error { return notFound("Agent not found") }

// agent finds the agent that {agent_id} of the path names.
func (d *Door) agent(r *http.Request) (*agent.Agent, error) {
	ag, err := d.roster.Agent(r.Context(), r.PathValue("agent_id"))
	return ag, missing(err, r, "agent_id", "agent", errAgent())
}

// agentByID finds the agent that a query parameter or a field of a body names.
func (d *Door) agentByID(r *http.Request, id string) (*agent.Agent, error) {
	ag, err := d.roster.Agent(r.Context(), id)
	if agent.CodeOf(err) == agent.CodeNotFound {
		return nil, errAgent()
	}
	return ag, err
}

// conversation finds the conversation that {conversation_id} of the path names: a
// conv- id and nothing else. An agent's own conversation is not found by its id.
func (d *Door) conversation(r *http.Request) (*agent.Conversation, error) {
	id := r.PathValue("conversation_id")
	conv, err := d.roster.Conversation(r.Context(), id)
	if err == nil && conv.Own {
		err = agent.Errorf(agent.CodeNotFound, "own")
	}
	return conv, missing(err, r, "conversation_id", "conv", notFound("Conversation not found with id='%s'", id))
}

// conversationOrOwn is conversation for the operations of spec/rest.md section 9.1,
// where the path may also say "default" or name an agent: then it is the agent's
// own conversation. agentID comes from the query or the body and counts for
// "default" only.
func (d *Door) conversationOrOwn(r *http.Request, agentID string) (*agent.Conversation, error) {
	id := r.PathValue("conversation_id")
	switch {
	case id == agent.DefaultConversation && agentID == "":
		return nil, unprocessable("agent_id", "agent_id is required when conversation_id is \"default\"")
	case id == agent.DefaultConversation:
		ag, err := d.agentByID(r, agentID)
		if err != nil {
			return nil, err
		}
		return d.store.OwnConversation(r.Context(), ag.ID)
	case strings.HasPrefix(id, "agent-"):
		ag, err := d.roster.Agent(r.Context(), id)
		if err != nil {
			return nil, missing(err, r, "conversation_id", "agent", errAgent())
		}
		return d.store.OwnConversation(r.Context(), ag.ID)
	}
	return d.conversation(r)
}
