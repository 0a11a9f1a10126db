package tool_test

import (
	"context"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mneme/internal/agent"
	"mneme/internal/sandbox"
	"mneme/internal/tool"
)

func bash(command string, more ...any) []any {
	return append([]any{"command", command, "description", "run"}, more...)
}

func TestBash(t *testing.T) {
	r := newRig(t)
	r.steps([]step{
		{"Bash", bash("echo one; echo two"), good, "one\ntwo\n"},
		{"Bash", bash("echo oops >&2; exit 3"), bad, "Exit code: 3\noops\n"},
		{"Bash", bash("echo out; echo err >&2"), good, "out\n\nerr\n"},
		{"Bash", bash("true"), good, "(Command completed with no output)"},
		{"Bash", bash("exit 7"), bad, "Exit code: 7\n"},
		{"Bash", bash("pwd"), good, r.env.Cwd + "\n"},
		{"Bash", bash("echo $AGENT_ID $LETTA_AGENT_ID $CONVERSATION_ID $LETTA_CONVERSATION_ID"), good, "agent-1 agent-1 default default\n"},
		{"Bash", bash("echo $MEMORY_DIR $LETTA_MEMORY_DIR $USER_CWD"), good, r.env.MemoryDir + " " + r.env.MemoryDir + " " + r.env.Cwd + "\n"},
		{"Bash", bash("echo $PAGER $GIT_PAGER $MANPAGER $GIT_TERMINAL_PROMPT [$MNEME_TOKEN]"), good, "cat cat cat 0 []\n"},
		{"Bash", bash("sleep 5", "timeout", 50), bad, "Command timed out after 50ms\n"},
		{"Bash", bash("echo x", "timeout", 0), good, "x\n"},
		{"Bash", bash("echo x", "timeout", 1e18), good, "x\n"},
		{"Bash", bash("/bg"), good, "(No background processes)"},
		{"Bash", bash("echo x", "timeout", "abc"), bad, "Invalid arguments for Bash: …"},
	})
}

func TestBashLongOutput(t *testing.T) {
	r := newRig(t)
	_, text := r.do("Bash", bash("seq 1 10000")...)
	shown, rest, _ := strings.Cut(text, "\n[Output truncated: showing 2,000 of 48,894 characters.]\n[Full output written to: ")
	path := strings.TrimSuffix(rest, "]")
	if len(shown) != 2000 || !strings.HasPrefix(shown, "1\n2\n") {
		t.Fatalf("text %q", text)
	}
	if b, err := os.ReadFile(path); err != nil || len(b) != 48894 {
		t.Errorf("file of %d bytes, %v", len(b), err)
	}
	if d := r.decide("Read", in("file_path", path)); d.Verdict != tool.Allow {
		t.Errorf("the agent may not read its own output: %+v", d)
	}
	if _, text = r.do("Bash", bash("seq 1 5000")...); len(text) != 23893 {
		t.Errorf("an output within the limit has %d characters", len(text))
	}

	status, text := r.do("Bash", bash("seq 1 10000; echo failed >&2; exit 1")...)
	if status != bad || !strings.HasPrefix(text, "Exit code: 1\n1\n2\n") || len(text) > 10_400 ||
		!strings.Contains(text, "10000\n\nfailed\n\n[Output truncated: showing 10,000 of ") {
		t.Errorf("failure: %d characters, end %q", len(text), text[len(text)-300:])
	}
}

func TestBashAbort(t *testing.T) {
	r := newRig(t)
	ctx, cancel := context.WithCancel(t.Context())
	call := r.call("Bash", in(bash("echo here; sleep 300")...))
	call.Output = func([]string, []string) { cancel() }
	res := tool.Find(r.tools, "Bash").Run(ctx, call)
	if diff := cmp.Diff(agent.TextResult(bad, "Interrupted by user"), res); diff != "" {
		t.Errorf("result (-want +got):\n%s", diff)
	}
}

func TestBashCwdGone(t *testing.T) {
	r := newRig(t)
	r.env.Cwd = r.path("work/sub/gone")
	_, text := r.do("Bash", bash("pwd")...)
	if want := "[The working directory " + r.env.Cwd + " no longer exists; the command ran in " + r.path("work/sub") + ".]\n" + r.path("work/sub") + "\n"; text != want {
		t.Errorf("got %q, want %q", text, want)
	}
	// What it then reads is outside the places.
	if d := r.decide("Bash", in(bash("cat x")...)); d.Verdict != tool.Ask {
		t.Errorf("reads elsewhere without asking: %+v", d)
	}
}

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s did not happen", what)
		}
	}
}

func TestBashBackground(t *testing.T) {
	r := newRig(t, func(r *rig) { r.shells = sandbox.New(100 * time.Millisecond) })
	status, text := r.do("Bash", "command", "echo hi; sleep 0.05; exit 2", "description", "greet", "run_in_background", true)
	m := regexp.MustCompile(`^Command running in background with ID: bash_1\nOutput file: (.*)$`).FindStringSubmatch(text)
	if status != good || m == nil {
		t.Fatalf("%s %q", status, text)
	}
	waitFor(t, "the notification", func() bool { return len(r.host.noticed()) == 1 })
	want := regexp.MustCompile(`^task_notification
<task-notification>
<task-id>bash_1</task-id>
<status>failed</status>
<summary>Background command "greet" failed</summary>
<result>\$ echo hi; sleep 0.05; exit 2
Exit code: 2
\[stdout\]
hi</result>
<usage>duration_ms: \d+</usage>
</task-notification>
Full transcript available at: ` + regexp.QuoteMeta(m[1]) + `$`)
	if got := r.host.noticed()[0]; !want.MatchString(got) {
		t.Errorf("notification\n%s", got)
	}

	_, text = r.do("Bash", bash("sleep 300")...)
	if !regexp.MustCompile(`^Command is still running with task ID: bash_2\nOutput file: .*\nYou will be notified`).MatchString(text) {
		t.Errorf("yield: %q", text)
	}
	if _, text = r.do("Bash", bash("/bg")...); !regexp.MustCompile(`^bash_1: .* \(failed, runtime: \d+s\)\nbash_2: sleep 300 \(running, runtime: \d+s\)$`).MatchString(text) {
		t.Errorf("list: %q", text)
	}
	r.host.mu.Lock()
	if n := len(r.host.background); n != 2 || r.host.background[1].Status != "running" {
		t.Errorf("told background %+v", r.host.background)
	}
	r.host.mu.Unlock()
	r.steps([]step{
		{"TaskStop", []any{"task_id", "bash_2"}, good, `{"killed":true}`},
		{"TaskStop", []any{"task_id", "bash_2"}, bad, "Failed to kill process (may have already exited)"},
		{"KillBash", []any{"shell_id", "bash_9"}, bad, "Failed to kill process (may have already exited)"},
	})

	_, text = r.do("Bash", bash("sleep 300 >/dev/null 2>&1 & echo started")...)
	if text != "started\n[Processes it started are still running with task ID: bash_3]" {
		t.Errorf("leftover: %q", text)
	}
	r.steps([]step{{"KillBash", []any{"shell_id", "bash_3"}, good, `{"killed":true}`}})
}
