package rest

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"

	"mneme/internal/agent"
	"mneme/internal/memory"
	"mneme/internal/roster"
	"mneme/internal/store"
)

var blockRoutes = []route{
	{"POST", "/v1/blocks", (*Door).createBlock, doc{summary: "Make a memory block that is attached to nobody", body: blockCreate{}, answer: blockState{}}},
	{"GET", "/v1/blocks", (*Door).listBlocks, doc{summary: "List memory blocks, the oldest first", query: blockList{}, answer: []blockState{}}},
	{"GET", "/v1/blocks/{block_id}", (*Door).getBlock, doc{summary: "Show a memory block", answer: blockState{}}},
	{"PATCH", "/v1/blocks/{block_id}", (*Door).updateBlock, doc{
		summary: "Change a memory block, in all agents that have it", body: blockPatch{}, answer: blockState{}}},
	{"DELETE", "/v1/blocks/{block_id}", (*Door).deleteBlock, doc{summary: "Delete a memory block, in all agents that have it", answer: (*none)(nil)}},
	{"GET", "/v1/blocks/{block_id}/agents", (*Door).listBlockAgents, doc{
		summary: "List the agents that have a memory block", query: blockAgentList{}, answer: []agentState{}}},

	{"GET", "/v1/agents/{agent_id}/core-memory/blocks", (*Door).listAgentBlocks, doc{
		summary: "List the memory blocks of an agent", query: agentBlockList{}, answer: []blockState{}}},
	{"GET", "/v1/agents/{agent_id}/core-memory/blocks/{block_label}", (*Door).getAgentBlock, doc{
		summary: "Show a memory block of an agent by its label", answer: blockState{}}},
	{"PATCH", "/v1/agents/{agent_id}/core-memory/blocks/{block_label}", (*Door).updateAgentBlock, doc{
		summary: "Change a memory block of an agent", body: blockPatch{}, answer: blockState{}}},
	{"PATCH", "/v1/agents/{agent_id}/core-memory/blocks/attach/{block_id}", (*Door).attachBlock, doc{
		summary: "Give an agent a memory block", answer: agentState{}}},
	{"PATCH", "/v1/agents/{agent_id}/core-memory/blocks/detach/{block_id}", (*Door).detachBlock, doc{
		summary: "Take a memory block from an agent", answer: agentState{}}},
}

// A blockState is a memory block as answers show it (spec/rest.md section 12).
type blockState struct {
	ID                  string   `json:"id"`
	Label               string   `json:"label"`
	Value               string   `json:"value"`
	Limit               int      `json:"limit"`
	Description         *string  `json:"description"`
	ReadOnly            bool     `json:"read_only"`
	IsTemplate          bool     `json:"is_template"`
	TemplateName        *string  `json:"template_name"`
	Metadata            object   `json:"metadata"`
	Tags                []string `json:"tags"`
	Hidden              *bool    `json:"hidden"`
	ProjectID           *string  `json:"project_id"`
	TemplateID          *string  `json:"template_id"`
	BaseTemplateID      *string  `json:"base_template_id"`
	DeploymentID        *string  `json:"deployment_id"`
	EntityID            *string  `json:"entity_id"`
	PreserveOnMigration bool     `json:"preserve_on_migration"`
	CreatedByID         *string  `json:"created_by_id"`
	LastUpdatedByID     *string  `json:"last_updated_by_id"`
}

// blockExtra are the fields of a block that only REST knows. They are stored as JSON
// under the same names as on the wire.
type blockExtra struct {
	IsTemplate          bool    `json:"is_template,omitempty"`
	TemplateName        *string `json:"template_name,omitempty"`
	ProjectID           *string `json:"project_id,omitempty"`
	TemplateID          *string `json:"template_id,omitempty"`
	BaseTemplateID      *string `json:"base_template_id,omitempty"`
	DeploymentID        *string `json:"deployment_id,omitempty"`
	EntityID            *string `json:"entity_id,omitempty"`
	PreserveOnMigration bool    `json:"preserve_on_migration,omitempty"`
}

func blockExtraOf(b *agent.Block) (x blockExtra) {
	if len(b.Extra) > 0 {
		_ = json.Unmarshal(b.Extra, &x) // it was written here
	}
	return x
}

// renderBlock shows a block.
func renderBlock(b *agent.Block) blockState {
	x := blockExtraOf(b)
	return blockState{
		ID: b.ID, Label: b.Label, Value: b.Value, Limit: b.Limit, Description: b.Description, ReadOnly: b.ReadOnly,
		Metadata: object(orObject(b.Metadata)), Tags: orEmpty(b.Tags), Hidden: b.Hidden,
		IsTemplate: x.IsTemplate, TemplateName: x.TemplateName, ProjectID: x.ProjectID, TemplateID: x.TemplateID,
		BaseTemplateID: x.BaseTemplateID, DeploymentID: x.DeploymentID, EntityID: x.EntityID, PreserveOnMigration: x.PreserveOnMigration,
	}
}

