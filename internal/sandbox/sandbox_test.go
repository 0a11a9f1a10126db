package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"mneme/internal/agent"
	"mneme/internal/sandbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var scope = agent.Scope{AgentID: "agent-1", ConversationID: "conv-1"}

// shells makes a Shells that is closed with the test; yield 0 = 10 s.
func shells(t *testing.T, yield time.Duration) *sandbox.Shells {
	t.Helper()
	s := sandbox.New(yield)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func command(t *testing.T, text string) sandbox.Command {
	t.Helper()
	return sandbox.Command{
		Scope: scope, Text: text, Dir: t.TempDir(), LogDir: filepath.Join(t.TempDir(), "logs"),
		Env: []string{"PATH=" + os.Getenv("PATH")},
	}
}

func run(t *testing.T, s *sandbox.Shells, cmd sandbox.Command) *sandbox.Result {
	t.Helper()
	res, err := s.Run(t.Context(), cmd)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// until waits for a condition that processes bring about.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s did not happen", what)
		}
	}
}

// alive reports whether a process exists and is no zombie.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return rest[0] != 'Z' && rest[0] != 'X'
}

// pidIn reads the process number that a command wrote to a file.
func pidIn(t *testing.T, path string) int {
	t.Helper()
	var pid int
	until(t, "the pid file", func() bool {
		b, err := os.ReadFile(path)
		if err != nil {
			return false
		}
		pid, err = strconv.Atoi(strings.TrimSpace(string(b)))
		return err == nil
	})
	return pid
}

func TestRun(t *testing.T) {
	s := shells(t, 0)
	for _, c := range []struct {
		text, stdout, stderr string
		exit                 int
	}{
		{"echo one; echo two", "one\ntwo\n", "", 0},
		{"echo oops >&2; exit 3", "", "oops\n", 3},
		{"echo a; echo b >&2", "a\n", "b\n", 0},
		{"true", "", "", 0},
		{"kill -9 $$", "", "", 137},
		{"no-such-command 2>/dev/null", "", "", 127},
		{"cat", "", "", 0}, // nothing to read
		{"[ -t 0 ] || [ -t 1 ] || echo none", "none\n", "", 0},
		{"printf 'a\\0b\\377c'", "a\uFFFDb\uFFFDc", "", 0},
		{"printf 'no line end'", "no line end", "", 0},
		{"env | grep -v -e ^PATH= -e ^PWD= -e ^SHLVL= -e ^_=", "", "", 1},
		{"ps -o pgid= -p $$ | tr -d ' \\n' | cmp - <(printf $$) && echo own group", "own group\n", "", 0},
	} {
		res := run(t, s, command(t, c.text))
		if res.Stdout.String() != c.stdout || res.Stderr.String() != c.stderr || res.ExitCode != c.exit {
			t.Errorf("%q: stdout %q stderr %q exit %d, want %q %q %d",
				c.text, res.Stdout.String(), res.Stderr.String(), res.ExitCode, c.stdout, c.stderr, c.exit)
		}
		if res.Background != "" || res.Leftover != "" || res.Aborted || res.TimedOut || res.Log != "" {
			t.Errorf("%q: %+v", c.text, res)
		}
	}
	if list := s.List(scope); len(list) != 0 {
		t.Errorf("foreground commands are listed: %v", list)
	}
}

func TestRunErrors(t *testing.T) {
	s := shells(t, 0)
	cmd := command(t, "true")
	cmd.Dir = filepath.Join(cmd.Dir, "missing")
	if _, err := s.Run(t.Context(), cmd); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing directory: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	marker := filepath.Join(t.TempDir(), "ran")
	res, err := s.Run(ctx, command(t, "touch "+marker))
	if err != nil || !res.Aborted {
		t.Errorf("ended context: %+v, %v", res, err)
	}
	if _, err := os.Stat(marker); err == nil {
		t.Error("a command ran although its context had ended")
	}
}

