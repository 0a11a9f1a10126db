package harness

import (
	"context"
	"path/filepath"
	"strings"
)

// MCP is a running MCP server.
type MCP struct {
	*Process
	URL string // of the endpoint, such as http://127.0.0.1:6507/mcp
}

// StartMCP starts a program that serves MCP and returns once it has printed
// where: `mneme` with the arguments `mcp`, or the one with the fixtures of the
// conformance suite.
func (g *Group) StartMCP(ctx context.Context, program string, s Server) (*MCP, error) {
	m := &MCP{}
	p, err := g.start(ctx, command{
		path: filepath.Join(s.Bin, program), args: s.Args, dir: s.Dir, env: s.environ(), log: s.Log,
		ready: func(line string) bool {
			url, ok := strings.CutPrefix(line, "MCP: ")
			m.URL = strings.TrimSpace(url)
			return ok
		},
	})
	m.Process = p
	return m, err
}

// mcpOf finds the MCP endpoint in the line of `mneme serve` that names its doors.
func mcpOf(line string) (url string, found bool) {
	doors, found := strings.CutPrefix(line, "Doors: ")
	_, url, _ = strings.Cut(doors, "MCP on ")
	url, _, _ = strings.Cut(url, ". ")
	return url, found
}
