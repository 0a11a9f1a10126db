package tool

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"mneme/internal/agent"
	"mneme/internal/sandbox"
)

//go:embed bash.md
var bashText string

const (
	bashTimeout    = 120 * time.Second
	maxBashTimeout = 600 * time.Second
	listCommand    = "/bg" // lists the background processes
)

type bashArgs struct {
	Command     string  `json:"command"`
	Description string  `json:"description"`
	Timeout     *number `json:"timeout"` // milliseconds
	Background  flag    `json:"run_in_background"`
}

func bashTool(shells *sandbox.Shells) *Tool {
	t := define("Bash", bashText, `
		"command":{"type":"string","description":"The bash command to run"},
		"description":{"type":"string","description":"What the command does, in five to ten words"},
		"timeout":{"type":"number","description":"Milliseconds until the command is stopped, at most 600000 (default 120000)"},
		"run_in_background":{"type":"boolean","description":"Return at once; you are notified when the command ends"}`,
		"command", "description")
	t.Run = func(ctx context.Context, c *Call) agent.ToolResult {
		var in bashArgs
		if r, ok := decode(c, &in); !ok {
			return r
		}
		if strings.TrimSpace(in.Command) == listCommand {
			return success(listShells(shells.List(c.Env.Scope)))
		}
		return runBash(ctx, shells, c, in)
	}
	return t
}

func runBash(ctx context.Context, shells *sandbox.Shells, c *Call, in bashArgs) agent.ToolResult {
	dir, note := startDir(c.Env.Cwd)
	cmd := sandbox.Command{
		Scope: c.Env.Scope, Text: in.Command, Dir: dir, Env: commandEnv(c.Env, dir),
		LogDir: c.Env.outputs(), Output: c.Output, Background: bool(in.Background),
		Done: func(f sandbox.Finished) { notify(c, in.Description, f) },
	}
	if c.Host != nil {
		scope, host := c.Env.Scope, c.Host
		cmd.Changed = func(list []agent.Background) { host.SetBackground(scope, list) }
	}
	switch {
	case in.Timeout != nil && *in.Timeout > 0:
		cmd.Timeout = min(time.Duration(min(*in.Timeout, 1e9))*time.Millisecond, maxBashTimeout)
	case !cmd.Background:
		// What goes to the background later is no longer waited for, and may
		// take its time.
		cmd.Timeout, cmd.ForegroundOnly = bashTimeout, true
	}
	res, err := shells.Run(ctx, cmd)
	switch {
	case errors.Is(err, sandbox.ErrTooMany):
		return failf("Too many background processes (%d). Stop some with TaskStop first.", sandbox.MaxBackground)
	case err != nil:
		return failf("Error executing tool: %v", err)
	case res.Aborted:
		return Interrupted()
	case res.Background != "" && cmd.Background:
		return success(note + fmt.Sprintf("Command running in background with ID: %s\nOutput file: %s", res.Background, res.Log))
	case res.Background != "":
		return success(note + fmt.Sprintf("Command is still running with task ID: %s\nOutput file: %s\n"+
			"You will be notified when it ends.", res.Background, res.Log))
	}
	return bashResult(res, cmd.Timeout, note)
}

// bashResult renders a command that has ended.
func bashResult(res *sandbox.Result, timeout time.Duration, note string) agent.ToolResult {
	out, errOut := res.Stdout.String(), res.Stderr.String()
	text, total := out, res.Stdout.Chars+res.Stderr.Chars
	if out != "" && errOut != "" {
		text += "\n"
		total++
	}
	text += errOut
	head := ""
	if res.TimedOut {
		head = fmt.Sprintf("Command timed out after %dms\n", timeout.Milliseconds())
	} else if res.ExitCode != 0 {
		head = fmt.Sprintf("Exit code: %d\n", res.ExitCode)
	}
	failed := head != ""
	switch {
	case failed && total > maxBashFailure:
		tail := res.Stdout.Tail(maxBashFailure / 2)
		if errOut != "" {
			tail = lastChars(tail+"\n"+res.Stderr.Tail(maxBashFailure/2), maxBashFailure/2)
		}
		text = firstChars(text, maxBashFailure/2) + "\n[...]\n" + tail + truncated(maxBashFailure, total) + saved(res)
	case !failed && total > maxBashOutput:
		text = firstChars(text, bashPreview) + truncated(bashPreview, total) + saved(res)
	case !failed && strings.TrimSpace(text) == "":
		text = "(Command completed with no output)"
	}
	if res.Leftover != "" {
		text = strings.TrimRight(text, "\n") + "\n[Processes it started are still running with task ID: " + res.Leftover + "]"
	}
	status := agent.StatusSuccess
	if failed {
		status = agent.StatusError
	}
	return agent.TextResult(status, note+head+text)
}

