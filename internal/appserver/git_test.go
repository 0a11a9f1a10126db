package appserver

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mneme/protocol"
)

func git(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
}

func TestReadGit(t *testing.T) {
	root := t.TempDir()
	repo := filepath.Join(root, "repo")
	if err := os.MkdirAll(filepath.Join(repo, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	git(t, repo, "init", "-q", "-b", "main")
	git(t, repo, "commit", "-q", "--allow-empty", "-m", "one")
	git(t, repo, "branch", "feature/one")
	git(t, repo, "pack-refs", "--all")
	git(t, repo, "branch", "loose")
	git(t, repo, "worktree", "add", "-q", filepath.Join(root, "linked"), "feature/one")
	git(t, repo, "worktree", "add", "-q", "--detach", filepath.Join(root, "detached"))

	branch := func(s string) *string { return &s }
	all := protocol.List[string]{"loose", "feature/one", "main"}
	tests := []struct {
		name, dir string
		want      *protocol.GitContext
	}{
		{"the repository", repo, &protocol.GitContext{Branch: branch("main"), RecentBranches: all}},
		{"below it", filepath.Join(repo, "sub"), &protocol.GitContext{Branch: branch("main"), RecentBranches: all}},
		{"a linked work tree", filepath.Join(root, "linked"), &protocol.GitContext{Branch: branch("feature/one"), RecentBranches: all}},
		{"a detached one", filepath.Join(root, "detached"), &protocol.GitContext{RecentBranches: all}},
		{"no repository", root, nil},
		{"no directory", filepath.Join(root, "nope"), nil},
		{"not absolute", "repo", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, readGit(tt.dir)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// What is stale is shown once more while it is read anew.
func TestGitCache(t *testing.T) {
	repo := t.TempDir()
	git(t, repo, "init", "-q", "-b", "main")
	var work sync.WaitGroup
	g := newGitCache(&work)
	if c := g.context(repo); c != nil {
		t.Errorf("something is known of a new directory: %+v", c)
	}
	work.Wait()
	if c := g.context(repo); c == nil || *c.Branch != "main" {
		t.Errorf("after the first look: %+v", c)
	}
	git(t, repo, "checkout", "-q", "-b", "other")
	if c := g.context(repo); *c.Branch != "main" {
		t.Errorf("a fresh answer was read again: %s", *c.Branch)
	}
	g.dirs[repo].at = g.dirs[repo].at.Add(-2 * gitFresh)
	g.refresh(repo)
	if c := g.context(repo); *c.Branch != "other" {
		t.Errorf("after a refresh: %s", *c.Branch)
	}
	for i := range gitEntries + 10 {
		g.context(filepath.Join(repo, "x", string(rune('a'+i%26)), string(rune('a'+i/26%26)), string(rune('a'+i/676))))
	}
	if len(g.dirs) > gitEntries {
		t.Errorf("%d directories are remembered", len(g.dirs))
	}
	work.Wait()
}
