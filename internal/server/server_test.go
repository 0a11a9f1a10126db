package server_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"mneme/client"
	"mneme/internal/server"
	"mneme/protocol"
)

const patience = 20 * time.Second // for what must happen, never a measure of speed

// config is a server in a directory of its own, on a free port.
func config(t *testing.T, change ...func(*server.Config)) *server.Config {
	t.Helper()
	home := t.TempDir()
	env := map[string]string{"MNEME_HOME": home, "HOME": home}
	cfg, err := server.Load(server.Sources{
		Flags:  map[string][]string{"listen": {"ws://127.0.0.1:0"}, "drain": {"5s"}},
		Getenv: func(n string) string { return env[n] }, Command: "server",
	})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Log = t.Output()
	for _, f := range change {
		f(cfg)
	}
	return cfg
}

// run starts a server; stop ends it and returns what Run said.
func start(t *testing.T, cfg *server.Config) (srv *server.Server, stop func() error) {
	t.Helper()
	srv, err := server.New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- srv.Run(ctx) }()
	stop = sync.OnceValue(func() error {
		cancel()
		select {
		case err := <-done:
			return err
		case <-time.After(patience):
			return errors.New("the server does not stop")
		}
	})
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	return srv, stop
}

func dial(t *testing.T, srv *server.Server, token string) *client.Client {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c, err := client.Dial(ctx, srv.URL(), client.Options{Token: token})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// newAgent starts a new agent's own conversation.
func newAgent(t *testing.T, c *client.Client, blocks ...protocol.MemoryBlock) *client.Runtime {
	t.Helper()
	name, own := "Ada", "default"
	rt, err := c.StartRuntime(t.Context(), protocol.RuntimeStart{
		CreateAgent: &protocol.CreateAgent{Body: protocol.AgentBody{Name: &name, MemoryBlocks: blocks}}, ConversationID: &own,
	})
	if err != nil {
		t.Fatal(err)
	}
	return rt
}

// say sends a message and returns the answer.
func say(t *testing.T, rt *client.Runtime, text string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	turn, err := rt.Send(ctx, text)
	if err != nil {
		t.Fatal(err)
	}
	result, err := turn.Wait(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := result.Err(); err != nil {
		t.Fatal(err)
	}
	return result.Text()
}

func TestServerRemembersOverARestart(t *testing.T) {
	cfg := config(t)
	srv, stop := start(t, cfg)
	rt := newAgent(t, dial(t, srv, ""), protocol.MemoryBlock{Label: "human", Value: "Name: Bo"})
	say(t, rt, "Remember that my bicycle is called Rosinante.")
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(filepath.Join(cfg.Home, server.LockFile)); err != nil || len(text) > 0 {
		t.Errorf("the lock says %q, %v", text, err)
	}
	srv, _ = start(t, cfg)
	id, own := rt.ID().AgentID, "default"
	again, err := dial(t, srv, "").StartRuntime(t.Context(), protocol.RuntimeStart{AgentID: &id, ConversationID: &own})
	if err != nil {
		t.Fatal(err)
	}
	if answer := say(t, again, "What do you know about my bicycle?"); !strings.Contains(answer, "Rosinante") {
		t.Errorf("the answer is %q", answer)
	}
}

func TestStopTellsClients(t *testing.T) {
	srv, stop := start(t, config(t))
	c := dial(t, srv, "")
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-c.Done():
	case <-time.After(patience):
		t.Fatal("the client does not hear of it")
	}
	var lost *client.ConnectionError
	if err := c.Err(); !errors.As(err, &lost) || lost.Code != 1001 {
		t.Errorf("the client hears %v", err)
	}
	if _, err := net.Dial("tcp", strings.TrimSuffix(strings.TrimPrefix(srv.URL(), "ws://"), "/ws")); err == nil {
		t.Error("the port is still open")
	}
}

func TestSecondServerIsRefused(t *testing.T) {
	cfg := config(t)
	srv, stop := start(t, cfg)
	_, err := server.New(t.Context(), cfg)
	var held *server.HeldError
	if !errors.As(err, &held) || held.Holder.PID != os.Getpid() || held.Holder.URL != srv.URL() {
		t.Fatalf("got %v", err)
	}
	for _, want := range []string{fmt.Sprintf("pid %d", os.Getpid()), srv.URL(), "MNEME_HOME", cfg.Home} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not name %s", err, want)
		}
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	_, stop = start(t, cfg)
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestFailuresLeaveNothingBehind(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	port := busy.Addr().(*net.TCPAddr).Port
	listen := func(url string) func(*server.Config) {
		return func(c *server.Config) {
			l, err := server.ParseListen(url)
			if err != nil {
				t.Fatal(err)
			}
			c.Listen = l
		}
	}
	for name, c := range map[string]struct {
		change func(*server.Config)
		want   string
	}{
		"port taken": {listen(fmt.Sprintf("ws://127.0.0.1:%d", port)), fmt.Sprintf("listen EADDRINUSE: address already in use 127.0.0.1:%d", port)},
		"open":       {listen("ws://0.0.0.0:4500"), "refusing to start non-loopback websocket listener 0.0.0.0:4500 without auth; configure `--ws-auth capability-token` or `--ws-auth signed-bearer-token`"},
		"auth":       {func(c *server.Config) { c.Auth.Mode = "x" }, `unsupported --ws-auth mode "x"; expected "capability-token" or "signed-bearer-token"`},
		"origin":     {func(c *server.Config) { c.AllowOrigin = []string{"x"} }, `--allow-origin must be scheme://host[:port] (got "x")`},
		"secret key": {func(c *server.Config) { c.SecretKey = "x" }, "MNEME_SECRET_KEY: not a key: 64 hex digits, or 32 bytes in base64, are expected (openssl rand -hex 32)"},
	} {
		cfg := config(t, c.change)
		if _, err := server.New(t.Context(), cfg); text(err) != c.want {
			t.Errorf("%s: got %v, want %s", name, err, c.want)
		}
		if h, err := server.HolderOf(cfg.Home); h != nil || err != nil {
			t.Errorf("%s: the state is held by %v, %v", name, h, err)
		}
	}
}

func TestGitIsNeeded(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := server.New(t.Context(), config(t))
	if err == nil || !strings.Contains(err.Error(), "the git program was not found") {
		t.Errorf("got %v", err)
	}
}

func TestLines(t *testing.T) {
	srv, _ := start(t, config(t, func(c *server.Config) { c.OpenAI = true }))
	base := strings.TrimSuffix(strings.TrimPrefix(srv.URL(), "ws://"), "/ws")
	want := "Listening on ws://127.0.0.1:0\nWebSocket: ws://" + base + "/ws\nOpenAI:  http://" + base + "/v1"
	if got := strings.Join(srv.Lines(), "\n"); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

func TestIPv6AndOwnPath(t *testing.T) {
	if ln, err := net.Listen("tcp", "[::1]:0"); err != nil {
		t.Skip("no IPv6 here")
	} else {
		ln.Close()
	}
	srv, _ := start(t, config(t, func(c *server.Config) { c.Listen, _ = server.ParseListen("ws://[::1]:0/deep/socket") }))
	if !strings.HasPrefix(srv.URL(), "ws://[::1]:") || !strings.HasSuffix(srv.URL(), "/deep/socket") {
		t.Errorf("URL %s", srv.URL())
	}
	if _, err := client.Call(t.Context(), dial(t, srv, ""), &protocol.AppServerInfo{}); err != nil {
		t.Error(err)
	}
}

func TestTokens(t *testing.T) {
	srv, _ := start(t, config(t, func(c *server.Config) { c.Auth.Token = "tok" }))
	_, err := client.Dial(t.Context(), srv.URL(), client.Options{Token: "wrong"})
	var refused *client.DialError
	if !errors.As(err, &refused) || refused.Status != 401 || refused.Reason != "invalid websocket bearer token" {
		t.Errorf("a wrong token: %v", err)
	}
	dial(t, srv, "tok")
	base := "http" + strings.TrimSuffix(strings.TrimPrefix(srv.URL(), "ws"), "/ws")
	for path, want := range map[string]string{
		"/readyz":          "200 ok\n",
		"/app-server-info": `401 {"error":"missing websocket bearer token"}` + "\n",
		"/nope":            "404 ",
	} {
		resp, err := http.Get(base + path)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if got := fmt.Sprintf("%d %s", resp.StatusCode, body); got != want {
			t.Errorf("%s: got %q, want %q", path, got, want)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}

func TestPrivateServer(t *testing.T) {
	cfg := config(t, func(c *server.Config) { c.Private = true })
	srv, stop := start(t, cfg)
	if len(srv.Token()) < 20 {
		t.Fatalf("token %q", srv.Token())
	}
	dial(t, srv, srv.Token())
	h, err := server.HolderOf(cfg.Home)
	if err != nil || !h.Auth {
		t.Fatalf("holder %+v, %v", h, err)
	}
	info, err := os.Stat(h.TokenFile)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("token file: %v, %v", info.Mode(), err)
	}
	if token, err := os.ReadFile(h.TokenFile); err != nil || strings.TrimSpace(string(token)) != srv.Token() {
		t.Errorf("token file says %q, %v", token, err)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(h.TokenFile); !os.IsNotExist(err) {
		t.Errorf("the token file stays: %v", err)
	}
}

func TestDoctorsChecks(t *testing.T) {
	cfg := config(t)
	req := server.ConnectRequest{Provider: "lmstudio", Name: "mine", BaseURL: "http://127.0.0.1:1/v1", Key: "secret"}
	done, err := server.Connect(t.Context(), cfg, req)
	if err != nil || done.Name != "mine" || done.Problem == "" {
		t.Fatalf("%+v, %v", done, err)
	}
	if _, err := server.Connect(t.Context(), cfg, server.ConnectRequest{Provider: "nobody"}); text(err) != "Unknown provider: nobody" {
		t.Errorf("unknown provider: %v", err)
	}
	srv, stop := start(t, cfg)
	if p := srv.Problems(t.Context()); len(p) > 0 {
		t.Errorf("problems of a sound state: %v", p)
	}
	if _, err := server.Connect(t.Context(), cfg, req); !errors.As(err, new(*server.HeldError)) {
		t.Errorf("beside a server: %v", err)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(cfg.Home, "secret.key"), 0o644); err != nil {
		t.Fatal(err)
	}
	if p := server.CheckFiles(cfg); len(p) == 0 || !strings.Contains(p[len(p)-1], "chmod 0600") {
		t.Errorf("of a readable key: %v", p)
	}
	cfg.SecretKey = strings.Repeat("ab", 32) // another key than the stored secret was sealed with
	srv, _ = start(t, cfg)
	if p := srv.Problems(t.Context()); len(p) != 1 || !strings.Contains(p[0], "the key of provider mine") {
		t.Errorf("problems after the key changed: %v", p)
	}
}
