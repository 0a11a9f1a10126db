package mcpserver

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"mneme/protocol"
)

// Limits of the arguments (spec/mcp.md section 5), bytes unless said.
const (
	maxName        = 200 // characters
	maxHandle      = 200 // characters
	maxDescription = 4 << 10
	maxBlock       = 64 << 10
	maxSystem      = 256 << 10
	maxListLimit   = 1000
	minWindow      = 1000
	maxWindow      = 10_000_000
)

// agentParam is the reference to an agent that most tools take.
func agentParam() param {
	return param{name: "agent_id", kind: kindLine, required: true, max: 500,
		about: "Id of the agent, or its name, or a part of its name that fits only this agent."}
}

// schemas of what agent tools answer with.
const (
	agentSchema = `{"type":"object","required":["agent_id","agent_name"],"properties":{` + agentIDs + `}}`
	agentIDs    = `"agent_id":{"type":"string"},"agent_name":{"type":"string"}`
)

func agentTools(cfg *Config) []*tool {
	return []*tool{
		{
			name: "agent_create", title: "Create an agent",
			about: "Make a new agent with a memory of its own. Its id is in the answer; keep it. Give persona to say who the agent is, human to say whom it serves.",
			params: []param{
				{name: "persona", kind: kindText, max: maxBlock, bytes: true, about: "What the agent is to be like; becomes its memory block persona. At most 64 KiB."},
				{name: "human", kind: kindText, max: maxBlock, bytes: true, about: "What the agent knows about the person it works for; becomes its memory block human. At most 64 KiB."},
				{name: "name", kind: kindLine, max: maxName, about: "Name of the agent; other agents may have the same."},
				{name: "description", kind: kindText, max: maxDescription, bytes: true, about: "What the agent is for. At most 4 KiB."},
				{name: "model", kind: kindLine, max: maxHandle, about: "Handle of the model, such as provider/model; models_list shows them."},
				{name: "embedding", kind: kindLine, max: maxHandle, about: "Handle of the embedding model."},
				{name: "tags", kind: kindTags, about: "Tags to find the agent by."},
			},
			data: `{"type":"object","required":["agent_id","agent_name","agent"],"properties":{` + agentIDs + `,"agent":{"type":"object"}}}`,
			run:  createAgent,
		},
		{
			name: "agent_get", title: "Show an agent",
			about:  "Show one agent: name, description, model, tags, system prompt and settings.",
			params: []param{agentParam()},
			data:   agentSchema,
			hints:  hints{readOnly: true, idempotent: true},
			run:    getAgent,
		},
		{
			name: "agent_list", title: "List agents",
			about: "List agents with all their fields. All given filters must fit. To find an agent's id, agent_lookup is shorter.",
			params: []param{
				{name: "query", kind: kindText, max: 2000, about: "Text that name, description, id or model must contain, ignoring case."},
				{name: "name", kind: kindLine, max: 500, about: "The exact name, ignoring case."},
				{name: "tags", kind: kindTags, about: "Tags that the agent must all have."},
				{name: "limit", kind: kindInt, min: 1, max: maxListLimit, preset: cfg.ListLimit, about: "How many agents at most."},
				{name: "order", kind: kindChoice, choices: []string{"desc", "asc"}, about: "By time of creation: desc = newest first."},
			},
			data:  `{"type":"array","items":{"type":"object","required":["agent_name"],"properties":{"agent_name":{"type":"string"}}}}`,
			hints: hints{readOnly: true, idempotent: true},
			run:   listAgents,
		},
		{
			name: "agent_lookup", title: "Find an agent's id",
			about:  "List the ids, names, models and tags of all agents, or of those whose name contains a text. Begin here when you do not know the id of an agent.",
			params: []param{{name: "name", kind: kindLine, max: 500, about: "A part of the name, ignoring case."}},
			data:   `{"type":"array","items":{"type":"object","required":["agent_id","name","model","tags"],"additionalProperties":false,"properties":{"agent_id":{"type":"string"},"name":{"type":"string"},"model":{"type":"string"},"tags":{"type":"array","items":{"type":"string"}}}}}`,
			hints:  hints{readOnly: true, idempotent: true},
			run:    lookupAgents,
		},
		{
			name: "agent_update", title: "Change an agent",
			about: "Change settings of an agent; what is not given stays. Memory is changed with memory_save and memory_delete.",
			params: []param{
				agentParam(),
				{name: "name", kind: kindLine, max: maxName, about: "New name."},
				{name: "description", kind: kindText, max: maxDescription, bytes: true, nullable: true, about: "New description; null removes it."},
				{name: "model", kind: kindLine, max: maxHandle, about: "Handle of another model."},
				{name: "system", kind: kindText, max: maxSystem, bytes: true, about: "New system prompt. At most 256 KiB."},
				{name: "modelSettings", kind: kindObject, about: "Settings of the model, such as temperature or max_tokens; merged into what is set."},
				{name: "contextWindowLimit", kind: kindInt, min: minWindow, max: maxWindow, about: "How many tokens of context the agent may use."},
				{name: "hidden", kind: kindBool, about: "Whether lists leave the agent out."},
				{name: "tags", kind: kindTags, emptyOK: true, about: "The tags it shall have instead of those it has."},
			},
			refuses: map[string]string{
				"persona": creationOnly("persona"), "human": creationOnly("human"),
			},
			data:  agentSchema,
			hints: hints{idempotent: true},
			run:   updateAgent,
		},
		{
			name: "agent_delete", title: "Delete an agent",
			about: "Delete an agent with its conversations and its memory, for good. Only with confirm set to true.",
			params: []param{
				agentParam(),
				{name: "confirm", kind: kindTrue, required: true, about: "Must be true: the person you work for wants the agent to be deleted."},
			},
			data:  `{"type":"object","required":["deleted","agent_id","agent_name"],"additionalProperties":false,"properties":{"deleted":{"const":true},` + agentIDs + `}}`,
			hints: hints{destructive: true},
			run:   deleteAgent,
		},
	}
}

