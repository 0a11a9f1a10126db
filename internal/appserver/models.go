package appserver

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"mneme/internal/agent"
	"mneme/internal/llm"
	"mneme/protocol"
)

var modelCommands = map[string]handler{
	"list_models":            beside(answer(listModels)),
	"list_connect_providers": beside(answer(listProviders)),
	"connect_provider":       beside(answer(connectProvider)),
	"disconnect_provider":    beside(answer(disconnectProvider)),
	"update_model":           inLane(answer(updateModel)), // asks providers which models they have
	"update_toolset":         answer(updateToolset),
}

func listModels(ctx context.Context, k *call, cmd *protocol.ListModels) (*protocol.ListModelsResponse, error) {
	infos, err := k.door.models.List(ctx, cmd.Force != nil && *cmd.Force)
	if err != nil {
		return nil, err
	}
	entries := modelEntries(infos)
	if def, err := k.door.models.Default(ctx); err == nil {
		yes := true
		for i := range entries {
			if entries[i].Handle == def {
				entries[i].IsDefault = &yes
			}
		}
	}
	handles := protocol.List[string]{}
	for _, i := range infos {
		handles = append(handles, i.Handle)
	}
	return &protocol.ListModelsResponse{
		Entries: entries, AvailableHandles: protocol.Some(handles), ByokProviderAliases: providerAliases(),
	}, nil
}

// modelEntries shows models. The id of one is its name where no other provider
// has the name too, else its handle (spec/app-server-commands.md section 4.4).
func modelEntries(infos []llm.Info) []protocol.ModelEntry {
	count := map[string]int{}
	for _, i := range infos {
		count[i.Name]++
	}
	var out []protocol.ModelEntry
	for _, i := range infos {
		e := protocol.ModelEntry{ID: i.Name, Handle: i.Handle, Label: modelLabel(i), UpdateArgs: &protocol.UpdateArgs{
			ProviderType: i.ProviderType, ContextWindow: i.Context, MaxOutputTokens: i.MaxOutput, ParallelToolCalls: true,
		}}
		if count[i.Name] > 1 {
			e.ID = i.Handle
		}
		out = append(out, e)
	}
	return out
}

func modelLabel(i llm.Info) string {
	if i.Label != "" {
		return i.Label
	}
	return i.Name
}

// providerAliases are the names under which clients know providers of which
// the user brings the key.
func providerAliases() map[string]string {
	return map[string]string{
		"lc-openai": "openai", "lc-anthropic": "anthropic", "lc-gemini": "google", "lc-openrouter": "openrouter",
		"lc-zai": "zai", "lc-minimax": "minimax", "lc-bedrock": "amazon-bedrock",
		"chatgpt-plus-pro": "openai-codex", "chatgpt-oauth": "openai-codex",
	}
}

// updateModel gives a conversation, or the agent for its own one, another model
// from the next turn on.
func updateModel(ctx context.Context, k *call, cmd *protocol.UpdateModel) (*protocol.UpdateModelResponse, error) {
	resp := &protocol.UpdateModelResponse{Runtime: &cmd.Runtime, ModelID: cmd.Payload.ModelID, ModelHandle: cmd.Payload.ModelHandle}
	if k.sub == nil {
		return resp, k.unknown
	}
	id, handle, err := k.door.findModel(ctx, cmd.Payload)
	if err != nil {
		return resp, err
	}
	var given json.RawMessage
	if e := cmd.Payload.ReasoningEffort; e.Set {
		if given, err = json.Marshal(map[string]any{"reasoning_effort": e.Value}); err != nil {
			return resp, err
		}
	}
	scope := k.sub.feed.scope
	applied, err := k.door.roster.SetModel(ctx, scope, handle, given)
	if err != nil {
		return resp, err
	}
	label := handle
	if _, info, err := k.door.models.Resolve(ctx, handle); err == nil {
		label = modelLabel(info)
	} // a model that nobody knows is accepted and fails in the turn
	if err := k.note(ctx, "Model updated to "+label+"."); err != nil {
		return resp, err
	}
	settings, err := k.door.settingsOf(ctx, scope, applied)
	if err != nil {
		return resp, err
	}
	return &protocol.UpdateModelResponse{
		Runtime: &k.sub.feed.rt, AppliedTo: applied, ModelID: &id, ModelHandle: &handle, ModelSettings: protocol.Some(settings),
	}, nil
}

// findModel reads which model a client means: a handle, or the id of an entry of
// list_models.
func (d *Door) findModel(ctx context.Context, p protocol.UpdateModelPayload) (id, handle string, err error) {
	if p.ModelHandle != nil && *p.ModelHandle != "" {
		handle = *p.ModelHandle
	} else if p.ModelID != nil {
		handle = *p.ModelID
	}
	infos, err := d.models.List(ctx, false)
	if err != nil {
		return "", "", err
	}
	for _, e := range modelEntries(infos) {
		if e.Handle == handle || e.ID == handle {
			return e.ID, e.Handle, nil
		}
	}
	if !strings.Contains(handle, "/") && !llm.IsAuto(handle) || handle == "" {
		return "", "", agent.Errorf(agent.CodeNotFound, "Model not found. Provide a valid model_id from list_models or a model_handle.")
	}
	return handle, handle, nil
}