func TestAbortKillsTheGroup(t *testing.T) {
	s := shells(t, 0)
	cmd := command(t, "sleep 300 & echo $! > pid; trap '' TERM; sleep 300")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan *sandbox.Result)
	go func() {
		res, err := s.Run(ctx, cmd)
		if err != nil {
			t.Error(err)
		}
		done <- res
	}()
	pid := pidIn(t, filepath.Join(cmd.Dir, "pid"))
	cancel()
	if res := <-done; !res.Aborted || res.Background != "" {
		t.Errorf("result %+v", res)
	}
	until(t, "the end of the child", func() bool { return !alive(pid) })
}

func TestTimeout(t *testing.T) {
	s := shells(t, 0)
	cmd := command(t, "echo start; trap 'echo cleaned up; exit 4' TERM; sleep 300 & echo $! > pid; wait")
	cmd.Timeout = 300 * time.Millisecond
	res := run(t, s, cmd)
	if !res.TimedOut || res.Aborted || res.Stdout.String() != "start\ncleaned up\n" || res.ExitCode != 4 {
		t.Errorf("result %+v, stdout %q", res, res.Stdout.String())
	}
	pid := pidIn(t, filepath.Join(cmd.Dir, "pid"))
	until(t, "the end of the child", func() bool { return !alive(pid) })

	cmd = command(t, "trap '' TERM; while :; do sleep 0.05; done")
	cmd.Timeout = 100 * time.Millisecond
	if res := run(t, s, cmd); !res.TimedOut || res.ExitCode != 137 {
		t.Errorf("a command that ignores SIGTERM: %+v", res)
	}
}

func TestLiveOutput(t *testing.T) {
	s := shells(t, 0)
	type report struct{ stdout, stderr []string }
	var reports []report
	returned := false
	cmd := command(t, "echo a; echo; sleep 0.3; echo b; echo warn >&2; sleep 0.3; echo c")
	cmd.Output = func(stdout, stderr []string) {
		if returned {
			t.Error("reported after Run returned")
		}
		reports = append(reports, report{stdout, stderr})
	}
	run(t, s, cmd)
	returned = true
	last := reports[len(reports)-1]
	if diff := cmp.Diff([]string{"a", "b", "c"}, last.stdout); diff != "" {
		t.Errorf("last report (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"warn"}, last.stderr); diff != "" {
		t.Errorf("last report (-want +got):\n%s", diff)
	}
	for i, r := range reports[1:] {
		if len(r.stdout)+len(r.stderr) <= len(reports[i].stdout)+len(reports[i].stderr) {
			t.Errorf("report %d has nothing new: %v after %v", i+1, r, reports[i])
		}
	}
	if len(reports) < 2 {
		t.Errorf("%d reports, want some while it runs", len(reports))
	}

	reports, returned = nil, false
	cmd = command(t, "echo one; echo two")
	cmd.Output = func(stdout, stderr []string) { reports = append(reports, report{stdout, stderr}) }
	run(t, s, cmd)
	if len(reports) != 1 || !slices.Equal(reports[0].stdout, []string{"one", "two"}) {
		t.Errorf("a quick command: %v, want one report", reports)
	}
	reports = nil
	cmd = command(t, "seq 1 100000")
	cmd.Output = func(stdout, stderr []string) { reports = append(reports, report{stdout, stderr}) }
	run(t, s, cmd)
	lines := reports[len(reports)-1].stdout
	if n := len(strings.Join(lines, "\n")); n > 30_000 || n < 29_000 || lines[len(lines)-1] != "100000" {
		t.Errorf("long output: %d characters, last line %q", n, lines[len(lines)-1])
	}
}

func TestLongOutputIsBounded(t *testing.T) {
	s := shells(t, 0)
	const size = 3_000_000
	res := run(t, s, command(t, fmt.Sprintf("head -c %d /dev/zero | tr '\\0' x; echo; echo end", size)))
	out := res.Stdout
	if !out.Cut || out.Chars != size+len("\nend\n") {
		t.Errorf("cut %v, %d characters", out.Cut, out.Chars)
	}
	if n := len(out.String()); n > 256<<10 {
		t.Errorf("%d bytes kept as head", n)
	}
	if tail := out.Tail(10); tail != "xxxxx\nend\n" {
		t.Errorf("tail %q", tail)
	}
	path, err := res.Save()
	if err != nil {
		t.Fatal(err)
	}
	st, err := os.Stat(path)
	if err != nil || st.Size() != size+5 || st.Mode().Perm() != 0o600 {
		t.Errorf("log %v (%v)", st, err)
	}

	res = run(t, s, command(t, "echo short"))
	if path, err = res.Save(); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "short\n" {
		t.Errorf("saved %q, %v", b, err)
	}
}

// told gathers what a command says through its callbacks.
type told struct {
	mu       sync.Mutex
	finished []sandbox.Finished
	lists    [][]agent.Background
}

func (w *told) attach(cmd *sandbox.Command) {
	cmd.Done = func(f sandbox.Finished) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.finished = append(w.finished, f)
	}
	cmd.Changed = func(list []agent.Background) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.lists = append(w.lists, list)
	}
}

