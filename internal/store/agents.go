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

// CreateAgent stores a new agent together with its own conversation and what that
// holds. An id or foreign id that exists is CodeConflict.
func (s *Store) CreateAgent(ctx context.Context, a *agent.Agent, own *agent.Conversation, opening ...Opening) error {
	first, err := s.encodeOpening(own, opening)
	if err != nil {
		return err
	}
	return s.write(ctx, "create agent "+a.ID, func(t *tx) error {
		if found, err := t.exists(sqlAgentExists, a.ID, s.tenant); err != nil || found {
			return conflictIf(found, err, "Agent", a.ID)
		}
		if err := s.putAgent(t, a); err != nil {
			return err
		}
		if err := s.putConversation(t, own); err != nil {
			return err
		}
		for _, o := range opening {
			if o.Core == nil {
				continue
			}
			if _, err := t.exec(sqlPutHead, a.ID, s.tenant, o.Core.Commit); err != nil {
				return err
			}
			if err := s.writeLinks(t, a.ID, nil, o.Core.Links); err != nil {
				return err
			}
		}
		return t.runSome(first)
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

// An AgentOrder is what a list of agents is sorted by.
type AgentOrder string

// The orders. With AgentsByCompletion agents that never ran come last whatever
// the direction (spec/rest.md section 11.3).
const (
	AgentsByLastRun    AgentOrder = "" // those that never ran by creation
	AgentsByCreation   AgentOrder = "created_at"
	AgentsByUpdate     AgentOrder = "updated_at"
	AgentsByCompletion AgentOrder = "last_run_completion"
)

// An AgentFilter selects agents for a list.
type AgentFilter struct {
	IDs           []string // empty = all
	Name          string   // exactly
	Tags          []string // all must match
	AnyTag        bool     // one of Tags is enough
	Query         string   // substring of name, description, id or model, ignoring case
	LastStop      agent.StopReason
	BlockID       string // attached to it
	IncludeHidden bool
	Order         AgentOrder
	Page
}

// Agents lists agents, by default the one that ran last first, those that never
// ran by creation.
func (s *Store) Agents(ctx context.Context, f AgentFilter) ([]*agent.Agent, error) {
	l := listing{noun: "Agent", from: "agents", id: "id", tenant: "tenant"}
	switch f.Order {
	case AgentsByCreation:
		l.keys = []string{"created_ns", "id"}
	case AgentsByUpdate:
		l.keys = []string{"updated_ns", "id"}
	case AgentsByCompletion:
		l.keys = []string{nullsLast("last_run_ns", f.Asc), "id"}
	default:
		l.keys = []string{"last_run_ns", "created_ns", "id"}
	}
	q := s.selectAgents(f)
	tail, _, err := s.page(ctx, q, l, f.Page)
	if err != nil {
		return nil, err
	}
	// Sorting the ids alone spares reading the system texts of all agents.
	query := "SELECT " + agentColumns + " FROM agents WHERE id IN (SELECT id FROM agents" + q.text() + tail + ")" + orderBy(!f.Asc, l.keys...)
	var all []*agent.Agent
	err = s.pool().eachOf(ctx, appendTo(&all, scanAgent), query, q.args...)
	return all, s.dialect.fault("list agents", err)
}

// selectAgents makes the conditions of a filter.
func (s *Store) selectAgents(f AgentFilter) *selection {
	q := &selection{}
	q.where("tenant = ?", s.tenant)
	if !f.IncludeHidden {
		q.where("listed = 1")
	}
	q.in("id", f.IDs)
	if f.Name != "" {
		q.where("name_folded = ? AND name = ?", fold(f.Name), clean(f.Name))
	}
	const tagged = "EXISTS (SELECT 1 FROM agent_tags WHERE agent_id = agents.id AND "
	if f.AnyTag && len(f.Tags) > 0 {
		q.where(tagged+in("tag", len(f.Tags))+")", texts(f.Tags)...)
	} else {
		for _, tag := range f.Tags {
			q.where(tagged+"tag = ?)", clean(tag))
		}
	}
	if f.Query != "" {
		q.contains("search", f.Query)
	}
	if f.LastStop != "" {
		q.where(`(SELECT stop_reason FROM runs WHERE agent_id = agents.id AND ended = 1 ORDER BY ord DESC LIMIT 1) = ?`, string(f.LastStop))
	}
	if f.BlockID != "" {
		q.where("EXISTS (SELECT 1 FROM agent_blocks WHERE agent_id = agents.id AND block_id = ?)", f.BlockID)
	}
	return q
}

// DeleteAgent deletes an agent with everything that belongs to it: conversations
// and their journals, attachments of blocks, secrets and schedules. Of the blocks
// those go that were made from its files and are attached to nobody else.
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
			// Blocks that are its files alone.
			`DELETE FROM blocks WHERE id IN (SELECT block_id FROM agent_blocks WHERE agent_id = ?) AND tenant = ?
				AND (filed = 1 OR deleted = 1) AND (SELECT count(*) FROM agent_blocks WHERE block_id = blocks.id) = 1`,
			`DELETE FROM agents WHERE id = ? AND tenant = ?`, // cascades to the rest
		} {
			if _, err := t.exec(query, id, s.tenant); err != nil {
				return err
			}
		}
		return nil
	})
}
