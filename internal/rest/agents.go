package rest

import (
	"context"
	"encoding/json"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"mneme/internal/agent"
	"mneme/internal/roster"
	"mneme/internal/store"
)

var agentRoutes = []route{
	{"POST", "/v1/agents", (*Door).createAgent, doc{summary: "Make an agent", body: agentCreate{}, answer: agentState{}}},
	{"GET", "/v1/agents", (*Door).listAgents, doc{summary: "List agents", query: agentList{}, answer: []agentState{}}},
	{"GET", "/v1/agents/{agent_id}", (*Door).getAgent, doc{summary: "Show an agent", query: including{}, answer: agentState{}}},
	{"PATCH", "/v1/agents/{agent_id}", (*Door).updateAgent, doc{summary: "Change an agent", body: agentPatch{}, answer: agentState{}}},
	{"DELETE", "/v1/agents/{agent_id}", (*Door).deleteAgent, doc{summary: "Delete an agent with its conversations and its memory", answer: deleted{}}},
	{"POST", "/v1/agents/{agent_id}/recompile", (*Door).recompileAgent, doc{
		summary: "Compile the system message of the agent's own conversation anew", query: recompileQuery{}, answer: ""}},
	{"POST", "/v1/agents/{agent_id}/system-prompt/recompile", (*Door).recompileAgent, doc{
		summary: "The same under its old name", query: recompileQuery{}, answer: ""}},
}

// noToolset is the toolset of agents that are made here: nobody has a shell who was
// not given one (spec/harness.md section 2.1).
const noToolset = "none"

// words make the names of agents that are made without one.
var words = [2][]string{
	{
		"Amber", "Brave", "Calm", "Clever", "Cosmic", "Early", "Gentle", "Golden", "Honest", "Jolly", "Keen", "Lively",
		"Lucky", "Mellow", "Nimble", "Patient", "Quiet", "Rapid", "Sunny", "Tidy", "Velvet", "Witty", "Wild", "Young",
	},
	{
		"Acorn", "Badger", "Beacon", "Cedar", "Comet", "Dolphin", "Falcon", "Ferry", "Garden", "Harbor", "Island", "Lantern",
		"Maple", "Meadow", "Otter", "Pebble", "Planet", "Raven", "River", "Robin", "Spark", "Thistle", "Tiger", "Willow",
	},
}

func randomName() string {
	return words[0][rand.IntN(len(words[0]))] + " " + words[1][rand.IntN(len(words[1]))]
}

func (d *Door) createAgent(w http.ResponseWriter, r *http.Request) error {
	b, err := decodeBody[agentCreate](d, w, r)
	if err != nil {
		return err
	}
	ctx := r.Context()
	if project := r.Header.Get("X-Project-Id"); project != "" && !b.ProjectID.Set {
		b.ProjectID = optional[string]{Set: true, Value: project}
	}
	spec, err := d.agentSpec(ctx, &b)
	if err != nil {
		return err
	}
	ag, err := d.roster.CreateAgent(ctx, spec)
	if err != nil {
		return err
	}
	if secrets, given := b.secrets(); given {
		if err := d.setSecrets(ctx, ag.ID, secrets); err != nil {
			// Half an agent is none.
			d.roster.DeleteAgent(context.WithoutCancel(ctx), ag.ID) //nolint:errcheck // err says more
			return err
		}
	}
	return d.replyAgent(w, r, ag, everything)
}

// replyAgent answers with an agent.
func (d *Door) replyAgent(w http.ResponseWriter, r *http.Request, ag *agent.Agent, with relations) error {
	st, err := d.agentState(r.Context(), ag, with)
	if err != nil {
		return err
	}
	return reply(w, st)
}

