//go:build unix

package memory

import (
	"os/exec"
	"syscall"
)

// ownGroup keeps a Ctrl-C at the terminal away from git, which would cut a
// write, and ends the whole group when the context does.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
}

// nonBlock keeps an open of a named pipe from waiting for its writer.
const nonBlock = syscall.O_NONBLOCK
