package main

import (
	"context"
	"errors"
	"slices"

	"mneme/test/harness"
)

const mcpToken = "token-of-the-client-tests"

// serveMCP makes a server one with every door, whose turns work in the tests'
// workspace.
func serveMCP(spec *harness.Server, workspace string) {
	spec.Args = []string{"serve", "--listen", "ws://127.0.0.1:0"}
	spec.Env = append(spec.Env, "MCP_AUTH_TOKEN="+mcpToken, "MCP_PORT=0", "SESSION_CWD="+workspace)
}

// startMCP starts the servers in front of a server and returns what the tests
// are told about all three.
func startMCP(ctx context.Context, g *harness.Group, spec harness.Server, server *harness.Running) ([]string, error) {
	if server.MCP == "" {
		return nil, errors.New("the server serves no MCP")
	}
	spec.Args = []string{"mcp"}
	spec.Env = append(slices.Clone(spec.Env), "LETTA_APP_SERVER_URL="+server.Listen)
	bridge, err := g.StartMCP(ctx, "mneme", spec)
	if err != nil {
		return nil, err
	}
	fixture, err := g.StartMCP(ctx, "mcpfixture", spec)
	if err != nil {
		return nil, err
	}
	return []string{
		"MNEME_MCP_TOKEN=" + mcpToken, "MNEME_MCP_URL=" + server.MCP,
		"MNEME_MCP_BRIDGE_URL=" + bridge.URL, "MNEME_MCP_FIXTURE_URL=" + fixture.URL,
	}, nil
}
