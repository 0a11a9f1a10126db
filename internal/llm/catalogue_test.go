package llm_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mneme/internal/agent"
	"mneme/internal/llm"
)

// records is a RecordStore in memory.
type records struct {
	mu   sync.Mutex
	list []llm.Record
	err  error
}

func (r *records) Providers(context.Context) ([]llm.Record, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.list), r.err
}

func (r *records) PutProvider(_ context.Context, rec llm.Record) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = slices.DeleteFunc(r.list, func(o llm.Record) bool { return o.Name == rec.Name })
	r.list = append(r.list, rec)
	return r.err
}

func (r *records) DeleteProvider(_ context.Context, name string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = slices.DeleteFunc(r.list, func(o llm.Record) bool { return o.Name == name })
	return r.err
}

// silent stands for the offline model.
type silent struct{}

func (silent) Stream(context.Context, *llm.Request) iter.Seq2[llm.Part, error] {
	return func(func(llm.Part, error) bool) {}
}

// A site is a provider that serves fixed documents and counts requests.
type site struct {
	*httptest.Server
	requests atomic.Int32
	mu       sync.Mutex
	docs     map[string]string
	keys     []string
}

func newSite(t *testing.T, docs map[string]string) *site {
	t.Helper()
	s := &site{docs: docs}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.requests.Add(1)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.keys = append(s.keys, r.Header.Get("Authorization"))
		if r.URL.Path == "/v1/chat/completions" && s.docs["chat"] != "" {
			stream(s.docs["chat"])(w, r)
			return
		}
		doc, ok := s.docs[r.URL.Path]
		if r.URL.Path == "/api/show" {
			var body struct{ Model string }
			_ = json.NewDecoder(r.Body).Decode(&body)
			doc, ok = s.docs["/api/show "+body.Model]
		}
		if !ok {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, doc)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *site) set(path, doc string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if doc == "" {
		delete(s.docs, path)
		return
	}
	s.docs[path] = doc
}

func catalogue(t *testing.T, cfg llm.Config) *llm.Catalogue {
	t.Helper()
	if cfg.Offline == nil {
		cfg.Offline = silent{}
	}
	c := llm.New(cfg)
	t.Cleanup(c.Close)
	return c
}

func env(pairs ...string) func(string) string {
	return func(name string) string {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1]
			}
		}
		return ""
	}
}

func handles(models []llm.Info) []string {
	var out []string
	for _, m := range models {
		out = append(out, m.Handle)
	}
	return out
}

const twoModels = `{"object":"list","data":[{"id":"mock-1"},{"id":"mock-2","name":"Second"},{"id":"text-embedding-3"}]}`

func TestConnectLMStudio(t *testing.T) {
	s := newSite(t, map[string]string{"/v1/models": twoModels, "chat": events(text("hi"), fin("stop"), done)})
	store := &records{}
	c := catalogue(t, llm.Config{Records: store})
	got, err := c.Connect(t.Context(), llm.ConnectRequest{ProviderID: "lmstudio", Fields: map[string]string{"baseUrl": " " + s.URL + "/v1 "}, Probe: true})
	if err != nil || got.ProbeErr != nil || got.Name != "lmstudio" {
		t.Fatal(got, err)
	}
	if diff := cmp.Diff([]string{"lmstudio/mock-1", "lmstudio/mock-2"}, handles(got.Models)); diff != "" {
		t.Error(diff)
	}
	models, err := c.List(t.Context(), false)
	if diff := cmp.Diff([]string{"lmstudio/mock-1", "lmstudio/mock-2", "mneme/offline"}, handles(models)); diff != "" || err != nil {
		t.Error(err, diff)
	}
	want := llm.Info{Handle: "lmstudio/mock-2", Provider: "lmstudio", ProviderType: "lmstudio_openai", Name: "mock-2", Label: "Second",
		Context: 128_000, ContextSource: "default", MaxOutput: 32_000, Endpoint: s.URL + "/v1"}
	if diff := cmp.Diff(want, models[1]); diff != "" {
		t.Error(diff)
	}
	// Every listed handle can be used (case H02).
	for _, m := range models[:2] {
		model, info, err := c.Resolve(t.Context(), m.Handle)
		if err != nil || info != m {
			t.Fatal(info, err)
		}
		req := question()
		req.Model = info.Name
		if parts, err := collect(t.Context(), model, req); err != nil || summary(parts).Text != "hi" {
			t.Error(parts, err)
		}
	}
	if len(store.list) != 1 || store.list[0].BaseURL != s.URL+"/v1" || store.list[0].CreatedAt.IsZero() {
		t.Errorf("stored %+v", store.list)
	}

	if err := c.Disconnect(t.Context(), "lmstudio", ""); err != nil || len(store.list) != 0 {
		t.Error(err, store.list)
	}
	if models, _ = c.List(t.Context(), false); len(models) != 1 {
		t.Errorf("after disconnecting: %v", handles(models))
	}
	if err := c.Disconnect(t.Context(), "lmstudio", ""); err != nil {
		t.Error("disconnecting twice:", err)
	}
}