// A blockPatch is the body of a change: an absent field is left as it is, null
// clears it where there can be nothing.
type blockPatch struct {
	Label               optional[string]   `json:"label"`
	Value               optional[string]   `json:"value"`
	Limit               optional[int]      `json:"limit"`
	Description         optional[string]   `json:"description"`
	ReadOnly            optional[bool]     `json:"read_only"`
	Metadata            optional[object]   `json:"metadata"`
	Tags                optional[[]string] `json:"tags"`
	Hidden              optional[bool]     `json:"hidden"`
	IsTemplate          optional[bool]     `json:"is_template"`
	TemplateName        optional[string]   `json:"template_name"`
	ProjectID           optional[string]   `json:"project_id"`
	TemplateID          optional[string]   `json:"template_id"`
	BaseTemplateID      optional[string]   `json:"base_template_id"`
	DeploymentID        optional[string]   `json:"deployment_id"`
	EntityID            optional[string]   `json:"entity_id"`
	PreserveOnMigration optional[bool]     `json:"preserve_on_migration"`
}

// A blockCreate is the body of a new block, or a block of a new agent. Label and
// value are required; a value of null is empty.
type blockCreate struct{ blockPatch }

func (b *blockPatch) check() error { return b.checkAt("body") }

// checkAt checks a block whose place in the request is where.
func (b *blockPatch) checkAt(where string) error {
	if label := b.Label.Ptr(); label != nil {
		if _, err := memory.LabelPath(*label); err != nil {
			return unprocessable(where+".label", "%v", err)
		}
	}
	if limit := b.Limit.Ptr(); limit != nil && *limit < 1 {
		return unprocessable(where+".limit", "Input should be greater than 0")
	}
	return nil
}

func (b *blockCreate) check() error { return b.checkAt("body") }

func (b *blockCreate) checkAt(where string) error {
	if b.Label.Ptr() == nil {
		return unprocessable(where+".label", "Field required")
	}
	if !b.Value.Set {
		return unprocessable(where+".value", "Field required")
	}
	return b.blockPatch.checkAt(where)
}

// spec turns the body of a new block into a spec.
func (b *blockCreate) spec() roster.BlockSpec {
	x := blockExtra{
		IsTemplate: b.IsTemplate.Value, TemplateName: b.TemplateName.Ptr(), ProjectID: b.ProjectID.Ptr(), TemplateID: b.TemplateID.Ptr(),
		BaseTemplateID: b.BaseTemplateID.Ptr(), DeploymentID: b.DeploymentID.Ptr(), EntityID: b.EntityID.Ptr(),
		PreserveOnMigration: b.PreserveOnMigration.Value,
	}
	s := roster.BlockSpec{
		Label: b.Label.Value, Value: b.Value.Value, Description: b.Description.Ptr(), Limit: b.Limit.Ptr(), ReadOnly: b.ReadOnly.Value,
		Tags: b.Tags.Value, Metadata: json.RawMessage(b.Metadata.Value), Hidden: b.Hidden.Ptr(),
	}
	if x != (blockExtra{}) {
		s.Extra, _ = json.Marshal(x) // it always encodes
	}
	return s
}

// patch turns the body of a change into a patch of the block. Null clears where
// there can be nothing, and is ignored for label, value, limit and read_only.
func (b *blockPatch) patch(old *agent.Block) roster.BlockPatch {
	p := roster.BlockPatch{
		Label: b.Label.Ptr(), Value: b.Value.Ptr(), Description: b.Description.Patch(), Limit: b.Limit.Ptr(), ReadOnly: b.ReadOnly.Ptr(),
		Hidden: b.Hidden.Patch(), Metadata: rawPatch(b.Metadata),
	}
	if b.Tags.Set {
		p.Tags = &b.Tags.Value
	}
	x := blockExtraOf(old)
	before := x
	change(&x.IsTemplate, b.IsTemplate)
	change(&x.PreserveOnMigration, b.PreserveOnMigration)
	for _, f := range []struct {
		to  **string
		now optional[string]
	}{
		{&x.TemplateName, b.TemplateName}, {&x.ProjectID, b.ProjectID}, {&x.TemplateID, b.TemplateID},
		{&x.BaseTemplateID, b.BaseTemplateID}, {&x.DeploymentID, b.DeploymentID}, {&x.EntityID, b.EntityID},
	} {
		if f.now.Set {
			*f.to = f.now.Ptr()
		}
	}
	if x != before {
		raw, _ := json.Marshal(x) // it always encodes
		p.Extra = (*json.RawMessage)(&raw)
	}
	return p
}

