package mcpserver

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"mneme/internal/auth"
)

// bodyTimeout is for how long a client may send its request.
const bodyTimeout = 30 * time.Second

// Headers of the protocol.
const (
	sessionHeader = "Mcp-Session-Id"
	versionHeader = "Mcp-Protocol-Version"
	resumeHeader  = "Last-Event-ID"
)

// A front is the HTTP side: it checks requests in the order of spec/mcp.md
// section 1.1 and hands them to the SDK's handler of their era.
type front struct {
	*Server
	gate     *gate
	legacy   http.Handler // with sessions, or none if they are turned off
	modern   http.Handler
	sessions *sessions
	events   *events
}

func newFront(s *Server) *front {
	f := &front{Server: s, gate: newGate(s.cfg), events: newEvents(s.cfg.TurnTimeout)}
	f.sessions = &sessions{
		ttl: s.cfg.SessionTTL, most: s.cfg.MaxSessions, life: s.life, work: &s.work, byID: map[string]*session{},
		ended: func(sess *session) { s.subs.end(sess.ss) },
	}
	same := func(*http.Request) *mcp.Server { return s.mcp }
	options := mcp.StreamableHTTPOptions{
		Logger: s.log, MaxRequestBodyBytes: -1, DisableLocalhostProtection: true, PropagateRequestCancellation: true,
	}
	stateless := options
	stateless.Stateless = true
	f.modern = mcp.NewStreamableHTTPHandler(same, &stateless)
	f.legacy = f.modern
	if !s.cfg.Stateless {
		options.EventStore = f.events
		f.legacy = mcp.NewStreamableHTTPHandler(same, &options)
	}
	return f
}

// ServeHTTP implements http.Handler.
func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := r.URL.Path
	metadata := path == "/.well-known/oauth-protected-resource" || path == "/.well-known/oauth-protected-resource/mcp"
	if path != "/mcp" && path != "/healthz" && !(metadata && f.cfg.OAuthIssuer != "") {
		writeJSON(w, http.StatusNotFound, map[string]string{"error": "not_found"})
		return
	}
	if !f.hostOK(r) || !f.originOK(r) {
		writeJSON(w, http.StatusForbidden, map[string]string{"error": "forbidden"})
		return
	}
	if origin := r.Header.Get("Origin"); origin != "" {
		if f.cors(w, r, origin) {
			return
		}
	}
	switch {
	case metadata:
		f.gate.metadata(w, r)
	case path == "/healthz":
		healthz(w, r)
	default:
		f.endpoint(w, r)
	}
}

func healthz(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		notAllowed(w, nil, "GET, HEAD")
		return
	}
	writeJSON(w, http.StatusOK, map[string]bool{"ok": true})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(v) //nolint:errcheck // nobody is left to tell
}

func writeRPC(w http.ResponseWriter, status int, raw []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(raw) //nolint:errcheck // likewise
}

func notAllowed(w http.ResponseWriter, id json.RawMessage, allow string) {
	w.Header().Set("Allow", allow)
	writeRPC(w, http.StatusMethodNotAllowed, rpcError(id, codeServer, "method not allowed", nil))
}

// hostOf is a host in lower case without its port.
func hostOf(hostport string) string {
	host := strings.ToLower(hostport)
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	return strings.Trim(host, "[]")
}

// hostOK stops web pages that reach a loopback listener by DNS rebinding: their
// requests carry the page's own name.
func (f *front) hostOK(r *http.Request) bool {
	local := false
	if a, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr); ok {
		local = a.IP.IsLoopback()
	}
	host := hostOf(r.Host)
	if slices.Contains(f.cfg.AllowedHosts, host) {
		return true
	}
	if local {
		return auth.IsLoopback(host)
	}
	return len(f.cfg.AllowedHosts) == 0
}

