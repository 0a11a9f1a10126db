package store

import (
	"context"
	"slices"

	"mneme/internal/agent"
)

const (
	agentKeyColumns   = `id, tenant, created_ns, foreign_id`
	agentStateColumns = `updated_ns, last_run_ns, listed, hidden, context_limit, name, name_folded, model, toolset,
		description, tags, model_settings, compaction, metadata, tools, tool_rules, extra, search, system`
	agentColumns = agentKeyColumns + ", " + agentStateColumns
)

var (
	sqlPutAgent = "INSERT INTO agents (" + agentColumns + ") VALUES (" + marks(agentColumns) + `)
		ON CONFLICT (id) DO UPDATE SET ` + updates(agentStateColumns) + ` WHERE agents.tenant = excluded.tenant`
	sqlAgent        = "SELECT " + agentColumns + " FROM agents WHERE id = ? AND tenant = ?"
	sqlForeignAgent = "SELECT " + agentColumns + " FROM agents WHERE tenant = ? AND foreign_id = ?"
	sqlAgentsNamed  = "SELECT " + agentColumns + " FROM agents WHERE tenant = ? AND name_folded = ? ORDER BY name, id"
)

const (
	sqlAgentExists = `SELECT 1 FROM agents WHERE id = ? AND tenant = ?`
	sqlAgentPlace  = `SELECT last_run_ns, created_ns FROM agents WHERE id = ? AND tenant = ?`
	sqlDropTags    = `DELETE FROM agent_tags WHERE agent_id = ? AND tenant = ?`
	sqlPutTag      = `INSERT INTO agent_tags (agent_id, tag, tenant) VALUES (?, ?, ?) ON CONFLICT (agent_id, tag) DO NOTHING`
)

// subagentTag hides an agent from lists while its Hidden was never set
// (spec/app-server-commands.md section 2.2).
const subagentTag = "role:subagent"

// putAgent writes the row and its tags.
func (s *Store) putAgent(t *tx, a *agent.Agent) error {
	e := &encoder{s: s}
	settings := rawText(a.ModelSettings)
	if settings == nil {
		settings = "{}"
	}
	description := ""
	if a.Description != nil {
		description = *a.Description
	}
	// A separator that no search text has keeps the fields apart.
	search := fold(a.Name + "\x1f" + description + "\x1f" + a.ID + "\x1f" + a.Model)
	args := []any{
		a.ID, s.tenant, ns(a.CreatedAt), orNull(a.ForeignID),
		ns(a.UpdatedAt), ns(a.LastRunAt), bit(listed(a)), optBit(a.Hidden), int64(a.ContextLimit), clean(a.Name), fold(a.Name),
		clean(a.Model), clean(a.Toolset), optText(a.Description), list(e, a.Tags), settings, rawText(a.Compaction),
		rawText(a.Metadata), list(e, a.Tools), rawText(a.ToolRules), rawText(a.Extra), search, clean(a.System),
	}
	if e.err != nil {
		return e.err
	}
	if err := t.run([]statement{{what: "agent " + a.ID, query: sqlPutAgent, args: args}}); err != nil {
		return err
	}
	if _, err := t.exec(sqlDropTags, a.ID, s.tenant); err != nil {
		return err
	}
	for _, tag := range a.Tags {
		if _, err := t.exec(sqlPutTag, a.ID, clean(tag), s.tenant); err != nil {
			return err
		}
	}
	return nil
}

func listed(a *agent.Agent) bool {
	if a.Hidden != nil {
		return !*a.Hidden
	}
	return !slices.Contains(a.Tags, subagentTag)
}

func scanAgent(r scanner) (*agent.Agent, error) {
	a := new(agent.Agent)
	var tenant, folded, search string
	var listed int64
	err := r.Scan(
		&a.ID, &tenant, scanTime{&a.CreatedAt}, scanText{&a.ForeignID},
		scanTime{&a.UpdatedAt}, scanTime{&a.LastRunAt}, &listed, scanOptBit{&a.Hidden}, &a.ContextLimit, &a.Name, &folded,
		&a.Model, &a.Toolset, scanOptText{&a.Description}, scanJSON{&a.Tags}, scanRaw{&a.ModelSettings}, scanRaw{&a.Compaction},
		scanRaw{&a.Metadata}, scanJSON{&a.Tools}, scanRaw{&a.ToolRules}, scanRaw{&a.Extra}, &search, &a.System,
	)
	return a, err
}

