//go:build unix

package sandbox

import (
	"os/exec"
	"syscall"
)

// signalGroup signals every process of the group; one that is gone is no error.
func signalGroup(pgid int, sig syscall.Signal) { _ = syscall.Kill(-pgid, sig) }

// exitCode is the status as a shell would give it.
func exitCode(cmd *exec.Cmd) int {
	if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return cmd.ProcessState.ExitCode()
}
