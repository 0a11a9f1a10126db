package rest

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"mneme/internal/llm"
)

var modelRoutes = []route{
	{"GET", "/v1/models", (*Door).listModels, doc{summary: "List the models of all connected providers", query: modelQuery{}, answer: []modelState{}}},
	{"GET", "/v1/models/embedding", (*Door).listEmbeddings, doc{summary: "List the embedding models: there are none", answer: []none{}}},
}

// A modelQuery selects models.
type modelQuery struct {
	Category []string `query:"provider_category" enum:"base,byok" doc:"base or byok"`
	Name     string   `query:"provider_name"`
	Type     string   `query:"provider_type"`
}

// modelFields are what a model and an agent's llm_config have in common.
type modelFields struct {
	Model             string   `json:"model"`
	DisplayName       *string  `json:"display_name"`
	EndpointType      string   `json:"model_endpoint_type"`
	Endpoint          *string  `json:"model_endpoint"`
	ProviderName      *string  `json:"provider_name"`
	ProviderCategory  *string  `json:"provider_category"`
	ModelWrapper      *string  `json:"model_wrapper"`
	ContextWindow     int      `json:"context_window"`
	InnerThoughts     bool     `json:"put_inner_thoughts_in_kwargs"`
	Handle            *string  `json:"handle"`
	Temperature       float64  `json:"temperature"`
	MaxTokens         *int     `json:"max_tokens"`
	EnableReasoner    bool     `json:"enable_reasoner"`
	ReasoningEffort   *string  `json:"reasoning_effort"`
	MaxReasoning      int      `json:"max_reasoning_tokens"`
	Effort            *string  `json:"effort"`
	FrequencyPenalty  *float64 `json:"frequency_penalty"`
	CompatibilityType *string  `json:"compatibility_type"`
	Verbosity         *string  `json:"verbosity"`
	Tier              *string  `json:"tier"`
	ParallelToolCalls bool     `json:"parallel_tool_calls"`
	ResponseFormat    object   `json:"response_format"`
	Strict            bool     `json:"strict"`
	ReturnLogprobs    bool     `json:"return_logprobs"`
	TopLogprobs       *int     `json:"top_logprobs"`
	ReturnTokenIDs    bool     `json:"return_token_ids"`
	ToolCallParser    *string  `json:"tool_call_parser"`
}

// An llmConfig is the old form of an agent's model and its settings.
type llmConfig struct{ modelFields }

// A modelState is a model as lists show it (spec/rest.md section 12).
type modelState struct {
	Name             string `json:"name"`
	ModelType        string `json:"model_type"`
	ProviderType     string `json:"provider_type"`
	MaxContextWindow int    `json:"max_context_window"`
	modelFields
}

func (d *Door) listModels(w http.ResponseWriter, r *http.Request) error {
	q, err := decodeQuery[modelQuery](r)
	if err != nil {
		return err
	}
	all, err := d.models.List(r.Context(), false)
	if err != nil {
		return err
	}
	out := []modelState{}
	for _, info := range all {
		m := renderModel(info)
		if len(q.Category) > 0 && !slices.Contains(q.Category, *m.ProviderCategory) ||
			q.Name != "" && q.Name != *m.ProviderName || q.Type != "" && q.Type != m.ProviderType && q.Type != info.ProviderType {
			continue
		}
		out = append(out, m)
	}
	return reply(w, out)
}

func (d *Door) listEmbeddings(w http.ResponseWriter, _ *http.Request) error {
	return reply(w, []none{})
}

// renderModel shows a model of the catalogue.
func renderModel(info llm.Info) modelState {
	m := modelState{
		Name: info.Name, ModelType: "llm", ProviderType: providerType(info.ProviderType),
		MaxContextWindow: info.Context, modelFields: fieldsOf(info),
	}
	m.EndpointType = endpointType(info.ProviderType, listedEndpoints)
	return m
}

func fieldsOf(info llm.Info) modelFields {
	f := modelFields{
		Model: info.Name, DisplayName: new(cmp.Or(info.Label, info.Name)), EndpointType: endpointType(info.ProviderType, configEndpoints),
		ProviderName: new(info.Provider), ProviderCategory: new(category(info)), ContextWindow: info.Context,
		Handle: new(info.Handle), Temperature: defaultTemperature, EnableReasoner: info.Reasoning, ParallelToolCalls: true,
	}
	if info.Endpoint != "" {
		f.Endpoint = &info.Endpoint
	}
	if info.MaxOutput > 0 {
		f.MaxTokens = &info.MaxOutput
	}
	return f
}

// defaultTemperature is shown where none is set; then the provider's own holds.
const defaultTemperature = 1

// category tells the server's own model from those of the user's providers.
func category(info llm.Info) string {
	if info.Handle == llm.OfflineHandle {
		return "base"
	}
	return "byok"
}

