package mcpserver

import (
	"context"
	"time"
)

// healthTimeout bounds bridge_health, however long the App Server takes.
const healthTimeout = 5 * time.Second

func serverTools() []*tool {
	return []*tool{
		{
			name: "models_list", title: "List models",
			about: "List the models that agents can use, with the handles that agent_create and agent_update take.",
			data:  `{"type":"object","required":["entries"],"properties":{"entries":{"type":"array","items":{"type":"object"}}}}`,
			hints: hints{readOnly: true, idempotent: true},
			run:   listModels,
		},
		{
			name: "bridge_health", title: "Check the connection",
			about: "Say whether the App Server behind these tools is reached and offers models. Use it when other tools fail.",
			data: `{"type":"object","required":["bridge_configured","letta_url","models_reachable"],"properties":{"bridge_configured":{"type":"boolean"},"letta_url":{"type":["string","null"]},` +
				`"models_reachable":{"type":"boolean"},"model_count":{"type":"integer"},"models_error":{"type":"string"},"server_version":{"type":"string"},"protocol_version":{"type":"integer"},"latency_ms":{"type":"number"}}}`,
			hints: hints{readOnly: true, idempotent: true},
			run:   health,
		},
	}
}

func listModels(ctx context.Context, c *call) (any, error) { return c.backend.Models(ctx) }

// A healthReport is the answer of bridge_health.
type healthReport struct {
	Configured bool    `json:"bridge_configured"`
	URL        *string `json:"letta_url"`
	Reachable  bool    `json:"models_reachable"`
	Models     *int    `json:"model_count,omitempty"`
	Error      string  `json:"models_error,omitempty"`
	Version    string  `json:"server_version,omitempty"`
	Protocol   int     `json:"protocol_version,omitempty"`
	Latency    float64 `json:"latency_ms,omitempty"`
}

// health always succeeds; what fails is part of the answer.
func health(ctx context.Context, c *call) (any, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, healthTimeout, errRequestTimeout)
	defer cancel()
	begin := time.Now()
	models, err := c.backend.Models(ctx)
	took, info := time.Since(begin), c.backend.Info(ctx)
	r := healthReport{
		Configured: info.Configured, URL: orNull(info.URL), Version: info.Version, Protocol: info.Protocol,
		Latency: float64(took.Microseconds()) / 1000,
	}
	if err != nil {
		if ctx.Err() != nil && !isAnswer(err) {
			err = context.Cause(ctx)
		}
		r.Error = explain(err).Message
		return r, nil
	}
	n := len(models.Entries)
	r.Reachable, r.Models = true, &n
	return r, nil
}
