package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"mneme/client"
	"mneme/internal/server"
	"mneme/protocol"
)

// dialTimeout bounds the handshake with a server on this machine.
const dialTimeout = 10 * time.Second

// A session is a connection to the state: through the server that holds it, or
// through one that runs inside this process.
type session struct {
	*client.Client
	// own is the server inside this process; nil = another process holds the state.
	own    *server.Server
	holder server.Holder // who else holds it
	stderr io.Writer
	stop   context.CancelFunc
	done   chan error // of own
}

// A command that holds the state may be just ending: then the state is free, or
// somebody else's, in a moment.
const (
	openTries = 20
	openPause = 100 * time.Millisecond
)

// open connects to the state directory of the settings.
func (p *program) open(ctx context.Context, command string) (s *session, err error) {
	for range openTries {
		s, err = p.openOnce(ctx, command)
		var held *server.HeldError
		if !errors.As(err, &held) || ctx.Err() != nil {
			return s, err
		}
		if s, err = p.dialHolder(ctx, held.Holder); err == nil || !passing(held.Holder) {
			return s, err
		}
		time.Sleep(openPause)
	}
	return nil, err
}

// passing says whether a holder is a command, which ends by itself.
func passing(h server.Holder) bool { return h.Command != "serve" && h.Command != "server" }

// openOnce opens the state inside this process; a *server.HeldError says that
// another one has it.
func (p *program) openOnce(ctx context.Context, command string) (*session, error) {
	cfg, err := server.Load(server.Sources{
		Flags: map[string][]string{"listen": {"ws://127.0.0.1:0"}}, Getenv: p.getenv, Command: command,
	})
	if err != nil {
		return nil, err
	}
	cfg.Version, cfg.Log, cfg.Private = version(), p.stderr, true
	srv, err := server.New(ctx, cfg)
	if err != nil {
		return nil, err
	}
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	s := &session{own: srv, stderr: p.stderr, stop: stop, done: make(chan error, 1)}
	go func() { s.done <- srv.Run(run) }()
	if s.Client, err = p.dial(ctx, srv.URL(), srv.Token()); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// dialHolder connects to the server that holds the state.
func (p *program) dialHolder(ctx context.Context, h server.Holder) (*session, error) {
	if h.URL == "" {
		return nil, fmt.Errorf("another mneme (pid %d) holds the state but does not listen yet; try again in a moment", h.PID)
	}
	token, err := holderToken(h)
	if env := strings.TrimSpace(p.getenv("MNEME_TOKEN")); token == "" && env != "" {
		token, err = env, nil
	}
	if err != nil {
		return nil, fmt.Errorf("the token of the running server (pid %d) cannot be read: %w", h.PID, err)
	}
	if token == "" && h.Auth {
		return nil, fmt.Errorf("the running server (pid %d) wants a token: set MNEME_TOKEN", h.PID)
	}
	c, err := p.dial(ctx, reachable(h.URL), token)
	if err != nil {
		return nil, fmt.Errorf("the running server (pid %d): %w", h.PID, err)
	}
	return &session{Client: c, holder: h}, nil
}

// holderToken reads the token that the holder's lock points to; "" = it names none.
func holderToken(h server.Holder) (string, error) {
	if h.TokenFile == "" {
		return "", nil
	}
	text, err := os.ReadFile(h.TokenFile)
	return strings.TrimSpace(string(text)), err
}

func (p *program) dial(ctx context.Context, addr, token string) (*client.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	v := version()
	return client.Dial(ctx, addr, client.Options{
		Token: token, ClientInfo: &protocol.ClientInfo{Name: "mneme", Version: &v},
	})
}

// reachable turns the address of a listener on all interfaces into one that can
// be dialled.
func reachable(addr string) string {
	u, err := url.Parse(addr)
	if err != nil {
		return addr
	}
	if ip := net.ParseIP(u.Hostname()); ip != nil && ip.IsUnspecified() {
		host := "127.0.0.1"
		if ip.To4() == nil {
			host = "::1"
		}
		u.Host = net.JoinHostPort(host, u.Port())
	}
	return u.String()
}

// close ends the connection and the server inside this process. Another command
// that is at work through this server is waited for, until Ctrl-C.
func (s *session) close() error {
	var errs []error
	if s.Client != nil {
		errs = append(errs, s.Client.Close())
	}
	if s.own != nil {
		wait, done := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		notice := time.AfterFunc(noticeAfter, func() {
			say(s.stderr, "Waiting for another mneme command that is at work through this one; Ctrl-C stops it.")
		})
		s.own.WaitGuests(wait)
		notice.Stop()
		done()
		s.stop()
		errs = append(errs, <-s.done)
	}
	return errors.Join(errs...)
}

// noticeAfter is how long close waits without a word.
const noticeAfter = 2 * time.Second
