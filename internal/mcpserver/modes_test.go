package mcpserver_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"mneme/internal/llm"
	"mneme/internal/llm/fake"
	"mneme/internal/mcpserver"
	"mneme/internal/transcript"
)

// eachMode runs a test over every backend: in the same process, bridged to a
// mneme, and bridged to what looks like a stock App Server.
func eachMode(t *testing.T, model func() llm.Model, run func(t *testing.T, r *rig), pairs ...string) {
	t.Helper()
	if model == nil {
		model = func() llm.Model { return fake.New() }
	}
	t.Run("embedded", func(t *testing.T) { run(t, start(t, model(), pairs...)) })
	t.Run("bridge", func(t *testing.T) { run(t, bridge(t, transcript.Start(t, model(), options()), false, pairs...)) })
	t.Run("stock", func(t *testing.T) { run(t, bridge(t, transcript.Start(t, model(), options()), true, pairs...)) })
}

// bridge makes a rig that bridges to a server.
func bridge(t testing.TB, app *transcript.Server, stock bool, pairs ...string) *rig {
	t.Helper()
	address := app.URL()
	if stock {
		address = stockLook(t, address)
	}
	r := bridgeTo(t, address, pairs...)
	r.app, r.stock = app, stock
	return r
}

// bridgeTo makes a rig that bridges to an address.
func bridgeTo(t testing.TB, address string, pairs ...string) *rig {
	t.Helper()
	cfg, err := mcpserver.LoadConfig(environ(append([]string{"LETTA_APP_SERVER_URL", address}, pairs...)...))
	if err != nil {
		t.Fatal(err)
	}
	b := mcpserver.NewBridge(cfg, "test", logTo(t))
	t.Cleanup(func() { b.Close() })
	r := &rig{t: t}
	r.serve(cfg, b)
	return r
}

// stockLook is the address of a proxy that hides the extensions of a mneme.
func stockLook(t testing.TB, behind string) string {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		front, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		back, _, err := websocket.Dial(ctx, behind, nil)
		if err != nil {
			front.Close(websocket.StatusBadGateway, "")
			return
		}
		ctx, done := context.WithCancel(ctx)
		defer done()
		pump := func(from, to *websocket.Conn, change func([]byte) []byte) {
			defer done()
			from.SetReadLimit(-1)
			for {
				kind, data, err := from.Read(ctx)
				if err != nil || to.Write(ctx, kind, change(data)) != nil {
					return
				}
			}
		}
		go pump(front, back, func(p []byte) []byte { return p })
		pump(back, front, hideExtensions)
		front.CloseNow()
		back.CloseNow()
	}))
	t.Cleanup(func() {
		cancel()
		srv.CloseClientConnections()
		srv.Close()
	})
	return "ws" + strings.TrimPrefix(srv.URL, "http") + "/ws"
}

func hideExtensions(frame []byte) []byte {
	var m map[string]any
	if json.Unmarshal(frame, &m) != nil || m["type"] != "app_server_info_response" {
		return frame
	}
	if caps, ok := m["capabilities"].(map[string]any); ok {
		delete(caps, "mneme")
	}
	out, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	return out
}