func creationOnly(name string) string {
	return fmt.Sprintf("%q can be given at creation only; it is the agent's memory block %s now: use memory_get, memory_save and memory_delete.", name, name)
}

func createAgent(ctx context.Context, c *call) (any, error) {
	given := func(name, preset string) string { return cmp.Or(c.args.text(name), preset) }
	body := protocol.AgentBody{Tags: c.args.tags("tags")}
	for _, f := range []struct {
		to   **string
		text string
	}{
		{&body.Name, strings.TrimSpace(c.args.text("name"))},
		{&body.Model, strings.TrimSpace(given("model", c.cfg.Model))},
		{&body.Embedding, strings.TrimSpace(given("embedding", c.cfg.Embedding))},
	} {
		if f.text != "" {
			*f.to = &f.text
		}
	}
	if d := c.args.text("description"); d != "" {
		body.Description = protocol.Some(d)
	}
	for _, block := range []struct{ label, value string }{
		{"persona", given("persona", c.cfg.Persona)}, {"human", given("human", c.cfg.Human)},
	} {
		if block.value != "" {
			body.MemoryBlocks = append(body.MemoryBlocks, protocol.MemoryBlock{Label: block.label, Value: block.value})
		}
	}
	ag, err := c.backend.CreateAgent(ctx, body)
	if err != nil {
		return nil, err
	}
	if body.Model != nil {
		c.checkModel(ctx, *body.Model)
	}
	if body.Embedding != nil && !c.backend.Info(ctx).Embeddings {
		c.warn("The embedding model " + clip(*body.Embedding, 80) + " is not used: this App Server does not keep one.")
	}
	return map[string]any{"agent_id": ag.ID, "agent_name": ag.Name, "agent": ag.Record}, nil
}

