package rest

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"slices"
	"strings"

	"mneme/internal/agent"
)

// An agentState is an agent as answers show it (spec/rest.md section 11.2).
type agentState struct {
	ID                 string              `json:"id"`
	Name               string              `json:"name"`
	AgentType          string              `json:"agent_type"`
	Description        *string             `json:"description"`
	System             string              `json:"system"`
	Model              string              `json:"model"`
	ModelSettings      object              `json:"model_settings"`
	Embedding          *string             `json:"embedding"`
	LLMConfig          llmConfig           `json:"llm_config"`
	EmbeddingConfig    *none               `json:"embedding_config"`
	CompactionSettings *compactionSettings `json:"compaction_settings"`
	ResponseFormat     object              `json:"response_format"`
	MessageIDs         []string            `json:"message_ids"`
	Memory             memoryState         `json:"memory"`
	Blocks             []blockState        `json:"blocks"`
	Tools              []toolState         `json:"tools"`
	Sources            []none              `json:"sources"`
	Tags               []string            `json:"tags"`
	ToolRules          []toolRule          `json:"tool_rules"`
	ToolEnvironment    []secretState       `json:"tool_exec_environment_variables"`
	Secrets            []secretState       `json:"secrets"`
	Metadata           object              `json:"metadata"`
	ProjectID          *string             `json:"project_id"`
	TemplateID         *string             `json:"template_id"`
	BaseTemplateID     *string             `json:"base_template_id"`
	DeploymentID       *string             `json:"deployment_id"`
	EntityID           *string             `json:"entity_id"`
	IdentityIDs        []string            `json:"identity_ids"`
	Identities         []none              `json:"identities"`
	PendingApproval    variant             `json:"pending_approval"`
	Autoclear          bool                `json:"message_buffer_autoclear"`
	EnableSleeptime    *bool               `json:"enable_sleeptime"`
	MultiAgentGroup    *none               `json:"multi_agent_group"`
	ManagedGroup       *none               `json:"managed_group"`
	LastRunCompletion  stamp               `json:"last_run_completion"`
	LastRunDurationMS  *int64              `json:"last_run_duration_ms"`
	LastStopReason     *string             `json:"last_stop_reason"`
	Timezone           string              `json:"timezone"`
	MaxFilesOpen       *int                `json:"max_files_open"`
	FileViewLimit      *int                `json:"per_file_view_window_char_limit"`
	Hidden             *bool               `json:"hidden"`
	CreatedByID        *string             `json:"created_by_id"`
	LastUpdatedByID    *string             `json:"last_updated_by_id"`
	CreatedAt          stamp               `json:"created_at"`
	UpdatedAt          stamp               `json:"updated_at"`
}

// none is a kind of thing that this server does not have: always null, or a list
// without items.
type none struct{}

// An object is a JSON object that is passed on as it is; nil is null.
type object json.RawMessage

// MarshalJSON implements json.Marshaler.
func (o object) MarshalJSON() ([]byte, error) {
	if len(o) == 0 {
		return []byte("null"), nil
	}
	return o, nil
}

// A memoryState is the old form of an agent's blocks.
type memoryState struct {
	AgentType      string       `json:"agent_type"`
	Blocks         []blockState `json:"blocks"`
	FileBlocks     []none       `json:"file_blocks"`
	GitEnabled     bool         `json:"git_enabled"`
	PromptTemplate string       `json:"prompt_template"`
}

// A secretState is a secret of an agent.
type secretState struct {
	ID              string  `json:"id"`
	AgentID         string  `json:"agent_id"`
	Key             string  `json:"key"`
	Value           string  `json:"value"`
	ValueEnc        *string `json:"value_enc"`
	Description     *string `json:"description"`
	CreatedByID     *string `json:"created_by_id"`
	LastUpdatedByID *string `json:"last_updated_by_id"`
	CreatedAt       stamp   `json:"created_at"`
	UpdatedAt       stamp   `json:"updated_at"`
}

