//go:build unix && !linux

package sandbox

import "syscall"

func groupAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func groupBusy(pgid int) bool { return syscall.Kill(-pgid, 0) == nil }