// checkModel warns about a model that nobody offers. The agent is made or
// changed all the same: the model may come later.
func (c *call) checkModel(ctx context.Context, handle string) {
	if handle == "auto" || strings.HasPrefix(handle, "letta/") {
		return
	}
	models, err := c.backend.Models(ctx)
	if err != nil {
		return // then nobody can say
	}
	known := slices.ContainsFunc(models.Entries, func(e protocol.ModelEntry) bool { return e.Handle == handle || e.ID == handle })
	if h := models.AvailableHandles.Value; h != nil {
		known = known || slices.Contains(*h, handle)
	}
	if !known {
		c.warn("The model " + clip(handle, 80) + " is not in the catalog; models_list shows what is.")
	}
}

// withIDs is an agent's record with agent_id and agent_name.
func withIDs(ctx context.Context, b Backend, ag *Agent) (json.RawMessage, error) {
	if ag.Record == nil {
		full, err := b.Agent(ctx, ag.ID)
		if err != nil {
			return nil, agentGone(err)
		}
		ag = full
	}
	return extend(ag.Record, "agent_id", ag.ID, "agent_name", ag.Name)
}

// extend puts text fields in front of those of a JSON object.
func extend(object json.RawMessage, pairs ...string) (json.RawMessage, error) {
	rest := bytes.TrimSpace(object)
	out := []byte{'{'}
	for i := 0; i < len(pairs); i += 2 {
		out = append(protocol.AppendString(out, pairs[i]), ':')
		out = append(protocol.AppendString(out, pairs[i+1]), ',')
	}
	if len(rest) < 2 || rest[0] != '{' {
		return nil, fault(CodeRefused, "The App Server gave an agent that is not an object.")
	}
	if rest = bytes.TrimSpace(rest[1:]); rest[0] == '}' {
		out = out[:len(out)-1]
	}
	return append(out, rest...), nil
}

func getAgent(ctx context.Context, c *call) (any, error) {
	ag, err := c.agent(ctx)
	if err != nil {
		return nil, err
	}
	return withIDs(ctx, c.backend, ag)
}

func listAgents(ctx context.Context, c *call) (any, error) {
	all, err := c.backend.Agents(ctx)
	if err != nil {
		return nil, err
	}
	found := slices.DeleteFunc(all, func(a Agent) bool { return !c.fits(&a) })
	order(found, c.args.text("order") == "asc")
	limit := c.args.number("limit", c.cfg.ListLimit)
	c.note("total", len(found))
	c.note("truncated", len(found) > limit)
	list := make([]json.RawMessage, 0, min(limit, len(found)))
	for _, a := range found[:min(limit, len(found))] {
		record, err := withIDs(ctx, c.backend, &a)
		if isAnswer(err) && explain(err).Code == CodeAgentNotFound {
			continue // deleted since the list was made
		}
		if err != nil {
			return nil, err
		}
		list = append(list, record)
	}
	return list, nil
}

// fits says whether an agent passes the filters of agent_list.
func (c *call) fits(a *Agent) bool {
	if a.Hidden {
		return false
	}
	if q := strings.ToLower(c.args.text("query")); q != "" {
		fields := []string{a.Name, a.Description, a.ID, a.Model}
		if !slices.ContainsFunc(fields, func(f string) bool { return strings.Contains(strings.ToLower(f), q) }) {
			return false
		}
	}
	if name := strings.TrimSpace(c.args.text("name")); name != "" && fold(a.Name) != fold(name) {
		return false
	}
	for _, t := range c.args.tags("tags") {
		if !slices.Contains(a.Tags, t) {
			return false
		}
	}
	return true
}

// order sorts by time of creation, then id. Where the server does not tell the
// time its own order stays.
func order(list []Agent, ascending bool) {
	if slices.ContainsFunc(list, func(a Agent) bool { return a.CreatedAt.IsZero() }) {
		return
	}
	slices.SortFunc(list, func(a, b Agent) int {
		c := cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID))
		if ascending {
			return c
		}
		return -c
	})
}

