// Package server builds a whole mneme from its settings and runs it: state lock,
// store, memory, models, tools, runtime, roster, doors and the one listener.
//
//	Load(settings) ─► New: check, lock, bind, open, wire ─► Run: serve … drain
//
// New fails before it touches anything that a wrong setting could spoil: flags,
// credentials and the git program come first, then the lock of the state
// directory, then the port, then the database. When it returns, the first
// request would be answered; nothing that takes time (asking providers, taking
// up unfinished turns) is waited for.
//
// Run serves until its context ends. Then, within the drain time: no new
// connections and no new turns; running steps end or are left in the journal for
// the next start; clients hear 1001; what agents left running is killed; the
// database is closed; the lock goes last.
//
// Settings are read from flags, environment and config.yaml (config.go). The
// route table of the listener is routes.go. The lock is lock.go.
package server

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"mneme/internal/agent"
	"mneme/internal/auth"
	"mneme/internal/llm"
)

// Limits of the listener.
const (
	headerTimeout = 10 * time.Second // from accept to the end of the header
	idleTimeout   = 2 * time.Minute  // between two requests
	maxHeader     = 64 << 10         // bytes
	// tokenFile holds the token of a private server while it runs.
	tokenFile = "lock.token"
	// doorShare is how much of the drain time is kept for telling the clients.
	doorShare = 2 * time.Second
)

// A Server is a mneme with its doors. Make it with New; call Run once.
type Server struct {
	cfg   *Config
	log   *slog.Logger
	auth  *auth.Checker
	lock  *Lock
	ln    net.Listener
	http  *http.Server
	parts *parts
	token string // of a private server
	// guests counts the connections of a private server; nil for others.
	guests *countingListener
	asked  sync.WaitGroup
	mcp    *mcpDoor // nil = off
}

// New builds a server whose listener is bound. On failure nothing is left
// behind. The error is one sentence for people; *HeldError says that another
// process holds the state.
func New(ctx context.Context, cfg *Config) (_ *Server, err error) {
	s := &Server{cfg: cfg, log: newLogger(cfg)}
	if cfg.Private {
		s.token = rand.Text()
		cfg.Auth = auth.Options{Token: s.token}
	}
	if s.auth, err = auth.New(cfg.Auth); err != nil {
		return nil, err
	}
	if err := s.auth.RequireFor(cfg.Listen.Host, cfg.Listen.Port); err != nil {
		return nil, err
	}
	guard, err := auth.NewGuard(cfg.AllowOrigin, cfg.AllowHost, auth.IsLoopback(cfg.Listen.Host))
	if err != nil {
		return nil, err
	}
	if _, err := exec.LookPath("git"); err != nil {
		return nil, errors.New("the git program was not found in PATH; mneme keeps the memory of agents in git repositories, so install git and start again")
	}
	if err := os.MkdirAll(cfg.Home, 0o700); err != nil {
		return nil, fmt.Errorf("create the state directory: %w", err)
	}
	holder := Holder{PID: os.Getpid(), Auth: s.auth.Enabled(), TokenFile: s.auth.File(), Command: cfg.Command}
	if s.lock, err = AcquireLock(cfg.Home, holder); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.close() //nolint:errcheck // err says more
		}
	}()
	if cfg.Private {
		holder.TokenFile = filepath.Join(cfg.Home, tokenFile)
		if err := writePrivate(holder.TokenFile, s.token); err != nil {
			return nil, err
		}
	}
	if s.ln, err = cfg.Listen.open(); err != nil {
		return nil, err
	}
	if cfg.Private {
		s.guests = &countingListener{Listener: s.ln}
		s.ln = s.guests
	}
	if cfg.MCP != nil {
		if s.mcp, err = openMCP(cfg.MCP); err != nil {
			return nil, err
		}
	}
	if s.parts, err = build(ctx, cfg, s.auth, guard, s.log); err != nil {
		return nil, err
	}
	if s.mcp != nil {
		s.mcp.build(cfg.MCP, s.parts, s.URL(), cfg.Version, s.log)
	}
	s.http = &http.Server{
		Handler: &routes{
			socket: cfg.Listen.Path, guard: guard, auth: s.auth, app: s.parts.door, openAI: cfg.OpenAI, rest: s.parts.restHandler(),
		},
		ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelWarn),
	}
	holder.URL = s.URL()
	if err := s.lock.Announce(holder); err != nil {
		return nil, err
	}
	return s, nil
}

// newLogger writes text lines to cfg.Log.
func newLogger(cfg *Config) *slog.Logger {
	if cfg.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	var level slog.Level
	if err := level.UnmarshalText([]byte(cfg.LogLevel)); err != nil {
		level = slog.LevelWarn // Load has checked it
	}
	return slog.New(slog.NewTextHandler(cfg.Log, &slog.HandlerOptions{Level: level}))
}

// URL is the address of the WebSocket.
func (s *Server) URL() string { return s.cfg.Listen.Socket(s.ln) }

