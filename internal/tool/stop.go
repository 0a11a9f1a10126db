package tool

import (
	"context"
	_ "embed"

	"mneme/internal/agent"
	"mneme/internal/sandbox"
)

//go:embed stop.md
var stopText string

//go:embed kill.md
var killText string

type stopArgs struct {
	TaskID  string `json:"task_id"`
	ShellID string `json:"shell_id"`
}

func stopTool(shells *sandbox.Shells) *Tool {
	t := define("TaskStop", stopText,
		`"task_id":{"type":"string","description":"The ID of the background task, such as bash_3"}`, "task_id")
	t.Run = func(ctx context.Context, c *Call) agent.ToolResult { return stop(ctx, shells, c) }
	return t
}

func killTool(shells *sandbox.Shells) *Tool {
	t := define("KillBash", killText,
		`"shell_id":{"type":"string","description":"The ID of the background command, such as bash_3"}`, "shell_id")
	t.Run = func(ctx context.Context, c *Call) agent.ToolResult { return stop(ctx, shells, c) }
	return t
}

func stop(ctx context.Context, shells *sandbox.Shells, c *Call) agent.ToolResult {
	var in stopArgs
	if r, ok := decode(c, &in); !ok {
		return r
	}
	if !shells.Stop(ctx, c.Env.Scope, in.TaskID+in.ShellID) {
		return failf("Failed to kill process (may have already exited)")
	}
	return success(`{"killed":true}`)
}
