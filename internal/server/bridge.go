package server

import (
	"context"
	"errors"
	"io"
	"log/slog"

	"mneme/internal/mcpserver"
)

// A Bridge is an MCP server in front of an App Server that runs elsewhere: what
// `mneme mcp` is. Make it with NewBridge and call one of its methods, once.
type Bridge struct {
	cfg     *mcpserver.Config
	log     *slog.Logger
	backend *mcpserver.Bridge
	server  *mcpserver.Server
	door    *mcpDoor // nil = no listener
}

// A BridgeConfig says what NewBridge makes.
type BridgeConfig struct {
	Getenv   func(string) string
	Version  string
	Log      io.Writer // gets the log; nil = nobody
	LogLevel string    // debug, info, warn or error; "" = warn
	// Stdio serves one client over a pair of streams: then no token is needed and
	// no port opened.
	Stdio bool
	// URL and Token are of the App Server where the environment names none.
	URL, Token string
}

// NewBridge reads the settings and binds the listener. The error is one sentence
// for people; without a token no port is opened.
func NewBridge(b BridgeConfig) (*Bridge, error) {
	load := mcpserver.LoadConfig
	if b.Stdio {
		load = mcpserver.LoadStdioConfig
	}
	cfg, err := load(b.Getenv)
	if err != nil {
		return nil, err
	}
	if cfg.ServerURL == "" {
		cfg.ServerURL, cfg.ServerToken = b.URL, b.Token
	}
	s := &Bridge{cfg: cfg, log: newLogger(&Config{Log: b.Log, LogLevel: b.LogLevel})}
	if !b.Stdio {
		if s.door, err = openMCP(cfg); err != nil {
			return nil, err
		}
	}
	s.backend = mcpserver.NewBridge(cfg, b.Version, s.log)
	s.server = mcpserver.New(cfg, s.backend, mcpserver.Options{Version: b.Version, Logger: s.log})
	if s.door != nil {
		s.door.server = s.server
	}
	return s, nil
}

// URL is the address of the endpoint.
func (b *Bridge) URL() string { return b.door.url() }

// Serves names the App Server behind the bridge; "" = none is configured.
func (b *Bridge) Serves() string { return b.backend.Info(context.Background()).URL }

// Run serves HTTP until ctx ends; then calls that run have until the time for
// draining is over.
func (b *Bridge) Run(ctx context.Context) error {
	broken := make(chan error, 1)
	b.door.serve(func(err error) { broken <- err })
	var err error
	select {
	case <-ctx.Done():
	case err = <-broken:
	}
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), bridgeDrain)
	defer cancel()
	return errors.Join(err, b.door.drain(drain), b.backend.Close())
}

// Stdio serves one client until it closes its end or ctx ends.
func (b *Bridge) Stdio(ctx context.Context, in io.ReadCloser, out io.WriteCloser) error {
	err := b.server.Stdio(ctx, in, out)
	b.server.Close()
	return errors.Join(err, b.backend.Close())
}
