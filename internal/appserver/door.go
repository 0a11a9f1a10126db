package appserver

import (
	"context"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/coder/websocket"

	"mneme/internal/agent"
	"mneme/internal/llm"
	"mneme/internal/memory"
	"mneme/internal/roster"
	"mneme/internal/runtime"
	"mneme/internal/store"
	"mneme/protocol"
)

// PingEvery is how often connections are pinged where Config does not say.
const PingEvery = 30 * time.Second

// Auth checks the credential of a request. *auth.Checker implements it.
type Auth interface {
	Enabled() bool
	// Check returns an error whose text is the reason phrase of the 401 answer.
	Check(r *http.Request) error
}

// Guard holds the Origin and Host rules of the listener. *auth.Guard
// implements it.
type Guard interface {
	OriginOK(r *http.Request) bool
	HostOK(r *http.Request) bool
}

// Config wires a Door. All fields but Logger and PingEvery are required.
type Config struct {
	Runtime *runtime.Manager
	Roster  *roster.Roster
	Store   *store.Store
	Memory  *memory.Memory
	Models  *llm.Catalogue
	Auth    Auth
	Guard   Guard
	Logger  *slog.Logger
	// PingEvery is how often connections are pinged; 0 = PingEvery.
	PingEvery time.Duration
}

// A Door serves the App Server protocol. Its methods Upgrade, Healthz and Info
// are the HTTP handlers of the listener's routes.
type Door struct {
	rt       *runtime.Manager
	roster   *roster.Roster
	store    *store.Store
	memory   *memory.Memory
	models   *llm.Catalogue
	auth     Auth
	guard    Guard
	log      *slog.Logger
	host     string
	commands map[string]handler
	inbound  *inbound
	git      *gitCache
	toolsets []protocol.ToolsetInfo
	// closeGrace is the constant, but in tests.
	closeGrace time.Duration

	quit chan struct{} // ends the pinger
	work sync.WaitGroup

	mu     sync.Mutex // guards the rest; taken before a feed's
	closed bool
	conns  map[*conn]struct{}
	feeds  map[agent.Scope]*feed
	// memories are the subscriptions to memory changes, by agent.
	memories map[string]*memoryFeed
	// watchers hear of every change; leaveChanges ends the door's subscription to
	// them, nil = there is none.
	watchers     map[*conn]bool
	leaveChanges func()
}

// New makes a door. The caller must Close it.
func New(cfg Config) *Door {
	d := &Door{
		rt: cfg.Runtime, roster: cfg.Roster, store: cfg.Store, memory: cfg.Memory, models: cfg.Models,
		auth: cfg.Auth, guard: cfg.Guard, log: cfg.Logger,
		commands:   commands(),
		toolsets:   toolsetInfos(),
		closeGrace: closeGrace,
		inbound:    newInbound(),
		quit:       make(chan struct{}),
		conns:      map[*conn]struct{}{},
		feeds:      map[agent.Scope]*feed{},
		memories:   map[string]*memoryFeed{},
		watchers:   map[*conn]bool{},
	}
	if d.log == nil {
		d.log = slog.New(slog.DiscardHandler)
	}
	d.git = newGitCache(&d.work)
	d.host, _ = os.Hostname() // a label only
	every := cfg.PingEvery
	if every == 0 {
		every = PingEvery
	}
	d.work.Go(func() { d.pinger(every) })
	return d
}

// Close tells the clients that the server goes away (1001) and waits for their
// connections to end; when ctx ends it cuts them off.
func (d *Door) Close(ctx context.Context) error {
	d.mu.Lock()
	if !d.closed {
		d.closed = true
		close(d.quit)
	}
	conns := slices.Collect(maps.Keys(d.conns))
	d.mu.Unlock()
	for _, c := range conns {
		c.cancel(errConnStopping) // handlers give up; the write loop goes on
		c.out.end(closing{code: int(websocket.StatusGoingAway)})
	}
	done := make(chan struct{})
	go func() {
		d.work.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
	}
	for _, c := range conns {
		c.drop()
	}
	<-done
	return context.Cause(ctx)
}

// add starts a connection's goroutines; false once the door is closed.
func (d *Door) add(c *conn) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return false
	}
	d.conns[c] = struct{}{}
	d.work.Go(func() {
		c.run()
		d.mu.Lock()
		delete(d.conns, c)
		d.mu.Unlock()
	})
	return true
}

// pinger asks all connections for a sign of life, with one timer for all.
func (d *Door) pinger(every time.Duration) {
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-d.quit:
			return
		}
		d.mu.Lock()
		conns := slices.Collect(maps.Keys(d.conns))
		d.mu.Unlock()
		for _, c := range conns {
			c.tick()
		}
	}
}

// info says what this server is (spec/app-server-core.md section 2).
func (d *Door) info() *protocol.AppServerInfoResponse {
	return &protocol.AppServerInfoResponse{
		Backend:          "local",
		LettaCodeVersion: compatVersion,
		ProtocolVersion:  1,
		Capabilities: protocol.Capabilities{
			AgentManagement:            true,
			ConversationManagement:     true,
			MemoryManagement:           true,
			RuntimeStart:               true,
			LaunchSubagent:             true,
			RuntimeWorkspaceSandbox:    true,
			RuntimeExternalToolsUpdate: true,
			Mneme:                      extensions(),
		},
	}
}
