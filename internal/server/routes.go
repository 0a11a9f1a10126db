package server

import (
	"encoding/json"
	"net/http"
	"strings"

	"mneme/internal/auth"
)

// routes is the one route table of the listener (spec/rest.md section 2.10).
// Only the path counts, the method is the handler's business.
//
// The order of checks: an upgrade goes to the door that speaks WebSocket, which
// checks credential, Origin and Host in its own order, or is 404 if no door is at
// that path. Everything else passes the Host and Origin rules first, probes
// included. Paths of doors that are off, and all others, are 404 with an empty
// body.
type routes struct {
	socket string // path of the WebSocket
	guard  *auth.Guard
	auth   *auth.Checker
	app    appDoor
	rest   http.Handler // nil = off
	openAI bool
}

// appDoor is the App Server door as the route table sees it.
type appDoor interface {
	Upgrade(http.ResponseWriter, *http.Request)
	Healthz(http.ResponseWriter, *http.Request)
	Info(http.ResponseWriter, *http.Request)
}

func (t *routes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		t.upgrade(w, r)
		return
	}
	if !t.guard.HostOK(r) || !t.guard.OriginOK(r) {
		w.WriteHeader(http.StatusForbidden)
		return
	}
	if origin := r.Header.Get("Origin"); origin != "" {
		h := w.Header()
		h.Set("Access-Control-Allow-Origin", origin)
		h.Set("Access-Control-Allow-Credentials", "true")
		h.Add("Vary", "Origin")
	}
	switch path := r.URL.Path; {
	case path == "/readyz" || path == "/healthz":
		t.app.Healthz(w, r)
	case path == "/app-server-info":
		t.app.Info(w, r)
	case forOpenAI(r):
		switch {
		case t.openAI:
			t.notBuilt(w, r)
		case t.rest != nil && path == modelList:
			t.rest.ServeHTTP(w, r)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	case t.rest != nil && (strings.HasPrefix(path, "/v1/") || path == "/openapi.json"):
		t.rest.ServeHTTP(w, r)
	case t.openAI && strings.HasPrefix(path, "/v1/"):
		t.notBuilt(w, r)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

// modelList is the one path that both /v1 doors have.
const modelList = "/v1/models"

// forOpenAI says whether a request is meant for the OpenAI-compatible door: its own
// paths, and the list of models without trailing slash, unless a Letta client asks.
func forOpenAI(r *http.Request) bool {
	switch path := r.URL.Path; {
	case path == modelList:
		agent := r.Header.Get("User-Agent")
		return r.Method == http.MethodGet && !strings.HasPrefix(agent, "Letta/") && !strings.HasPrefix(agent, "letta-code/")
	case strings.HasPrefix(path, modelList+"/"):
		return path != modelList+"/" && !strings.HasPrefix(path, modelList+"/embedding")
	case path == "/v1/chat/completions", path == "/v1/responses":
		return true
	default:
		return strings.HasPrefix(path, "/v1/responses/")
	}
}

func (t *routes) upgrade(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != t.socket && r.URL.Path != "/" {
		w.Header().Set("Connection", "close")
		w.WriteHeader(http.StatusNotFound)
		return
	}
	t.app.Upgrade(w, r)
}

// notBuilt answers for the OpenAI-compatible API, which this server announces
// where --openai-api is given but does not have.
func (t *routes) notBuilt(w http.ResponseWriter, r *http.Request) {
	type failure struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Param   *string `json:"param"`
		Code    string  `json:"code"`
	}
	status, f := http.StatusNotImplemented, failure{
		Message: "The OpenAI-compatible API is not part of this version of mneme.", Type: "server_error", Code: "not_built",
	}
	if err := t.auth.Check(r); err != nil {
		status, f = http.StatusUnauthorized, failure{Message: err.Error(), Type: "invalid_request_error", Code: "invalid_api_key"}
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("x-should-retry", "false")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(map[string]failure{"error": f}) //nolint:errcheck // nobody is left to tell
}