// The API families that clients know, by the field that names them: models have
// fewer than an agent's llm_config.
var (
	listedEndpoints = []string{
		"openai", "anthropic", "google_ai", "google_vertex", "azure", "groq", "ollama", "lmstudio", "vllm", "hugging-face", "baseten",
		"minimax", "mistral", "together", "bedrock", "deepseek", "xai", "zai", "zai_coding", "openrouter", "chatgpt_oauth",
	}
	configEndpoints = append([]string{"fireworks"}, listedEndpoints...)
	providerTypes   = []string{
		"anthropic", "azure", "baseten", "bedrock", "cerebras", "chatgpt_oauth", "deepseek", "fireworks", "google_ai", "google_vertex",
		"groq", "hugging-face", "letta", "lmstudio_openai", "minimax", "mistral", "ollama", "openai", "together", "vllm", "sglang",
		"openrouter", "xai", "zai", "zai_coding",
	}
	settingsTypes = []string{
		"anthropic", "azure", "baseten", "bedrock", "chatgpt_oauth", "deepseek", "google_ai", "google_vertex", "groq", "openai",
		"openrouter", "sglang", "together", "xai", "zai",
	}
)

// anyFamily stands for families that clients do not know: they all speak chat
// completions.
const anyFamily = "openai"

func known(kind string, names []string) string {
	if slices.Contains(names, kind) {
		return kind
	}
	return anyFamily
}

func providerType(kind string) string { return known(kind, providerTypes) }

func endpointType(kind string, names []string) string {
	if kind == "lmstudio_openai" {
		return "lmstudio"
	}
	return known(kind, names)
}

// storedSettings are the parts of stored model settings that llm_config shows.
type storedSettings struct {
	MaxTokens   *int            `json:"max_tokens"`
	Temperature *float64        `json:"temperature"`
	Parallel    *bool           `json:"parallel_tool_calls"`
	Effort      *string         `json:"reasoning_effort"`
	Reasoning   json.RawMessage `json:"reasoning"`
	Reasoner    *bool           `json:"enable_reasoner"`
	Verbosity   *string         `json:"verbosity"`
	Frequency   *float64        `json:"frequency_penalty"`
	Strict      *bool           `json:"strict"`
	Format      json.RawMessage `json:"response_format"`
}

// efforts are the values of reasoning_effort that clients know.
var efforts = []string{"none", "minimal", "low", "medium", "high", "xhigh"}

// llmConfig shows a model with its settings, and names it by its handle: "auto" is
// what it stands for now. The window is limit (0 = the model's own), at most the
// model's.
func (d *Door) llmConfig(ctx context.Context, handle string, settings json.RawMessage, limit int) (llmConfig, string) {
	_, info, err := d.models.Resolve(ctx, handle)
	if err != nil { // it fails in the turn; here it is just shown
		provider, name, ok := strings.Cut(handle, "/")
		if !ok {
			name = handle
		}
		info = llm.Info{Handle: handle, Provider: provider, Name: name, Context: llm.DefaultContext}
	}
	f := fieldsOf(info)
	if limit > 0 {
		f.ContextWindow = min(limit, info.Context)
	}
	var s storedSettings
	// What has another type than expected, from a door that did not look so closely,
	// is not shown.
	_ = json.Unmarshal(orObject(settings), &s)
	f.apply(s)
	return llmConfig{f}, info.Handle
}

// apply shows settings over what the model has.
func (f *modelFields) apply(s storedSettings) {
	if s.MaxTokens != nil {
		f.MaxTokens = s.MaxTokens
	}
	if s.Temperature != nil {
		f.Temperature = *s.Temperature
	}
	if s.Parallel != nil {
		f.ParallelToolCalls = *s.Parallel
	}
	if s.Reasoner != nil {
		f.EnableReasoner = *s.Reasoner
	}
	if s.Strict != nil {
		f.Strict = *s.Strict
	}
	f.FrequencyPenalty, f.ResponseFormat = s.Frequency, object(notNull(s.Format))
	if s.Effort == nil {
		var nested struct {
			Effort *string `json:"reasoning_effort"`
		}
		if json.Unmarshal(s.Reasoning, &nested) == nil {
			s.Effort = nested.Effort
		}
	}
	if s.Effort != nil && slices.Contains(efforts, *s.Effort) {
		f.ReasoningEffort = s.Effort
	}
	if s.Verbosity != nil && slices.Contains(efforts[2:5], *s.Verbosity) {
		f.Verbosity = s.Verbosity
	}
}

// Names of model settings: clients of REST say max_output_tokens for what is
// stored as max_tokens, as the other doors and the providers call it.
const (
	keyMaxOutput = "max_output_tokens"
	keyMaxTokens = "max_tokens"
	keyProvider  = "provider_type"
	keyParallel  = "parallel_tool_calls"
	keyFormat    = "response_format"
)

