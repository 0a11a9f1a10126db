// Package rest is the Letta REST door: the HTTP API of spec/rest.md, on the same
// roster, runtime, store and memory as the other doors.
//
// One file per resource. It holds the resource's route table, its wire structs
// and the handlers, and one function that renders a domain value:
//
//	route table ─► router ─► handler(d, w, r) error ─► writeJSON | writeError
//
// A handler reads what it was sent, asks roster, runtime or store, and writes
// the answer; an error that it returns is written once, by writeError (errors.go),
// which alone knows what status and body an error has. So handlers return the
// *agent.Error values of the other packages as they are, or one of the *httpError
// values that spec/rest.md section 2.6 wants to look special.
//
// What handlers read with (decode.go, query.go, path.go):
//
//   - decodeBody[T] and decodeOptional[T] read a JSON body; a wrong one is 422 with
//     the path of the field. A field of type optional[T] tells absent, null and a
//     value apart, as PATCH needs.
//   - decodeQuery[T] fills a struct from the query by its `query` tags. Embed
//     paging for the lists' common parameters.
//   - d.agent(r) and d.conversation… look up what the path names: 404 for an
//     unknown id, 422 for a malformed one.
//
// Answers hold every field: pointers without omitempty are null, lists are never
// nil. Type stamp prints times; messageDate prints the date of messages.
//
// The structs that a route reads and writes are named in its table too, where
// /openapi.json is generated from (openapi.go).
package rest

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"mneme/internal/llm"
	"mneme/internal/memory"
	"mneme/internal/roster"
	"mneme/internal/runtime"
	"mneme/internal/store"
)

// Auth checks the credential of a request. *auth.Checker implements it.
type Auth interface {
	// Check checks the Authorization header.
	Check(r *http.Request) error
	// CheckToken checks a token that came in another header.
	CheckToken(token string) error
}

// Config wires a Door. Runtime, Roster, Store, Memory, Models, Auth,
// Tools and Sealer are required.
type Config struct {
	Runtime *runtime.Manager
	Roster  *roster.Roster
	Store   *store.Store
	Memory  *memory.Memory
	Models  *llm.Catalogue
	Auth    Auth
	// Tools are the tools that agents can be given.
	Tools Toolbox
	// Sealer keeps the secrets of agents.
	Sealer  Sealer
	Logger  *slog.Logger // nil = none
	Version string       // of mneme
	// System is the system text of agents that are made without one.
	System string
	// Retention is how long the events of background runs are kept after their
	// run was made; 0 = DefaultRetention.
	Retention time.Duration
	// AllowPrivate lets callbacks and images come from and go to private
	// addresses.
	AllowPrivate bool
}

// DefaultRetention is how long a background run can be resumed
// (spec/rest.md section 6.1).
const DefaultRetention = 3 * time.Hour

// A Door answers /v1/* and /openapi.json. It checks the credential itself;
// Origin and Host are the listener's business. Make it with New, Close it at the
// end.
type Door struct {
	rt      *runtime.Manager
	roster  *roster.Roster
	store   *store.Store
	memory  *memory.Memory
	models  *llm.Catalogue
	auth    Auth
	tools   Toolbox
	sealer  Sealer
	log     *slog.Logger
	version string
	system  string // of agents that are made without one

	retention time.Duration

	router *router
	bodies *semaphore.Weighted // bytes of large request bodies in memory
	places *places             // where lists were left
	// outbound fetches images and sends callbacks.
	outbound *outbound

	life context.Context // ends with Close: background jobs and waiting handlers
	stop context.CancelFunc
	work sync.WaitGroup // what Close waits for
}

// New makes a door. The caller must Close it.
func New(cfg Config) *Door {
	d := &Door{
		rt: cfg.Runtime, roster: cfg.Roster, store: cfg.Store, memory: cfg.Memory, models: cfg.Models,
		auth: cfg.Auth, tools: cfg.Tools, sealer: cfg.Sealer, log: cfg.Logger, version: cfg.Version, system: cfg.System,
		retention: cfg.Retention,
		router:    newRouter(tables()...),
		bodies:    semaphore.NewWeighted(bodyBudget),
		places:    newPlaces(),
	}
	if d.log == nil {
		d.log = slog.New(slog.DiscardHandler)
	}
	if d.retention == 0 {
		d.retention = DefaultRetention
	}
	d.outbound = newOutbound(cfg.AllowPrivate)
	d.life, d.stop = context.WithCancel(context.Background())
	return d
}

// Close ends the background work and the streams that are open, and waits for
// the work until ctx ends. Requests must not come any more.
func (d *Door) Close(ctx context.Context) error {
	d.stop()
	defer d.outbound.close()
	done := make(chan struct{})
	go func() { d.work.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// tables are the route tables of all resources.
func tables() [][]route {
	return [][]route{
		healthRoutes,
		agentRoutes,
		blockRoutes,
		conversationRoutes,
		messageRoutes,
		sendRoutes,
		resumeRoutes,
		runRoutes,
		stepRoutes,
		cancelRoutes,
		compactRoutes,
		searchRoutes,
		modelRoutes,
		environmentRoutes,
		openapiRoutes,
		lackRoutes(),
	}
}