// A found agent is one of agent_lookup.
type found struct {
	AgentID string                `json:"agent_id"`
	Name    string                `json:"name"`
	Model   string                `json:"model"`
	Tags    protocol.List[string] `json:"tags"`
}

// lookup lists the agents whose name contains a text, by name and id.
func lookup(ctx context.Context, b Backend, name string) ([]found, error) {
	all, err := b.Agents(ctx)
	if err != nil {
		return nil, err
	}
	want := fold(strings.TrimSpace(name))
	slices.SortFunc(all, byName)
	list := []found{}
	for _, a := range all {
		if !a.Hidden && strings.Contains(fold(a.Name), want) {
			list = append(list, found{AgentID: a.ID, Name: a.Name, Model: a.Model, Tags: a.Tags})
		}
	}
	return list, nil
}

func lookupAgents(ctx context.Context, c *call) (any, error) {
	return lookup(ctx, c.backend, c.args.text("name"))
}

func updateAgent(ctx context.Context, c *call) (any, error) {
	if len(c.args) < 2 {
		return nil, invalid("Nothing to change: give at least one of name, description, model, system, modelSettings, contextWindowLimit, hidden, tags.")
	}
	ag, err := c.agent(ctx)
	if err != nil {
		return nil, err
	}
	var body protocol.AgentBody
	if name := strings.TrimSpace(c.args.text("name")); c.args.has("name") {
		if name == "" {
			return nil, invalid(`"name" must not be blank.`)
		}
		body.Name = &name
	}
	if model := strings.TrimSpace(c.args.text("model")); c.args.has("model") {
		if model == "" {
			return nil, invalid(`"model" must not be blank.`)
		}
		body.Model = &model
	}
	switch d := c.args["description"].(type) {
	case null:
		body.Description = protocol.Null[string]()
	case string:
		body.Description = protocol.Some(d)
	}
	if system, ok := c.args["system"].(string); ok {
		body.System = &system
	}
	if settings, ok := c.args["modelSettings"].(json.RawMessage); ok {
		body.ModelSettings = protocol.Object(settings)
	}
	if window, ok := c.args["contextWindowLimit"].(int); ok {
		body.ContextWindowLimit = &window
	}
	if hidden, ok := c.args["hidden"].(bool); ok {
		body.Hidden = &hidden
	}
	if tags, ok := c.args["tags"].([]string); ok {
		body.Tags = keepOwned(tags, ag.Tags)
	}
	changed, err := c.backend.UpdateAgent(ctx, ag.ID, body)
	if err != nil {
		return nil, agentGone(err)
	}
	if body.Model != nil {
		c.checkModel(ctx, *body.Model)
	}
	return withIDs(ctx, c.backend, changed)
}

// keepOwned adds to the tags that a user wants those of the old ones that are
// the server's: without them it would forget what the agent is.
func keepOwned(want, old []string) []string {
	out := slices.Clone(want)
	for _, t := range old {
		if (t == memoryTag || t == subagentTag || strings.HasPrefix(t, originPrefix)) && !slices.Contains(out, t) {
			out = append(out, t)
		}
	}
	return out
}

// Tags that App Servers put on agents themselves.
const (
	memoryTag    = "git-memory-enabled"
	subagentTag  = "role:subagent"
	originPrefix = "origin:"
)

func deleteAgent(ctx context.Context, c *call) (any, error) {
	ag, err := c.agent(ctx)
	if err != nil {
		return nil, err
	}
	if err := c.backend.DeleteAgent(ctx, ag.ID); err != nil {
		return nil, agentGone(err)
	}
	return map[string]any{"deleted": true, "agent_id": ag.ID, "agent_name": ag.Name}, nil
}
