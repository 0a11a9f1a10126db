package mcpserver

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// instructions are what a client's model reads about the server (at most 1200
// characters).
const instructions = `These tools give you agents with lasting memory.

Begin with agent_lookup to find the agent to use, and keep its id: every other tool takes it as agent_id. If there is none, make one with agent_create.

- memory_search finds passages in the agent's memory; you reason about them. Use it before you say that you do not know.
- session_ask lets the agent itself think and answer. It is slower and changes nothing.
- memory_save files one fact, word for word. Saving the same again is harmless. Save what should outlive this conversation: decisions, preferences, corrections.
- memory_get shows the core memory in full; memory_delete removes exactly one thing.

Answers are {"ok":true,"data":...} or {"ok":false,"error":{"code","message"}}. On invalid_request correct the arguments and call again; on agent_ambiguous use an id; on bridge_unreachable call bridge_health.`

// Options are what a Server is told besides its Config.
type Options struct {
	Version string       // of mneme
	Logger  *slog.Logger // nil = silent
	// ListChanged announces that tools and prompts may come and go. Ours do not;
	// it is for programs that add their own by [Server.MCP].
	ListChanged bool
}

// A Server is an MCP server over a Backend. Make it with New and close it.
type Server struct {
	cfg     *Config
	backend Backend
	log     *slog.Logger
	mcp     *mcp.Server
	front   *front

	states   *states
	asks     asks
	subs     *subscriptions
	indexing chan struct{} // held while an index of saved items is written
	rank     map[string]int

	http *http.Server

	life  context.Context // ends when closing begins
	end   context.CancelCauseFunc
	late  context.Context // ends when calls must end
	cut   context.CancelCauseFunc
	calls counter // requests that run, but for those that only listen
	work  counter // goroutines of ours
	stop  func()  // of the backend's watch
	once  sync.Once
}

// New makes a Server. The Backend stays the caller's, to be closed after it.
func New(cfg *Config, b Backend, o Options) *Server {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Server{
		cfg: cfg, backend: b, log: o.Logger, states: newStates(), asks: asks{held: map[string]*ask{}},
		subs: newSubscriptions(), indexing: make(chan struct{}, 1), rank: map[string]int{},
	}
	s.life, s.end = context.WithCancelCause(context.Background())
	s.late, s.cut = context.WithCancelCause(context.Background())
	s.mcp = mcp.NewServer(&mcp.Implementation{Name: "mneme", Title: "mneme", Version: o.Version}, &mcp.ServerOptions{
		Instructions: instructions, PageSize: pageSize,
		// The SDK tells of every request; that is for looking very closely.
		Logger:            slog.New(lower{o.Logger.Handler()}),
		CompletionHandler: s.complete,
		SubscribeHandler:  s.subs.subscribe, UnsubscribeHandler: s.subs.unsubscribe,
		SetCacheable: func(_ context.Context, req mcp.Request, c *mcp.Cacheable) { *c = cacheable(req) },
		Capabilities: &mcp.ServerCapabilities{
			Logging: &mcp.LoggingCapabilities{}, Completions: &mcp.CompletionCapabilities{},
			Tools: &mcp.ToolCapabilities{ListChanged: o.ListChanged}, Prompts: &mcp.PromptCapabilities{ListChanged: o.ListChanged},
			Resources: &mcp.ResourceCapabilities{Subscribe: true, ListChanged: true},
		},
	})
	for i, t := range tools(cfg) {
		s.mcp.AddTool(t.definition(), s.handler(t))
		s.rank[t.name] = i
	}
	s.addResources()
	s.addPrompts()
	s.mcp.AddReceivingMiddleware(s.receive)
	s.front = newFront(s)
	s.http = &http.Server{
		Handler: s.front, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		ErrorLog: slog.NewLogLogger(o.Logger.Handler(), slog.LevelWarn),
	}
	s.stop = b.Watch(s.subs.put)
	s.work.run(s.tellChanges)
	s.work.run(s.front.sessions.watch)
	return s
}

// MCP is the SDK's server, for tests that add features of their own.
func (s *Server) MCP() *mcp.Server { return s.mcp }

// Handler serves HTTP: /mcp, /healthz and, with OAuth, its metadata.
func (s *Server) Handler() http.Handler { return s.front }

// Limits of the listener.
const (
	headerTimeout = 10 * time.Second
	idleTimeout   = 2 * time.Minute
	maxHeader     = 64 << 10
)

