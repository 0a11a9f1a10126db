package llm

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"mneme/internal/agent"
)

// What is assumed of a model that nobody describes (spec/harness.md section 6.2).
const (
	DefaultContext   = 128_000
	DefaultMaxOutput = 32_000
)

const maxListBody = 16 << 20

// A modelEntry is a model as the provider lists it, in the names of several
// providers. Window sizes of what is loaded come before those of what is
// possible (bug-report case H06).
type modelEntry struct {
	ID       wireString `json:"id"`
	Key      wireString `json:"key"`   // LM Studio, API v1
	Model    wireString `json:"model"` // Ollama
	Name     wireString `json:"name"`
	Display  wireString `json:"display_name"`
	Type     wireString `json:"type"`
	Instance []struct {
		Config struct {
			Context count `json:"context_length"`
		} `json:"config"`
	} `json:"loaded_instances"`
	Loaded      count           `json:"loaded_context_length"`
	Context     count           `json:"context_length"`
	MaxContext  count           `json:"max_context_length"`
	Window      count           `json:"context_window"`
	MaxModelLen count           `json:"max_model_len"`
	MaxOutput   count           `json:"max_completion_tokens"`
	Meta        json.RawMessage `json:"meta"`
	Top         struct {
		MaxOutput count `json:"max_completion_tokens"`
	} `json:"top_provider"`
	Architecture struct {
		Input []string `json:"input_modalities"`
	} `json:"architecture"`
	Parameters   []string        `json:"supported_parameters"`
	Capabilities json.RawMessage `json:"capabilities"`
}

// A found is what discovery learns about a model.
type found struct {
	id, label string
	context   int
	source    string // of context
	maxOutput int
	reasoning bool
	images    bool
	chat      bool
}

func (e *modelEntry) found() found {
	f := found{chat: true, maxOutput: int(max(e.MaxOutput, e.Top.MaxOutput))}
	for _, id := range []wireString{e.ID, e.Key, e.Model, e.Name} {
		if f.id == "" {
			f.id = string(id)
		}
	}
	f.label = string(e.Display)
	if f.label == "" && e.ID != "" {
		f.label = string(e.Name)
	}
	loaded := e.Loaded
	for _, i := range e.Instance {
		loaded = max(loaded, i.Config.Context)
	}
	var meta struct {
		Train count `json:"n_ctx_train"`
	}
	_ = json.Unmarshal(e.Meta, &meta) // llama.cpp's; others have others
	for _, c := range []struct {
		n      count
		source string
	}{
		{loaded, "loaded"}, {e.MaxModelLen, "provider"}, {e.Window, "provider"},
		{e.Context, "provider"}, {e.MaxContext, "maximum"}, {meta.Train, "maximum"},
	} {
		if f.context == 0 && c.n > 0 {
			f.context, f.source = int(c.n), c.source
		}
	}
	if t := string(e.Type); t == "embedding" || t == "embeddings" || t == "image" || t == "audio" || t == "moderation" || t == "rerank" {
		f.chat = false
	}
	f.images = e.Type == "vlm" || slices.Contains(e.Architecture.Input, "image") || capable(e.Capabilities, "vision")
	f.reasoning = slices.Contains(e.Parameters, "reasoning") || capable(e.Capabilities, "thinking") || capable(e.Capabilities, "reasoning")
	return f
}

// capable reads capabilities, a list of names or an object of flags.
func capable(raw json.RawMessage, name string) bool {
	var list []string
	if json.Unmarshal(raw, &list) == nil {
		return slices.Contains(list, name)
	}
	var flags map[string]json.RawMessage
	if json.Unmarshal(raw, &flags) != nil {
		return false
	}
	v := string(flags[name])
	return v != "" && v != "false" && v != "null"
}

// notChat are parts of the names of models that do not chat, at providers that
// list all kinds without saying which is which.
var notChat = []string{
	"embed", "whisper", "tts", "dall-e", "moderation", "realtime", "transcribe", "gpt-image",
	"-audio", "sora", "davinci-002", "babbage-002", "rerank", "omni-moderation", "computer-use",
}

func chatName(id string) bool {
	id = strings.ToLower(id)
	return !slices.ContainsFunc(notChat, func(part string) bool { return strings.Contains(id, part) })
}

// known holds the sizes of models whose providers do not list them, by the
// beginning of the name; the first that fits counts.
var known = []struct {
	prefix            string
	context, maxTotal int
}{
	{"gpt-3.5", 16_385, 4_096},
	{"gpt-4.1", 1_047_576, 32_768},
	{"gpt-4o", 128_000, 16_384},
	{"gpt-4-turbo", 128_000, 4_096},
	{"gpt-4-", 8_192, 4_096},
	{"chatgpt-4o", 128_000, 16_384},
	{"gpt-5", 400_000, 128_000},
	{"o1", 200_000, 100_000},
	{"o3", 200_000, 100_000},
	{"o4-mini", 200_000, 100_000},
	{"deepseek-chat", 128_000, 8_192},
	{"kimi-k2", 262_144, 32_768},
	{"glm-4.6", 200_000, 98_304},
	{"glm-4.5", 131_072, 98_304},
}

