package server_test

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"mneme/internal/server"
)

// lockPlayer makes the test binary take the lock of a directory and hold it
// until it is killed.
const lockPlayer = "SERVER_TEST_HOLDS"

func TestMain(m *testing.M) {
	if home := os.Getenv(lockPlayer); home != "" {
		_, err := server.AcquireLock(home, server.Holder{PID: os.Getpid(), URL: "ws://127.0.0.1:1/ws"})
		os.Stdout.WriteString("held " + text(err) + "\n")
		select {}
	}
	run(m)
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestLock(t *testing.T) {
	home := t.TempDir()
	if h, err := server.HolderOf(home); h != nil || err != nil {
		t.Fatalf("of an empty directory: %v, %v", h, err)
	}
	lock, err := server.AcquireLock(home, server.Holder{PID: 7, URL: "ws://127.0.0.1:4500/ws"})
	if err != nil {
		t.Fatal(err)
	}
	me := server.Holder{PID: 7, URL: "ws://h/ws", TokenFile: "/t", Auth: true, Command: "serve"}
	if err := lock.Announce(me); err != nil {
		t.Fatal(err)
	}
	h, err := server.HolderOf(home)
	if err != nil || h == nil || *h != me {
		t.Fatalf("holder %v, %v", h, err)
	}
	_, err = server.AcquireLock(home, server.Holder{PID: 8})
	var held *server.HeldError
	if !errors.As(err, &held) || held.Holder != me {
		t.Fatalf("second: %v", err)
	}
	for _, want := range []string{"pid 7", "ws://h/ws", "MNEME_HOME", home} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not name %s", err, want)
		}
	}
	if err := lock.Release(); err != nil {
		t.Fatal(err)
	}
	if h, err := server.HolderOf(home); h != nil || err != nil {
		t.Errorf("after the release: %v, %v", h, err)
	}
	again, err := server.AcquireLock(home, server.Holder{PID: 9, URL: "x"})
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Release(); err != nil {
		t.Error(err)
	}
	if info, err := os.Stat(filepath.Join(home, server.LockFile)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

func TestLockOfKilledProcessIsFree(t *testing.T) {
	home := t.TempDir()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), lockPlayer+"="+home)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	if line, _ := bufio.NewReader(out).ReadString('\n'); line != "held \n" {
		t.Fatalf("the child says %q", line)
	}
	if h, err := server.HolderOf(home); err != nil || h == nil || h.PID != cmd.Process.Pid {
		t.Fatalf("holder %v, %v", h, err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
	lock, err := server.AcquireLock(home, server.Holder{PID: os.Getpid(), URL: "x"})
	if err != nil {
		t.Fatal(err)
	}
	lock.Release()
}
