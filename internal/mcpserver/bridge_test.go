package mcpserver_test

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"mneme/internal/auth"
	"mneme/internal/llm/fake"
	"mneme/internal/transcript"
)

func TestBridgeNotConfigured(t *testing.T) {
	r := bridgeTo(t, "")
	if o := r.tool("agent_lookup", nil); o.code() != "not_configured" {
		t.Errorf("%s", o.raw)
	}
	o := r.must("bridge_health", nil)
	if o.get(t, "bridge_configured") != false || o.get(t, "letta_url") != nil || o.get(t, "models_reachable") != false || o.get(t, "models_error") == nil {
		t.Errorf("health: %s", o.raw)
	}
}

func TestBridgeUnreachable(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := ln.Addr().String()
	ln.Close()
	r := bridgeTo(t, "ws://user:secret@"+address+"/ws?key=secret", "LETTA_APP_SERVER_TOKEN", "secret")
	o := r.tool("agent_lookup", nil)
	if o.code() != "bridge_unreachable" || strings.Contains(o.raw, "secret") || !strings.Contains(o.raw, address) {
		t.Errorf("%s", o.raw)
	}
	o = r.must("bridge_health", nil)
	if o.text(t, "letta_url") != "ws://"+address+"/ws" || o.get(t, "models_reachable") != false || strings.Contains(o.raw, "secret") {
		t.Errorf("health: %s", o.raw)
	}
	// What needs no App Server works.
	if _, m := r.send("prompts/list", nil); m.Error != nil {
		t.Errorf("prompts: %+v", m.Error)
	}
}

// An App Server that accepts and never answers must not hold anybody for ever.
func TestBridgeHangs(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	r := bridgeTo(t, "ws://"+ln.Addr().String(), "REQUEST_TIMEOUT_MS", "200")
	if o := r.tool("agent_lookup", nil); o.code() != "bridge_timeout" && o.code() != "bridge_unreachable" {
		t.Errorf("%s", o.raw)
	}
}

func TestBridgeRefused(t *testing.T) {
	app := transcript.Start(t, fake.New(), transcript.Options{Auth: auth.Options{Token: "app-token"}})
	r := bridgeTo(t, app.URL(), "LETTA_APP_SERVER_TOKEN", "wrong-token")
	if o := r.tool("agent_lookup", nil); o.code() != "bridge_unauthorized" || strings.Contains(o.raw, "wrong-token") {
		t.Errorf("a wrong token: %s", o.raw)
	}
	if o := bridgeTo(t, app.URL(), "LETTA_APP_SERVER_TOKEN", "app-token").tool("agent_lookup", nil); !o.OK {
		t.Errorf("the right token: %s", o.raw)
	}
	// The address may be that of HTTP, with or without a path.
	for _, address := range []string{app.HTTP.URL, app.HTTP.URL + "/", app.HTTP.URL + "/ws"} {
		if o := bridgeTo(t, address, "LETTA_APP_SERVER_TOKEN", "app-token").tool("agent_lookup", nil); !o.OK {
			t.Errorf("%s: %s", address, o.raw)
		}
	}
	web := httptest.NewServer(http.NotFoundHandler())
	defer web.Close()
	if o := bridgeTo(t, web.URL).tool("agent_lookup", nil); o.code() != "bridge_unreachable" {
		t.Errorf("a web server: %s", o.raw)
	}
}

// A restart of the App Server is one failed call at most, and none for what only
// reads.
func TestBridgeSurvivesRestart(t *testing.T) {
	app := transcript.Start(t, fake.New(), options())
	r := bridge(t, app, false)
	r.agent("vole")
	app.HTTP.CloseClientConnections()
	if err := app.Door.Close(t.Context()); err != nil { // hijacked connections are not the HTTP server's
		t.Fatal(err)
	}
	deadline := time.Now().Add(patience)
	for {
		o := r.tool("agent_lookup", nil)
		if o.code() == "bridge_unreachable" {
			break // the door is closed for good
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s", o.raw)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