// CreateAgent stores a new agent together with its own conversation. An id or
// foreign id that exists is CodeConflict.
func (s *Store) CreateAgent(ctx context.Context, a *agent.Agent, own *agent.Conversation) error {
	return s.write(ctx, "create agent "+a.ID, func(t *tx) error {
		if found, err := t.exists(sqlAgentExists, a.ID, s.tenant); err != nil || found {
			return conflictIf(found, err, "Agent", a.ID)
		}
		if err := s.putAgent(t, a); err != nil {
			return err
		}
		return s.putConversation(t, own)
	})
}

func (t *tx) exists(query string, args ...any) (bool, error) {
	var one int
	return t.one(func(r scanner) error { return r.Scan(&one) }, query, args...)
}

func conflictIf(found bool, err error, noun, id string) error {
	if err == nil && found {
		return &agent.Error{Code: agent.CodeConflict, Message: noun + " " + id + " exists already", Ref: id}
	}
	return err
}

// Agent returns the agent with the id, or with the id it was imported under.
func (s *Store) Agent(ctx context.Context, id string) (*agent.Agent, error) {
	a, err := get(ctx, s.pool(), "Agent", id, scanAgent, sqlAgent, id, s.tenant)
	if agent.CodeOf(err) == agent.CodeNotFound && id != "" {
		return get(ctx, s.pool(), "Agent", id, scanAgent, sqlForeignAgent, s.tenant, clean(id))
	}
	return a, err
}

// AgentsNamed lists the agents with the name, ignoring case, by name and id.
func (s *Store) AgentsNamed(ctx context.Context, name string) ([]*agent.Agent, error) {
	var all []*agent.Agent
	err := s.pool().each(ctx, appendTo(&all, scanAgent), sqlAgentsNamed, s.tenant, fold(name))
	return all, s.dialect.fault("find agent "+name, err)
}

// AgentByName returns the one agent with exactly the name. It fails with
// CodeNotFound if there is none, CodeConflict if there are several.
func (s *Store) AgentByName(ctx context.Context, name string) (*agent.Agent, error) {
	all, err := s.AgentsNamed(ctx, name)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(a *agent.Agent) bool { return a.Name != name })
	switch len(all) {
	case 0:
		return nil, notFound("Agent", name)
	case 1:
		return all[0], nil
	}
	return nil, agent.Errorf(agent.CodeConflict, "%d agents are named %s", len(all), name)
}

// UpdateAgent reads the agent, lets fn change it and stores the result, with no
// other write in between. An error of fn changes nothing. fn runs on the
// committer's goroutine: it must be quick, must not use the store, and may run
// more than once, each time on a fresh value. LastRunAt is not stored: it is kept by
// Commit. The result is the agent as stored.
func (s *Store) UpdateAgent(ctx context.Context, id string, fn func(*agent.Agent) error) (*agent.Agent, error) {
	var a *agent.Agent
	err := s.write(ctx, "change agent "+id, func(t *tx) (err error) {
		if a, err = s.agentIn(t, id); err != nil {
			return err
		}
		fixed := *a
		if err := fn(a); err != nil {
			return err
		}
		a.ID, a.ForeignID, a.CreatedAt, a.LastRunAt = fixed.ID, fixed.ForeignID, fixed.CreatedAt, fixed.LastRunAt
		return s.putAgent(t, a)
	})
	if err != nil {
		return nil, err
	}
	return a, nil
}