// change sets a field that is given and not null.
func change[T any](to *T, now optional[T]) {
	if v := now.Ptr(); v != nil {
		*to = *v
	}
}

func (d *Door) createBlock(w http.ResponseWriter, r *http.Request) error {
	b, err := decodeBody[blockCreate](d, w, r)
	if err != nil {
		return err
	}
	block, err := d.roster.CreateBlock(r.Context(), b.spec())
	if err != nil {
		return err
	}
	return reply(w, renderBlock(block))
}

// block finds the block that {block_id} of the path names.
func (d *Door) block(r *http.Request) (*agent.Block, error) {
	id, err := pathID(r, "block_id", "block")
	if err != nil {
		return nil, err
	}
	b, err := d.roster.Block(r.Context(), id)
	return b, blockGone(err, id)
}

// blockGone is the answer where there is no block of that id.
func blockGone(err error, id string) error {
	if agent.CodeOf(err) == agent.CodeNotFound {
		return notFound("Block not found with id='%s'", id)
	}
	return err
}

func (d *Door) getBlock(w http.ResponseWriter, r *http.Request) error {
	b, err := d.block(r)
	if err != nil {
		return err
	}
	return reply(w, renderBlock(b))
}

func (d *Door) updateBlock(w http.ResponseWriter, r *http.Request) error {
	b, err := decodeBody[blockPatch](d, w, r)
	if err != nil {
		return err
	}
	old, err := d.block(r)
	if err != nil {
		return err
	}
	block, err := d.roster.UpdateBlock(r.Context(), old.ID, b.patch(old))
	if err != nil {
		return blockGone(err, old.ID)
	}
	return reply(w, renderBlock(block))
}

func (d *Door) deleteBlock(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r, "block_id", "block")
	if err != nil {
		return err
	}
	if err := d.roster.DeleteBlock(r.Context(), id); err != nil {
		return blockGone(err, id)
	}
	return reply(w, nil)
}

// A blockList are the parameters of the list of blocks.
type blockList struct {
	Label       string   `query:"label"`
	LabelPart   string   `query:"label_search" doc:"part of the label, ignoring case"`
	ValuePart   string   `query:"value_search" doc:"part of the value, ignoring case"`
	Description string   `query:"description_search" doc:"part of the description, ignoring case"`
	Tags        []string `query:"tags"`
	AllTags     bool     `query:"match_all_tags" doc:"all tags must match rather than one"`
	Over        *int     `query:"connected_to_agents_count_gt" doc:"attached to more agents than that"`
	Under       *int     `query:"connected_to_agents_count_lt" doc:"attached to fewer agents than that"`
	Exactly     []int    `query:"connected_to_agents_count_eq" doc:"attached to one of these numbers of agents"`
	OrderBy     string   `query:"order_by" enum:"created_at"`
	Limit       int      `query:"limit" default:"50" min:"0" max:"1000"`
	// The others select by fields that only REST knows.
	Name      string   `query:"name" doc:"name of a template"`
	Templates bool     `query:"templates_only"`
	ProjectID string   `query:"project_id"`
	Identity  string   `query:"identity_id"`
	Keys      []string `query:"identifier_keys"`
	paging
}

func (d *Door) listBlocks(w http.ResponseWriter, r *http.Request) error {
	q, err := decodeQuery[blockList](r)
	if err != nil {
		return err
	}
	// No block belongs to an identity.
	if q.Limit == 0 || q.Identity != "" || len(q.Keys) > 0 {
		return reply(w, []blockState{})
	}
	f := store.BlockFilter{
		Label: q.Label, LabelSearch: q.LabelPart, ValueSearch: q.ValuePart, DescriptionSearch: q.Description,
		Tags: q.Tags, AnyTag: !q.AllTags, AgentsOver: q.Over, AgentsUnder: q.Under, AgentsExactly: q.Exactly,
	}
	at := func(b *agent.Block) (string, int64) { return b.ID, timeValue(b.CreatedAt, true) }
	list := listName("blocks", "", q.asc(true))
	blocks, err := scan(d.places.page(list, q.paging, true), q.Limit, q.selects, func(p store.Page) ([]*agent.Block, error) {
		f.Page = p
		return d.roster.Blocks(r.Context(), f)
	}, at)
	if err != nil {
		return err
	}
	noteEnds(d.places, list, blocks, at)
	return replyBlocks(w, blocks)
}

func replyBlocks(w http.ResponseWriter, blocks []*agent.Block) error {
	out := []blockState{}
	for _, b := range blocks {
		out = append(out, renderBlock(b))
	}
	return reply(w, out)
}