// Serve serves HTTP on a listener until Shutdown or Close. It is called once.
func (s *Server) Serve(ln net.Listener) error {
	err := s.http.Serve(ln)
	if errors.Is(err, http.ErrServerClosed) || errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// Shutdown takes no new requests, ends streams that only listen, lets calls that
// run come to their end until ctx ends, and closes the Server.
func (s *Server) Shutdown(ctx context.Context) {
	s.end(errStopping)
	idle := make(chan struct{})
	go func() {
		defer close(idle)
		s.calls.wait()
	}()
	select {
	case <-idle:
	case <-ctx.Done():
	}
	s.Close()
	<-idle
	if err := s.http.Shutdown(ctx); err != nil {
		s.http.Close() //nolint:errcheck // nothing is left to be done about it
	}
}

// Close ends all calls and sessions at once and waits for them. It leaves
// connections that Serve has accepted to Shutdown.
func (s *Server) Close() {
	s.once.Do(func() {
		s.end(errStopping)
		s.cut(errStopping)
		s.stop()
		s.front.sessions.closeAll()
		s.asks.forget()
	})
	s.work.wait()
}

// receive wraps every request of the protocol.
func (s *Server) receive(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (result mcp.Result, err error) {
		defer func() {
			if p := recover(); p != nil {
				ref := reference()
				s.log.Error("request panicked", "method", method, "reference", ref, "panic", p, "stack", string(debug.Stack()))
				result, err = nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "internal error (reference " + ref + ")"}
			}
		}()
		ends := s.late
		if method == "subscriptions/listen" {
			ends = s.life
		} else {
			s.calls.add(1)
			defer s.calls.add(-1)
		}
		ctx, cancel := s.bind(ctx, ends)
		defer cancel()
		switch r := req.(type) {
		case *mcp.ListResourcesRequest:
			return s.listing(ctx, next, r)
		case *mcp.ReadResourceRequest:
			return s.reading(ctx, next, r)
		}
		result, err = next(ctx, method, req)
		if err != nil {
			return nil, err
		}
		switch r := result.(type) {
		case *mcp.ListToolsResult:
			s.sortTools(r.Tools)
		case *mcp.InitializeResult:
			if ss, ok := req.GetSession().(*mcp.ServerSession); ok {
				s.front.sessions.begun(ctx, ss, r.ProtocolVersion)
			}
		}
		return result, nil
	}
}

// bind ties a request to what it ends with, and to the life of its session.
func (s *Server) bind(ctx, ends context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stops := []func() bool{context.AfterFunc(ends, func() { cancel(context.Cause(ends)) })}
	if sess := sessionOf(ctx); sess != nil {
		stops = append(stops, context.AfterFunc(sess.life, func() { cancel(context.Cause(sess.life)) }))
	}
	return ctx, func() {
		for _, stop := range stops {
			stop()
		}
		cancel(nil)
	}
}

// sortTools puts ours in their order, before those of others.
func (s *Server) sortTools(list []*mcp.Tool) {
	place := func(t *mcp.Tool) int {
		if i, ours := s.rank[t.Name]; ours {
			return i
		}
		return len(s.rank)
	}
	slices.SortStableFunc(list, func(a, b *mcp.Tool) int { return place(a) - place(b) })
}

// cacheable says how long an answer may be kept (spec/mcp.md section 1.3).
func cacheable(req mcp.Request) mcp.Cacheable {
	const hour = 3_600_000
	switch req.(type) {
	case *mcp.ListResourcesRequest, *mcp.ListResourceTemplatesRequest, *mcp.ReadResourceRequest:
		return mcp.Cacheable{CacheScope: "private"}
	}
	return mcp.Cacheable{TTLMs: hour, CacheScope: "public"}
}

// lower is a log handler that makes everything but errors debug messages.
type lower struct{ slog.Handler }

func (l lower) Enabled(ctx context.Context, level slog.Level) bool {
	return l.Handler.Enabled(ctx, lowered(level))
}

func (l lower) Handle(ctx context.Context, r slog.Record) error {
	r.Level = lowered(r.Level)
	r.Message = "mcp: " + strings.TrimSpace(r.Message)
	return l.Handler.Handle(ctx, r)
}

func (l lower) WithAttrs(attrs []slog.Attr) slog.Handler { return lower{l.Handler.WithAttrs(attrs)} }

func (l lower) WithGroup(name string) slog.Handler { return lower{l.Handler.WithGroup(name)} }

func lowered(level slog.Level) slog.Level { return slog.LevelDebug }