func TestConnectRefused(t *testing.T) {
	c := catalogue(t, llm.Config{Records: &records{}})
	for _, tt := range []struct {
		id, name string
		fields   map[string]string
		code     agent.Code
		field    string
		says     string
	}{
		{"nope", "", nil, agent.CodeNotFound, "", "Unknown provider: nope"},
		{"openai", "", map[string]string{}, agent.CodeInvalid, "apiKey", "Missing API Key."},
		{"openai", "", map[string]string{"apiKey": "  "}, agent.CodeInvalid, "apiKey", "Missing API Key."},
		{"openai", "", map[string]string{"apiKey": "a\nb"}, agent.CodeInvalid, "apiKey", "characters"},
		{"openai", "", map[string]string{"apiKey": "k", "color": "red"}, agent.CodeInvalid, "color", `no field "color"`},
		{"openai", "", map[string]string{"apiKey": "k", "timeout": "soon"}, agent.CodeInvalid, "timeout", "600s"},
		{"openai-compatible", "", map[string]string{}, agent.CodeInvalid, "baseUrl", "Missing Base URL."},
		{"openai-compatible", "", map[string]string{"baseUrl": "ftp://x"}, agent.CodeInvalid, "baseUrl", "http"},
		{"lmstudio", "", map[string]string{"baseUrl": `"http://x"`}, agent.CodeInvalid, "baseUrl", "quotes"},
		{"openai-compatible", "a/b", map[string]string{"baseUrl": "http://x"}, agent.CodeInvalid, "name", "a/b"},
		{"openai-compatible", "groq", map[string]string{"baseUrl": "http://x"}, agent.CodeInvalid, "name", "groq"},
		{"openai-compatible", "auto", map[string]string{"baseUrl": "http://x"}, agent.CodeInvalid, "name", "auto"},
		{"anthropic", "", map[string]string{"apiKey": "k"}, agent.CodeNotBuilt, "", "Anthropic is not offered yet"},
		{"openai-codex", "", nil, agent.CodeNotBuilt, "", "OAuth"},
	} {
		_, err := c.Connect(t.Context(), llm.ConnectRequest{ProviderID: tt.id, Name: tt.name, Fields: tt.fields})
		var e *agent.Error
		if !errors.As(err, &e) || e.Code != tt.code || e.Field != tt.field || !strings.Contains(e.Message, tt.says) {
			t.Errorf("%s %v: %+v", tt.id, tt.fields, err)
		}
	}
	if _, err := c.Connect(t.Context(), llm.ConnectRequest{ProviderID: "openai", Fields: map[string]string{"apiKey": "k", "color": "red"}, IgnoreUnknown: true}); err != nil {
		t.Error("unknown fields ignored on request:", err)
	}
	if err := c.Disconnect(t.Context(), "nope", ""); agent.CodeOf(err) != agent.CodeNotFound || err.Error() != "Unknown provider: nope" {
		t.Error(err)
	}
}

func TestConnectUnreachable(t *testing.T) {
	gone := httptest.NewServer(nil)
	gone.Close()
	store := &records{}
	c := catalogue(t, llm.Config{Records: store})
	fields := map[string]string{"baseUrl": gone.URL}
	got, err := c.Connect(t.Context(), llm.ConnectRequest{ProviderID: "ollama", Fields: fields, Probe: true})
	if err != nil || got.ProbeErr == nil || !strings.Contains(got.ProbeErr.Error(), gone.URL+"/v1/models") || len(store.list) != 1 {
		t.Errorf("%+v %v", got, err)
	}
	if got, err = c.Connect(t.Context(), llm.ConnectRequest{ProviderID: "ollama", Fields: fields}); err != nil || got.ProbeErr != nil {
		t.Errorf("without probe: %+v %v", got, err)
	}
	// A handle of a server that is down resolves; the turn says what is wrong.
	model, info, err := c.Resolve(t.Context(), "ollama/llama3.2")
	if err != nil || info.Context != llm.DefaultContext || info.MaxOutput != llm.DefaultMaxOutput {
		t.Fatal(info, err)
	}
	if _, err := collect(t.Context(), model, question()); err == nil || !strings.Contains(err.Error(), "cannot be reached") {
		t.Error(err)
	}
}

