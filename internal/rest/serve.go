package rest

import (
	"context"
	"errors"
	"net/http"
	"regexp"
	"runtime/debug"
	"strings"

	"mneme/internal/agent"
)

// requestIDs are the ids of requests that are taken over from the client.
var requestIDs = regexp.MustCompile(`^[A-Za-z0-9._:-]{1,128}$`)

// ServeHTTP finds the route of a request, checks the credential and runs the
// handler. Every answer has an X-Request-Id.
func (d *Door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id := r.Header.Get("X-Request-Id")
	if !requestIDs.MatchString(id) {
		id = agent.NewID("req")
	}
	w.Header().Set("X-Request-Id", id)
	if r.Header.Get("Origin") != "" {
		w.Header().Set("Access-Control-Expose-Headers", "X-Request-Id, x-should-retry, Retry-After")
	}
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		if p == http.ErrAbortHandler { //nolint:errorlint // it is compared, as net/http does
			panic(p)
		}
		d.log.Error("panic in a request", "request", id, "method", r.Method, "path", r.URL.Path, "panic", p, "stack", string(debug.Stack()))
		d.writeError(w, r, errors.New("panic"))
	}()
	if isPreflight(r) {
		preflight(w, r)
		return
	}
	if err := d.serve(w, r); err != nil {
		d.writeError(w, r, err)
	}
}

func (d *Door) serve(w http.ResponseWriter, r *http.Request) error {
	rt, allow := d.router.find(r)
	if rt == nil || !rt.doc.open {
		// Who has no credential does not hear what there is.
		if !d.allowed(r) {
			return &httpError{Status: http.StatusUnauthorized, Body: detail{"Unauthorized"}}
		}
	}
	switch {
	case rt == nil && len(allow) == 0:
		return &httpError{Status: http.StatusNotFound, Body: detail{"Not Found"}}
	case rt == nil:
		w.Header().Set("Allow", strings.Join(allow, ", "))
		return &httpError{Status: http.StatusMethodNotAllowed, Body: detail{"Method Not Allowed"}}
	}
	if user := r.Header.Get("user_id"); user != "" && !isID("user", user) {
		return badRequest("Invalid user_id header: %q is not user-<uuid4>", user)
	}
	if rt.serve == nil {
		return notBuilt(rt)
	}
	return rt.serve(d, w, r)
}

// barePrefix precedes the token in the header X-BARE-PASSWORD.
const barePrefix = "password "

// allowed checks the credential of a request, in either header
// (spec/rest.md section 2.1).
func (d *Door) allowed(r *http.Request) bool {
	if token, ok := strings.CutPrefix(r.Header.Get("X-BARE-PASSWORD"), barePrefix); ok && d.auth.CheckToken(token) == nil {
		return true
	}
	return d.auth.Check(r) == nil
}

// isPreflight says that a browser asks whether it may send a request.
func isPreflight(r *http.Request) bool {
	return r.Method == http.MethodOptions && r.Header.Get("Origin") != "" && r.Header.Get("Access-Control-Request-Method") != ""
}

// preflight allows all methods and headers. That the origin may ask at all the
// listener says, with Access-Control-Allow-Origin.
func preflight(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Access-Control-Allow-Methods", "GET, POST, PUT, PATCH, DELETE, OPTIONS")
	if headers := r.Header.Get("Access-Control-Request-Headers"); headers != "" {
		h.Set("Access-Control-Allow-Headers", headers)
	}
	h.Set("Access-Control-Max-Age", "600")
	h.Add("Vary", "Access-Control-Request-Headers")
	w.WriteHeader(http.StatusNoContent)
}

// gone says that the client has left, so that nobody reads an answer.
func gone(r *http.Request, err error) bool {
	return r.Context().Err() != nil && errors.Is(err, context.Canceled)
}
