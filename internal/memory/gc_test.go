package memory_test

import (
	"fmt"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// After 200 commits the packs become one, in the background, and nothing is lost.
func TestGC(t *testing.T) {
	if testing.Short() {
		t.Skip("200 commits")
	}
	f := setup(t)
	const commits = 205
	for i := range commits {
		f.put(fmt.Sprintf("log/%d.md", i%10), strconv.Itoa(i))
	}
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		packs, _ := filepath.Glob(filepath.Join(f.Dir(id), ".git", "objects", "pack", "*.pack"))
		if len(packs) > 0 && len(packs) <= commits-200+1 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d packs are left", len(packs))
		}
	}
	f.reopen()
	if got := f.shell("rev-list", "--count", "main"); got != strconv.Itoa(commits) {
		t.Errorf("%s commits", got)
	}
	f.put("log/0.md", "after")
	f.sound()
}
