package main

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// server answers the provider routes. A nil requests logs nothing.
type server struct {
	models []string
	player player

	logMu    sync.Mutex
	requests io.Writer
}

// routes is the table of what the provider knows. The /v1 prefix of the
// completion routes may be left out.
func (s *server) routes() *http.ServeMux {
	mux := http.NewServeMux()
	for _, p := range []string{"/v1/models", "/models", "/api/v0/models", "/api/v1/models", "/api/tags"} {
		mux.HandleFunc("GET "+p, s.modelList)
	}
	mux.HandleFunc("POST /api/show", s.show)
	mux.HandleFunc("GET /api/version", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, 200, obj{"version": "0.0.0"})
	})
	for _, p := range []string{"", "/v1"} {
		mux.HandleFunc("POST "+p+"/chat/completions", s.complete("chat"))
		mux.HandleFunc("POST "+p+"/responses", s.complete("responses"))
		mux.HandleFunc("POST "+p+"/messages", s.complete("anthropic"))
		mux.HandleFunc("POST "+p+"/embeddings", s.embeddings)
	}
	mux.HandleFunc("POST /v1/messages/count_tokens", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, 200, obj{"input_tokens": 100})
	})
	return mux
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client may have gone
}

func (s *server) logLine(v any) {
	if s.requests == nil {
		return
	}
	b, _ := json.Marshal(v)
	s.logMu.Lock()
	defer s.logMu.Unlock()
	_, _ = s.requests.Write(append(b, '\n'))
}

func (s *server) modelList(w http.ResponseWriter, _ *http.Request) {
	var data, tags []any
	for _, m := range s.models {
		data = append(data, obj{"id": m, "object": "model", "created": 1700000000, "owned_by": "mock", "type": "llm",
			"publisher": "mock", "arch": "mock", "state": "loaded", "max_context_length": 131072,
			"loaded_context_length": 131072, "capabilities": []string{"tool_use"}, "display_name": m})
		tags = append(tags, obj{"name": m, "model": m, "details": obj{"family": "mock"}})
	}
	writeJSON(w, 200, obj{"object": "list", "data": data, "models": tags, "has_more": false})
}

func (s *server) show(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, 200, obj{"capabilities": []string{"completion", "tools", "thinking"},
		"model_info": obj{"general.architecture": "mock", "mock.context_length": 131072}})
}

// embeddings returns a unit-range vector derived from a hash of the input.
func (s *server) embeddings(w http.ResponseWriter, hr *http.Request) {
	var body struct {
		Model      string
		Input      any
		Dimensions int
		Encoding   string `json:"encoding_format"`
	}
	if err := json.NewDecoder(hr.Body).Decode(&body); err != nil {
		writeJSON(w, 400, obj{"error": obj{"message": err.Error()}})
		return
	}
	if body.Dimensions <= 0 {
		body.Dimensions = 64
	}
	inputs, ok := body.Input.([]any)
	if !ok {
		inputs = []any{body.Input}
	}
	var data []any
	for i, in := range inputs {
		vec := make([]float32, body.Dimensions)
		for j := range vec {
			h := sha256.Sum256(fmt.Appendf(nil, "%d:%v", j, in))
			vec[j] = float32(binary.BigEndian.Uint32(h[:4]))/float32(1<<31) - 1
		}
		var e any = vec
		if body.Encoding == "base64" {
			b, _ := binary.Append(nil, binary.LittleEndian, vec)
			e = base64.StdEncoding.EncodeToString(b)
		}
		data = append(data, obj{"object": "embedding", "index": i, "embedding": e})
	}
	writeJSON(w, 200, obj{"object": "list", "model": body.Model, "data": data,
		"usage": obj{"prompt_tokens": len(inputs), "total_tokens": len(inputs)}})
}