// agentSpec turns the body of a new agent into a spec.
func (d *Door) agentSpec(ctx context.Context, b *agentCreate) (spec roster.AgentSpec, err error) {
	if err := d.checkModel(ctx, b.Model.Value); err != nil {
		return spec, err
	}
	extra, err := b.extra()
	if err != nil {
		return spec, err
	}
	if kind := b.AgentType.Ptr(); kind != nil {
		extra["agent_type"] = quote(*kind)
	}
	maps.DeleteFunc(extra, func(_ string, v json.RawMessage) bool { return notNull(v) == nil })
	spec = roster.AgentSpec{
		Name: b.Name.Or(""), Description: b.Description.Ptr(), System: b.System.Or(d.system), Model: b.Model.Value,
		ContextLimit: b.ContextLimit.Value, MaxTokens: b.MaxTokens.Value, Tags: b.Tags.Value, Hidden: b.Hidden.Ptr(),
		Compaction: json.RawMessage(b.Compaction.Value), AnyCompaction: true, Metadata: json.RawMessage(b.Metadata.Value),
		Toolset: noToolset, Compiled: true,
	}
	if spec.Name == "" {
		spec.Name = randomName()
	}
	if spec.ModelSettings, spec.ParallelCalls, err = b.modelSettings(); err != nil {
		return spec, err
	}
	if spec.ToolRules, err = b.rules(); err != nil {
		return spec, err
	}
	if spec.Extra, err = json.Marshal(extra); err != nil {
		return spec, err
	}
	if spec.Tools, err = d.toolNames(b); err != nil {
		return spec, err
	}
	for i := range b.MemoryBlocks.Value {
		spec.Blocks = append(spec.Blocks, b.MemoryBlocks.Value[i].spec())
	}
	spec.BlockIDs = b.BlockIDs.Value
	for _, id := range spec.BlockIDs {
		if _, err := d.store.Block(ctx, id); err != nil {
			return spec, blockGone(err, id)
		}
	}
	spec.Initial, err = d.initialMessages(ctx, b.Initial.Value)
	return spec, err
}

// setSecrets gives an agent these secrets and no others.
func (d *Door) setSecrets(ctx context.Context, agentID string, secrets map[string]string) error {
	old, err := d.store.Secrets(ctx, agentID)
	if err != nil {
		return err
	}
	sealed := map[string][]byte{}
	for name, value := range secrets {
		sealed[name] = d.sealer.Seal([]byte(value), sealedFor(agentID, name))
	}
	var gone []string
	for name := range old {
		if _, kept := sealed[name]; !kept {
			gone = append(gone, name)
		}
	}
	if len(sealed)+len(gone) == 0 {
		return nil
	}
	return d.store.ChangeSecrets(ctx, agentID, sealed, gone)
}

func (d *Door) getAgent(w http.ResponseWriter, r *http.Request) error {
	q, err := decodeQuery[including](r)
	if err != nil {
		return err
	}
	ag, err := d.agent(r)
	if err != nil {
		return err
	}
	return d.replyAgent(w, r, ag, q.relations())
}

func (d *Door) updateAgent(w http.ResponseWriter, r *http.Request) error {
	b, err := decodeBody[agentPatch](d, w, r)
	if err != nil {
		return err
	}
	ag, err := d.agent(r)
	if err != nil {
		return err
	}
	ctx := r.Context()
	p, err := d.agentPatch(ctx, &b)
	if err != nil {
		return err
	}
	// What can be refused comes first.
	if ids := b.MessageIDs.Ptr(); ids != nil {
		if err := d.setContext(ctx, ag, *ids); err != nil {
			return err
		}
	}
	if ids := b.BlockIDs.Ptr(); ids != nil {
		if err := d.setBlocks(ctx, ag, *ids); err != nil {
			return err
		}
	}
	if ag, err = d.roster.UpdateAgent(ctx, ag.ID, p); err != nil {
		return agentGone(err)
	}
	if secrets, given := b.secrets(); given {
		if err := d.setSecrets(ctx, ag.ID, secrets); err != nil {
			return err
		}
	}
	return d.replyAgent(w, r, ag, everything)
}