func saved(res *sandbox.Result) string {
	path, err := res.Save()
	if err != nil {
		return "\n[The full output could not be written: " + err.Error() + "]"
	}
	return writtenTo(path)
}

// startDir is the working directory, or the nearest one above it that still
// exists, with a note for the model.
func startDir(cwd string) (dir, note string) {
	for dir = cwd; ; dir = filepath.Dir(dir) {
		if st, err := os.Stat(dir); err == nil && st.IsDir() || dir == filepath.Dir(dir) {
			break
		}
	}
	if dir != cwd {
		note = fmt.Sprintf("[The working directory %s no longer exists; the command ran in %s.]\n", cwd, dir)
	}
	return dir, note
}

// commandEnv is the environment of spec/harness.md section 2.4.
func commandEnv(e *Env, dir string) []string {
	base := e.BaseEnv
	if base == nil {
		base = os.Environ()
	}
	set := map[string]string{
		"AGENT_ID": e.Scope.AgentID, "LETTA_AGENT_ID": e.Scope.AgentID,
		"CONVERSATION_ID": e.WireConv, "LETTA_CONVERSATION_ID": e.WireConv,
		"MEMORY_DIR": e.MemoryDir, "LETTA_MEMORY_DIR": e.MemoryDir,
		"USER_CWD": e.Cwd, "PWD": dir,
		"PAGER": "cat", "GIT_PAGER": "cat", "MANPAGER": "cat", "GIT_TERMINAL_PROMPT": "0",
	}
	return sandbox.Environ(base, set)
}

func listShells(list []agent.Background) string {
	if len(list) == 0 {
		return "(No background processes)"
	}
	var out strings.Builder
	for _, b := range list {
		fmt.Fprintf(&out, "%s: %s (%s, runtime: %ds)\n", b.ID, b.Command, b.Status, int(time.Since(b.StartedAt).Seconds()))
	}
	return strings.TrimRight(out.String(), "\n")
}

// notify queues the notification of a background command that has ended
// (spec/harness.md section 2.5).
func notify(c *Call, title string, f sandbox.Finished) {
	if c.Host == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	err := c.Host.Enqueue(ctx, c.Env.Scope, "task_notification", notification(title, f))
	if err != nil && c.Env.Log != nil {
		c.Env.Log.Warn("notification lost", "process", f.ID, "err", err)
	}
}

func notification(title string, f sandbox.Finished) string {
	if title == "" {
		title = f.Command
	}
	status := "completed"
	if f.ExitCode != 0 || f.TimedOut {
		status = "failed"
	}
	result := "$ " + f.Command
	if f.TimedOut {
		result += "\nCommand timed out"
	}
	result += fmt.Sprintf("\nExit code: %d", f.ExitCode)
	for _, s := range []struct{ name, text string }{
		{"stdout", f.Stdout.Tail(maxNotice)}, {"stderr", f.Stderr.Tail(maxNotice)},
	} {
		if text := lastLines(s.text, noticeLines); text != "" {
			result += "\n[" + s.name + "]\n" + text
		}
	}
	if utf8.RuneCountInString(result) > maxNotice {
		result = firstChars(result, maxNotice/2) + "\n[...]\n" + lastChars(result, maxNotice/2)
	}
	return fmt.Sprintf("<task-notification>\n<task-id>%s</task-id>\n<status>%s</status>\n"+
		"<summary>Background command \"%s\" %s</summary>\n<result>%s</result>\n<usage>duration_ms: %d</usage>\n"+
		"</task-notification>\nFull transcript available at: %s",
		f.ID, status, firstChars(title, 200), status, result, f.Elapsed.Milliseconds(), f.Log)
}

func lastLines(s string, n int) string {
	lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
