package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"syscall"
	"time"

	"mneme/internal/mcpserver"
)

// bridgeDrain is how long a stop of `mneme mcp` waits for calls that run.
const bridgeDrain = 8 * time.Second

// mcpDoor is the MCP server of `mneme serve`, on a listener of its own with its
// own token and its own rules (spec/mcp.md section 1).
type mcpDoor struct {
	ln     net.Listener
	server *mcpserver.Server // nil = not built yet
	served chan error        // gets how serving ended; nil = not begun
}

// loadMCP reads the settings of the MCP server; nil = it is off, because no token
// is set.
func loadMCP(getenv func(string) string) (*mcpserver.Config, error) {
	cfg, err := mcpserver.LoadConfig(getenv)
	if errors.Is(err, mcpserver.ErrNoToken) {
		return nil, nil
	}
	return cfg, err
}

// openMCP binds the listener.
func openMCP(cfg *mcpserver.Config) (*mcpDoor, error) {
	address := net.JoinHostPort(cfg.Host, strconv.Itoa(cfg.Port))
	ln, err := net.Listen("tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("the MCP server cannot listen on %s: the address is in use; set MCP_PORT or MCP_HOST", address)
	}
	if err != nil {
		return nil, fmt.Errorf("the MCP server cannot listen on %s (MCP_HOST, MCP_PORT): %w", address, err)
	}
	return &mcpDoor{ln: ln}, nil
}

// build makes the server. url is the App Server's, as bridge_health tells it.
func (d *mcpDoor) build(cfg *mcpserver.Config, p *parts, url, version string, log *slog.Logger) {
	backend := mcpserver.NewEmbedded(cfg, mcpserver.Parts{
		Roster: p.roster, Runtime: p.runtime, Store: p.store, Memory: p.memory, Models: p.models,
		Version: version, URL: url, Logger: log,
	})
	d.server = mcpserver.New(cfg, backend, mcpserver.Options{Version: version, Logger: log})
}

// url is the address of the endpoint.
func (d *mcpDoor) url() string { return "http://" + d.ln.Addr().String() + "/mcp" }

// serve begins to serve. failed is called if the listener breaks.
func (d *mcpDoor) serve(failed func(error)) {
	d.served = make(chan error, 1)
	go func() {
		err := d.server.Serve(d.ln)
		if err != nil {
			failed(err)
		}
		d.served <- err
	}()
}

// drain takes no new requests and lets those that run end until ctx does.
func (d *mcpDoor) drain(ctx context.Context) error {
	d.ln.Close() // Serve reports it
	d.server.Shutdown(ctx)
	return <-d.served
}

// close gives back what was never served.
func (d *mcpDoor) close() {
	if d.server != nil {
		d.server.Close()
	}
	d.ln.Close()
}

// MCP is the address of the MCP endpoint; "" = it is off.
func (s *Server) MCP() string {
	if s.mcp == nil {
		return ""
	}
	return s.mcp.url()
}