// info completes what was found.
func (f found) info(name, kind, endpoint string) Info {
	i := Info{
		Handle: name + "/" + f.id, Provider: name, ProviderType: kind, Name: f.id, Label: f.label,
		Context: f.context, ContextSource: f.source, MaxOutput: f.maxOutput, Endpoint: endpoint,
		Reasoning: f.reasoning, Images: f.images,
	}
	if i.Label == "" {
		i.Label = f.id
	}
	for _, k := range known {
		if i.Context == 0 && strings.HasPrefix(f.id, k.prefix) {
			i.Context, i.ContextSource = k.context, "known"
			if i.MaxOutput == 0 {
				i.MaxOutput = k.maxTotal
			}
		}
	}
	if i.Context == 0 {
		i.Context, i.ContextSource = DefaultContext, "default"
	}
	// An answer as long as a small window would leave no room for the question.
	if i.MaxOutput == 0 {
		i.MaxOutput = min(DefaultMaxOutput, i.Context/4)
	}
	return i
}

// get reads JSON below url. A status other than 2xx is an *Error.
func (c *Chat) get(ctx context.Context, url string, v any) error {
	return c.fetch(ctx, http.MethodGet, url, nil, v)
}

func (c *Chat) fetch(ctx context.Context, method, url string, body []byte, v any) error {
	src := c.source("")
	src.BaseURL = url
	r, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return connectionError(src, err, 0)
	}
	c.headers(r)
	r.Header.Set("Accept", "application/json")
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.client.Do(r)
	if err != nil {
		return contextOr(ctx, connectionError(src, err, 0))
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxListBody))
	if err != nil {
		return contextOr(ctx, connectionError(src, err, 0))
	}
	if resp.StatusCode/100 != 2 {
		return StatusError(src, resp.StatusCode, resp.Header, raw)
	}
	if err := json.Unmarshal(raw, v); err != nil {
		e := agent.Errorf(agent.CodeModelConfig, "%s does not answer in JSON at %s: correct the base URL with %s.", src.label(), url, src.connect())
		e.Detail = clip(err.Error(), maxDetail)
		return &Error{Plain: *e}
	}
	return nil
}

// A modelList is a list of models under either of its names.
type modelList struct {
	Data   []modelEntry `json:"data"`
	Models []modelEntry `json:"models"`
}

func (l *modelList) found() []found {
	entries := l.Data
	if len(entries) == 0 {
		entries = l.Models
	}
	var out []found
	for i := range entries {
		if f := entries[i].found(); f.id != "" {
			out = append(out, f)
		}
	}
	return out
}

// listed reads one list of models. Together AI's is a bare array.
func (c *Chat) listed(ctx context.Context, url string) ([]found, error) {
	var raw json.RawMessage
	if err := c.get(ctx, url, &raw); err != nil {
		return nil, err
	}
	var list modelList
	if len(raw) > 0 && raw[0] == '[' {
		raw = json.RawMessage(`{"data":` + string(raw) + `}`)
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, &Error{Plain: *agent.Errorf(agent.CodeModelConfig, "%s does not list models at %s: correct the base URL with %s.", c.source("").label(), url, c.source("").connect())}
	}
	return list.found(), nil
}

// discover lists the chat models of a provider. Local servers are asked in
// their own API first, which knows the window sizes; what of it is missing or
// has moved is done without (case H05).
func (c *Chat) discover(ctx context.Context, own nativeAPI) ([]found, error) {
	models, err := c.listed(ctx, c.cfg.BaseURL+"/models")
	if ctx.Err() != nil {
		return nil, err
	}
	if own != nil {
		native := own(ctx, c, models)
		if err != nil && len(native) > 0 {
			err = nil
		}
		models = merge(models, native)
	}
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(models, func(f found) bool { return !f.chat || !chatName(f.id) }), nil
}

// merge completes models with what a server's own API says. If the general list
// is empty the other is taken.
func merge(models, native []found) []found {
	if len(models) == 0 {
		return native
	}
	for i := range models {
		m := &models[i]
		at := slices.IndexFunc(native, func(n found) bool { return n.id == m.id })
		if at < 0 {
			continue
		}
		n := native[at]
		if n.context > 0 {
			m.context, m.source = n.context, n.source
		}
		if m.label == "" {
			m.label = n.label
		}
		m.reasoning = m.reasoning || n.reasoning
		m.images = m.images || n.images
		m.chat = m.chat && n.chat
	}
	return models
}

// Embed returns one vector per input from the provider's embeddings endpoint.
func (c *Chat) Embed(ctx context.Context, model string, inputs []string) ([][]float32, error) {
	body, err := json.Marshal(map[string]any{"model": model, "input": inputs, "encoding_format": "float"})
	if err != nil {
		return nil, fmt.Errorf("embeddings request: %w", err)
	}
	var answer struct {
		Data []struct {
			Index     int       `json:"index"`
			Embedding []float32 `json:"embedding"`
		} `json:"data"`
	}
	if err := c.fetch(ctx, http.MethodPost, c.cfg.BaseURL+"/embeddings", body, &answer); err != nil {
		return nil, err
	}
	out := make([][]float32, len(inputs))
	for _, d := range answer.Data {
		if d.Index >= 0 && d.Index < len(out) {
			out[d.Index] = d.Embedding
		}
	}
	if slices.ContainsFunc(out, func(v []float32) bool { return len(v) == 0 }) {
		return nil, &Error{Plain: *agent.Errorf(agent.CodeModel, "%s returned %d vectors for %d texts of model %q.", c.source(model).label(), len(answer.Data), len(inputs), model)}
	}
	return out, nil
}