// agentGone is the answer where an agent was deleted while the request ran.
func agentGone(err error) error {
	if agent.CodeOf(err) == agent.CodeNotFound {
		return errAgent()
	}
	return err
}

// agentPatch turns the body of a change into a patch. Null clears where there can
// be nothing, and is ignored for name, system, model and its settings.
func (d *Door) agentPatch(ctx context.Context, b *agentPatch) (p roster.AgentPatch, err error) {
	p = roster.AgentPatch{
		Name: b.Name.Ptr(), System: b.System.Ptr(), Model: b.Model.Ptr(), Description: b.Description.Patch(),
		Hidden: b.Hidden.Patch(), MaxTokens: b.MaxTokens.Ptr(), AnyCompaction: true,
	}
	if p.Model != nil {
		if err := d.checkModel(ctx, *p.Model); err != nil {
			return p, err
		}
	}
	if p.ModelSettings, p.ParallelCalls, err = b.modelSettings(); err != nil {
		return p, err
	}
	if b.ContextLimit.Set {
		p.ContextLimit = &b.ContextLimit.Value
	}
	if b.Tags.Set {
		p.Tags = &b.Tags.Value
	}
	p.Compaction = rawPatch(b.Compaction)
	p.Metadata = rawPatch(b.Metadata)
	if b.ToolRules.Set {
		rules, err := b.rules()
		if err != nil {
			return p, err
		}
		p.ToolRules = &rules
	}
	if ids := b.ToolIDs.Ptr(); ids != nil {
		names, err := d.namesOfTools(*ids)
		if err != nil {
			return p, err
		}
		p.Tools = &names
	}
	p.Extra, err = b.extra()
	return p, err
}

// rawPatch is nil for an absent object, else the object or null.
func rawPatch(o optional[object]) *json.RawMessage {
	if !o.Set {
		return nil
	}
	raw := json.RawMessage("null")
	if o.Value != nil {
		raw = json.RawMessage(o.Value)
	}
	return &raw
}

// A deleted says that something is gone.
type deleted struct {
	Message string `json:"message"`
}

func (d *Door) deleteAgent(w http.ResponseWriter, r *http.Request) error {
	ag, err := d.agent(r)
	if err != nil {
		return err
	}
	if err := d.roster.DeleteAgent(r.Context(), ag.ID); err != nil {
		return agentGone(err)
	}
	return reply(w, deleted{"Agent id=" + ag.ID + " successfully deleted"})
}

// A recompileQuery says how to compile. update_timestamp is accepted: the text
// always tells the time.
type recompileQuery struct {
	DryRun bool `query:"dry_run" doc:"only return the text"`
	Stamp  bool `query:"update_timestamp"`
}

func (d *Door) recompileAgent(w http.ResponseWriter, r *http.Request) error {
	q, err := decodeQuery[recompileQuery](r)
	if err != nil {
		return err
	}
	ag, err := d.agent(r)
	if err != nil {
		return err
	}
	own, err := d.store.OwnConversation(r.Context(), ag.ID)
	if err != nil {
		return agentGone(err)
	}
	return d.replyCompiled(w, r, own.ID, q.DryRun)
}

func (d *Door) replyCompiled(w http.ResponseWriter, r *http.Request, conversationID string, dryRun bool) error {
	text, err := d.roster.Recompile(r.Context(), conversationID, dryRun)
	if err != nil {
		return err
	}
	return reply(w, text)
}