// Token is the token of a private server; "" for others.
func (s *Server) Token() string { return s.token }

// REST says whether the REST door is on.
func (s *Server) REST() bool { return s.cfg.REST }

// OpenAI says whether the OpenAI-compatible API is announced.
func (s *Server) OpenAI() bool { return s.cfg.OpenAI }

// WhenModelKnown calls tell with one line about the model that answers by
// default, as soon as the providers were asked. It does not wait; tell is never
// called after Run has returned.
func (s *Server) WhenModelKnown(tell func(string)) {
	s.asked.Go(func() {
		handle, err := s.parts.models.Default(s.parts.life)
		switch {
		case s.parts.life.Err() != nil:
		case err != nil:
			tell(err.Error())
		case handle == llm.OfflineHandle:
			tell(handle + " (no provider is connected or found: `mneme connect` lists what there is)")
		default:
			tell(handle)
		}
	})
}

// Lines are the lines that a start prints on stdout, and nothing else
// (spec/app-server-core.md section 1.1).
func (s *Server) Lines() []string {
	lines := []string{"Listening on " + s.cfg.Listen.Typed, "WebSocket: " + s.URL()}
	if s.cfg.OpenAI {
		lines = append(lines, "OpenAI:  "+s.cfg.Listen.base("http", s.ln)+"/v1")
	}
	return lines
}

// ModeText says which permission mode holds, and what it means.
func (s *Server) ModeText() string {
	means := map[agent.Mode]string{
		agent.ModeStandard:     "reading is free, changes and commands are asked for",
		agent.ModeAcceptEdits:  "files may be changed, commands are asked for",
		agent.ModeUnrestricted: "everything runs without asking",
		agent.ModeStrict:       "everything is asked for",
	}
	return fmt.Sprintf("%s (%s)", s.cfg.Mode, means[s.cfg.Mode])
}

// Run takes up what was unfinished and serves until ctx ends, then drains. An
// error means that the listener broke or that something could not be closed.
func (s *Server) Run(ctx context.Context) error {
	served := make(chan error, 1)
	go func() { served <- s.http.Serve(s.ln) }()
	broken := make(chan error, 1)
	if s.mcp != nil {
		s.mcp.serve(func(err error) { broken <- err })
	}
	s.asked.Go(func() { s.giveBack(s.parts.life) })
	s.asked.Go(func() { s.parts.roster.Serve(s.parts.life) })
	err := s.parts.runtime.Recover(context.WithoutCancel(ctx))
	if err == nil {
		select {
		case <-ctx.Done():
		case err = <-served:
			served <- err
		case err = <-broken:
		}
	}
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.Drain)
	defer cancel()
	s.drain(drain)
	if e := <-served; err == nil && !errors.Is(e, http.ErrServerClosed) && !errors.Is(e, net.ErrClosed) {
		err = e
	}
	return errors.Join(err, s.close())
}

// drain stops taking work, lets what runs come to rest and tells the clients.
func (s *Server) drain(ctx context.Context) {
	s.ln.Close() // Serve reports it
	var mcp sync.WaitGroup
	if s.mcp != nil {
		// Its questions end with their steps, or else shortly before all else.
		calls, cancel := context.WithTimeout(ctx, max(s.cfg.Drain-doorShare, s.cfg.Drain/2))
		defer cancel()
		mcp.Go(func() {
			if err := s.mcp.drain(calls); err != nil {
				s.log.Warn("the MCP listener broke", "err", err)
			}
		})
	}
	// Steps that run may end; the doors still deliver what they say.
	steps, cancel := context.WithTimeout(ctx, max(s.cfg.Drain-doorShare, s.cfg.Drain/2))
	if err := s.parts.runtime.Close(steps); err != nil {
		s.log.Warn("runtime did not come to rest", "err", err)
	}
	cancel()
	mcp.Wait()
	if err := s.parts.door.Close(ctx); err != nil {
		s.log.Debug("connections were cut off", "err", err)
	}
	if s.parts.rest != nil {
		if err := s.parts.rest.Close(ctx); err != nil {
			s.log.Debug("callbacks were cut off", "err", err)
		}
	}
	if err := s.http.Shutdown(ctx); err != nil {
		s.http.Close() //nolint:errcheck // nothing is left to be done about it
	}
}

// close gives back what New took, in reverse order.
func (s *Server) close() error {
	var errs []error
	if s.mcp != nil {
		s.mcp.close()
	}
	if s.parts != nil {
		s.parts.ended()
		s.asked.Wait()
		errs = append(errs, s.parts.close())
	}
	if s.ln != nil {
		if err := s.ln.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	if s.lock != nil {
		if s.cfg.Private {
			errs = append(errs, os.Remove(filepath.Join(s.cfg.Home, tokenFile)))
		}
		errs = append(errs, s.lock.Release())
	}
	return errors.Join(errs...)
}