// settingsState shows stored model settings under the names of REST. kind is the
// API family of the model.
func settingsState(raw json.RawMessage, kind string) object {
	var m map[string]json.RawMessage
	if json.Unmarshal(orObject(raw), &m) != nil || m == nil {
		m = map[string]json.RawMessage{}
	}
	delete(m, "context_window_limit")
	rename(m, keyMaxTokens, keyMaxOutput)
	for key, v := range m {
		if len(v) == 0 || string(v) == "null" && key != keyFormat {
			delete(m, key)
		}
	}
	m[keyProvider] = quote(known(kind, settingsTypes))
	out, err := json.Marshal(m)
	if err != nil {
		return nil // what was stored is valid
	}
	return out
}

// settingsMap reads model settings that a client sent, nil for none. They must
// be an object.
func settingsMap(raw json.RawMessage, where string) (map[string]json.RawMessage, error) {
	if notNull(raw) == nil {
		return nil, nil
	}
	var m map[string]json.RawMessage
	if json.Unmarshal(raw, &m) != nil {
		return nil, unprocessable(where, "Input should be an object")
	}
	for key, check := range map[string]any{
		keyMaxOutput: new(int), keyMaxTokens: new(int), "temperature": new(float64), keyParallel: new(bool), keyProvider: new(string),
	} {
		if v := notNull(m[key]); v != nil && json.Unmarshal(v, check) != nil {
			return nil, unprocessable(where+"."+key, "Input has the wrong type")
		}
	}
	rename(m, keyMaxOutput, keyMaxTokens)
	return m, nil
}

// rename moves a key; a value under the new name wins.
func rename(m map[string]json.RawMessage, from, to string) {
	if v, ok := m[from]; ok {
		if _, taken := m[to]; !taken {
			m[to] = v
		}
		delete(m, from)
	}
}

// checkModel refuses a handle that names no model (spec/rest.md section 11.1).
// What its provider does not list, because it cannot be asked now, may still be
// there.
func (d *Door) checkModel(ctx context.Context, handle string) error {
	if llm.IsAuto(handle) {
		return nil
	}
	if !strings.Contains(handle, "/") {
		return badRequest("model handle %s must have the form provider/model", quoted(handle))
	}
	_, info, fault := d.models.Resolve(ctx, handle)
	all, err := d.models.List(ctx, false)
	if err != nil {
		return err
	}
	listed := false // any model of the provider
	var handles []string
	for _, m := range all {
		if fault == nil && m.Handle == info.Handle {
			return nil
		}
		listed = listed || m.Provider == info.Provider
		handles = append(handles, m.Handle)
	}
	if fault == nil && !listed {
		return nil
	}
	return &httpError{Status: http.StatusNotFound, Body: detail{
		"NOT_FOUND: Handle " + handle + " not found, must be one of [" + strings.Join(handles, ", ") + "]",
	}}
}

// compactionSettings are shown with what holds where nothing is set
// (spec/rest.md section 8.8).
type compactionSettings struct {
	Mode            string   `json:"mode"`
	Model           *string  `json:"model"`
	ModelSettings   object   `json:"model_settings"`
	Prompt          *string  `json:"prompt"`
	Acknowledgement bool     `json:"prompt_acknowledgement"`
	ClipChars       *int     `json:"clip_chars"`
	Share           *float64 `json:"sliding_window_percentage"`
}

// UnmarshalJSON implements json.Unmarshaler: what is absent is the default, and
// null is null.
func (c *compactionSettings) UnmarshalJSON(data []byte) error {
	type plain compactionSettings // without this method
	p := plain{Mode: "sliding_window", ClipChars: new(50_000), Share: new(0.3)}
	err := json.Unmarshal(data, &p)
	*c = compactionSettings(p)
	if p.Mode == "" {
		c.Mode = "sliding_window"
	}
	return err
}

// UnmarshalJSON implements json.Unmarshaler.
func (o *object) UnmarshalJSON(data []byte) error {
	if string(data) == "null" {
		*o = nil
		return nil
	}
	if len(data) == 0 || data[0] != '{' {
		return wrongType[map[string]any](data)
	}
	*o = slices.Clone(data)
	return nil
}

func compactionState(raw json.RawMessage) *compactionSettings {
	if notNull(raw) == nil {
		return nil
	}
	c := new(compactionSettings)
	if json.Unmarshal(raw, c) != nil {
		return nil // stored by a door that did not look so closely
	}
	return c
}

// notNull is nil for null.
func notNull(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 || string(raw) == "null" {
		return nil
	}
	return raw
}

func orObject(raw json.RawMessage) json.RawMessage {
	if notNull(raw) == nil {
		return json.RawMessage("{}")
	}
	return raw
}

// quote encodes a word that needs no escapes.
func quote(word string) json.RawMessage { return json.RawMessage(`"` + word + `"`) }