// originOK stops web pages other than local and allowed ones.
func (f *front) originOK(r *http.Request) bool {
	origins := r.Header.Values("Origin")
	if len(origins) == 0 {
		return true
	}
	u, err := url.Parse(strings.ToLower(origins[0]))
	if len(origins) > 1 || err != nil || u.Host == "" {
		return false
	}
	if slices.Contains(f.cfg.AllowedOrigins, u.Scheme+"://"+u.Host) {
		return true
	}
	return (u.Scheme == "http" || u.Scheme == "https") && auth.IsLoopback(u.Hostname())
}

// cors lets pages of an allowed origin read our answers; true if the request was
// a preflight and is answered.
func (f *front) cors(w http.ResponseWriter, r *http.Request, origin string) bool {
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", origin)
	h.Add("Vary", "Origin")
	h.Set("Access-Control-Expose-Headers", "Mcp-Session-Id, WWW-Authenticate")
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		return false
	}
	allow := []string{"Authorization", "Content-Type", "Accept", sessionHeader, "MCP-Protocol-Version", resumeHeader, "Mcp-Method", "Mcp-Name"}
	for name := range strings.SplitSeq(r.Header.Get("Access-Control-Request-Headers"), ",") {
		if name = strings.TrimSpace(name); strings.HasPrefix(strings.ToLower(name), "mcp-param-") {
			allow = append(allow, name)
		}
	}
	h.Set("Access-Control-Allow-Methods", "POST, GET, DELETE")
	h.Set("Access-Control-Allow-Headers", strings.Join(allow, ", "))
	h.Set("Access-Control-Max-Age", "7200")
	w.WriteHeader(http.StatusNoContent)
	return true
}

type principalKey struct{}

// principalOf is whose request this is.
func principalOf(ctx context.Context) string {
	p, _ := ctx.Value(principalKey{}).(string)
	return p
}

// endpoint serves /mcp.
func (f *front) endpoint(w http.ResponseWriter, r *http.Request) {
	principal, ok := f.gate.admit(w, r)
	if !ok {
		return
	}
	if f.life.Err() != nil {
		w.Header().Set("Connection", "close")
		writeRPC(w, http.StatusServiceUnavailable, rpcError(nil, codeServer, "the server is stopping", nil))
		return
	}
	r = r.WithContext(context.WithValue(r.Context(), principalKey{}, principal))
	r.Header.Del(replyHeader)
	modern := r.Header.Get(versionHeader) >= versionModern
	switch {
	case r.Method == http.MethodPost:
		f.post(w, r)
	case f.cfg.Stateless || modern:
		notAllowed(w, nil, "POST")
	case r.Method == http.MethodGet:
		f.get(w, r)
	case r.Method == http.MethodDelete:
		f.delete(w, r, principal)
	default:
		notAllowed(w, nil, "POST, GET, DELETE")
	}
}

// post checks a message and sends it to its era.
func (f *front) post(w http.ResponseWriter, r *http.Request) {
	kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	if !strings.EqualFold(strings.TrimSpace(kind), "application/json") {
		writeRPC(w, http.StatusUnsupportedMediaType, rpcError(nil, codeServer, "Content-Type must be application/json", nil))
		return
	}
	accept := accepts(r)
	if !accept.json && !accept.stream {
		writeRPC(w, http.StatusNotAcceptable, rpcError(nil, codeServer, "Accept must admit application/json or text/event-stream", nil))
		return
	}
	b, ok := f.readBody(w, r)
	if !ok {
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(b.raw))
	r.Header.Set("Accept", "application/json, text/event-stream") // what the SDK insists on
	if !accept.stream {
		r.Header.Set(replyHeader, replyJSON)
	}
	modern, ok := f.isModern(w, r, &b)
	switch {
	case !ok:
	case modern:
		r.Header.Del(sessionHeader)
		r.Header.Del(resumeHeader)
		decodeHeaders(r.Header)
		f.serve(w, r, f.modern, &b, accept, nil)
	case f.cfg.Stateless:
		r.Header.Del(sessionHeader)
		r.Header.Del(resumeHeader)
		f.serve(w, r, f.legacy, &b, accept, nil)
	default:
		f.postLegacy(w, r, &b, accept)
	}
}