func TestConnectSecondOfAKind(t *testing.T) {
	s := newSite(t, map[string]string{"/llm/models": twoModels})
	store := &records{}
	c := catalogue(t, llm.Config{Records: store})
	got, err := c.Connect(t.Context(), llm.ConnectRequest{ProviderID: "openai-compatible", Name: "büro-vllm",
		Fields: map[string]string{"baseUrl": s.URL + "/llm", "apiKey": " k1 ", "timeout": "10m"}, Probe: true})
	if err != nil || got.ProbeErr != nil || len(got.Models) != 2 || got.Models[0].Handle != "büro-vllm/mock-1" {
		t.Fatalf("%+v %v", got, err)
	}
	// The server has no /v1: the base URL is stored without.
	if r := store.list[0]; r.BaseURL != s.URL+"/llm" || r.Key != "k1" || r.Timeout != 10*time.Minute || r.Type != "openai-compatible" {
		t.Errorf("%+v", r)
	}
	if !slices.Contains(s.keys, "Bearer k1") {
		t.Errorf("keys sent: %q", s.keys)
	}
	_, info, err := c.Resolve(t.Context(), "büro-vllm/vendor/model:free")
	if err != nil || info.Name != "vendor/model:free" || info.Provider != "büro-vllm" {
		t.Error(info, err)
	}
}

func TestResolve(t *testing.T) {
	s := newSite(t, map[string]string{"/v1/models": `{"data":[{"id":"a"},{"id":"vendor/m:free"}]}`})
	c := catalogue(t, llm.Config{Getenv: env("OPENROUTER_API_KEY", "k", "OPENROUTER_BASE_URL", s.URL, "LMSTUDIO_BASE_URL", s.URL)})
	for handle, want := range map[string]string{
		"openrouter/a":             "openrouter|a",
		"openrouter/vendor/m:free": "openrouter|vendor/m:free",
		"openrouter/x/y/z 日本":      "openrouter|x/y/z 日本",
		" lc-openrouter/a ":        "openrouter|a",
		"openai/lmstudio/a":        "lmstudio|a",
		"lmstudio_openai/a":        "lmstudio|a",
		"llama.cpp/q":              "llama-cpp|q",
		"mneme/offline":            "mneme|offline",
	} {
		m, info, err := c.Resolve(t.Context(), handle)
		if err != nil || m == nil || info.Provider+"|"+info.Name != want {
			t.Errorf("%q: %+v %v", handle, info, err)
		}
	}
	for handle, says := range map[string]string{
		"nope/x":      `no provider "nope"`,
		"gpt-4o":      "provider/model",
		"/x":          "provider/model",
		"openai/":     "provider/model",
		"openai/x":    "OPENAI_API_KEY",
		"anthropic/x": "not offered yet",
	} {
		_, _, err := c.Resolve(t.Context(), handle)
		if agent.CodeOf(err) != agent.CodeModelConfig || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v", handle, err)
		}
	}
}

func TestResolveMakesNoRequestOnceListed(t *testing.T) {
	s := newSite(t, map[string]string{"/v1/models": twoModels})
	c := catalogue(t, llm.Config{Getenv: env("OPENAI_API_KEY", "k", "OPENAI_BASE_URL", s.URL)})
	for range 50 {
		if _, _, err := c.Resolve(t.Context(), "openai/mock-1"); err != nil {
			t.Fatal(err)
		}
		if _, _, err := c.Resolve(t.Context(), "openai/not-listed"); err != nil {
			t.Fatal(err)
		}
		if _, _, err := c.Resolve(t.Context(), "auto"); err != nil {
			t.Fatal(err)
		}
	}
	if n := s.requests.Load(); n != 1 {
		t.Errorf("%d requests", n)
	}
}

func TestDefault(t *testing.T) {
	s := newSite(t, map[string]string{"/v1/models": twoModels})
	c := catalogue(t, llm.Config{Getenv: env("GROQ_API_KEY", "k", "GROQ_BASE_URL", s.URL)})
	autos := []string{"", "auto", "letta/auto", "letta/letta-free", "local/default"}
	for _, h := range autos {
		if _, info, err := c.Resolve(t.Context(), h); err != nil || info.Handle != "groq/mock-1" || !llm.IsAuto(h) {
			t.Errorf("%q: %+v %v", h, info, err)
		}
	}
	c.SetDefault("groq/mock-2")
	for _, h := range autos {
		if _, info, err := c.Resolve(t.Context(), h); err != nil || info.Handle != "groq/mock-2" {
			t.Errorf("%q: %+v %v", h, info, err)
		}
	}
	c.SetDefault("nope/x")
	if _, err := c.Default(t.Context()); agent.CodeOf(err) != agent.CodeModelConfig {
		t.Error(err)
	}
	c.SetDefault("auto")
	if h, err := c.Default(t.Context()); h != "groq/mock-1" || err != nil {
		t.Error(h, err)
	}
	if h, err := catalogue(t, llm.Config{}).Default(t.Context()); h != llm.OfflineHandle || err != nil {
		t.Error("nothing connected:", h, err)
	}
	if llm.IsAuto("lmstudio/auto") || llm.IsAuto("mneme/offline") {
		t.Error("a real handle is taken for auto")
	}
}