// selects applies the conditions on fields that only REST knows.
func (q blockList) selects(b *agent.Block) bool {
	x := blockExtraOf(b)
	is := func(want string, have *string) bool { return want == "" || have != nil && *have == want }
	return (x.IsTemplate || !q.Templates) && is(q.Name, x.TemplateName) && is(q.ProjectID, x.ProjectID)
}

// A blockAgentList are the parameters of the list of the agents of a block.
type blockAgentList struct {
	Limit int `query:"limit" default:"50" min:"0" max:"1000"`
	paging
	including
}

func (d *Door) listBlockAgents(w http.ResponseWriter, r *http.Request) error {
	q, err := decodeQuery[blockAgentList](r)
	if err != nil {
		return err
	}
	b, err := d.block(r)
	if err != nil {
		return err
	}
	if q.Limit == 0 {
		return reply(w, []agentState{})
	}
	f := store.AgentFilter{BlockID: b.ID, IncludeHidden: true}
	return d.replyAgents(w, r, f, agentList{Limit: q.Limit, paging: q.paging, including: q.including})
}

// An agentBlockList are the parameters of the list of an agent's blocks.
type agentBlockList struct {
	Limit int `query:"limit" default:"50" min:"0" max:"1000"`
	paging
}

func (d *Door) listAgentBlocks(w http.ResponseWriter, r *http.Request) error {
	q, err := decodeQuery[agentBlockList](r)
	if err != nil {
		return err
	}
	ag, err := d.agent(r)
	if err != nil {
		return err
	}
	blocks, err := d.roster.AgentBlocks(r.Context(), ag.ID)
	if err != nil {
		return agentGone(err)
	}
	if !q.asc(true) {
		slices.Reverse(blocks)
	}
	page, ok := window(blocks, func(b *agent.Block) string { return b.ID }, q.After, q.Before, q.Limit)
	if !ok {
		return notFound("The block of the cursor is not attached to the agent")
	}
	return replyBlocks(w, page)
}

// agentBlock finds the agent of the path and its block with {block_label}.
func (d *Door) agentBlock(r *http.Request) (*agent.Agent, *agent.Block, error) {
	ag, err := d.agent(r)
	if err != nil {
		return nil, nil, err
	}
	label := r.PathValue("block_label")
	b, err := d.roster.AgentBlock(r.Context(), ag.ID, label)
	return ag, b, labelGone(err, label)
}

// labelGone is the answer where an agent has no block of that label.
func labelGone(err error, label string) error {
	if agent.CodeOf(err) == agent.CodeNotFound {
		return notFound("Block with label %s not found", quoted(label))
	}
	return err
}

func (d *Door) getAgentBlock(w http.ResponseWriter, r *http.Request) error {
	_, b, err := d.agentBlock(r)
	if err != nil {
		return err
	}
	return reply(w, renderBlock(b))
}

func (d *Door) updateAgentBlock(w http.ResponseWriter, r *http.Request) error {
	b, err := decodeBody[blockPatch](d, w, r)
	if err != nil {
		return err
	}
	ag, old, err := d.agentBlock(r)
	if err != nil {
		return err
	}
	block, err := d.roster.UpdateAgentBlock(r.Context(), ag.ID, old.Label, b.patch(old))
	if err != nil {
		return labelGone(err, old.Label)
	}
	return reply(w, renderBlock(block))
}

func (d *Door) attachBlock(w http.ResponseWriter, r *http.Request) error {
	return d.moveBlock(w, r, d.roster.AttachBlock)
}

func (d *Door) detachBlock(w http.ResponseWriter, r *http.Request) error {
	return d.moveBlock(w, r, d.roster.DetachBlock)
}

// moveBlock attaches or detaches a block and answers with the agent.
func (d *Door) moveBlock(w http.ResponseWriter, r *http.Request, move func(ctx context.Context, agentID, blockID string) error) error {
	id, err := pathID(r, "block_id", "block")
	if err != nil {
		return err
	}
	ag, err := d.agent(r)
	if err != nil {
		return err
	}
	if err := move(r.Context(), ag.ID, id); err != nil {
		return blockGone(err, id)
	}
	return d.replyAgent(w, r, ag, everything)
}

// setBlocks makes these the blocks of an agent. All of them must be there before
// anything changes.
func (d *Door) setBlocks(ctx context.Context, ag *agent.Agent, ids []string) error {
	for _, id := range ids {
		if _, err := d.store.Block(ctx, id); err != nil {
			return blockGone(err, id)
		}
	}
	return d.roster.SetAgentBlocks(ctx, ag.ID, ids)
}
