package server_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"mneme/internal/mcpserver"
	"mneme/internal/server"
	"mneme/protocol"
)

// withMCP turns the MCP server on, on a free port.
func withMCP(t *testing.T) func(*server.Config) {
	t.Helper()
	cfg, err := mcpserver.LoadConfig(mcpEnv(nil))
	if err != nil {
		t.Fatal(err)
	}
	return func(c *server.Config) { c.MCP = cfg }
}

func mcpEnv(more map[string]string) func(string) string {
	return func(name string) string {
		if v, ok := more[name]; ok {
			return v
		}
		return map[string]string{"MCP_AUTH_TOKEN": "mcp-token", "MCP_PORT": "0"}[name]
	}
}

// mcpCall calls a tool and returns the envelope.
func mcpCall(t *testing.T, url, tool string, args map[string]any) string {
	t.Helper()
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": map[string]any{
		"name": tool, "arguments": args,
		"_meta": map[string]any{"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": map[string]any{}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(string(body)))
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range map[string]string{
		"Authorization": "Bearer mcp-token", "Content-Type": "application/json", "Accept": "application/json",
		"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": tool,
	} {
		req.Header.Set(k, v)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var m struct {
		Result struct {
			Content []struct{ Text string }
		}
	}
	if err := json.Unmarshal(raw, &m); err != nil || len(m.Result.Content) != 1 {
		t.Fatalf("%s: %d %s", tool, resp.StatusCode, raw)
	}
	return m.Result.Content[0].Text
}

// What is made through one door shows at the other, and outlives a restart.
func TestMCPDoor(t *testing.T) {
	cfg := config(t, withMCP(t))
	srv, stop := start(t, cfg)
	if o := mcpCall(t, srv.MCP(), "agent_create", map[string]any{"name": "vole"}); !strings.Contains(o, `"ok":true`) {
		t.Fatal(o)
	}
	if o := mcpCall(t, srv.MCP(), "memory_save", map[string]any{"agent_id": "vole", "text": "the cat is grey"}); !strings.Contains(o, `"saved":true`) {
		t.Fatal(o)
	}
	if o := mcpCall(t, srv.MCP(), "bridge_health", nil); !strings.Contains(o, srv.URL()) || !strings.Contains(o, `"models_reachable":true`) {
		t.Errorf("health: %s", o)
	}
	c := dial(t, srv, "")
	rt := newAgent(t, c, protocol.MemoryBlock{Label: "human", Value: "Owns a boat."})
	if o := mcpCall(t, srv.MCP(), "memory_get", map[string]any{"agent_id": rt.ID().AgentID}); !strings.Contains(o, "Owns a boat.") {
		t.Errorf("an agent of the other door: %s", o)
	}
	begin := time.Now()
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begin); took > patience {
		t.Errorf("the stop took %s", took)
	}
	again, err := mcpserver.LoadConfig(mcpEnv(nil))
	if err != nil {
		t.Fatal(err)
	}
	cfg.MCP = again
	srv, _ = start(t, cfg)
	if o := mcpCall(t, srv.MCP(), "memory_search", map[string]any{"agent_id": "vole", "query": "which colour has the cat?"}); !strings.Contains(o, "the cat is grey") {
		t.Errorf("after the restart: %s", o)
	}
}

func TestMCPIsOffWithoutToken(t *testing.T) {
	for name, tt := range map[string]struct {
		command string
		env     map[string]string
		on      bool
		fails   string
	}{
		"serve":             {"serve", nil, true, ""},
		"the App Server":    {"server", nil, false, ""},
		"no token":          {"serve", map[string]string{"MCP_AUTH_TOKEN": " "}, false, ""},
		"the placeholder":   {"serve", map[string]string{"MCP_AUTH_TOKEN": "change-me"}, false, "MCP_AUTH_TOKEN"},
		"a setting is bad":  {"serve", map[string]string{"MCP_SESSION_TTL": "never"}, false, "MCP_SESSION_TTL"},
		"bad, but unwanted": {"server", map[string]string{"MCP_SESSION_TTL": "never"}, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			env := map[string]string{"MNEME_HOME": t.TempDir()}
			for k, v := range tt.env {
				env[k] = v
			}
			cfg, err := server.Load(server.Sources{Getenv: mcpEnv(env), Command: tt.command})
			if tt.fails != "" {
				if err == nil || !strings.Contains(err.Error(), tt.fails) {
					t.Errorf("%v", err)
				}
				return
			}
			if err != nil || (cfg.MCP != nil) != tt.on {
				t.Errorf("on %v, %v", cfg.MCP != nil, err)
			}
		})
	}
}

func TestMCPPortInUse(t *testing.T) {
	srv, _ := start(t, config(t, withMCP(t)))
	port := srv.MCP()[strings.LastIndex(srv.MCP(), ":")+1:]
	taken, err := mcpserver.LoadConfig(mcpEnv(map[string]string{"MCP_PORT": strings.TrimSuffix(port, "/mcp")}))
	if err != nil {
		t.Fatal(err)
	}
	_, err = server.New(t.Context(), config(t, func(c *server.Config) { c.MCP = taken }))
	if err == nil || !strings.Contains(err.Error(), "MCP_PORT") {
		t.Errorf("%v", err)
	}
}
