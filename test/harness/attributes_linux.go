package harness

import "syscall"

// attributes gives the child a group of its own and lets the kernel kill it
// when the check is killed.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