// readBody reads a request's body within its limits of size and time.
func (f *front) readBody(w http.ResponseWriter, r *http.Request) (b body, ok bool) {
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(bodyTimeout)) // not every server has deadlines
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, f.cfg.MaxBody))
	_ = control.SetReadDeadline(time.Time{})
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		w.Header().Set("Connection", "close")
		writeRPC(w, http.StatusRequestEntityTooLarge, rpcError(nil, codeServer, "the body is too large", map[string]int64{"limit": large.Limit}))
		return b, false
	}
	if err != nil {
		writeRPC(w, http.StatusBadRequest, rpcError(nil, jsonrpc.CodeParseError, "the body could not be read", nil))
		return b, false
	}
	b, code, problem := parseBody(raw)
	if problem != "" {
		writeRPC(w, http.StatusBadRequest, rpcError(nil, code, problem, nil))
		return b, false
	}
	return b, true
}

// isModern tells the eras apart (spec/mcp.md section 1). ok is false if the
// versions do not agree, or are none that anybody knows; then that is answered.
func (f *front) isModern(w http.ResponseWriter, r *http.Request, b *body) (modern, ok bool) {
	header, inBody := r.Header.Get(versionHeader), ""
	for i := range b.messages {
		if v := b.messages[i].hints().Meta.Version; v != nil && b.messages[i].isRequest() {
			inBody = *v
		}
	}
	refuse := func(code int64, text string, data any) (bool, bool) {
		writeRPC(w, http.StatusBadRequest, rpcError(b.id(), code, text, data))
		return modern, false
	}
	modern = header >= versionModern || inBody != ""
	known := header == "" || slices.Contains(versions, header)
	switch {
	case inBody != "" && header != inBody:
		return refuse(mcp.CodeHeaderMismatch, "MCP-Protocol-Version does not match the version in _meta", nil)
	case !known && modern:
		return refuse(mcp.CodeUnsupportedProtocolVersion, "unsupported protocol version", map[string]any{"supported": versions, "requested": header})
	case !known:
		return refuse(jsonrpc.CodeInvalidRequest, "unsupported protocol version; supported: "+strings.Join(legacyVersions(), ", "), nil)
	}
	return modern, true
}

// decodeHeaders turns the mirrors of method and name that a client had to encode
// back into what they mirror. What is not well formed stays, and matches nothing.
func decodeHeaders(h http.Header) {
	for _, name := range []string{"Mcp-Method", "Mcp-Name"} {
		v, ok := strings.CutPrefix(strings.TrimSpace(h.Get(name)), "=?base64?")
		if !ok {
			continue
		}
		if v, ok = strings.CutSuffix(v, "?="); !ok {
			continue
		}
		if raw, err := base64.StdEncoding.DecodeString(v); err == nil {
			h.Set(name, string(raw))
		}
	}
}

// serve lets the SDK answer a POST.
func (f *front) serve(w http.ResponseWriter, r *http.Request, h http.Handler, b *body, accept accepted, sess *session) {
	ctx, cut := context.WithCancel(r.Context())
	defer cut()
	rep := newReply(w, accept, b.streams())
	rep.id, rep.batch, rep.cut = b.id(), b.batch, cut
	if sess != nil && rep.id != nil {
		key := string(rep.id)
		rep.wanted = func() bool { return f.sessions.wanted(sess, key) }
		rep.whole = func(stream string) { f.events.forget(r.Header.Get(sessionHeader), stream) }
		defer f.sessions.answered(sess, key)
	}
	h.ServeHTTP(rep, r.WithContext(ctx))
	rep.finish()
}

