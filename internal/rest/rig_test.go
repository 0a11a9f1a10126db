package rest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"mneme/internal/auth"
	"mneme/internal/llm"
	"mneme/internal/llm/fake"
	"mneme/internal/rest"
	"mneme/internal/store/storetest"
	"mneme/internal/transcript"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(tests{m}) }

// tests stop the PostgreSQL that some of them use.
type tests struct{ *testing.M }

// Run runs the tests.
func (t tests) Run() int { return storetest.Main(t.M) }

// systemText is the system text of agents that are made without one.
const systemText = "You remember."

// A rig is a whole server in this process, with the REST and the App Server door,
// on a database in memory and a scripted model.
type rig struct {
	*transcript.Server
	t    testing.TB
	Door *rest.Door
	url  string
	http *http.Client
	// header is sent with every request.
	header http.Header
}

// start starts a server whose model plays the answers. change may change the
// configuration of the REST door.
func start(t testing.TB, model llm.Model, change ...func(*rest.Config)) *rig {
	t.Helper()
	return startWith(t, model, transcript.Options{}, change...)
}

func startWith(t testing.TB, model llm.Model, o transcript.Options, change ...func(*rest.Config)) *rig {
	t.Helper()
	if model == nil {
		model = fake.New()
	}
	if strings.HasPrefix(t.Name(), onPostgres) {
		o.Database = storetest.Postgres(t)
	}
	s := transcript.Start(t, model, o)
	checker, err := auth.New(o.Auth)
	if err != nil {
		t.Fatal(err)
	}
	sealer, err := auth.NewSealer(bytes.Repeat([]byte{7}, 32))
	if err != nil {
		t.Fatal(err)
	}
	cfg := rest.Config{
		Runtime: s.Runtime, Roster: s.Roster, Store: s.Store, Memory: s.Memory, Models: s.Models,
		Auth: checker, Tools: s.Tools, Sealer: sealer, Logger: o.Logger, Version: "1.2.3", System: systemText,
	}
	for _, f := range change {
		f(&cfg)
	}
	d := rest.New(cfg)
	server := httptest.NewServer(d)
	r := &rig{Server: s, t: t, Door: d, url: server.URL, http: server.Client(), header: http.Header{}}
	t.Cleanup(func() { // before the server below it is closed
		ctx, cancel := context.WithTimeout(context.Background(), transcript.Patience)
		defer cancel()
		if err := d.Close(ctx); err != nil {
			t.Errorf("close the REST door: %v", err)
		}
		server.Close()
	})
	return r
}

// A response is an answer that was read to its end.
type response struct {
	t      testing.TB
	rig    *rig
	what   string
	Status int
	Header http.Header
	Body   []byte
}

// do sends a request. A body that is no string is encoded as JSON; nil = none.
func (r *rig) do(method, path string, body any) *response {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), transcript.Patience)
	defer cancel()
	resp, err := r.http.Do(r.request(ctx, method, path, body))
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return &response{t: r.t, rig: r, what: method + " " + path, Status: resp.StatusCode, Header: resp.Header, Body: data}
}

func (r *rig) request(ctx context.Context, method, path string, body any) *http.Request {
	r.t.Helper()
	var in io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		in = strings.NewReader(b)
	default:
		data, err := json.Marshal(b)
		if err != nil {
			r.t.Fatal(err)
		}
		in = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, r.url+path, in)
	if err != nil {
		r.t.Fatal(err)
	}
	for name, values := range r.header {
		req.Header[name] = values
	}
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	return req
}

// want checks the status and, if text is given, that the body holds it.
func (a *response) want(status int, text ...string) *response {
	a.t.Helper()
	if a.Status != status {
		a.t.Fatalf("%s: status %d, want %d: %s", a.what, a.Status, status, a.Body)
	}
	for _, s := range text {
		if !strings.Contains(string(a.Body), s) {
			a.t.Fatalf("%s: the answer lacks %q: %s", a.what, s, a.Body)
		}
	}
	return a
}

// into decodes the body.
func (a *response) into(v any) *response {
	a.t.Helper()
	if err := json.Unmarshal(a.Body, v); err != nil {
		a.t.Fatalf("%s: %v: %s", a.what, err, a.Body)
	}
	return a
}

// object is the body as an object.
func (a *response) object() map[string]any {
	a.t.Helper()
	var m map[string]any
	a.want(http.StatusOK).into(&m)
	return m
}

// list is the body as a list of objects.
func (a *response) list() []map[string]any {
	a.t.Helper()
	var l []map[string]any
	a.want(http.StatusOK).into(&l)
	if l == nil {
		a.t.Fatalf("%s: null, want a list", a.what)
	}
	return l
}

// get, post, patch and remove send a request that must succeed.
func (r *rig) get(path string) map[string]any {
	r.t.Helper()
	return r.do("GET", path, nil).object()
}

func (r *rig) post(path string, body any) map[string]any {
	r.t.Helper()
	return r.do("POST", path, body).object()
}

func (r *rig) patch(path string, body any) map[string]any {
	r.t.Helper()
	return r.do("PATCH", path, body).object()
}

// agent makes an agent and returns its id.
func (r *rig) agent(body map[string]any) string {
	r.t.Helper()
	if body == nil {
		body = map[string]any{"include_base_tools": false}
	}
	return text(r.post("/v1/agents/", body)["id"])
}

// conversation makes a conversation of an agent and returns its id.
func (r *rig) conversation(agentID string) string {
	r.t.Helper()
	return text(r.post("/v1/conversations/?agent_id="+agentID, nil)["id"])
}

func text(v any) string {
	s, _ := v.(string)
	return s
}

// ids are the ids of the objects of a list.
func ids(list []map[string]any) []string {
	out := []string{}
	for _, v := range list {
		out = append(out, text(v["id"]))
	}
	return out
}

// fixture reads a file of testdata.
func fixture(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// waitFor waits until what must happen has happened. It measures nothing.
func waitFor(t testing.TB, what string, done func() bool) {
	t.Helper()
	deadline := time.Now().Add(transcript.Patience)
	for !done() {
		if time.Now().After(deadline) {
			t.Fatal("waited in vain: " + what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}
