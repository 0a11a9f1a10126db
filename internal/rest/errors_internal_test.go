package rest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"mneme/internal/agent"
)

// TestErrorShapes: status, body and headers of every kind of error
// (spec/rest.md section 2.6).
func TestErrorShapes(t *testing.T) {
	run := "run-123e4567-e89b-42d3-8456-426614174000"
	model := func(code agent.Code, status int) error {
		return &agent.Error{Code: code, Status: status, Message: "m", Detail: "d"}
	}
	for _, c := range []struct {
		name   string
		err    error
		status int
		body   string
		retry  string // x-should-retry
		after  string // Retry-After
	}{
		{"invalid", agent.Invalid("f", "bad"), 400, `{"detail":"INVALID_ARGUMENT: bad"}`, "false", ""},
		{"not found", agent.Errorf(agent.CodeNotFound, "Block b not found"), 404, `{"detail":"Block b not found"}`, "", ""},
		{"agent", errAgent(), 404, `{"detail":"Agent not found"}`, "", ""},
		{"conflict", agent.Errorf(agent.CodeConflict, "twice"), 409, `{"detail":"CONFLICT: twice"}`, "false", ""},
		{"conflict that passes", &agent.Error{Code: agent.CodeConflict, Message: "at once", Retryable: true}, 409, `{"detail":"CONFLICT: at once"}`, "", "1"},
		{"busy", &agent.Error{Code: agent.CodeBusy, Ref: run}, 409,
			`{"detail":"CONFLICT: Cannot send a new message: Another request (run_id=` + run + `) is currently being processed for this conversation. Please wait for it to complete.","run_id":"` + run + `"}`, "false", ""},
		{"busy without a run", &agent.Error{Code: agent.CodeBusy}, 409,
			`{"detail":"CONFLICT: Cannot send a new message: Another request is currently being processed for this conversation. Please wait for it to complete."}`, "false", ""},
		{"parked", agent.Errorf(agent.CodeParked, "x"), 409,
			`{"detail":"CONFLICT: Cannot send a new message: The agent is waiting for approval on a tool call. Please approve or deny the pending request before continuing."}`, "false", ""},
		{"queue full", agent.Errorf(agent.CodeQueueFull, "100 wait"), 409, `{"detail":"CONFLICT: 100 wait"}`, "false", ""},
		{"memory", agent.Errorf(agent.CodeMemoryConflict, "edits"), 409, `{"detail":"CONFLICT: memory_conflict: edits"}`, "false", ""},
		{"not pending", agent.Errorf(agent.CodeNotPending, "x"), 400,
			`{"detail":"Cannot process approval response: No tool call is currently awaiting approval. Please send a regular message to interact with the agent."}`, "false", ""},
		{"unauthorized", agent.Errorf(agent.CodeUnauthorized, "x"), 401, `{"detail":"Unauthorized"}`, "", ""},
		{"too large", agent.Errorf(agent.CodeTooLarge, "big"), 413, `{"detail":"big"}`, "false", ""},
		{"not built", agent.Errorf(agent.CodeNotBuilt, "later"), 501, `{"detail":"later"}`, "false", ""},
		{"shutdown", agent.Errorf(agent.CodeShutdown, "stopping"), 503, `{"detail":"stopping"}`, "", "1"},
		{"lease", agent.Errorf(agent.CodeLeaseLost, "moved"), 503, `{"detail":"moved"}`, "", "1"},
		{"validation", unprocessable("body.name", "Field required"), 422, `{"detail":"body.name: Field required","trace_id":""}`, "", ""},
		{"path id", badID("agent_id", "agent", "x"), 422,
			`{"detail":"path.agent_id: \"x\" is not an id of the form agent-<uuid4>","trace_id":"","examples":["agent-123e4567-e89b-42d3-8456-426614174000"]}`, "", ""},
		{"overflow", model(agent.CodeModelOverflow, 400), 400, `{"detail":"CONTEXT_WINDOW_EXCEEDED: m"}`, "false", ""},
		{"model 400", model(agent.CodeModel, 400), 400, `{"error":{"type":"llm_bad_request","message":"m","detail":"d"}}`, "false", ""},
		{"model setting", model(agent.CodeModelConfig, 0), 400, `{"error":{"type":"llm_bad_request","message":"m","detail":"d"}}`, "false", ""},
		{"model 401", model(agent.CodeModelConfig, 401), 401,
			`{"error":{"type":"llm_authentication","message":"Authentication failed with the LLM model provider.","detail":"d"}}`, "false", ""},
		{"model 402", model(agent.CodeModel, 402), 402,
			`{"error":{"type":"llm_insufficient_credits","message":"The LLM model provider reports insufficient credits.","detail":"d"}}`, "false", ""},
		{"model 429", model(agent.CodeModelRateLimit, 429), 429,
			`{"error":{"type":"llm_rate_limit","message":"Rate limit exceeded for LLM model provider. Please wait before making another request.","detail":"d"}}`, "", ""},
		{"model 500", model(agent.CodeModel, 500), 500, `{"error":{"type":"llm_error","message":"An error occurred with the LLM request.","detail":"d"}}`, "", ""},
		{"model without status", model(agent.CodeModel, 0), 500, `{"error":{"type":"llm_error","message":"An error occurred with the LLM request.","detail":"d"}}`, "", ""},
		{"model 503", model(agent.CodeModel, 503), 503, `{"error":{"type":"llm_overloaded","message":"The LLM model provider is overloaded. Please try again later.","detail":"d"}}`, "", ""},
		{"model 504", model(agent.CodeModel, 504), 504, `{"error":{"type":"llm_timeout","message":"The LLM model provider did not answer in time.","detail":"d"}}`, "", ""},
		{"anything", errors.New("secret of the house"), 500, `{"detail":"An unknown error occurred"}`, "", ""},
		{"internal", agent.Errorf(agent.CodeInternal, "secret of the house"), 500, `{"detail":"An unknown error occurred"}`, "", ""},
		{"wrapped", fmt.Errorf("while: %w", agent.Errorf(agent.CodeConflict, "twice")), 409, `{"detail":"CONFLICT: twice"}`, "false", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := httptest.NewRecorder()
			d := New(Config{})
			d.writeError(w, httptest.NewRequest(http.MethodGet, "/v1/x", nil), c.err)
			h := w.Header()
			if w.Code != c.status || w.Body.String() != c.body || h.Get("x-should-retry") != c.retry || h.Get("Retry-After") != c.after {
				t.Errorf("got %d %s retry %q after %q, want %d %s retry %q after %q",
					w.Code, w.Body, h.Get("x-should-retry"), h.Get("Retry-After"), c.status, c.body, c.retry, c.after)
			}
			if !json.Valid(w.Body.Bytes()) || h.Get("Content-Type") != "application/json" {
				t.Errorf("content type %q", h.Get("Content-Type"))
			}
		})
	}
}