// One provider that fails hides no other; the failure is told where providers
// are shown (case L06).
func TestListWithFailures(t *testing.T) {
	good := newSite(t, map[string]string{"/v1/models": twoModels})
	bad := newSite(t, map[string]string{})
	notJSON := newSite(t, map[string]string{"/v1/models": "<html>"})
	c := catalogue(t, llm.Config{Getenv: env("GROQ_API_KEY", "k", "GROQ_BASE_URL", bad.URL, "MISTRAL_API_KEY", "k", "MISTRAL_BASE_URL", good.URL,
		"XAI_API_KEY", "k", "XAI_BASE_URL", notJSON.URL)})
	models, err := c.List(t.Context(), false)
	if diff := cmp.Diff([]string{"mistral/mock-1", "mistral/mock-2", "mneme/offline"}, handles(models)); diff != "" || err != nil {
		t.Error(err, diff)
	}
	status, err := c.Providers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	errs := map[string]error{}
	for _, s := range status {
		for _, k := range s.Connected {
			errs[s.ID] = k.Err
			if k.Source != "environment" || k.ID != "local-provider-"+s.ID {
				t.Errorf("%+v", k)
			}
		}
	}
	if len(errs) != 3 || errs["mistral"] != nil || agent.CodeOf(errs["groq"]) != agent.CodeModelConfig || !strings.Contains(errs["groq"].Error(), bad.URL+"/v1/models") ||
		!strings.Contains(errs["xai"].Error(), "JSON") {
		t.Errorf("%v", errs)
	}
	// Mended, and asked again by force.
	bad.set("/v1/models", twoModels)
	if models, _ = c.List(t.Context(), false); len(models) != 3 {
		t.Errorf("before force: %v", handles(models))
	}
	if models, _ = c.List(t.Context(), true); len(models) != 5 {
		t.Errorf("after force: %v", handles(models))
	}
}

// A provider that fails for a while keeps what is known of its models, and a
// connected one stays the default.
func TestProviderFailsForAWhile(t *testing.T) {
	s := newSite(t, map[string]string{"/v1/models": `{"data":[{"id":"m","context_length":5000}]}`})
	c := catalogue(t, llm.Config{Getenv: env("GROQ_API_KEY", "k", "GROQ_BASE_URL", s.URL)})
	if models, _ := c.List(t.Context(), false); len(models) != 2 {
		t.Fatal(models)
	}
	s.set("/v1/models", "")
	if models, _ := c.List(t.Context(), true); len(models) != 1 {
		t.Errorf("failing provider is listed: %v", handles(models))
	}
	if _, info, err := c.Resolve(t.Context(), "auto"); err != nil || info.Handle != "groq/m" || info.Context != 5000 || info.MaxOutput != 1250 {
		t.Errorf("%+v %v", info, err)
	}
}

func TestEnvironment(t *testing.T) {
	s := newSite(t, map[string]string{"/v1/models": twoModels})
	c := catalogue(t, llm.Config{Getenv: env(
		"OPENAI_API_KEY", " sk-1 ", "OPENAI_BASE_URL", s.URL+"/v1/",
		"HF_TOKEN", "", "ANTHROPIC_API_KEY", "k", "OLLAMA_API_KEY", "cloud", "OLLAMA_CLOUD_BASE_URL", s.URL)})
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	models, err := c.List(t.Context(), false)
	want := []string{"openai/mock-1", "openai/mock-2", "ollama-cloud/mock-1", "ollama-cloud/mock-2", "mneme/offline"}
	if diff := cmp.Diff(want, handles(models)); diff != "" || err != nil {
		t.Error(err, diff)
	}
	if !slices.Contains(s.keys, "Bearer sk-1") || !slices.Contains(s.keys, "Bearer cloud") {
		t.Errorf("keys sent: %q", s.keys)
	}
}

