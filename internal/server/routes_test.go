package server

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"mneme/internal/auth"
)

// spy answers with the name of the handler that was reached.
type spy struct{}

func (spy) Upgrade(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "upgrade") }
func (spy) Healthz(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "health") }
func (spy) Info(w http.ResponseWriter, _ *http.Request)    { io.WriteString(w, "info") }

func TestRoutes(t *testing.T) {
	guard, err := auth.NewGuard([]string{"https://app.example"}, nil, true)
	if err != nil {
		t.Fatal(err)
	}
	open, _ := auth.New(auth.Options{})
	token, _ := auth.New(auth.Options{Token: "tok"})
	plain := &routes{socket: "/ws", guard: guard, auth: open, app: spy{}}
	custom := &routes{socket: "/deep/socket", guard: guard, auth: token, app: spy{}, openAI: true}
	rest := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "rest "+r.URL.Path) })
	all := &routes{socket: "/ws", guard: guard, auth: open, app: spy{}, openAI: true, rest: rest}
	letta := &routes{socket: "/ws", guard: guard, auth: open, app: spy{}, rest: rest}
	for _, c := range []struct {
		t       *routes
		method  string
		path    string
		headers string // name: value, separated by |
		status  int
		body    string // part of the body; "" = it is empty
	}{
		{plain, "GET", "/readyz", "", 200, "health"},
		{plain, "POST", "/healthz?x=1", "", 200, "health"},
		{plain, "OPTIONS", "/readyz", "", 200, "health"},
		{plain, "GET", "/readyz/", "", 404, ""},
		{plain, "POST", "/app-server-info", "", 200, "info"},
		{plain, "GET", "/", "", 404, ""},
		{plain, "GET", "/ws", "", 404, ""},
		{plain, "GET", "/v1/models", "", 404, ""},
		{plain, "POST", "/v1/agents/", "", 404, ""},
		{plain, "GET", "/openapi.json", "", 404, ""},
		{plain, "GET", "/metrics", "", 404, ""},

		{plain, "GET", "/readyz", "Origin: http://evil.example", 403, ""},
		{plain, "GET", "/nope", "Origin: http://evil.example", 403, ""},
		{plain, "GET", "/readyz", "Origin: https://app.example", 200, "health"},
		{plain, "GET", "/readyz", "Origin: http://127.0.0.1:4500", 200, "health"},
		{plain, "GET", "/readyz", "Host: evil.example", 403, ""},
		{plain, "GET", "/readyz", "Host: localhost:9", 200, "health"},

		{plain, "GET", "/ws", "Upgrade: websocket", 200, "upgrade"},
		{plain, "GET", "/", "Upgrade: WebSocket", 200, "upgrade"},
		{plain, "GET", "/ws/", "Upgrade: websocket", 404, ""},
		{plain, "GET", "/readyz", "Upgrade: websocket", 404, ""},
		{plain, "GET", "/ws", "Upgrade: websocket|Origin: http://evil.example", 200, "upgrade"}, // the door decides
		{custom, "GET", "/ws", "Upgrade: websocket", 404, ""},
		{custom, "GET", "/deep/socket", "Upgrade: websocket", 200, "upgrade"},
		{custom, "GET", "/", "Upgrade: websocket", 200, "upgrade"},

		{custom, "GET", "/v1/models", "", 401, "missing websocket bearer token"},
		{custom, "POST", "/v1/chat/completions", "Authorization: Bearer tok", 501, "not_built"},
		{custom, "GET", "/v1/models", "Authorization: Bearer tok|Origin: http://evil.example", 403, ""},
		{custom, "GET", "/openapi.json", "Authorization: Bearer tok", 404, ""},

		{all, "GET", "/v1/models", "", 501, "not_built"},
		{all, "GET", "/v1/models", "User-Agent: openai/1", 501, "not_built"},
		{all, "GET", "/v1/models", "User-Agent: Letta/JS 1.12.1", 200, "rest /v1/models"},
		{all, "GET", "/v1/models", "User-Agent: letta-code/0.32.18", 200, "rest /v1/models"},
		{all, "POST", "/v1/models", "", 200, "rest /v1/models"},
		{all, "GET", "/v1/models/", "", 200, "rest /v1/models/"},
		{all, "GET", "/v1/models/embedding", "", 200, "rest"},
		{all, "GET", "/v1/models/embedding/", "", 200, "rest"},
		{all, "GET", "/v1/models/embeddings", "", 200, "rest"},
		{all, "GET", "/v1/models/mneme/offline", "", 501, "not_built"},
		{all, "POST", "/v1/chat/completions", "", 501, "not_built"},
		{all, "GET", "/v1/responses/r1", "", 501, "not_built"},
		{all, "GET", "/v1/agents", "", 200, "rest /v1/agents"},
		{all, "DELETE", "/v1/nope/", "", 200, "rest /v1/nope/"}, // the door knows what is unknown
		{all, "GET", "/openapi.json", "", 200, "rest"},
		{all, "GET", "/v1", "", 404, ""},
		{all, "GET", "/readyz", "", 200, "health"},
		{letta, "GET", "/v1/models", "", 200, "rest /v1/models"},
		{letta, "POST", "/v1/chat/completions", "", 404, ""},
		{letta, "GET", "/v1/responses", "", 404, ""},
		{letta, "GET", "/v1/agents", "Origin: http://evil.example", 403, ""},
		{letta, "GET", "/v1/agents", "Host: evil.example", 403, ""},
	} {
		r := httptest.NewRequest(c.method, c.path, nil)
		r.Host = "127.0.0.1:4500"
		for h := range strings.SplitSeq(c.headers, "|") {
			name, value, _ := strings.Cut(h, ": ")
			if name == "Host" {
				r.Host = value
			} else if name != "" {
				r.Header.Set(name, value)
			}
		}
		w := httptest.NewRecorder()
		c.t.ServeHTTP(w, r)
		got := w.Body.String()
		if w.Code != c.status || !strings.Contains(got, c.body) || (c.body == "") != (got == "") {
			t.Errorf("%s %s %s: %d %q, want %d %q", c.method, c.path, c.headers, w.Code, got, c.status, c.body)
		}
	}
}

func TestAllowedOriginMayRead(t *testing.T) {
	guard, _ := auth.NewGuard([]string{"https://app.example"}, nil, true)
	r := httptest.NewRequest(http.MethodGet, "/readyz", nil)
	r.Host = "localhost"
	r.Header.Set("Origin", "https://app.example")
	w := httptest.NewRecorder()
	(&routes{guard: guard, app: spy{}}).ServeHTTP(w, r)
	if got := w.Header().Get("Access-Control-Allow-Origin"); got != "https://app.example" {
		t.Errorf("allowed origin %q", got)
	}
}
