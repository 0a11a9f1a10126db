package mcpserver_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mneme/internal/agent"
	"mneme/internal/mcpserver"
	"mneme/internal/memory"
	"mneme/protocol"
)

// emptyBackend is a Backend without agents that needs no clock.
type emptyBackend struct{}

var _ mcpserver.Backend = emptyBackend{}

func none() error { return agent.Errorf(agent.CodeNotFound, "Agent not found") }

func (emptyBackend) Info(context.Context) mcpserver.Info { return mcpserver.Info{Configured: true} }
func (emptyBackend) Models(context.Context) (*protocol.ListModelsResponse, error) {
	return &protocol.ListModelsResponse{}, nil
}
func (emptyBackend) Agents(context.Context) ([]mcpserver.Agent, error)       { return nil, nil }
func (emptyBackend) Agent(context.Context, string) (*mcpserver.Agent, error) { return nil, none() }
func (emptyBackend) CreateAgent(context.Context, protocol.AgentBody) (*mcpserver.Agent, error) {
	return nil, none()
}
func (emptyBackend) UpdateAgent(context.Context, string, protocol.AgentBody) (*mcpserver.Agent, error) {
	return nil, none()
}
func (emptyBackend) DeleteAgent(context.Context, string) error { return none() }
func (emptyBackend) Memory(context.Context, string, mcpserver.View) (*mcpserver.Memory, error) {
	return nil, none()
}
func (emptyBackend) MemoryFile(context.Context, string, string) ([]byte, error) { return nil, none() }
func (emptyBackend) MemoryHistory(context.Context, string, string) ([]memory.Commit, error) {
	return nil, none()
}
func (emptyBackend) Search(context.Context, string, string, int) (*mcpserver.SearchResult, error) {
	return nil, none()
}
func (emptyBackend) Save(context.Context, string, memory.Item) (memory.Saved, error) {
	return memory.Saved{}, none()
}
func (emptyBackend) DeleteItem(context.Context, string, string) (memory.Removed, error) {
	return memory.Removed{}, none()
}
func (emptyBackend) WriteFile(context.Context, string, string, string, string) error { return none() }
func (emptyBackend) Ask(context.Context, mcpserver.Question, mcpserver.AskHandler) (*mcpserver.Answer, error) {
	return nil, none()
}
func (emptyBackend) Watch(func(mcpserver.Change)) func() { return func() {} }

// A desk is a server that is called directly, so that it can live in a bubble of
// simulated time.
type desk struct {
	t      *testing.T
	server *mcpserver.Server
}

func newDesk(t *testing.T, pairs ...string) *desk {
	t.Helper()
	cfg, err := mcpserver.LoadConfig(environ(pairs...))
	if err != nil {
		t.Fatal(err)
	}
	d := &desk{t: t, server: mcpserver.New(cfg, emptyBackend{}, mcpserver.Options{Version: "test"})}
	t.Cleanup(d.server.Close)
	return d
}

func (d *desk) do(ctx context.Context, method, body string, headers ...string) *httptest.ResponseRecorder {
	req := httptest.NewRequestWithContext(ctx, method, "http://127.0.0.1/mcp", strings.NewReader(body))
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	d.server.Handler().ServeHTTP(w, req)
	return w
}

func (d *desk) session() string {
	d.t.Helper()
	w := d.do(context.Background(), http.MethodPost, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`)
	id := w.Header().Get("Mcp-Session-Id")
	if id == "" {
		d.t.Fatalf("initialize: %d %s", w.Code, w.Body)
	}
	d.do(context.Background(), http.MethodPost, `{"jsonrpc":"2.0","method":"notifications/initialized"}`, "Mcp-Session-Id", id)
	return id
}

// A thousand sessions over a day, half of them abandoned: what the server holds
// stays small, and in the end it holds nothing.
func TestSessionsOfADay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		const sessions = 1000
		most := mcpserver.Sizes{}
		for i := range sessions {
			id := d.session()
			if w := d.do(ctx, http.MethodPost, `{"jsonrpc":"2.0","id":2,"method":"resources/subscribe","params":{"uri":"letta://agents"}}`, "Mcp-Session-Id", id); w.Code != 200 {
				t.Fatalf("subscribe: %d %s", w.Code, w.Body)
			}
			for n := range 5 {
				w := d.do(ctx, http.MethodPost, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"agent_lookup","arguments":{},"_meta":{"progressToken":1}}}`, n+3), "Mcp-Session-Id", id)
				if w.Code != 200 || !strings.Contains(w.Body.String(), `"ok":true`) {
					t.Fatalf("call: %d %s", w.Code, w.Body)
				}
			}
			if i%4 == 0 { // some listen, and are cut off after a while
				listen, cut := context.WithTimeout(ctx, 10*time.Minute)
				go func() {
					defer cut()
					d.do(listen, http.MethodGet, "", "Mcp-Session-Id", id)
				}()
			}
			if i%2 == 0 {
				time.AfterFunc(20*time.Minute, func() { d.do(ctx, http.MethodDelete, "", "Mcp-Session-Id", id) })
			}
			time.Sleep(24 * time.Hour / sessions)
			synctest.Wait()
			z := d.server.Sizes()
			most.Sessions, most.Events, most.Streams = max(most.Sessions, z.Sessions), max(most.Events, z.Events), max(most.Streams, z.Streams)
		}
		// An hour's worth of sessions is alive, and five minutes' of events.
		if most.Sessions > 60 || most.Events > 100 || most.Streams > 600 {
			t.Errorf("at most it held %+v", most)
		}
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if z := d.server.Sizes(); z != (mcpserver.Sizes{}) {
			t.Errorf("after all have gone it holds %+v", z)
		}
	})
}

func TestSessionLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, "MCP_MAX_SESSIONS", "10")
		first := d.session()
		time.Sleep(time.Second)
		var rest []string
		for range 10 {
			rest = append(rest, d.session())
			time.Sleep(time.Second)
		}
		synctest.Wait()
		if z := d.server.Sizes(); z.Sessions != 10 || z.SDKSessions != 10 {
			t.Errorf("it holds %+v", z)
		}
		if w := d.do(t.Context(), http.MethodPost, ping, "Mcp-Session-Id", first); w.Code != 404 {
			t.Errorf("the oldest session: %d", w.Code)
		}
		// One that is used is not the oldest any more.
		if w := d.do(t.Context(), http.MethodPost, ping, "Mcp-Session-Id", rest[0]); w.Code != 200 {
			t.Errorf("the second oldest: %d", w.Code)
		}
		time.Sleep(time.Second)
		d.session()
		if w := d.do(t.Context(), http.MethodPost, ping, "Mcp-Session-Id", rest[0]); w.Code != 200 {
			t.Errorf("a session in use went: %d", w.Code)
		}
		if w := d.do(t.Context(), http.MethodPost, ping, "Mcp-Session-Id", rest[1]); w.Code != 404 {
			t.Errorf("the idle one stayed: %d", w.Code)
		}
	})
}

func TestSessionExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, "MCP_SESSION_TTL", "10m")
		used, idle := d.session(), d.session()
		for range 3 {
			time.Sleep(6 * time.Minute)
			if w := d.do(t.Context(), http.MethodPost, ping, "Mcp-Session-Id", used); w.Code != 200 {
				t.Fatalf("a session in use: %d", w.Code)
			}
		}
		if w := d.do(t.Context(), http.MethodPost, ping, "Mcp-Session-Id", idle); w.Code != 404 {
			t.Errorf("an idle session: %d", w.Code)
		}
	})
}

// A quiet stream carries comments, so that nobody on the way cuts it.
func TestKeepAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		id := d.session()
		ctx, cut := context.WithTimeout(t.Context(), 50*time.Second)
		defer cut()
		w := d.do(ctx, http.MethodGet, "", "Mcp-Session-Id", id)
		if n := strings.Count(w.Body.String(), ": keep-alive\n\n"); n != 3 {
			t.Errorf("%d comments in 50 s: %q", n, w.Body)
		}
	})
}

// What is sent on streams can be had again for a while, within bounds.
func TestEventBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		id := d.session()
		call := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"bridge_health","arguments":{},"_meta":{"progressToken":1}}}`
		var w *httptest.ResponseRecorder
		for range 1500 {
			w = d.do(t.Context(), http.MethodPost, call, "Mcp-Session-Id", id, "MCP-Protocol-Version", "2025-11-25")
		}
		if z := d.server.Sizes(); z.Events > 1000 || z.EventBytes > 4<<20 {
			t.Errorf("it holds %+v", z)
		}
		prime := strings.TrimSuffix(lastEventID(w.Body.String()), "1") + "0"
		again := d.do(t.Context(), http.MethodGet, "", "Mcp-Session-Id", id, "Last-Event-ID", prime, "MCP-Protocol-Version", "2025-11-25")
		if again.Code != 200 || !strings.Contains(again.Body.String(), `"ok":true`) {
			t.Errorf("replayed: %d %s", again.Code, again.Body)
		}
		time.Sleep(6 * time.Minute)
		if again := d.do(t.Context(), http.MethodGet, "", "Mcp-Session-Id", id, "Last-Event-ID", prime, "MCP-Protocol-Version", "2025-11-25"); again.Code != 400 {
			t.Errorf("replayed too late: %d %s", again.Code, again.Body)
		}
	})
}