// A setting of the environment that is wrong is told at the start and wherever
// the provider is named, with the variable's name (case H04).
func TestWrongEnvironment(t *testing.T) {
	for _, bad := range []string{`"http://127.0.0.1:1"`, "http://127.0.0.1:99999", "http://:80x/", "ftp://h/", "example.org:8000"} {
		c := catalogue(t, llm.Config{Getenv: env("OPENAI_API_KEY", "k", "OPENAI_BASE_URL", bad)})
		err := c.Start(t.Context())
		if agent.CodeOf(err) != agent.CodeInvalid || !strings.Contains(err.Error(), "OPENAI_BASE_URL") {
			t.Errorf("%s: start: %v", bad, err)
		}
		if _, _, err := c.Resolve(t.Context(), "openai/x"); err == nil || !strings.Contains(err.Error(), "OPENAI_BASE_URL") {
			t.Errorf("%s: resolve: %v", bad, err)
		}
		if models, err := c.List(t.Context(), true); err != nil || len(models) != 1 {
			t.Errorf("%s: list: %v %v", bad, handles(models), err)
		}
	}
	c := catalogue(t, llm.Config{Getenv: env("OPENAI_API_KEY", "k", "OPENAI_TIMEOUT_MS", "x")})
	if err := c.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "OPENAI_TIMEOUT_MS") {
		t.Error(err)
	}
}

func TestRecordsWinOverEnvironment(t *testing.T) {
	s := newSite(t, map[string]string{"/v1/models": twoModels})
	store := &records{list: []llm.Record{{Name: "openai", Type: "openai", BaseURL: s.URL + "/v1", Key: "mine"}, {Name: "old", Type: "no-longer-known"}}}
	c := catalogue(t, llm.Config{Records: store, Getenv: env("OPENAI_API_KEY", "theirs")})
	if models, err := c.List(t.Context(), false); err != nil || len(models) != 3 {
		t.Error(handles(models), err)
	}
	if diff := cmp.Diff([]string{"Bearer mine"}, s.keys); diff != "" {
		t.Error(diff)
	}
	// A stored connection that is wrong hides no other and stops no start.
	store.list = append(store.list, llm.Record{Name: "bad", Type: "openai-compatible", BaseURL: "nonsense"})
	c = catalogue(t, llm.Config{Records: store})
	if err := c.Start(t.Context()); err != nil {
		t.Error(err)
	}
	if _, _, err := c.Resolve(t.Context(), "bad/x"); agent.CodeOf(err) != agent.CodeModelConfig {
		t.Error(err)
	}
	if models, err := c.List(t.Context(), true); err != nil || len(models) != 3 {
		t.Error(handles(models), err)
	}
	store.err = errors.New("disk on fire")
	if _, err := catalogue(t, llm.Config{Records: store}).List(t.Context(), false); err == nil || !strings.Contains(err.Error(), "disk on fire") {
		t.Error(err)
	}
}