func (s *Store) agentIn(t *tx, id string) (a *agent.Agent, err error) {
	scan := func(r scanner) (err error) {
		a, err = scanAgent(r)
		return err
	}
	found, err := t.one(scan, sqlAgent, id, s.tenant)
	if err == nil && !found && id != "" {
		found, err = t.one(scan, sqlForeignAgent, s.tenant, clean(id))
	}
	if err == nil && !found {
		err = notFound("Agent", id)
	}
	return a, err
}

// An AgentFilter selects agents for a list.
type AgentFilter struct {
	Tags          []string // all must match
	Query         string   // substring of name, description, id or model, ignoring case
	IncludeHidden bool
	After         string // id of the last one of the page before; unknown = CodeNotFound
	Limit         int    // 0 = no limit
	// ByCreated orders by creation instead of the end of the last run.
	ByCreated bool
	Asc       bool // oldest first
}

// Agents lists agents, by default the one that ran last first, those that never
// ran by creation.
func (s *Store) Agents(ctx context.Context, f AgentFilter) ([]*agent.Agent, error) {
	q := &selection{}
	q.where("tenant = ?", s.tenant)
	if !f.IncludeHidden {
		q.where("listed = 1")
	}
	for _, tag := range f.Tags {
		q.where("EXISTS (SELECT 1 FROM agent_tags WHERE agent_id = agents.id AND tag = ?)", clean(tag))
	}
	if f.Query != "" {
		q.contains("search", f.Query)
	}
	if err := s.placeAgent(ctx, q, f); err != nil {
		return nil, err
	}
	keys := []string{"last_run_ns", "created_ns", "id"}
	if f.ByCreated {
		keys = keys[1:]
	}
	// Sorting the ids alone spares reading the system texts of all agents.
	order := orderBy(!f.Asc, keys...)
	query := "SELECT " + agentColumns + " FROM agents WHERE id IN (SELECT id FROM agents" + q.text() + order + limitTo(f.Limit) + ")" + order
	var all []*agent.Agent
	err := s.pool().eachOf(ctx, appendTo(&all, scanAgent), query, q.args...)
	return all, s.dialect.fault("list agents", err)
}

// placeAgent adds the condition that agents come after the cursor.
func (s *Store) placeAgent(ctx context.Context, q *selection, f AgentFilter) error {
	if f.After == "" {
		return nil
	}
	var run, created int64
	found, err := s.pool().one(ctx, func(r scanner) error { return r.Scan(&run, &created) }, sqlAgentPlace, f.After, s.tenant)
	if err != nil {
		return s.dialect.fault("find agent "+f.After, err)
	}
	if !found {
		return notFound("Agent", f.After)
	}
	side := "<"
	if f.Asc {
		side = ">"
	}
	if f.ByCreated {
		q.where("(created_ns, id) "+side+" (?, ?)", created, f.After)
	} else {
		q.where("(last_run_ns, created_ns, id) "+side+" (?, ?, ?)", run, created, f.After)
	}
	return nil
}

// DeleteAgent deletes an agent with everything that belongs to it: conversations
// and their journals, attachments of blocks, secrets and schedules. Blocks stay.
// Whoever still holds a lease of one of its conversations can write no more.
func (s *Store) DeleteAgent(ctx context.Context, id string) error {
	return s.write(ctx, "delete agent "+id, func(t *tx) error {
		if found, err := t.exists(sqlAgentExists, id, s.tenant); err != nil {
			return err
		} else if !found {
			return notFound("Agent", id)
		}
		var conversations []string
		err := t.each(func(r scanner) error {
			var id string
			err := r.Scan(&id)
			conversations = append(conversations, id)
			return err
		}, `SELECT id FROM conversations WHERE agent_id = ? AND tenant = ?`, id, s.tenant)
		if err != nil {
			return err
		}
		for _, c := range conversations {
			if err := s.deleteConversation(t, c); err != nil {
				return err
			}
		}
		for _, query := range []string{
			`DELETE FROM schedules WHERE agent_id = ? AND tenant = ?`,
			`DELETE FROM agents WHERE id = ? AND tenant = ?`, // cascades to the rest
		} {
			if _, err := t.exec(query, id, s.tenant); err != nil {
				return err
			}
		}
		return nil
	})
}
