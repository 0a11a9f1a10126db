package mcpserver_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"mneme/internal/mcpserver"
)

func TestConfigDefaults(t *testing.T) {
	c, err := mcpserver.LoadConfig(environ())
	if err != nil {
		t.Fatal(err)
	}
	if c.Token != token || c.Host != "127.0.0.1" || c.Port != 6507 || c.Dir != "/workspace" || c.DirGiven || c.ListLimit != 20 || c.TopK != 5 ||
		c.RequestTimeout != time.Minute || c.TurnTimeout != 10*time.Minute || c.MaxReply != 0 || c.SessionTTL != time.Hour || c.MaxSessions != 1000 ||
		c.MaxBody != 4<<20 || c.Stateless || c.ElicitConfirm || c.MemoryIndex {
		t.Errorf("%+v", c)
	}
}

func TestConfigToken(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(" from-a-file \n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if c, err := mcpserver.LoadConfig(environ("MCP_AUTH_TOKEN", "", "MCP_AUTH_TOKEN_FILE", file)); err != nil || c.Token != "from-a-file" {
		t.Errorf("from a file: %v", err)
	}
	for _, blank := range []string{"", "  "} {
		if _, err := mcpserver.LoadConfig(environ("MCP_AUTH_TOKEN", blank)); !errors.Is(err, mcpserver.ErrNoToken) || !strings.Contains(err.Error(), "MCP_AUTH_TOKEN") {
			t.Errorf("%q: %v", blank, err)
		}
	}
}

// The placeholder of .env.example is no token.
func TestExampleIsRefused(t *testing.T) {
	text, err := os.ReadFile("../../.env.example")
	if err != nil {
		t.Fatal(err)
	}
	vars := map[string]string{}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line), "#"))
		if name, value, ok := strings.Cut(line, "="); ok && !strings.ContainsAny(name, " ") {
			vars[name] = value
		}
	}
	get := func(name string) string { return vars[name] }
	if _, err := mcpserver.LoadConfig(get); err == nil || !strings.Contains(err.Error(), "placeholder") {
		t.Errorf("the example as it is: %v", err)
	}
	vars["MCP_AUTH_TOKEN"] = token
	if _, err := mcpserver.LoadConfig(get); err != nil {
		t.Errorf("the example with a token: %v", err)
	}
}

func TestBadConfig(t *testing.T) {
	for name, value := range map[string]string{
		"MCP_AUTH_TOKEN": "two words", "MCP_PORT": "70000", "DEFAULT_LIST_LIMIT": "0", "DEFAULT_TOP_K": "21", "REQUEST_TIMEOUT_MS": "-1",
		"TURN_TIMEOUT_MS": "soon", "STREAM_MAX_CHARS": "x", "MCP_SESSION_TTL": "0", "MCP_MAX_SESSIONS": "0", "MCP_MAX_BODY_BYTES": "1",
		"MCP_STATELESS": "perhaps", "MCP_ELICIT_CONFIRM": "2", "MCP_MEMORY_INDEX": "ja", "MCP_ALLOWED_ORIGINS": "example.org",
		"MCP_ALLOWED_HOSTS": "http://x", "MCP_OAUTH_ISSUER": "ftp://x", "MCP_PUBLIC_URL": "x", "LETTA_APP_SERVER_URL": "tcp://x",
		"MCP_AUTH_TOKEN_FILE": "/does/not/exist",
	} {
		env := []string{name, value}
		if name == "MCP_AUTH_TOKEN_FILE" {
			env = append(env, "MCP_AUTH_TOKEN", "")
		}
		if _, err := mcpserver.LoadConfig(environ(env...)); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s=%s: %v", name, value, err)
		}
	}
	if _, err := mcpserver.LoadConfig(environ("MCP_OAUTH_ISSUER", "https://id.example.org", "MCP_HOST", "0.0.0.0")); err == nil || !strings.Contains(err.Error(), "MCP_PUBLIC_URL") {
		t.Errorf("OAuth on all interfaces without a public address: %v", err)
	}
}
