package memory_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"mneme/internal/memory"
)

// writerRoot makes the test binary a writer that never stops by itself.
const writerRoot = "MNEME_TEST_WRITER_ROOT"

// writeForEver writes numbered files and prints each once it is committed.
func writeForEver(root string) {
	m := memory.New(root, memory.Options{})
	start, _ := strconv.Atoi(os.Getenv("MNEME_TEST_WRITER_START"))
	for n := start; ; n++ {
		changes := []memory.FileChange{
			{Path: fmt.Sprintf("log/%d/n%d.md", n%5, n), Content: fmt.Appendf(nil, "%d", n)},
			{Path: "system/counter.md", Content: fmt.Appendf(nil, "%d", n)},
		}
		commit, _, err := m.Write(context.Background(), memory.Author{}, id, changes, fmt.Sprintf("write %d", n))
		if err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		fmt.Println(n, commit)
	}
}

// A writer that is killed at any instant loses nothing that it acknowledged and
// leaves a repository that is sound and takes the next write.
func TestKilledWriter(t *testing.T) {
	f := setup(t)
	rounds := 8
	if testing.Short() {
		rounds = 3
	}
	acked := map[int]string{}
	next := 0
	for round := range rounds {
		next = killOne(t, f.root, next, acked, round%2 == 1)
		if len(acked) == 0 {
			continue // killed before the first commit
		}
		f.reopen()
		snap, err := f.Snapshot(t.Context(), id, "")
		if err != nil {
			t.Fatalf("after a kill: %v", err)
		}
		for n := range acked {
			file := snap.File(fmt.Sprintf("log/%d/n%d.md", n%5, n))
			if file == nil || file.Body != strconv.Itoa(n) {
				t.Fatalf("write %d was acknowledged and is lost", n)
			}
		}
		f.put("after.md", strconv.Itoa(next))
		f.sound()
	}
	if len(acked) == 0 {
		t.Fatal("no writer ever committed")
	}
	history := f.shell("rev-list", "main")
	for n, commit := range acked {
		if !strings.Contains(history, commit) {
			t.Errorf("the commit of write %d is not in the history", n)
		}
	}
}

// killOne runs a writer from number start for a moment, kills it with all its
// children, and returns a number that it did not use. The moment begins at the
// writer's start or, warm, at its first commit.
func killOne(t *testing.T, root string, start int, acked map[int]string, warm bool) int {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), writerRoot+"="+root, "MNEME_TEST_WRITER_START="+strconv.Itoa(start))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	die := func() { killAll(cmd.Process.Pid) }
	kill := time.AfterFunc(time.Duration(rand.IntN(100_000))*time.Microsecond, die)
	if warm {
		kill.Reset(time.Hour)
	}
	last := start
	for lines := bufio.NewScanner(out); lines.Scan(); {
		number, commit, _ := strings.Cut(lines.Text(), " ")
		n, err := strconv.Atoi(number)
		if err != nil {
			t.Fatalf("the writer failed: %s", lines.Text())
		}
		acked[n] = commit
		last = n
		if warm {
			kill.Reset(time.Duration(rand.IntN(50_000)) * time.Microsecond)
			warm = false
		}
	}
	cmd.Wait()
	kill.Stop()
	return last + 2 // last + 1 may be committed without a word
}

// killAll kills a process and its git, which has a group of its own.
func killAll(pid int) {
	children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	for _, task := range tasks(pid) {
		more, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", pid, task))
		children = append(children, more...)
	}
	kill(pid)
	for child := range strings.FieldsSeq(string(children)) {
		if p, err := strconv.Atoi(child); err == nil {
			kill(p)
		}
	}
}

func tasks(pid int) []string {
	entries, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func kill(pid int) {
	if p, err := os.FindProcess(pid); err == nil {
		p.Kill()
	}
}
