package harness_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"mneme/test/harness"
)

// The test binary plays the server when it is started as one.
func TestMain(m *testing.M) {
	if mode := os.Getenv("HARNESS_PLAYS"); mode != "" {
		play(mode)
	}
	goleak.VerifyTestMain(m)
}

// play prints what a server prints and then behaves as the mode says.
func play(mode string) {
	if mode == "broken" {
		fmt.Fprintln(os.Stderr, "Error: the state is held")
		os.Exit(1)
	}
	fmt.Printf("args %s home %s state %s key %q\n", os.Args[1:], os.Getenv("HOME"), os.Getenv("MNEME_HOME"), os.Getenv("OPENAI_API_KEY"))
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	if mode == "deaf" {
		signal.Ignore(syscall.SIGTERM)
	}
	child := exec.Command("sleep", "300")
	if mode == "parent" {
		if err := child.Start(); err != nil {
			panic(err)
		}
		fmt.Println("child", child.Process.Pid)
	}
	fmt.Printf("Listening on ws://127.0.0.1:0\nWebSocket: ws://127.0.0.1:4711/ws\n")
	fmt.Printf("Doors: App Server, REST, MCP on http://127.0.0.1:6507/mcp. No more.\nMCP: http://127.0.0.1:6508/mcp\n")
	select {
	case <-term:
		os.Exit(0)
	case <-time.After(time.Minute):
		os.Exit(7)
	}
}

// fake is a server description whose program is this test.
func fake(t *testing.T, mode string) harness.Server {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	if err := os.Symlink(self, filepath.Join(bin, "mneme")); err != nil {
		t.Fatal(err)
	}
	return harness.Server{Bin: bin, Home: "/h", State: "/h/s", Dir: bin, Env: []string{"HARNESS_PLAYS=" + mode}}
}

func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return syscall.Kill(pid, 0) == nil
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(after, "Z") // a zombie is nobody's running process
}

func gone(t *testing.T, pid int) {
	t.Helper()
	for range 200 {
		if !alive(pid) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("process %d still runs", pid)
}

func TestServerIsStartedAndStopped(t *testing.T) {
	t.Setenv("OPENAI_API_KEY", "secret")
	var g harness.Group
	defer g.Close()
	r, err := g.StartServer(t.Context(), fake(t, "polite"))
	if err != nil {
		t.Fatal(err)
	}
	if r.Listen != "ws://127.0.0.1:4711" || r.WebSocket != "ws://127.0.0.1:4711/ws" || r.HTTP() != "http://127.0.0.1:4711" {
		t.Errorf("addresses %q, %q, %q", r.Listen, r.WebSocket, r.HTTP())
	}
	if want := `args [server --listen ws://127.0.0.1:0] home /h state /h/s key ""`; !strings.Contains(r.Output(), want) {
		t.Errorf("no %s in %s", want, r.Output())
	}
	if err := r.Stop(); err != nil {
		t.Error(err)
	}
	gone(t, r.PID())
}

func TestDoorsOfMCP(t *testing.T) {
	var g harness.Group
	defer g.Close()
	s := fake(t, "polite")
	s.Args = []string{"serve"}
	r, err := g.StartServer(t.Context(), s)
	if err != nil || r.MCP != "http://127.0.0.1:6507/mcp" {
		t.Errorf("serves %q, %v", r.MCP, err)
	}
	s.Args = []string{"mcp"}
	m, err := g.StartMCP(t.Context(), "mneme", s)
	if err != nil || m.URL != "http://127.0.0.1:6508/mcp" {
		t.Errorf("serves %q, %v", m.URL, err)
	}
}

func TestChildrenGoToo(t *testing.T) {
	for name, end := range map[string]func(*harness.Group, *harness.Running){
		"stop":  func(_ *harness.Group, r *harness.Running) { _ = r.Stop() },
		"kill":  func(_ *harness.Group, r *harness.Running) { r.Kill() },
		"close": func(g *harness.Group, _ *harness.Running) { g.Close() },
	} {
		var g harness.Group
		r, err := g.StartServer(t.Context(), fake(t, "parent"))
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(r.Output(), "child ")
		pid, err := strconv.Atoi(strings.Fields(rest)[0])
		if err != nil || !alive(pid) {
			t.Fatalf("%s: child %d: %v", name, pid, err)
		}
		end(&g, r)
		gone(t, pid)
		g.Close()
	}
}

func TestEndOfContextKills(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var g harness.Group
	r, err := g.StartServer(ctx, fake(t, "deaf"))
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	select {
	case <-r.Done():
	case <-time.After(10 * time.Second):
		t.Fatal("still running")
	}
	g.Close()
}

func TestRunLeavesNothing(t *testing.T) {
	out := &strings.Builder{}
	cmd := exec.CommandContext(t.Context(), "sh", "-c", "sleep 300 > /dev/null 2>&1 & echo $!")
	cmd.Stdout = out
	if err := harness.Run(cmd); err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(out.String()))
	if err != nil {
		t.Fatal(err)
	}
	gone(t, pid)
}

func TestFailedStartSaysWhy(t *testing.T) {
	var g harness.Group
	defer g.Close()
	_, err := g.StartServer(t.Context(), fake(t, "broken"))
	if err == nil || !strings.Contains(err.Error(), "Error: the state is held") {
		t.Errorf("got %v", err)
	}
	if _, err := harness.Build(t.Context(), "nonsense"); err == nil || !strings.Contains(err.Error(), "no such program") {
		t.Errorf("got %v", err)
	}
}

func TestModelIsStarted(t *testing.T) {
	bin := t.TempDir()
	out, err := exec.Command("go", "build", "-o", filepath.Join(bin, "mockllm"), "mneme/test/conformance/mockllm").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var g harness.Group
	defer g.Close()
	m, err := g.StartModel(t.Context(), bin)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(m.URL, "http://127.0.0.1:") || strings.Contains(m.URL, ":0/") || !strings.HasSuffix(m.URL, "/v1") {
		t.Errorf("URL %q", m.URL)
	}
}