func (w *told) count() (finished, lists int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.finished), len(w.lists)
}

func TestYield(t *testing.T) {
	s := shells(t, 150*time.Millisecond)
	var w told
	cmd := command(t, "echo before; while [ ! -e go ]; do sleep 0.02; done; echo after; sleep 0.2; echo bad >&2; exit 2")
	cmd.Timeout, cmd.ForegroundOnly = 500*time.Millisecond, true
	w.attach(&cmd)
	res := run(t, s, cmd)
	if res.Background != "bash_1" || res.Log == "" || res.Aborted {
		t.Fatalf("result %+v", res)
	}
	if b, err := os.ReadFile(res.Log); err != nil || string(b) != "before\n" {
		t.Errorf("log so far %q, %v", b, err)
	}
	list := s.List(scope)
	if len(list) != 1 || list[0].Status != "running" || list[0].ID != "bash_1" || list[0].ExitCode != nil || list[0].Command != cmd.Text {
		t.Errorf("list %+v", list)
	}
	if other := s.List(agent.Scope{AgentID: "agent-1", ConversationID: "conv-2"}); len(other) != 0 {
		t.Errorf("another conversation sees %v", other)
	}
	time.Sleep(600 * time.Millisecond) // the foreground's timeout no longer counts
	if err := os.WriteFile(filepath.Join(cmd.Dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	until(t, "the notice", func() bool { n, _ := w.count(); return n == 1 })
	f := w.finished[0]
	if f.ID != "bash_1" || f.ExitCode != 2 || f.TimedOut || f.Stdout.String() != "before\nafter\n" || f.Stderr.String() != "bad\n" || f.Log != res.Log {
		t.Errorf("finished %+v", f)
	}
	if b, err := os.ReadFile(res.Log); err != nil || string(b) != "before\nafter\nbad\n" {
		t.Errorf("log %q, %v", b, err)
	}
	if list := s.List(scope); len(list) != 1 || list[0].Status != "failed" || *list[0].ExitCode != 2 {
		t.Errorf("list %+v", list)
	}
	if _, n := w.count(); n != 2 {
		t.Errorf("%d lists, want one for the start and one for the end", n)
	}
	if s.Stop(t.Context(), scope, "bash_1") {
		t.Error("stopped a finished process")
	}
}

func TestBackground(t *testing.T) {
	s := shells(t, 0)
	var w told
	cmd := command(t, "echo hello; sleep 0.1")
	cmd.Background = true
	w.attach(&cmd)
	res := run(t, s, cmd)
	if res.Background != "bash_1" || res.Log == "" {
		t.Fatalf("result %+v", res)
	}
	if _, err := os.Stat(res.Log); err != nil {
		t.Error(err)
	}
	until(t, "the notice", func() bool { n, _ := w.count(); return n == 1 })
	if f := w.finished[0]; f.ExitCode != 0 || f.Stdout.String() != "hello\n" {
		t.Errorf("finished %+v", f)
	}

	cmd = command(t, "sleep 300")
	cmd.Background, cmd.Timeout = true, 100*time.Millisecond
	w.attach(&cmd)
	run(t, s, cmd)
	until(t, "the timeout", func() bool { n, _ := w.count(); return n == 2 })
	if f := w.finished[1]; !f.TimedOut || f.ExitCode != 143 {
		t.Errorf("finished %+v", f)
	}
}

func TestStop(t *testing.T) {
	s := shells(t, 0)
	var w told
	cmd := command(t, "trap 'echo bye > bye; exit 0' TERM; echo $$ > pid; while :; do sleep 0.02; done")
	cmd.Background = true
	w.attach(&cmd)
	id := run(t, s, cmd).Background
	pid := pidIn(t, filepath.Join(cmd.Dir, "pid"))
	if s.Stop(t.Context(), agent.Scope{AgentID: "agent-2"}, id) || s.Stop(t.Context(), scope, "bash_99") {
		t.Error("stopped what is not there or another conversation's")
	}
	if !s.Stop(t.Context(), scope, id) || alive(pid) {
		t.Error("not stopped")
	}
	if _, err := os.Stat(filepath.Join(cmd.Dir, "bye")); err != nil {
		t.Error("it could not clean up:", err)
	}
	until(t, "the entry's end", func() bool { return s.List(scope)[0].Status == "failed" })
	if n, _ := w.count(); n != 0 {
		t.Error("told of an end that was asked for")
	}
}

func TestTooMany(t *testing.T) {
	s := shells(t, 50*time.Millisecond)
	cmd := command(t, "sleep 300")
	cmd.Background = true
	for range sandbox.MaxBackground {
		run(t, s, cmd)
	}
	if _, err := s.Run(t.Context(), cmd); !errors.Is(err, sandbox.ErrTooMany) {
		t.Errorf("one too many: %v", err)
	}
	// In the foreground a command does not yield then.
	cmd = command(t, "sleep 0.3; echo done")
	if res := run(t, s, cmd); res.Background != "" || res.Stdout.String() != "done\n" {
		t.Errorf("foreground: %+v", res)
	}
}

func TestLeftovers(t *testing.T) {
	s := shells(t, 0)
	for _, text := range []string{
		"sleep 300 & echo $! > pid; echo started",
		"sleep 300 > /dev/null 2>&1 & echo $! > pid; echo started",
		"nohup sleep 300 > log 2>&1 & echo $! > pid; echo started",
	} {
		var w told
		cmd := command(t, text)
		w.attach(&cmd)
		res := run(t, s, cmd)
		if res.Stdout.String() != "started\n" || res.ExitCode != 0 || res.Leftover == "" {
			t.Fatalf("%q: %+v", text, res)
		}
		pid := pidIn(t, filepath.Join(cmd.Dir, "pid"))
		list := s.List(scope)
		if last := list[len(list)-1]; last.ID != res.Leftover || last.Status != "running" || !alive(pid) {
			t.Errorf("%q: list %+v", text, list)
		}
		if !s.Stop(t.Context(), scope, res.Leftover) {
			t.Errorf("%q: not stopped", text)
		}
		until(t, "the end of the child", func() bool { return !alive(pid) })
		if n, _ := w.count(); n != 0 {
			t.Errorf("%q: told of a leftover's end", text)
		}
	}
}

// A process that leaves the group keeps the pipe: it must not keep the call.
func TestEscapedProcess(t *testing.T) {
	s := shells(t, 0)
	cmd := command(t, "setsid sh -c 'echo $$ > pid; exec sleep 300' & while [ ! -s pid ]; do sleep 0.01; done; echo here")
	res := run(t, s, cmd)
	if res.Stdout.String() != "here\n" || res.Background != "" || res.Leftover != "" {
		t.Errorf("result %+v", res)
	}
	if p, err := os.FindProcess(pidIn(t, filepath.Join(cmd.Dir, "pid"))); err == nil {
		_ = p.Kill()
	}
}

func TestClose(t *testing.T) {
	s := sandbox.New(100 * time.Millisecond)
	var w told
	var pids []int
	for _, text := range []string{"echo $$ > pid; exec sleep 300", "trap '' TERM; echo $$ > pid; while :; do sleep 0.02; done"} {
		cmd := command(t, text)
		cmd.Background = true
		w.attach(&cmd)
		run(t, s, cmd)
		pids = append(pids, pidIn(t, filepath.Join(cmd.Dir, "pid")))
	}
	cmd := command(t, "sleep 300 & echo $! > pid")
	run(t, s, cmd)
	pids = append(pids, pidIn(t, filepath.Join(cmd.Dir, "pid")))
	_, changes := w.count()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, pid := range pids {
		if alive(pid) {
			t.Errorf("process %d of %v outlived Close", pid, pids)
		}
	}
	if n, lists := w.count(); n != 0 || lists != changes {
		t.Errorf("told %d ends and %d lists while closing", n, lists-changes)
	}
	if _, err := s.Run(t.Context(), command(t, "true")); !errors.Is(err, sandbox.ErrClosed) {
		t.Errorf("Run after Close: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
}

func TestCloseAbortsTheForeground(t *testing.T) {
	s := sandbox.New(0)
	cmd := command(t, "echo $$ > pid; sleep 300")
	done := make(chan *sandbox.Result)
	go func() {
		res, err := s.Run(t.Context(), cmd)
		if err != nil {
			t.Error(err)
		}
		done <- res
	}()
	pidIn(t, filepath.Join(cmd.Dir, "pid"))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if res := <-done; !res.Aborted {
		t.Errorf("result %+v", res)
	}
}

func TestManyAtOnce(t *testing.T) {
	s := shells(t, 20*time.Millisecond)
	var wg sync.WaitGroup
	for i := range 24 {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(10*i)*time.Millisecond)
			defer cancel()
			text := fmt.Sprintf("echo %d; sleep 0.0%d; sleep 0.05 & echo end", i, i%10)
			res, err := s.Run(ctx, command(t, text))
			if err != nil {
				t.Error(err)
				return
			}
			if !res.Aborted && res.Background == "" && res.Stdout.String() != fmt.Sprintf("%d\nend\n", i) {
				t.Errorf("command %d gave %q", i, res.Stdout.String())
			}
			s.List(scope)
			s.Stop(t.Context(), scope, res.Background+res.Leftover)
		})
	}
	wg.Wait()
}

func TestEnviron(t *testing.T) {
	got := sandbox.Environ([]string{
		"PATH=/bin", "HOME=/h", "MNEME_TOKEN=t", "MNEME_SECRET_KEY=k", "MNEME_DATABASE_URL=postgres://u:p@h", "MCP_AUTH_TOKEN=t", "MNEME_HOME=/m",
		"OPENAI_API_KEY=x", "ANTHROPIC_API_KEY=x", "ANTHROPIC_AUTH_TOKEN=x", "GOOGLE_GENERATIVE_AI_API_KEY=x", "QWEN_TOKEN_PLAN_CN_API_KEY=x",
		"ZAI_CODING_CN_API_KEY=x", "HF_TOKEN=x", "COPILOT_GITHUB_TOKEN=x", "LMSTUDIO_API_KEY=x", "STRIPE_API_KEY=mine", "LETTA_API_KEY=mine",
		"GITHUB_TOKEN=mine", "AWS_ACCESS_KEY_ID=mine", "CDPATH=/", "LESSOPEN=|x", "PAGER=less", "broken",
	}, map[string]string{"PAGER": "cat", "AGENT_ID": "a"})
	want := []string{
		"PATH=/bin", "HOME=/h", "MNEME_HOME=/m", "STRIPE_API_KEY=mine", "LETTA_API_KEY=mine", "GITHUB_TOKEN=mine", "AWS_ACCESS_KEY_ID=mine",
		"AGENT_ID=a", "PAGER=cat",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Environ (-want +got):\n%s", diff)
	}
}
