package memory

import (
	"fmt"
	"testing"
)

func TestCacheBudget(t *testing.T) {
	snapshot := func(commit string) *Snapshot { return &Snapshot{Commit: commit, size: 10} }
	c := newCache(40)
	for i := range 4 {
		c.put(fmt.Sprint("agent-", i), snapshot("1"))
	}
	c.get("agent-0", "1") // used lately
	c.put("agent-4", snapshot("1"))
	for i, want := range []bool{true, false, true, true, true} {
		if got := c.get(fmt.Sprint("agent-", i), "1") != nil; got != want {
			t.Errorf("agent-%d is cached: %v, want %v", i, got, want)
		}
	}
	// Two snapshots of an agent, the ones used last.
	c = newCache(40)
	for _, commit := range []string{"1", "2"} {
		c.put("a", snapshot(commit))
	}
	c.get("a", "1")
	c.put("a", snapshot("3"))
	if c.get("a", "2") != nil || c.get("a", "1") == nil || c.newest("a").Commit != "1" || c.used != 20 {
		t.Errorf("cache holds the wrong snapshots (%d bytes)", c.used)
	}
	// One that exceeds the budget alone stays until another comes.
	c.put("b", &Snapshot{Commit: "1", size: 100})
	if c.get("b", "1") == nil || c.get("a", "1") != nil {
		t.Error("the last one used is gone")
	}
	c.drop("b")
	c.drop("b")
	if c.used != 0 || c.newest("b") != nil {
		t.Errorf("%d bytes are left", c.used)
	}
}