// settingsOf reads the model settings that an update was applied to.
func (d *Door) settingsOf(ctx context.Context, scope agent.Scope, appliedTo string) (protocol.Object, error) {
	if appliedTo == "agent" {
		ag, err := d.roster.Agent(ctx, scope.AgentID)
		if err != nil {
			return nil, err
		}
		return modelSettings(ag.ModelSettings, ag.ContextLimit), nil
	}
	conv, err := d.roster.Conversation(ctx, scope.ConversationID)
	if err != nil {
		return nil, err
	}
	return modelSettings(conv.ModelSettings, conv.ContextLimit), nil
}

func listProviders(ctx context.Context, k *call, cmd *protocol.ListConnectProviders) (*protocol.ListConnectProvidersResponse, error) {
	resp := &protocol.ListConnectProvidersResponse{Target: cmd.Target}
	var err error
	resp.Providers, err = k.door.providers(ctx)
	return resp, err
}

// connectProvider stores a provider's credentials. Fields that it does not know
// are passed over, and nothing is probed, as the reference does.
func connectProvider(ctx context.Context, k *call, cmd *protocol.ConnectProvider) (*protocol.ConnectProviderResponse, error) {
	resp := &protocol.ConnectProviderResponse{Target: cmd.Target}
	switch {
	case cmd.OAuthConfig != nil:
		return resp, agent.Errorf(agent.CodeNotBuilt, "Connecting a provider with OAuth is not available on this server yet")
	case cmd.AuthMethodID != nil:
		return resp, agent.Invalid("auth_method_id", "%s does not use auth methods.", k.door.providerLabel(ctx, cmd.ProviderID))
	}
	req := llm.ConnectRequest{ProviderID: cmd.ProviderID, Fields: cmd.Fields, IgnoreUnknown: true}
	copyTo(&req.Name, cmd.ProviderName)
	if _, err := k.door.models.Connect(ctx, req); err != nil {
		return resp, err
	}
	var err error
	if resp.Providers, err = k.door.providers(ctx); err == nil {
		resp.ModelsMayHaveChanged = true
	}
	return resp, err
}

func disconnectProvider(ctx context.Context, k *call, cmd *protocol.DisconnectProvider) (*protocol.DisconnectProviderResponse, error) {
	resp := &protocol.DisconnectProviderResponse{Target: cmd.Target}
	name := ""
	copyTo(&name, cmd.ProviderName)
	if err := k.door.models.Disconnect(ctx, cmd.ProviderID, name); err != nil {
		return resp, err
	}
	var err error
	if resp.Providers, err = k.door.providers(ctx); err == nil {
		resp.ModelsMayHaveChanged = true
	}
	return resp, err
}

func (d *Door) providerLabel(ctx context.Context, id string) string {
	all, err := d.models.Providers(ctx)
	if err == nil {
		for _, p := range all {
			if p.ID == id {
				return p.Label
			}
		}
	}
	return id
}

// providers shows all providers (spec/app-server-commands.md section 4.6).
func (d *Door) providers(ctx context.Context) ([]protocol.ProviderEntry, error) {
	all, err := d.models.Providers(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]protocol.ProviderEntry, 0, len(all))
	for _, p := range all {
		e := protocol.ProviderEntry{
			ID: p.ID, DisplayName: p.Label, Description: p.Description, ProviderType: p.Type, ProviderName: p.ID,
			ProviderNames: []string{p.ID}, RequiresAPIKey: p.RequiresKey,
		}
		if p.OAuth {
			e.IsOAuth, e.OAuthProviderID = &p.OAuth, &p.ID
		}
		for _, f := range p.Fields {
			e.Fields = append(e.Fields, providerField(f))
		}
		for _, c := range p.Connected {
			if c.Name != p.ID {
				e.ProviderNames = append(e.ProviderNames, c.Name)
			}
			e.ConnectedProviders = append(e.ConnectedProviders, providerConnection(p, c))
		}
		if len(e.ConnectedProviders) > 0 {
			e.Connected = e.ConnectedProviders[0]
		}
		out = append(out, e)
	}
	return out, nil
}

func providerField(f llm.Field) protocol.ProviderField {
	out := protocol.ProviderField{Key: f.Key, Label: f.Label, Required: f.Required}
	if f.Placeholder != "" {
		out.Placeholder = &f.Placeholder
	}
	if f.Secret {
		out.Secret = &f.Secret
	}
	return out
}

func providerConnection(p llm.ProviderStatus, c llm.Connection) protocol.ProviderConnection {
	auth := "api"
	out := protocol.ProviderConnection{IsConnected: true, ID: &c.ID, ProviderName: &c.Name, ProviderType: &p.Type, AuthType: &auth}
	if c.BaseURL != "" {
		out.BaseURL = &c.BaseURL
	}
	if c.Timeout > 0 {
		ms := int(c.Timeout / time.Millisecond)
		out.Timeout = &ms
	}
	return out
}