// agentExtra are the fields of an agent that only REST knows. They are stored as
// JSON under the same names as on the wire.
type agentExtra struct {
	AgentType       string          `json:"agent_type,omitempty"`
	Embedding       *string         `json:"embedding,omitempty"`
	ResponseFormat  json.RawMessage `json:"response_format,omitempty"`
	Autoclear       bool            `json:"message_buffer_autoclear,omitempty"`
	EnableSleeptime *bool           `json:"enable_sleeptime,omitempty"`
	Timezone        string          `json:"timezone,omitempty"`
	MaxFilesOpen    *int            `json:"max_files_open,omitempty"`
	FileViewLimit   *int            `json:"per_file_view_window_char_limit,omitempty"`
	ProjectID       *string         `json:"project_id,omitempty"`
	TemplateID      *string         `json:"template_id,omitempty"`
	BaseTemplateID  *string         `json:"base_template_id,omitempty"`
	IdentityIDs     []string        `json:"identity_ids,omitempty"`
}

// defaultAgentType is the type of agents that are made without one, and of those
// that were made through other doors.
const defaultAgentType = "letta_v1_agent"

// extraOf reads the fields that only REST knows.
func extraOf(ag *agent.Agent) (x agentExtra, err error) {
	if len(ag.Extra) > 0 {
		err = json.Unmarshal(ag.Extra, &x)
	}
	if x.AgentType == "" {
		x.AgentType = defaultAgentType
	}
	if x.Timezone == "" {
		x.Timezone = "UTC"
	}
	return x, err
}

// relations are the parts of an agent that a request can ask for.
type relations map[string]bool

// The relations that there is something of.
const (
	relBlocks   = "agent.blocks"
	relApproval = "agent.pending_approval"
	relSecrets  = "agent.secrets"
	relTags     = "agent.tags"
	relTools    = "agent.tools"
)

// everything is what create and update answer with.
var everything = relations{relBlocks: true, relApproval: true, relSecrets: true, relTags: true, relTools: true}

// including are the query parameters that ask for relations.
type including struct {
	Include []string `query:"include" enum:"agent.blocks,agent.identities,agent.managed_group,agent.pending_approval,agent.secrets,agent.sources,agent.tags,agent.tools" doc:"relations to show; the others are empty"`
	Old     []string `query:"include_relationships" doc:"deprecated: use include"`
}

// oldRelations are the names of relations that older clients use.
var oldRelations = map[string]string{
	"memory": relBlocks, "blocks": relBlocks, "tags": relTags, "tools": relTools,
	"secrets": relSecrets, "tool_exec_environment_variables": relSecrets, "pending_approval": relApproval,
}

func (i including) relations() relations {
	all := relations{}
	for _, name := range i.Include {
		all[name] = true
	}
	for _, name := range i.Old {
		all[oldRelations[name]] = true
	}
	return all
}

// agentState shows an agent with the relations that were asked for.
func (d *Door) agentState(ctx context.Context, ag *agent.Agent, with relations) (*agentState, error) {
	x, err := extraOf(ag)
	if err != nil {
		return nil, err
	}
	own, err := d.store.OwnConversation(ctx, ag.ID)
	if err != nil {
		return nil, err
	}
	st := &agentState{
		ID: ag.ID, Name: ag.Name, AgentType: x.AgentType, Description: ag.Description, System: ag.System,
		Embedding: x.Embedding, CompactionSettings: compactionState(ag.Compaction), ResponseFormat: object(x.ResponseFormat),
		Memory: memoryState{AgentType: x.AgentType, Blocks: []blockState{}, FileBlocks: []none{}, GitEnabled: true},
		Blocks: []blockState{}, Tools: []toolState{}, Sources: []none{}, Tags: []string{}, ToolRules: rulesState(ag.ToolRules),
		ToolEnvironment: []secretState{}, Secrets: []secretState{}, Metadata: object(ag.Metadata),
		ProjectID: x.ProjectID, TemplateID: x.TemplateID, BaseTemplateID: x.BaseTemplateID,
		IdentityIDs: orEmpty(x.IdentityIDs), Identities: []none{}, Autoclear: x.Autoclear, EnableSleeptime: x.EnableSleeptime,
		Timezone: x.Timezone, MaxFilesOpen: x.MaxFilesOpen, FileViewLimit: x.FileViewLimit, Hidden: ag.Hidden,
		CreatedAt: stamp(ag.CreatedAt), UpdatedAt: stamp(ag.UpdatedAt),
	}
	st.LLMConfig, st.Model = d.llmConfig(ctx, ag.Model, ag.ModelSettings, ag.ContextLimit)
	st.ModelSettings = settingsState(ag.ModelSettings, st.LLMConfig.EndpointType)
	if st.MessageIDs, err = d.contextIDs(ctx, own.ID); err != nil {
		return nil, err
	}
	if err := d.lastRun(ctx, ag, st); err != nil {
		return nil, err
	}
	return st, d.relate(ctx, ag, own, st, with)
}