// providerErrors are error types and messages as providers word them.
var providerErrors = map[int][2]string{
	400: {"invalid_request_error", "Invalid request"},
	401: {"authentication_error", "Incorrect API key provided"},
	403: {"permission_error", "You do not have access to this model"},
	404: {"not_found_error", "The model does not exist"},
	429: {"rate_limit_error", "Rate limit reached, please try again later"},
	503: {"overloaded_error", "The server is overloaded"},
	529: {"overloaded_error", "Overloaded"},
}

func refuse(w http.ResponseWriter, rep reply) {
	if rep.retryAfter != "" {
		w.Header().Set("Retry-After", rep.retryAfter)
	}
	e, ok := providerErrors[rep.errStatus]
	if !ok {
		e = [2]string{"api_error", "The server had an error while processing your request"}
	}
	writeJSON(w, rep.errStatus, obj{"type": "error", "error": obj{"type": e[0], "code": nil, "message": e[1]}})
}

func (s *server) complete(api string) http.HandlerFunc {
	return func(w http.ResponseWriter, hr *http.Request) {
		raw, err := io.ReadAll(hr.Body)
		var body obj
		if err != nil || json.Unmarshal(raw, &body) != nil {
			writeJSON(w, 400, obj{"error": obj{"message": "request is not JSON", "type": "invalid_request_error"}})
			return
		}
		r := parseRequest(api, body)
		rep := s.player.plan(r)
		s.logLine(obj{"time": time.Now().UTC().Format(time.RFC3339Nano), "path": hr.URL.Path,
			"error_status": rep.errStatus, "body": json.RawMessage(raw)})
		if rep.errStatus != 0 {
			refuse(w, rep)
			return
		}
		sum := sha256.Sum256(raw)
		f := newFormat(r, hex.EncodeToString(sum[:8]))
		if r.Stream {
			stream(w, hr, f, rep)
			return
		}
		if wait(hr, rep) {
			writeJSON(w, 200, f.whole(rep))
		} else {
			_, _ = io.WriteString(w, `{"broken`)
		}
	}
}

// pause waits and says whether the client is still there.
func pause(hr *http.Request, d time.Duration) bool {
	if d == 0 {
		return true
	}
	select {
	case <-time.After(d):
		return true
	case <-hr.Context().Done():
		return false
	}
}

// wait lets the time of an answer pass that is sent as a whole, and says
// whether it is well formed.
func wait(hr *http.Request, rep reply) bool {
	for _, e := range rep.events {
		pause(hr, e.wait)
		switch e.kind {
		case "hang":
			<-hr.Context().Done()
		case "drop":
			panic(http.ErrAbortHandler)
		case "malformed":
			return false
		}
	}
	return true
}

func stream(w http.ResponseWriter, hr *http.Request, f format, rep reply) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-cache")
	flush := http.NewResponseController(w).Flush
	send := func(events []any) {
		var b strings.Builder
		for _, e := range events {
			writeEvent(&b, e)
		}
		_, _ = io.WriteString(w, b.String()) // a client that has gone ends the request's context
		_ = flush()
	}
	send(f.start())
	for _, e := range rep.events {
		if !pause(hr, e.wait) {
			return
		}
		switch e.kind {
		case "text":
			send(f.text(e.text))
		case "think":
			send(f.think(e.text))
		case "call":
			send(f.call(e))
		case "malformed":
			_, _ = io.WriteString(w, "data: {\"broken\n\n")
			_ = flush()
		case "drop":
			panic(http.ErrAbortHandler)
		case "hang":
			<-hr.Context().Done()
			return
		}
	}
	send(f.end(rep))
}

// writeEvent writes one server-sent event: a marker as it is, an object as
// JSON, named by its type where the format has types.
func writeEvent(b *strings.Builder, e any) {
	if s, ok := e.(string); ok {
		b.WriteString("data: " + s + "\n\n")
		return
	}
	data, _ := json.Marshal(e)
	if t := str(e.(obj)["type"]); t != "" {
		b.WriteString("event: " + t + "\n")
	}
	b.WriteString("data: ")
	b.Write(data)
	b.WriteString("\n\n")
}
