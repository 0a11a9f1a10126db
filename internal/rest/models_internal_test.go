package rest

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mneme/internal/auth"
	"mneme/internal/llm"
	"mneme/internal/llm/fake"
)

// connections are stored connections to providers.
type connections []llm.Record

func (c connections) Providers(context.Context) ([]llm.Record, error) { return c, nil }
func (c connections) PutProvider(context.Context, llm.Record) error   { return errors.New("fixed") }
func (c connections) DeleteProvider(context.Context, string) error    { return errors.New("fixed") }

// modelDoor is a door whose catalogue has a provider with two models, one that
// cannot list any, and the offline model.
func modelDoor(t *testing.T) *Door {
	t.Helper()
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/models") || strings.HasPrefix(r.URL.Path, "/dumb") {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.Write([]byte(`{"data":[{"id":"small","context_length":4000},{"id":"deep/large","context_length":90000}]}`))
	}))
	t.Cleanup(provider.Close)
	models := llm.New(llm.Config{Offline: fake.New(), Records: connections{
		{Name: "shop", Type: "openai-compatible", BaseURL: provider.URL + "/v1"},
		{Name: "dumb", Type: "openai-compatible", BaseURL: provider.URL + "/dumb/v1"},
	}})
	t.Cleanup(models.Close)
	checker, err := auth.New(auth.Options{})
	if err != nil {
		t.Fatal(err)
	}
	d := New(Config{Models: models, Auth: checker})
	t.Cleanup(func() { d.Close(context.Background()) })
	return d
}

func TestModels(t *testing.T) {
	d := modelDoor(t)
	handles := func(query string) []string {
		t.Helper()
		w := httptest.NewRecorder()
		d.ServeHTTP(w, httptest.NewRequest("GET", "/v1/models/"+query, nil))
		var all []modelState
		if err := json.Unmarshal(w.Body.Bytes(), &all); err != nil {
			t.Fatalf("%v: %s", err, w.Body)
		}
		out := []string{}
		for _, m := range all {
			out = append(out, *m.Handle)
			if m.ModelType != "llm" || m.Name == "" || m.ContextWindow == 0 || m.MaxContextWindow != m.ContextWindow || m.MaxTokens == nil {
				t.Errorf("%+v", m)
			}
		}
		return out
	}
	for query, want := range map[string][]string{
		"":                        {"shop/small", "shop/deep/large", "mneme/offline"},
		"?provider_category=base": {"mneme/offline"},
		"?provider_category=byok": {"shop/small", "shop/deep/large"},
		"?provider_category=base&provider_category=byok": {"shop/small", "shop/deep/large", "mneme/offline"},
		"?provider_name=shop":                            {"shop/small", "shop/deep/large"},
		"?provider_name=nobody":                          {},
		"?provider_type=openai":                          {"shop/small", "shop/deep/large", "mneme/offline"},
		"?provider_type=anthropic":                       {},
	} {
		if diff := cmp.Diff(want, handles(query)); diff != "" {
			t.Errorf("%s: %s", query, diff)
		}
	}
}

// TestHandles: what a provider does not list is unknown, unless it lists nothing.
func TestHandles(t *testing.T) {
	d := modelDoor(t)
	for handle, status := range map[string]int{
		"": 0, "auto": 0, "letta/auto": 0, "local/default": 0, "mneme/offline": 0, "shop/small": 0, "shop/deep/large": 0, "dumb/anything": 0,
		"small": 400, "shop/unknown": 404, "nobody/small": 404, "mneme/other": 404, "/": 404, "shop/": 404,
	} {
		err := d.checkModel(t.Context(), handle)
		got := 0
		if err != nil {
			got = asHTTP(err).Status
		}
		if got != status {
			t.Errorf("%q: %d, want %d: %v", handle, got, status, err)
		}
	}
	if err := d.checkModel(t.Context(), "shop/unknown"); !strings.Contains(asHTTP(err).Body.(detail).Detail, "[shop/small, shop/deep/large, mneme/offline]") {
		t.Errorf("%v", err)
	}
}

func TestModelSettings(t *testing.T) {
	d := modelDoor(t)
	config, handle := d.llmConfig(t.Context(), "shop/deep/large", json.RawMessage(
		`{"max_tokens":7,"temperature":"hot","reasoning":{"reasoning_effort":"low"},"verbosity":"high","enable_reasoner":true,"parallel_tool_calls":false,"frequency_penalty":0.5}`), 100_000)
	if handle != "shop/deep/large" || config.Model != "deep/large" || *config.ProviderName != "shop" || config.ContextWindow != 90_000 {
		t.Errorf("%s %+v", handle, config)
	}
	if *config.MaxTokens != 7 || *config.ReasoningEffort != "low" || *config.Verbosity != "high" || !config.EnableReasoner || config.ParallelToolCalls || *config.FrequencyPenalty != 0.5 {
		t.Errorf("%+v", config)
	}
	// What cannot be resolved is shown as it is.
	config, handle = d.llmConfig(t.Context(), "gone/model/x", nil, 0)
	if handle != "gone/model/x" || config.Model != "model/x" || config.EndpointType != "openai" || config.ContextWindow != llm.DefaultContext {
		t.Errorf("%s %+v", handle, config)
	}
	for in, want := range map[string]string{
		``:     `{"provider_type":"groq"}`,
		`null`: `{"provider_type":"groq"}`,
		`{"max_tokens":5,"context_window_limit":3,"top_p":null,"provider_type":"lmstudio_openai","x":[1]}`: `{"max_output_tokens":5,"provider_type":"groq","x":[1]}`,
	} {
		if got := string(settingsState(json.RawMessage(in), "groq")); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
	if got := string(settingsState(nil, "cerebras")); got != `{"provider_type":"openai"}` {
		t.Errorf("a family that clients do not know: %s", got)
	}
}