// contextIDs are the ids of what the model sees of a conversation, the system
// message first.
func (d *Door) contextIDs(ctx context.Context, conversationID string) ([]string, error) {
	ids, err := d.store.ListedContext(ctx, conversationID)
	if err != nil {
		return nil, err
	}
	system, err := d.store.SystemMessageID(ctx, conversationID)
	if err != nil || system == "" {
		return ids, err
	}
	return slices.Insert(ids, 0, system), nil
}

// lastRun shows how the agent's last run went.
func (d *Door) lastRun(ctx context.Context, ag *agent.Agent, st *agentState) error {
	run, err := d.store.LastRun(ctx, ag.ID)
	if err != nil || run == nil {
		return err
	}
	st.LastRunCompletion = stamp(run.EndedAt)
	reason, _ := outcome(run.StopReason, run.Error)
	st.LastStopReason = &reason
	if !run.StartedAt.IsZero() {
		st.LastRunDurationMS = new(run.EndedAt.Sub(run.StartedAt).Milliseconds())
	}
	return nil
}

// relate fills in the relations that were asked for.
func (d *Door) relate(ctx context.Context, ag *agent.Agent, own *agent.Conversation, st *agentState, with relations) error {
	if with[relTags] {
		st.Tags = orEmpty(ag.Tags)
	}
	if with[relTools] {
		tools, err := d.toolStates(ag.Tools)
		if err != nil {
			return err
		}
		st.Tools = tools
	}
	if with[relBlocks] {
		blocks, err := d.roster.AgentBlocks(ctx, ag.ID)
		if err != nil {
			return err
		}
		for _, b := range blocks {
			st.Blocks = append(st.Blocks, renderBlock(b))
		}
		st.Memory.Blocks = st.Blocks
	}
	if with[relSecrets] {
		secrets, err := d.secretStates(ctx, ag)
		if err != nil {
			return err
		}
		st.Secrets, st.ToolEnvironment = secrets, secrets
	}
	if with[relApproval] {
		pending, err := d.pendingApproval(ctx, own)
		if err != nil {
			return err
		}
		if pending != nil {
			st.PendingApproval = pending
		}
	}
	return nil
}

// Secrets are sealed and opened by the server's key. *auth.Sealer implements it.
type Sealer interface {
	Seal(plain []byte, record string) []byte
	Open(sealed []byte, record string) ([]byte, error)
}

// sealedFor names the record that a secret is bound to.
func sealedFor(agentID, name string) string { return "agent/" + agentID + "/" + name }

// secretStates shows the secrets of an agent, by name. One that does not open,
// because the key is another one now, shows as empty and is reported.
func (d *Door) secretStates(ctx context.Context, ag *agent.Agent) ([]secretState, error) {
	sealed, err := d.store.Secrets(ctx, ag.ID)
	if err != nil {
		return nil, err
	}
	out := make([]secretState, 0, len(sealed))
	for name, raw := range sealed {
		plain, err := d.sealer.Open(raw, sealedFor(ag.ID, name))
		if err != nil {
			d.log.Error("secret does not open", "agent", ag.ID, "secret", name, "err", err)
		}
		out = append(out, secretState{
			ID: "agent-env-" + stableUUID(ag.ID, name), AgentID: ag.ID, Key: name, Value: string(plain),
		})
	}
	slices.SortFunc(out, func(a, b secretState) int { return strings.Compare(a.Key, b.Key) })
	return out, nil
}

// stableUUID makes a version 4 UUID that depends on the given words alone.
func stableUUID(words ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(words, "\x00")))
	b := [16]byte(sum[:16])
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return agent.FormatUUID(b)
}