// An agentList are the parameters of the list of agents.
type agentList struct {
	Name     string   `query:"name" doc:"exact name"`
	Text     string   `query:"query_text" doc:"part of the name, description, id or model, ignoring case"`
	Tags     []string `query:"tags"`
	AllTags  bool     `query:"match_all_tags" doc:"all tags must match rather than one"`
	OrderBy  string   `query:"order_by" enum:"created_at,updated_at,last_run_completion" doc:"created_at where nothing is said"`
	SortBy   string   `query:"sort_by" doc:"deprecated: use order_by"`
	Limit    int      `query:"limit" default:"50" min:"0" max:"1000"`
	LastStop string   `query:"last_stop_reason"`
	// The others select by fields that only REST knows.
	ProjectID  string   `query:"project_id"`
	TemplateID string   `query:"template_id"`
	BaseID     string   `query:"base_template_id"`
	Identity   string   `query:"identity_id"`
	Keys       []string `query:"identifier_keys"`
	CreatedBy  string   `query:"created_by_id"`
	paging
	including
}

// order is what the list is sorted by.
func (q agentList) order() store.AgentOrder {
	for _, by := range []string{q.OrderBy, q.SortBy} {
		switch o := store.AgentOrder(by); o {
		case store.AgentsByCreation, store.AgentsByUpdate, store.AgentsByCompletion:
			return o
		}
	}
	return store.AgentsByCreation
}

func (d *Door) listAgents(w http.ResponseWriter, r *http.Request) error {
	q, err := decodeQuery[agentList](r)
	if err != nil {
		return err
	}
	// No agent knows who made it, and no identity has a key.
	if q.Limit == 0 || q.CreatedBy != "" || len(q.Keys) > 0 {
		return reply(w, []agentState{})
	}
	f := store.AgentFilter{
		Name: q.Name, Query: q.Text, Tags: q.Tags, AnyTag: !q.AllTags, LastStop: agent.StopReason(q.LastStop),
	}
	return d.replyAgents(w, r, f, q)
}

// replyAgents answers with one page of the agents that f and q select.
func (d *Door) replyAgents(w http.ResponseWriter, r *http.Request, f store.AgentFilter, q agentList) error {
	f.Order = q.order()
	list := listName("agents", string(f.Order), q.asc(false))
	f.Page = d.places.page(list, q.paging, false)
	at := func(ag *agent.Agent) (string, int64) { return ag.ID, sortValue(ag, f.Order, f.Asc) }
	agents, err := scan(f.Page, q.Limit, q.selects, func(p store.Page) ([]*agent.Agent, error) {
		f.Page = p
		return d.store.Agents(r.Context(), f)
	}, at)
	if err != nil {
		return err
	}
	noteEnds(d.places, list, agents, at)
	out, with := []agentState{}, q.relations()
	for _, ag := range agents {
		st, err := d.agentState(r.Context(), ag, with)
		if agent.CodeOf(err) == agent.CodeNotFound {
			continue // deleted meanwhile
		}
		if err != nil {
			return err
		}
		out = append(out, *st)
	}
	return reply(w, out)
}

// selects applies the conditions on fields that only REST knows.
func (q agentList) selects(ag *agent.Agent) bool {
	if q.ProjectID+q.TemplateID+q.BaseID+q.Identity == "" {
		return true
	}
	x, err := extraOf(ag)
	is := func(want string, have *string) bool { return want == "" || have != nil && *have == want }
	return err == nil && is(q.ProjectID, x.ProjectID) && is(q.TemplateID, x.TemplateID) && is(q.BaseID, x.BaseTemplateID) &&
		(q.Identity == "" || slices.Contains(x.IdentityIDs, q.Identity))
}

// sortValue is what a list in that order sorts the agent by.
func sortValue(ag *agent.Agent, order store.AgentOrder, asc bool) int64 {
	t := ag.CreatedAt
	switch order {
	case store.AgentsByUpdate:
		t = ag.UpdatedAt
	case store.AgentsByCompletion:
		t = ag.LastRunAt
	}
	return timeValue(t, asc)
}

// timeValue is what a list sorts a time by. No time comes last.
func timeValue(t time.Time, asc bool) int64 {
	switch {
	case !t.IsZero():
		return t.UnixNano()
	case asc:
		return last
	}
	return 0
}