// Window sizes: what is loaded, then what is possible, then the default (cases
// H05 and H06).
func TestWindowSizes(t *testing.T) {
	openai := `{"data":[{"id":"m1"},{"id":"m2"},{"id":"e1"}]}`
	v0 := `{"data":[{"id":"m1","type":"llm","state":"loaded","loaded_context_length":131072,"max_context_length":262144},
	  {"id":"m2","type":"vlm","state":"not-loaded","max_context_length":32768},{"id":"e1","type":"embeddings","max_context_length":512}]}`
	v1 := `{"models":[{"key":"m1","type":"llm","display_name":"Model 1","max_context_length":262144,"loaded_instances":[{"id":"m1","config":{"context_length":131072}}],"capabilities":{"vision":false}},
	  {"key":"m2","type":"llm","max_context_length":32768,"loaded_instances":[],"capabilities":{"vision":true}},{"key":"e1","type":"embedding","max_context_length":512}]}`
	type size struct {
		Name    string
		Context int
		Source  string
		Output  int
		Images  bool
	}
	both := []size{{"m1", 131072, "loaded", 32000, false}, {"m2", 32768, "maximum", 8192, true}}
	for _, tt := range []struct {
		name, provider string
		docs           map[string]string
		want           []size
	}{
		{"LM Studio 0.3", "lmstudio", map[string]string{"/v1/models": openai, "/api/v0/models": v0}, both},
		{"LM Studio 0.4", "lmstudio", map[string]string{"/v1/models": openai, "/api/v1/models": v1}, both},
		{"LM Studio, v0 alone", "lmstudio", map[string]string{"/api/v0/models": v0}, both},
		{"LM Studio, v1 alone", "lmstudio", map[string]string{"/api/v1/models": v1}, both},
		{"LM Studio, general routes alone", "lmstudio", map[string]string{"/v1/models": openai},
			[]size{{"m1", 128000, "default", 32000, false}, {"m2", 128000, "default", 32000, false}, {"e1", 128000, "default", 32000, false}}},
		{"Ollama", "ollama", map[string]string{"/v1/models": `{"data":[{"id":"m1:latest"},{"id":"m2:7b"},{"id":"m3:1b"}]}`,
			"/api/ps":             `{"models":[{"name":"m1:latest","model":"m1:latest","context_length":4096}]}`,
			"/api/show m1:latest": `{"model_info":{"llama.context_length":131072,"general.architecture":"llama"},"capabilities":["completion","tools"]}`,
			"/api/show m2:7b":     `{"parameters":"num_ctx                        8192\nstop \"x\"","model_info":{"qwen3.context_length":40960},"capabilities":["completion","vision","thinking"]}`,
			"/api/show m3:1b":     `{"model_info":{"bert.context_length":512},"capabilities":["embedding"]}`},
			[]size{{"m1:latest", 4096, "loaded", 1024, false}, {"m2:7b", 8192, "configured", 2048, true}}},
		{"Ollama, own API alone", "ollama", map[string]string{"/api/tags": `{"models":[{"name":"m1","model":"m1"}]}`}, []size{{"m1", 128000, "default", 32000, false}}},
		{"llama.cpp", "llama-cpp", map[string]string{"/v1/models": `{"data":[{"id":"q.gguf","meta":{"n_ctx_train":40960}}]}`, "/props": `{"default_generation_settings":{"n_ctx":16384},"modalities":{"vision":true}}`},
			[]size{{"q.gguf", 16384, "loaded", 4096, true}}},
		{"llama.cpp without props", "llama-cpp", map[string]string{"/v1/models": `{"data":[{"id":"q.gguf","meta":{"n_ctx_train":40960}}]}`}, []size{{"q.gguf", 40960, "maximum", 10240, false}}},
		{"vLLM", "openai-compatible", map[string]string{"/v1/models": `{"data":[{"id":"m","max_model_len":32768}]}`}, []size{{"m", 32768, "provider", 8192, false}}},
		{"OpenRouter", "openrouter", map[string]string{"/v1/models": `{"data":[{"id":"v/m","context_length":200000,"top_provider":{"max_completion_tokens":64000},"architecture":{"input_modalities":["text","image"]},"supported_parameters":["reasoning"]}]}`},
			[]size{{"v/m", 200000, "provider", 64000, true}}},
		{"Groq", "groq", map[string]string{"/v1/models": `{"data":[{"id":"m","context_window":131072,"max_completion_tokens":8192},{"id":"whisper-large"}]}`}, []size{{"m", 131072, "provider", 8192, false}}},
		{"a bare list", "together", map[string]string{"/v1/models": `[{"id":"m","type":"chat","context_length":8192},{"id":"i","type":"image"}]`}, []size{{"m", 8192, "provider", 2048, false}}},
		{"OpenAI", "openai", map[string]string{"/v1/models": `{"data":[{"id":"gpt-4o-mini"},{"id":"gpt-3.5-turbo"},{"id":"dall-e-3"}]}`},
			[]size{{"gpt-4o-mini", 128000, "known", 16384, false}, {"gpt-3.5-turbo", 16385, "known", 4096, false}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, tt.docs)
			store := &records{list: []llm.Record{{Name: "p", Type: tt.provider, BaseURL: s.URL, Key: "k"}}}
			models, err := catalogue(t, llm.Config{Records: store}).List(t.Context(), false)
			if err != nil {
				t.Fatal(err)
			}
			var got []size
			for _, m := range models[:len(models)-1] {
				got = append(got, size{m.Name, m.Context, m.ContextSource, m.MaxOutput, m.Images})
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// elsewhere sends requests for the default ports to test servers, by port.
type elsewhere map[string]string

func (e elsewhere) RoundTrip(r *http.Request) (*http.Response, error) {
	to, ok := e[r.URL.Port()]
	if !ok {
		return nil, errors.New("connection refused")
	}
	r = r.Clone(r.Context())
	r.URL.Host = strings.TrimPrefix(to, "http://")
	return http.DefaultTransport.RoundTrip(r)
}

func TestLocalServersAreFound(t *testing.T) {
	t.Cleanup(http.DefaultTransport.(*http.Transport).CloseIdleConnections)
	lm := newSite(t, map[string]string{"/v1/models": `{"data":[{"id":"a"},{"id":"b"}]}`, "/api/v0/models": `{"data":[{"id":"a","max_context_length":9},{"id":"b","loaded_context_length":4096}]}`})
	other := newSite(t, map[string]string{"/v1/models": twoModels}) // on 8080, and no llama.cpp
	at := elsewhere{"1234": lm.URL, "8080": other.URL}
	c := catalogue(t, llm.Config{Probe: true, Client: &http.Client{Transport: at}})
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	// The first question waits for the probes; what is loaded comes first.
	if h, err := c.Default(t.Context()); h != "lmstudio/b" || err != nil {
		t.Error(h, err)
	}
	models, err := c.List(t.Context(), false)
	if diff := cmp.Diff([]string{"lmstudio/a", "lmstudio/b", "mneme/offline"}, handles(models)); diff != "" || err != nil {
		t.Error(err, diff)
	}
	status, _ := c.Providers(t.Context())
	if k := status[0].Connected; len(k) != 1 || k[0].Source != "found" {
		t.Errorf("%+v", k)
	}
	// It goes away: the offline model is the default again.
	lm.set("/v1/models", "")
	lm.set("/api/v0/models", "")
	if models, _ = c.List(t.Context(), true); len(models) != 1 {
		t.Errorf("%v", handles(models))
	}
	if h, _ := c.Default(t.Context()); h != llm.OfflineHandle {
		t.Error(h)
	}
}

func TestNothingIsProbedUnasked(t *testing.T) {
	at := elsewhere{}
	c := catalogue(t, llm.Config{Client: &http.Client{Transport: at}})
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if h, err := c.Default(t.Context()); h != llm.OfflineHandle || err != nil {
		t.Error(h, err)
	}
}

func TestCloseDuringProbe(t *testing.T) {
	block := func(r *http.Request) (*http.Response, error) {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	c := llm.New(llm.Config{Probe: true, Client: &http.Client{Transport: roundTrip(block)}, Offline: silent{}})
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.Close()
	if h, err := c.Default(t.Context()); h != llm.OfflineHandle || err != nil {
		t.Error(h, err)
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestProviderTable(t *testing.T) {
	status, err := catalogue(t, llm.Config{}).Providers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, s := range status {
		if seen[s.ID] || s.ID == "" || s.Label == "" || s.Description == "" || s.Type == "" || len(s.Connected) > 0 {
			t.Errorf("%+v", s)
		}
		seen[s.ID] = true
		if (len(s.Fields) == 0) != s.OAuth {
			t.Errorf("%s: %d fields", s.ID, len(s.Fields))
		}
		for _, f := range s.Fields {
			if f.Key == "apiKey" && (f.Required != s.RequiresKey || !f.Secret) {
				t.Errorf("%s: %+v", s.ID, f)
			}
			if f.Key == "baseUrl" && s.Offered && f.Placeholder != "" {
				if base, err := llm.NormalizeBaseURL("x", f.Placeholder); err != nil || base != f.Placeholder {
					t.Errorf("%s: default base URL %q becomes %q (%v)", s.ID, f.Placeholder, base, err)
				}
			}
		}
	}
	for _, id := range []string{"openai", "anthropic", "google", "google-vertex", "amazon-bedrock", "azure-openai-responses", "openai-codex", "github-copilot", "openrouter",
		"xai", "meta", "groq", "cerebras", "together", "nvidia", "huggingface", "baseten", "xiaomi", "qwen-token-plan", "deepseek", "fireworks", "vercel-ai-gateway", "zai",
		"zai-coding", "zai-coding-cn", "moonshotai", "moonshotai-cn", "kimi-coding", "minimax", "minimax-cn", "mistral", "opencode", "opencode-go", "cloudflare-workers-ai",
		"cloudflare-ai-gateway", "radius", "ant-ling", "ollama", "ollama-cloud", "lmstudio", "llama-cpp", "openai-compatible"} {
		if !seen[id] {
			t.Errorf("%s is missing", id)
		}
	}
	for alias, id := range llm.Aliases() {
		if !seen[id] || seen[alias] {
			t.Errorf("alias %s of %s", alias, id)
		}
	}
}

func TestNormalizeBaseURL(t *testing.T) {
	for in, want := range map[string]string{
		"http://localhost:11434":                     "http://localhost:11434/v1",
		"http://localhost:11434/":                    "http://localhost:11434/v1",
		"http://localhost:11434/v1":                  "http://localhost:11434/v1",
		"http://localhost:11434/v1//":                "http://localhost:11434/v1",
		" localhost:11434 ":                          "http://localhost:11434/v1",
		"127.0.0.1:1234/v1":                          "http://127.0.0.1:1234/v1",
		"[::1]:1234":                                 "http://[::1]:1234/v1",
		"http://[2001:db8::1]:80/x":                  "http://[2001:db8::1]:80/x/v1",
		"https://my_host.example/prefix/":            "https://my_host.example/prefix/v1",
		"https://api.groq.com/openai/v1":             "https://api.groq.com/openai/v1",
		"https://api.z.ai/api/paas/v4/":              "https://api.z.ai/api/paas/v4",
		"https://h/v1beta/openai":                    "https://h/v1beta/openai",
		"https://api.openai.com/v1/chat/completions": "https://api.openai.com/v1",
		"https://h/v1/models/":                       "https://h/v1",
		"https://h/a%20b":                            "https://h/a%20b/v1",
	} {
		got, err := llm.NormalizeBaseURL("baseUrl", in)
		if err != nil || got != want {
			t.Errorf("%q: %q %v, want %q", in, got, err, want)
		}
		if again, err := llm.NormalizeBaseURL("baseUrl", got); again != got || err != nil {
			t.Errorf("%q is not stable: %q %v", got, again, err)
		}
	}
	for _, in := range []string{"", "  ", `"http://h"`, "'http://h'", "h:80", "example.org", "ftp://h", "http://", "http://:80", "http://h:0", "http://h:65536", "http://h:", "http://h:x",
		"http://h/?a=b", "http://h/#f", "http://u:p@h/", "http://a b/", "localhost:99999", "://x"} {
		got, err := llm.NormalizeBaseURL("baseUrl", in)
		var e *agent.Error
		if !errors.As(err, &e) || e.Code != agent.CodeInvalid || e.Field != "baseUrl" || !strings.Contains(e.Message, "baseUrl") {
			t.Errorf("%q: %q %v", in, got, err)
		}
		if strings.Contains(e.Message, ":p@") {
			t.Errorf("the password is shown: %s", e.Message)
		}
	}
}

func TestParseTimeout(t *testing.T) {
	for in, want := range map[string]time.Duration{"600s": 10 * time.Minute, "10m": 10 * time.Minute, "90000": 90 * time.Second, "off": -1} {
		if got, err := llm.ParseTimeout("timeout", in); err != nil || got != want {
			t.Errorf("%q: %s %v", in, got, err)
		}
	}
	for _, in := range []string{"", "0", "-5", "-5s", "soon", "1e99"} {
		if got, err := llm.ParseTimeout("timeout", in); agent.CodeOf(err) != agent.CodeInvalid {
			t.Errorf("%q: %s %v", in, got, err)
		}
	}
}

func TestEmbed(t *testing.T) {
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/embeddings" {
			http.NotFound(w, r)
			return
		}
		_, _ = io.WriteString(w, `{"data":[{"index":1,"embedding":[3,4]},{"index":0,"embedding":[1,2.5]}]}`)
	})
	got, err := chat(t, url).Embed(t.Context(), "e", []string{"a", "b"})
	if diff := cmp.Diff([][]float32{{1, 2.5}, {3, 4}}, got); diff != "" || err != nil {
		t.Error(err, diff)
	}
	if _, err := chat(t, url).Embed(t.Context(), "e", []string{"a", "b", "c"}); agent.CodeOf(err) != agent.CodeModel {
		t.Error(err)
	}
	if _, err := chat(t, url+"/x").Embed(t.Context(), "e", []string{"a"}); agent.CodeOf(err) != agent.CodeModelConfig {
		t.Error(err)
	}
}

// A prompt that was cut by the server is noticed (case H07).
func TestCutPromptIsNoticed(t *testing.T) {
	answerWith := func(tokens string) string {
		return events(text("a"), fin("stop"), `{"choices":[],"usage":{"prompt_tokens":`+tokens+`,"completion_tokens":1}}`, done)
	}
	for tokens, warned := range map[string]bool{"4096": true, "14000": false} {
		s := newSite(t, map[string]string{"/v1/models": `{"data":[{"id":"m"}]}`, "chat": answerWith(tokens)})
		var log strings.Builder
		c := catalogue(t, llm.Config{Getenv: env("OLLAMA_BASE_URL", s.URL), Logger: slog.New(slog.NewTextHandler(&log, nil))})
		model, _, err := c.Resolve(t.Context(), "ollama/m")
		if err != nil {
			t.Fatal(err)
		}
		req := question()
		req.System = strings.Repeat("four", 15000)
		if _, err := collect(t.Context(), model, req); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(log.String(), "cut the prompt"); got != warned {
			t.Errorf("%s tokens: %s", tokens, log.String())
		}
	}
}
