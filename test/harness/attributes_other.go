//go:build unix && !linux

package harness

import "syscall"

// attributes gives the child a group of its own.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
