package protocol

// ListModels lists the models that can be used.
type ListModels struct {
	Force *bool `json:"force,omitempty"` // true: ask the providers again
}

// CommandType returns "list_models".
func (*ListModels) CommandType() string { return "list_models" }

// NewResponse makes the empty response.
func (*ListModels) NewResponse() *ListModelsResponse { return new(ListModelsResponse) }

func (c *ListModels) decode(o *object) { c.Force = o.optBool("force") }

// ListModelsResponse answers [ListModels]. A failure has entries only.
type ListModelsResponse struct {
	Entries List[ModelEntry] `json:"entries"`
	// AvailableHandles is null when looking them up failed.
	AvailableHandles    Optional[List[string]] `json:"available_handles,omitzero"`
	ByokProviderAliases map[string]string      `json:"byok_provider_aliases,omitzero"`
}

// A ModelEntry is one model (spec/app-server-commands.md section 4.4).
type ModelEntry struct {
	ID          string      `json:"id"`
	Handle      string      `json:"handle"` // "provider/model"
	Label       string      `json:"label"`
	Description string      `json:"description"`
	IsDefault   *bool       `json:"isDefault,omitempty"`
	IsFeatured  *bool       `json:"isFeatured,omitempty"`
	Free        *bool       `json:"free,omitempty"`
	UpdateArgs  *UpdateArgs `json:"updateArgs,omitempty"`
}

// UpdateArgs are the settings that choosing a model gives.
type UpdateArgs struct {
	ProviderType      string  `json:"provider_type"`
	ContextWindow     int     `json:"context_window"` // tokens
	MaxOutputTokens   int     `json:"max_output_tokens"`
	ParallelToolCalls bool    `json:"parallel_tool_calls"`
	ReasoningEffort   *string `json:"reasoning_effort,omitempty"`
	EnableReasoner    *bool   `json:"enable_reasoner,omitempty"`
}

// A ProviderTarget says where a provider is connected.
type ProviderTarget string

// TargetLocal is the server itself, the only target here.
const TargetLocal ProviderTarget = "local"

var providerTargets = []ProviderTarget{TargetLocal}

// ListConnectProviders lists the model providers.
type ListConnectProviders struct {
	Target ProviderTarget `json:"target"`
}

// CommandType returns "list_connect_providers".
func (*ListConnectProviders) CommandType() string { return "list_connect_providers" }

// NewResponse makes the empty response.
func (*ListConnectProviders) NewResponse() *ListConnectProvidersResponse {
	return new(ListConnectProvidersResponse)
}

func (c *ListConnectProviders) decode(o *object) { c.Target = oneOf(o, "target", providerTargets) }

// ListConnectProvidersResponse answers [ListConnectProviders].
type ListConnectProvidersResponse struct {
	Target    ProviderTarget      `json:"target"`
	Providers List[ProviderEntry] `json:"providers"`
}

// A ProviderEntry is one provider (spec/app-server-commands.md section 4.6).
type ProviderEntry struct {
	ID                 string                   `json:"id"`
	DisplayName        string                   `json:"display_name"`
	Description        string                   `json:"description"`
	ProviderType       string                   `json:"provider_type"`
	ProviderName       string                   `json:"provider_name"`
	ProviderNames      List[string]             `json:"provider_names"`
	IsOAuth            *bool                    `json:"is_oauth,omitempty"`
	OAuthProviderID    *string                  `json:"oauth_provider_id,omitempty"`
	RequiresAPIKey     bool                     `json:"requires_api_key"`
	Fields             []ProviderField          `json:"fields,omitzero"`
	AuthMethods        []AuthMethod             `json:"auth_methods,omitzero"`
	Connected          ProviderConnection       `json:"connected"`
	ConnectedProviders List[ProviderConnection] `json:"connected_providers"`
}

// A ProviderField is one value that connecting a provider takes.
type ProviderField struct {
	Key         string  `json:"key"` // camelCase, such as "apiKey"
	Label       string  `json:"label"`
	Placeholder *string `json:"placeholder,omitempty"`
	Secret      *bool   `json:"secret,omitempty"`
	Required    bool    `json:"required"`
}

// An AuthMethod is one of several ways to connect a provider.
type AuthMethod struct {
	ID          string              `json:"id"`
	Label       string              `json:"label"`
	Description string              `json:"description"`
	Fields      List[ProviderField] `json:"fields"`
}

// A ProviderConnection says how a provider is connected.
type ProviderConnection struct {
	IsConnected  bool    `json:"is_connected"`
	ID           *string `json:"id,omitempty"`
	ProviderName *string `json:"provider_name,omitempty"`
	ProviderType *string `json:"provider_type,omitempty"`
	AuthType     *string `json:"auth_type,omitempty"` // "api" or "oauth"
	BaseURL      *string `json:"base_url,omitempty"`
	Timeout      *int    `json:"timeout,omitempty"`
	Region       *string `json:"region,omitempty"`
}

// ConnectProvider stores the credentials of a provider.
type ConnectProvider struct {
	Target       ProviderTarget `json:"target"`
	ProviderID   string         `json:"provider_id"`
	Fields       Map[string]    `json:"fields"`
	AuthMethodID *string        `json:"auth_method_id,omitempty"`
	ProviderName *string        `json:"provider_name,omitempty"`
	OAuthConfig  Object         `json:"oauth_config,omitzero"`
}

// CommandType returns "connect_provider".
func (*ConnectProvider) CommandType() string { return "connect_provider" }

// NewResponse makes the empty response.
func (*ConnectProvider) NewResponse() *ConnectProviderResponse { return new(ConnectProviderResponse) }

func (c *ConnectProvider) decode(o *object) {
	c.Target = oneOf(o, "target", providerTargets)
	c.ProviderID = o.str("provider_id")
	c.Fields = o.stringMap("fields")
	c.AuthMethodID = o.optStr("auth_method_id")
	c.ProviderName = o.optStr("provider_name")
	c.OAuthConfig = o.optRaw("oauth_config")
}

// ConnectProviderResponse answers [ConnectProvider].
type ConnectProviderResponse struct {
	Target               ProviderTarget      `json:"target"`
	Providers            List[ProviderEntry] `json:"providers"`
	ModelsMayHaveChanged bool                `json:"models_may_have_changed"`
}

// DisconnectProvider forgets the credentials of a provider.
type DisconnectProvider struct {
	Target       ProviderTarget `json:"target"`
	ProviderID   string         `json:"provider_id"`
	ProviderName *string        `json:"provider_name,omitempty"`
}

// CommandType returns "disconnect_provider".
func (*DisconnectProvider) CommandType() string { return "disconnect_provider" }

// NewResponse makes the empty response.
func (*DisconnectProvider) NewResponse() *DisconnectProviderResponse {
	return new(DisconnectProviderResponse)
}

func (c *DisconnectProvider) decode(o *object) {
	c.Target = oneOf(o, "target", providerTargets)
	c.ProviderID = o.str("provider_id")
	c.ProviderName = o.optStr("provider_name")
}

// DisconnectProviderResponse answers [DisconnectProvider].
type DisconnectProviderResponse struct {
	Target               ProviderTarget      `json:"target"`
	Providers            List[ProviderEntry] `json:"providers"`
	ModelsMayHaveChanged bool                `json:"models_may_have_changed"`
}
