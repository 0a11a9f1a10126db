package memory

import (
	"os"
	"path/filepath"
	"time"
)

// gcAfter is how many commits make a gc worth its while: each is a pack of its
// own until then.
const gcAfter = 200

const gcTimeout = 10 * time.Minute

// collect packs a repository in the background, one at a time in the process.
// It takes no lock of ours or of git's refs: git's packing is safe beside
// commits.
func (m *Memory) collect(agentID string, r *repo) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed || r.gcRunning {
		return
	}
	r.gcRunning = true
	m.work.Add(1)
	go func() {
		defer m.work.Done()
		if take(m.stop, m.gcSlot) == nil {
			m.pack(agentID, r)
			<-m.gcSlot
		}
		m.mu.Lock()
		r.gcRunning = false
		m.mu.Unlock()
	}()
}

func (m *Memory) pack(agentID string, r *repo) {
	dir := m.Dir(agentID)
	if take(m.stop, r.write) != nil {
		return
	}
	r.commits = 0
	removeKeepFiles(dir)
	<-r.write
	for _, args := range [][]string{
		{"repack", "-d", "-l", "-q", "-A", "--unpack-unreachable=2.weeks.ago"},
		{"prune", "--expire=2.weeks.ago"},
	} {
		if _, err := m.git.run(m.stop, gitCall{dir: dir, args: args, timeout: gcTimeout}); err != nil {
			if m.stop.Err() == nil {
				m.log.Warn("memory gc", "agent", agentID, "error", err)
			}
			return
		}
	}
}

// removeKeepFiles drops the marks of imports that were killed; they would keep
// their packs from being packed for ever. No import of ours runs now.
func removeKeepFiles(dir string) {
	files, _ := filepath.Glob(filepath.Join(dir, ".git", "objects", "pack", "*.keep"))
	for _, f := range files {
		if text, err := os.ReadFile(f); err == nil && string(text) == "fast-import" {
			os.Remove(f)
		}
	}
}
