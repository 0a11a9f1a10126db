package harness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Model is a running scripted model (test/conformance/mockllm).
type Model struct {
	*Process
	URL string // of its API, such as http://127.0.0.1:40001/v1
}

// StartModel starts bin/mockllm on a free port of the loopback interface, with
// the models mock-1 and mock-2. Further arguments go to it as they are.
func (g *Group) StartModel(ctx context.Context, bin string, args ...string) (*Model, error) {
	m := &Model{}
	p, err := g.start(ctx, command{
		path: filepath.Join(bin, "mockllm"),
		args: append([]string{"-listen", "127.0.0.1:0"}, args...),
		env:  environment(),
		ready: func(line string) bool {
			_, url, ok := strings.Cut(line, "mock model on ")
			m.URL = strings.TrimSpace(url)
			return ok
		},
	})
	m.Process = p
	return m, err
}

// Server describes the server to start.
type Server struct {
	Bin   string    // directory of the binaries
	Home  string    // $HOME of the server; exists
	State string    // $MNEME_HOME; made by the server
	Dir   string    // working directory, which is the boot directory
	Args  []string  // after `mneme`; by default `server --listen ws://127.0.0.1:0`
	Env   []string  // further environment, name=value
	Log   io.Writer // gets all output, or nil
}

// Running is a server that has said where it listens.
type Running struct {
	*Process
	Listen    string // base URL, such as ws://127.0.0.1:4500
	WebSocket string // of the socket, such as ws://127.0.0.1:4500/ws
	MCP       string // endpoint of the MCP server that `serve` has; "" = none
}

// HTTP is the base URL for plain requests.
func (r *Running) HTTP() string { return "http" + strings.TrimPrefix(r.Listen, "ws") }

// StartServer starts the server and returns once it has printed where it
// listens (spec/app-server-core.md section 1.1); `serve` also names its doors.
func (g *Group) StartServer(ctx context.Context, s Server) (*Running, error) {
	r := &Running{}
	args := s.Args
	if args == nil {
		args = []string{"server", "--listen", "ws://127.0.0.1:0"}
	}
	var typed, socket string
	doors := !slices.Contains(args, "serve") // whether they were named, or never will be
	p, err := g.start(ctx, command{
		path: filepath.Join(s.Bin, "mneme"), args: args, dir: s.Dir, env: s.environ(), log: s.Log,
		ready: func(line string) bool {
			if url, ok := strings.CutPrefix(line, "Listening on "); ok {
				typed = strings.TrimSpace(url)
			}
			if url, ok := strings.CutPrefix(line, "WebSocket: "); ok {
				socket = strings.TrimSpace(url)
			}
			if url, ok := mcpOf(line); ok {
				doors, r.MCP = true, url
			}
			return typed != "" && socket != "" && doors
		},
	})
	if err != nil {
		return nil, err
	}
	r.Process, r.WebSocket = p, socket
	// The first line repeats what was typed, so that its port may be 0.
	scheme, rest, _ := strings.Cut(socket, "://")
	host, _, _ := strings.Cut(rest, "/")
	r.Listen = scheme + "://" + host
	return r, nil
}

func (s Server) environ() []string {
	return environment(append([]string{"HOME=" + s.Home, "MNEME_HOME=" + s.State}, s.Env...)...)
}

// Connect makes the provider lmstudio of the server's state point at the
// model, so that its models are lmstudio/mock-1 and lmstudio/mock-2. The
// server need not run.
func (s Server) Connect(ctx context.Context, m *Model) error {
	if m.URL == "" {
		return errors.New("connect: the model does not run")
	}
	cmd := exec.CommandContext(ctx, filepath.Join(s.Bin, "mneme"), "connect", "lmstudio", "--base-url", m.URL)
	cmd.Dir, cmd.Env = s.Dir, s.environ()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("mneme connect: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}
