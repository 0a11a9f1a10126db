package sandbox

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// groupAttr puts a command into a group of its own that dies with the server.
func groupAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// groupBusy reports whether a process of the group is alive. It reads /proc
// because a signal 0 would also count zombies, which nobody may ever reap where
// the server is process 1 of a container.
func groupBusy(pgid int) bool {
	if syscall.Kill(-pgid, 0) != nil {
		return false
	}
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil || len(stats) == 0 {
		return true
	}
	for _, path := range stats {
		if b, err := os.ReadFile(path); err == nil && aliveIn(b, pgid) {
			return true
		}
	}
	return false
}

// aliveIn reads "pid (comm) state ppid pgrp ...", where comm may hold anything.
func aliveIn(stat []byte, pgid int) bool {
	i := bytes.LastIndexByte(stat, ')')
	if i < 0 {
		return false
	}
	f := bytes.Fields(stat[i+1:])
	if len(f) < 3 || f[0][0] == 'Z' || f[0][0] == 'X' {
		return false
	}
	return string(f[2]) == strconv.Itoa(pgid)
}
