package server_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"mneme/client"
	"mneme/internal/auth"
	"mneme/internal/server"
	"mneme/protocol"
)

// TestRESTDoor: one listener, one token, and the same agents as at the other door.
func TestRESTDoor(t *testing.T) {
	cfg := config(t, func(c *server.Config) {
		c.REST, c.AllowOrigin, c.Auth = true, []string{"https://app.example"}, auth.Options{Token: "tok"}
	})
	srv, _ := start(t, cfg)
	base := "http" + strings.TrimSuffix(strings.TrimPrefix(srv.URL(), "ws"), "/ws")
	send := func(method, path, body string, header ...string) (*http.Response, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, base+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(header); i += 2 {
			req.Header.Set(header[i], header[i+1])
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		data, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp, string(data)
	}
	bearer := []string{"Authorization", "Bearer tok"}
	for _, c := range []struct {
		path   string
		header []string
		status int
	}{
		{"/v1/health/", nil, 200}, {"/v1/agents/", nil, 401}, {"/openapi.json", nil, 401}, {"/v1/agents/", bearer, 200},
		{"/v1/agents/", []string{"X-BARE-PASSWORD", "password tok"}, 200}, {"/v1/agents/", []string{"X-BARE-PASSWORD", "password x"}, 401},
		{"/v1/agents/", append([]string{"Origin", "https://evil.example"}, bearer...), 403},
		{"/v1/health", []string{"Origin", "https://evil.example"}, 403},
		{"/v1/agents/", append([]string{"Origin", "https://app.example"}, bearer...), 200},
		{"/v1/models", bearer, 200}, {"/v1/chat/completions", bearer, 404}, {"/openapi.json", bearer, 200},
	} {
		if resp, body := send("GET", c.path, "", c.header...); resp.StatusCode != c.status {
			t.Errorf("%s %v: %d %s", c.path, c.header, resp.StatusCode, body)
		}
	}
	resp, _ := send("OPTIONS", "/v1/agents/", "", "Origin", "https://app.example", "Access-Control-Request-Method", "PATCH", "Access-Control-Request-Headers", "authorization")
	if h := resp.Header; resp.StatusCode != 204 || h.Get("Access-Control-Allow-Origin") != "https://app.example" ||
		!strings.Contains(h.Get("Access-Control-Allow-Methods"), "PATCH") || h.Get("Access-Control-Allow-Headers") != "authorization" {
		t.Errorf("preflight: %d %v", resp.StatusCode, h)
	}
	_, body := send("POST", "/v1/agents/", `{"name":"Ada","memory_blocks":[{"label":"human","value":"Name: Bo"}]}`, bearer...)
	var ag struct {
		ID     string
		System string
	}
	if err := json.Unmarshal([]byte(body), &ag); err != nil || ag.System != server.DefaultSystem() {
		t.Fatalf("%v: %s", err, body)
	}
	c := dial(t, srv, "tok")
	got, err := client.Call(t.Context(), c, &protocol.AgentRetrieve{AgentID: ag.ID})
	if err != nil || got.Agent == nil || got.Agent.Name != "Ada" {
		t.Fatalf("%+v, %v", got, err)
	}
	// The base tools really work: the offline model uses them.
	_, body = send("POST", "/v1/agents/"+ag.ID+"/messages", `{"input":"Remember that my bicycle is called Rosinante."}`, bearer...)
	if !strings.Contains(body, `"stop_reason":"end_turn"`) {
		t.Errorf("%s", body)
	}
	if resp, body := send("DELETE", "/v1/agents/"+ag.ID, "", bearer...); resp.StatusCode != 200 {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	if _, err := client.Call(t.Context(), c, &protocol.AgentRetrieve{AgentID: ag.ID}); err == nil {
		t.Error("the agent is still there at the other door")
	}
}
