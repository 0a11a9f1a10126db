package memory

// news is a commit that OnCommit shall hear of; without a commit it is none.
type news struct {
	agentID, commit string
	paths           []string
}

// tell tells it. No lock is held.
func (n news) tell(m *Memory) {
	if n.commit == "" {
		return
	}
	for _, f := range m.opts.OnCommit {
		f(n.agentID, n.commit, n.paths)
	}
}

// observe looks whether others, such as the agent's shell, committed since we
// looked last. While somebody writes, the write does that.
func (m *Memory) observe(agentID string, s *Snapshot) {
	r := m.repo(agentID)
	select {
	case r.write <- struct{}{}:
	default:
		return
	}
	var n news
	// The snapshot may be older than what was told meanwhile.
	if r.told != s.Commit {
		if head, err := m.Head(agentID); err == nil && head == s.Commit {
			n = m.news(r, agentID, s)
		}
	}
	<-r.write
	n.tell(m)
}

// news is what others committed up to s, the newest commit. It is told once. The
// write lock is held.
func (m *Memory) news(r *repo, agentID string, s *Snapshot) news {
	before := r.told
	r.told = s.Commit
	if before == "" || before == s.Commit {
		return news{}
	}
	n := news{agentID: agentID, commit: s.Commit, paths: []string{"*"}}
	if old := m.cache.get(agentID, before); old != nil {
		n.paths = nil
		for _, o := range diff(old, s) {
			n.paths = append(n.paths, o.path)
		}
	}
	return n
}