// postLegacy serves a POST of the legacy era with sessions.
func (f *front) postLegacy(w http.ResponseWriter, r *http.Request, b *body, accept accepted) {
	principal := principalOf(r.Context())
	if b.method() == "initialize" {
		// A client that begins anew may still carry the id of an old session.
		r.Header.Del(sessionHeader)
		r.Header.Del(resumeHeader)
		sess := f.sessions.open(principal)
		if sess == nil {
			w.Header().Set("Retry-After", "5")
			writeRPC(w, http.StatusServiceUnavailable, rpcError(b.id(), codeServer, "too many sessions are at work", nil))
			return
		}
		defer f.sessions.settle(sess)
		f.serve(w, r.WithContext(context.WithValue(r.Context(), sessionKey{}, sess)), f.legacy, b, accept, nil)
		return
	}
	sess, ok := f.enter(w, r, b.id(), false)
	if !ok {
		return
	}
	defer f.sessions.leave(sess, false)
	if b.batch && f.sessions.versionOf(sess) != "2025-03-26" {
		writeRPC(w, http.StatusBadRequest, rpcError(nil, jsonrpc.CodeInvalidRequest, "batches are not part of the negotiated protocol version", nil))
		return
	}
	if b.method() == "notifications/cancelled" {
		if id := b.messages[0].hints().RequestID; id != nil {
			f.sessions.cancel(sess, string(id))
		}
	}
	r.Header.Del(resumeHeader)
	f.serve(w, r, f.legacy, b, accept, sess)
}

// enter finds the session of a request, or answers why there is none.
func (f *front) enter(w http.ResponseWriter, r *http.Request, id json.RawMessage, stream bool) (*session, bool) {
	sessionID := r.Header.Get(sessionHeader)
	if sessionID == "" {
		writeRPC(w, http.StatusBadRequest, rpcError(id, codeServer, "Mcp-Session-Id is missing; call initialize first", nil))
		return nil, false
	}
	sess := f.sessions.enter(sessionID, principalOf(r.Context()), stream)
	if sess == nil {
		writeRPC(w, http.StatusNotFound, rpcError(id, codeSession, "session not found; call initialize again", nil))
		return nil, false
	}
	version := f.sessions.versionOf(sess)
	if h := r.Header.Get(versionHeader); h != "" && h != version {
		f.sessions.leave(sess, stream)
		writeRPC(w, http.StatusBadRequest, rpcError(id, jsonrpc.CodeInvalidRequest, "MCP-Protocol-Version must be "+version+", which was negotiated", nil))
		return nil, false
	}
	return sess, true
}

// get opens a stream of a legacy session, or goes on with one.
func (f *front) get(w http.ResponseWriter, r *http.Request) {
	if !accepts(r).stream {
		writeRPC(w, http.StatusNotAcceptable, rpcError(nil, codeServer, "Accept must admit text/event-stream", nil))
		return
	}
	sess, ok := f.enter(w, r, nil, true)
	if !ok {
		return
	}
	defer f.sessions.leave(sess, true)
	r.Header.Set("Accept", "text/event-stream")
	ctx, cut := context.WithCancel(r.Context())
	defer cut()
	rep := newReply(w, accepted{stream: true}, true)
	rep.cut = cut
	f.legacy.ServeHTTP(rep, r.WithContext(ctx))
	rep.finish()
}

// delete ends a legacy session.
func (f *front) delete(w http.ResponseWriter, r *http.Request, principal string) {
	id := r.Header.Get(sessionHeader)
	switch {
	case id == "":
		writeRPC(w, http.StatusBadRequest, rpcError(nil, codeServer, "Mcp-Session-Id is missing", nil))
	case !f.sessions.remove(id, principal):
		writeRPC(w, http.StatusNotFound, rpcError(nil, codeSession, "session not found", nil))
	default:
		w.WriteHeader(http.StatusNoContent)
	}
}
