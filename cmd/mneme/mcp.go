package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"mneme/internal/server"
)

// mcpCommand serves MCP tools over an App Server that runs elsewhere; the one in
// the same process is `mneme serve`.
type mcpCommand struct {
	Stdio bool `help:"Serve one client over standard input and output, without a token. Where LETTA_APP_SERVER_URL is not set, the agents of this machine are served."`
}

// Help implements kong's interface for the long text.
func (mcpCommand) Help() string {
	return `Settings come from the environment. LETTA_APP_SERVER_URL and LETTA_APP_SERVER_TOKEN
say where the App Server is, MCP_AUTH_TOKEN (or MCP_AUTH_TOKEN_FILE) is what
clients must send, MCP_HOST and MCP_PORT (127.0.0.1 and 6507) where to listen.
docs/mcp.md lists the others.`
}

// Run implements the command.
func (c mcpCommand) Run(p *program) error {
	ctx, stop := untilSignal()
	defer stop()
	cfg := server.BridgeConfig{
		Getenv: p.getenv, Version: version(), Log: p.stderr, LogLevel: p.getenv("MNEME_LOG_LEVEL"), Stdio: c.Stdio,
	}
	if c.Stdio {
		return p.mcpStdio(ctx, cfg)
	}
	b, err := server.NewBridge(cfg)
	if err != nil {
		return err
	}
	fmt.Fprintf(p.stdout, "MCP: %s\n", b.URL())
	if url := b.Serves(); url != "" {
		say(p.stderr, "App Server: %s", url)
	} else {
		say(p.stderr, "No App Server is configured: set LETTA_APP_SERVER_URL. Until then the tools answer not_configured.")
	}
	return b.Run(ctx)
}

// mcpStdio serves one local client. Without an App Server in the environment the
// state of this machine is served, by whoever holds it.
func (p *program) mcpStdio(ctx context.Context, cfg server.BridgeConfig) (err error) {
	if strings.TrimSpace(p.getenv("LETTA_APP_SERVER_URL")) == "" {
		var s *session
		if s, err = p.open(ctx, "mcp"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.close()) }()
		if cfg.URL, cfg.Token, err = p.whereabouts(s); err != nil {
			return err
		}
	}
	b, err := server.NewBridge(cfg)
	if err != nil {
		return err
	}
	return b.Stdio(ctx, p.stdin, p.stdout)
}

// whereabouts is the address of the server that a session is connected to, and
// the token for it.
func (p *program) whereabouts(s *session) (url, token string, err error) {
	if s.own != nil {
		return s.own.URL(), s.own.Token(), nil
	}
	token, err = holderToken(s.holder)
	if token == "" {
		token, err = strings.TrimSpace(p.getenv("MNEME_TOKEN")), nil
	}
	return reachable(s.holder.URL), token, err
}
