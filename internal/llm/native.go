package llm

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"sync"
)

// A nativeAPI asks a local server in its own API about its models. listed is
// what /v1/models gave, nil if that failed. It returns what it could learn.
type nativeAPI func(ctx context.Context, c *Chat, listed []found) []found

// lmStudioAPI reads LM Studio's list: /api/v0 up to 0.3, /api/v1 from 0.4 on.
func lmStudioAPI(ctx context.Context, c *Chat, _ []found) []found {
	root := withoutVersion(c.cfg.BaseURL)
	for _, path := range []string{"/api/v0/models", "/api/v1/models"} {
		if models, err := c.listed(ctx, root+path); err == nil && len(models) > 0 {
			return models
		}
	}
	return nil
}

// llamaCppAPI reads the one window of a llama.cpp server.
func llamaCppAPI(ctx context.Context, c *Chat, listed []found) []found {
	var props struct {
		Settings struct {
			Context count `json:"n_ctx"`
		} `json:"default_generation_settings"`
		Modalities struct {
			Vision bool `json:"vision"`
		} `json:"modalities"`
	}
	if c.get(ctx, withoutVersion(c.cfg.BaseURL)+"/props", &props) != nil {
		return nil
	}
	var out []found
	for _, f := range listed {
		if n := int(props.Settings.Context); n > 0 {
			f.context, f.source = n, "loaded"
		}
		f.images = f.images || props.Modalities.Vision
		out = append(out, f)
	}
	return out
}

// Ollama is asked about each model; more than these at once, or in all, would
// be a burden.
const (
	ollamaAtOnce = 4
	ollamaAtMost = 64
)

// ollamaAPI learns the window that Ollama serves: of a loaded model what it was
// loaded with, else num_ctx of its model file, else what the model can.
func ollamaAPI(ctx context.Context, c *Chat, listed []found) []found {
	root := withoutVersion(c.cfg.BaseURL)
	models := listed
	if len(models) == 0 {
		var err error
		if models, err = c.listed(ctx, root+"/api/tags"); err != nil {
			return nil
		}
	}
	out := make([]found, len(models))
	copy(out, models)
	loaded := make(map[string]int)
	if running, err := c.listed(ctx, root+"/api/ps"); err == nil {
		for _, r := range running {
			loaded[r.id] = r.context
		}
	}
	slots := make(chan struct{}, ollamaAtOnce)
	var wg sync.WaitGroup
	for i := range out[:min(len(out), ollamaAtMost)] {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			ollamaShow(ctx, c, root, &out[i])
		})
	}
	wg.Wait()
	for i := range out {
		if n := loaded[out[i].id]; n > 0 {
			out[i].context, out[i].source = n, "loaded"
		}
	}
	return out
}

func ollamaShow(ctx context.Context, c *Chat, root string, f *found) {
	body, err := json.Marshal(map[string]string{"model": f.id})
	if err != nil { // never: strings
		return
	}
	var show struct {
		Parameters   string                     `json:"parameters"`
		Info         map[string]json.RawMessage `json:"model_info"`
		Capabilities json.RawMessage            `json:"capabilities"`
	}
	if c.fetch(ctx, http.MethodPost, root+"/api/show", body, &show) != nil {
		return
	}
	for key, v := range show.Info {
		if n, err := strconv.Atoi(string(v)); err == nil && n > 0 && strings.HasSuffix(key, ".context_length") {
			f.context, f.source = n, "maximum"
		}
	}
	for line := range strings.Lines(show.Parameters) {
		if words := strings.Fields(line); len(words) == 2 && words[0] == "num_ctx" {
			if n, err := strconv.Atoi(words[1]); err == nil && n > 0 {
				f.context, f.source = n, "configured"
			}
		}
	}
	f.reasoning = f.reasoning || capable(show.Capabilities, "thinking")
	f.images = f.images || capable(show.Capabilities, "vision")
	if capable(show.Capabilities, "embedding") && !capable(show.Capabilities, "completion") {
		f.chat = false
	}
}
