package roster

import (
	"cmp"
	"context"
	"encoding/json"

	"mneme/internal/agent"
	"mneme/internal/memory"
)

// Embedder finds what turns texts into vectors for an agent: its embedding model,
// else the given one; nil if neither is named. The name tells whose vectors can
// be compared. A model that cannot be used says so when it is asked for vectors.
func (r *Roster) Embedder(ctx context.Context, ag *agent.Agent, fallback string) (e memory.Embedder, name string) {
	var extra struct {
		Embedding string `json:"embedding"`
	}
	if ag.Extra != nil {
		// What is no object, or names no text, names no model.
		_ = json.Unmarshal(ag.Extra, &extra)
	}
	handle := cmp.Or(extra.Embedding, fallback)
	if handle == "" {
		return nil, ""
	}
	model, info, err := r.models.Resolve(ctx, handle)
	if err != nil {
		return unusable{err}, handle
	}
	provider, ok := model.(vectorMaker)
	if !ok {
		return unusable{agent.Errorf(agent.CodeModelConfig, "the provider of %s makes no vectors", handle)}, handle
	}
	return embedder{provider, info.Name}, handle
}

// A vectorMaker is a provider that has an endpoint for embeddings.
type vectorMaker interface {
	Embed(ctx context.Context, model string, inputs []string) ([][]float32, error)
}

type embedder struct {
	provider vectorMaker
	model    string
}

func (e embedder) Embed(ctx context.Context, texts []string) ([][]float32, error) {
	return e.provider.Embed(ctx, e.model, texts)
}

// unusable is a model that cannot be reached.
type unusable struct{ err error }

func (u unusable) Embed(context.Context, []string) ([][]float32, error) { return nil, u.err }
