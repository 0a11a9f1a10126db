//go:build !unix

package sandbox

import (
	"os"
	"os/exec"
	"syscall"
)

// Without process groups only the command itself can be stopped, not what it
// has started.

func groupAttr() *syscall.SysProcAttr { return nil }

func groupBusy(int) bool { return false }

func signalGroup(pid int, _ syscall.Signal) {
	if p, err := os.FindProcess(pid); err == nil {
		_ = p.Kill()
	}
}

func exitCode(cmd *exec.Cmd) int { return cmd.ProcessState.ExitCode() }
