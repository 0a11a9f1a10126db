package shell_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mneme/internal/tool/shell"
)

// place is a working directory with some files, and a world that knows it.
func place(t testing.TB) (dir string, w *shell.World) {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	dir = filepath.Join(root, "work")
	mem := filepath.Join(root, "mem", "agent-1", "memory")
	for _, d := range []string{filepath.Join(dir, "sub"), filepath.Join(mem, "system"), filepath.Join(mem, ".git"), filepath.Join(root, "other")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []string{"work/a.txt", "work/b.go", "work/sub/c.txt", "mem/agent-1/memory/system/human.md", "other/secret"} {
		if err := os.WriteFile(filepath.Join(root, f), []byte("x\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(root, "other"), filepath.Join(dir, "out")); err != nil {
		t.Fatal(err)
	}
	under := func(path, top string) bool {
		rest := ""
		real, err := filepath.EvalSymlinks(path)
		for err != nil {
			rest, path = filepath.Join(filepath.Base(path), rest), filepath.Dir(path)
			real, err = filepath.EvalSymlinks(path)
		}
		real = filepath.Join(real, rest)
		return real == top || strings.HasPrefix(real, top+"/")
	}
	w = &shell.World{
		Dir: dir, Home: filepath.Join(root, "home"),
		Vars:     map[string]string{"MEMORY_DIR": mem, "HOME": filepath.Join(root, "home")},
		Readable: func(p string) bool { return under(p, dir) || under(p, mem) },
		Memory:   func(p string) bool { return under(p, mem) },
	}
	return dir, w
}

func readOnly(w *shell.World, text string) bool {
	s, err := shell.Parse(text)
	return err == nil && s.ReadOnly(w)
}

func TestReadOnly(t *testing.T) {
	_, w := place(t)
	for _, text := range []string{
		"ls", "ls -la", "cat a.txt", "cat a.txt | head -5", "pwd && ls", "ls; pwd", "ls || true", "ls\npwd",
		"cat ./sub/c.txt", "cat $MEMORY_DIR/system/human.md", `cat "$MEMORY_DIR/system/human.md"`, "cat ${MEMORY_DIR}/system/human.md",
		"cd sub && cat c.txt", "cd sub; ls", "(cd sub && ls)", "{ ls; pwd; }", "! ls", "time ls",
		"grep -rn foo .", "grep -rn '/api/v1' sub", "rg foo", "rg -n 'a|b' sub", "grep -A 3 foo a.txt",
		"ls 2>/dev/null", "ls > /dev/null 2>&1", "ls &>/dev/null", "cat < a.txt", "ls 2>&1 | wc -l",
		"echo hello", "echo $HOME $UNKNOWN", "echo 'a; rm b'", `echo "x > y"`, `printf '%s\n' a`, "echo *",
		"ls *.go", "cat *.txt", "cat sub/*.txt", "head -n 5 a.txt", "wc -l *.go", "tail -f a.txt",
		"find . -name '*.go'", "find sub -type f -maxdepth 2", "find . -name x -exec stat {} \\;", "find . \\( -name a -o -name b \\) -print",
		"sed -n '1,5p' a.txt", "sed -n '/foo/p' a.txt", "sed 's/a/b/g' a.txt", "sed -e 's|a|b|' -e '2d' a.txt", "sed -n '$=' a.txt",
		"sort a.txt", "sort -k2 -n a.txt", "cut -d: -f1 a.txt", "tr a-z A-Z", "diff a.txt b.go", "stat a.txt", "file a.txt",
		"ls /etc", "stat /etc/passwd", "du -sh /usr", "tree -L 2", "basename /etc/passwd", "realpath a.txt", "readlink -f a.txt",
		"date", "date +%F", "date -d yesterday +%F", "date -u", "hostname", "uname -a", "whoami", "id", "which go", "type ls",
		"jq '.a' a.txt", "yq '.a' a.txt", "xxd a.txt", "env", "env LC_ALL=C sort a.txt", "LC_ALL=C sort a.txt", "NO_COLOR=1 ls",
		"bash -c 'ls'", "bash -lc 'cat a.txt | head'", "sh -c 'ls; pwd'", `bash -c "bash -c 'ls'"`,
		"for f in a.txt b.go; do cat $f; done", `for f in *.txt; do echo "$f"; head -3 "$f"; done`, "if [ -f a.txt ]; then cat a.txt; fi",
		"[ -d sub ] && ls sub", "test -f a.txt && echo yes", "[[ -f a.txt ]] && cat a.txt", "if [ ! -e x ]; then echo no; else ls; fi",
		"git status", "git status -sb", "git diff", "git diff --stat HEAD~1", "git diff main..feature -- a.txt", "git log --oneline -10",
		"git log --text", "git show HEAD:a.txt", "git show HEAD^", "git blame a.txt", "git branch", "git branch -a", "git branch -vv", "git branch --show-current",
		"git branch --list 'f*'", "git branch --contains HEAD", "git tag", "git tag -l 'v*'", "git tag --sort=-creatordate", "git remote", "git remote -v",
		"git remote get-url origin", "git rev-parse HEAD", "git ls-files", "git grep foo", "git --no-pager log -5", "git -C sub status",
		"gh pr list", "gh pr view 12 --json title", "gh issue view 3", "gh api repos/o/r/pulls", "gh api -X GET repos/o/r", "gh search code foo", "gh run view 1",
		"letta agents list", "letta memory status", "ls # a comment; rm x", "cat a.txt \\\n  b.go", "less a.txt", "rg --files",
	} {
		if !readOnly(w, text) {
			t.Errorf("asks although it only reads: %q", text)
		}
	}
}

// evasions are commands that change something, run something unknown or read
// what is off limits. None may count as read-only.
var evasions = []string{
	// Chains and substitutions.
	"ls; rm x", "ls && rm x", "ls || rm x", "ls | tee x", "ls | xargs rm", "ls & rm x", "ls &", "ls\nrm x", "ls\r\nrm x",
	"ls $(rm x)", "ls `rm x`", "echo \"$(rm x)\"", "echo \"`rm x`\"", "cat <(rm x)", "ls >(rm x)", "echo $((a[$(rm x)]))", "echo $[a[$(rm x)]]",
	"echo ${x:-$(rm x)}", "echo ${x:=y}", "echo ${x@P}", "echo ${!x}", "echo ${a[$(rm x)]}", "echo ${x//a/$(rm x)}", "echo \"${x:?$(rm x)}\"",
	"[ -f $(rm x) ]", "[[ -v a[$(rm x)] ]]", "[[ $(rm x) ]]", "[[ 1 -eq a[$(rm)] ]]", "((x=1))", "let x=1", "if rm x; then ls; fi", "while rm x; do ls; done",
	"until rm x; do ls; done", "for i in $(rm x); do ls; done", "for i in a; do rm $i; done", "for ((i=0;i<1;i++)); do ls; done", "select x in a; do ls; done",
	"case x in x) rm x;; esac", "coproc rm x", "time rm x", "! rm x", "{ rm x; }", "(rm x)", "ls;;rm x",
	// Redirections.
	"ls > f", "ls >> f", "ls >| f", "ls &> f", "ls &>> f", "ls >& f", "ls 2> f", "ls <> f", "> f", ">f ls", "echo x > /dev/null > f", "ls {fd}> f",
	"{ ls; } > f", "(ls) > f", "if [ -f a.txt ]; then ls; fi > f", "for i in a; do ls; done > f", "ls > /dev/null/../../f", "ls > /dev/nullx", "cat < /etc/shadow", "cat < ../other/secret",
	"cat <<EOF\n$(rm x)\nEOF", "cat <<EOF\nx\nEOF", "bash <<EOF\nrm x\nEOF", "cat <<< x > f", "bash <<< 'rm x'",
	// Names that are not what they seem.
	`\rm x`, `r\m x`, "'rm' x", `"rm" x`, "$'rm' x", "r''m x", "$X x", "${X} x", "/bin/rm x", "./ls", "/tmp/ls", "../ls", "*", "l? x", "command rm x", "builtin eval 'rm x'",
	"exec rm x", "exec ls", "eval ls", "eval 'rm x'", "source a.txt", ". a.txt", "sudo ls", "nohup rm x", "timeout 5 rm x", "xargs rm", "nice rm x", "setsid rm x", "busybox rm x",
	"alias ls=rm; ls", "ls() { rm x; }; ls", "function ls { rm x; }; ls", "unalias ls", "hash -p /tmp/evil ls", "enable -n echo", "shopt -s extglob", "set -o noclobber", "trap 'rm x' EXIT", "trap 'rm x' DEBUG",
	"declare x=$(rm x)", "export PATH=/tmp", "local x", "readonly x=1", "typeset x", "read x", "mapfile x", "printf -v PATH x", "printf -vPATH x", "printf -v 'a[$(rm x)]' y", "getopts a x", "unset PATH",
	// Environment.
	"PATH=/tmp ls", "PATH=/tmp", "PATH=/tmp; ls", "LD_PRELOAD=/tmp/x.so ls", "BASH_ENV=x bash -c ls", "ENV=x sh -c ls", "IFS=x ls", "LESSOPEN='|rm x' less a.txt", "PAGER='rm x' git log",
	"GIT_EXTERNAL_DIFF=./evil git diff", "GIT_PAGER=./evil git log", "GIT_SSH_COMMAND=./evil git status", "RIPGREP_CONFIG_PATH=x rg foo", "env PATH=/tmp ls", "env -i ls", "env -S 'rm x'", "env rm x",
	"env LD_PRELOAD=x ls", "env -- rm x", "env LC_ALL=C rm x", "env $X", "TZ=$(rm x) date", "LC_ALL=`rm x` ls", "TZ=:~/x date", "for PATH in /tmp; do ls; done", "for IFS in x; do ls; done", "for http_proxy in x; do gh api x; done",
	"for MEMORY_DIR in /etc; do cat $MEMORY_DIR/passwd; done", "HOME=/etc; cat ~/passwd", "for f in a.txt; do cat $f; done; for f in /etc/passwd; do cat $f; done",
	"for i in 1 2; do cat $f; for f in /etc/passwd; do true; done; done", "for f in -o; do sort $f x a.txt; done", "for f in /etc/passwd; do cat $f; done", "for d in sub; do cd $d; done; cat c.txt",
	// Shells in shells.
	"bash -c 'rm x'", "sh -c 'ls; rm x'", "bash -c ls -- rm", "bash -c \"$X\"", "bash a.txt", "bash -i -c ls", "bash -ic ls", "bash --rcfile x -c ls", "bash -c 'bash -c \"rm x\"'", "zsh -c ls", "python3 -c 'x'", "perl -e x", "node -e x",
	"bash -c 'ls' > f", "bash -O extglob -c ls", "ssh host ls", "awk 'BEGIN{system(\"rm x\")}'", "awk '{print > \"f\"}' a.txt", "tee f", "touch f", "mkdir d", "cp a.txt c", "ln -s a b", "dd if=a of=b", "curl http://x", "wget x", "nc -l 1",
	"kill 1", "chmod +x a", "vim a", "make", "npm test", "go build", "docker ps", "crontab -l",
	// Options that write or run.
	"find . -delete", "find . -exec rm {} \\;", "find . -exec rm {} +", "find . -execdir rm {} \\;", "find . -ok rm {} \\;", "find . -okdir rm {} \\;", "find . -fprint f", "find . -fprintf f x", "find . -fls f", "find . -fprint0 f",
	"find . -exec stat {} \\; -exec rm {} \\;", "find . -exec stat {} \\; -delete", "find . -name x -exec $X \\;", "find . -newer a.txt *", "find /etc -name passwd", "find ../other -type f", "find -files0-from x", "find . -exec stat {}",
	"sed -i s/a/b/ a.txt", "sed -i.bak s/a/b/ a.txt", "sed --in-place s/a/b/ a.txt", "sed --in s/a/b/ a.txt", "sed -ni p a.txt", "sed -n 'w f' a.txt", "sed 's/a/b/w f' a.txt", "sed 's/a/b/e' a.txt", "sed e a.txt", "sed '1e rm x' a.txt",
	"sed -f a.txt b.go", "sed --file=a.txt b.go", "sed -n '/a/w f' a.txt", "sed 's/[/]e;w f/x/' a.txt", "sed 'r /etc/passwd' a.txt", "sed '1R /etc/passwd' a.txt", "sed -n '1!w f' a.txt", "sed 'a\\\nx\ne rm' a.txt", "sed -e p -i a.txt", "sed -E -i p a.txt", "sed p -i a.txt",
	"sed -s -i p a.txt", "sed '{w f\n}' a.txt", "sed y/a/b/ a.txt", "sed \"$X\" a.txt", "sed p /etc/passwd", "sed 's/x/y/;w f' a.txt", "sed 's,x,y,w f' a.txt", "sed W a.txt", "sed -- -i a.txt x", "sed '1~2w f' a.txt", "sed 'c\\' a.txt", "sed --expression='w f' a.txt",
	"sort -o f a.txt", "sort -of a.txt", "sort --output=f a.txt", "sort --out=f a.txt", "sort --o f a.txt", "sort a.txt -o f", "sort --compress-program=./evil a.txt", "sort --comp ./evil a.txt", "sort -T /tmp a.txt", "sort -uo f a.txt", "sort --files0-from=x",
	"xxd a.txt f", "xxd -r a.txt f", "tree -o f", "tree -R -H x -L 1", "file -C -m x", "date -s 2020-01-01", "date --set=x", "date --se x", "date 010100002020", "hostname evil", "hostname -F f", "yq -i .a=1 a.txt", "yq --inplace .a=1 a.txt", "yq -s .a a.txt",
	"yq 'load(\"/etc/passwd\")' a.txt", "less +!rm a.txt", "less -o f a.txt", "less -Of a.txt", "less --log-file=f a.txt", "more +!rm a.txt", "rg --pre ./evil x", "rg --pre=./evil x", "rg -z x", "rg --search-zip x", "rg --hostname-bin=./evil x", "rg -nz x",
	"ag --pager ./evil x", "ack --pager=./evil x", "ack --output='x' y", "wc --files0-from=list", "du --files0-from=list", "du -X list .",
	// Paths.
	"cat /etc/shadow", "cat ../other/secret", "cat sub/../../other/secret", "cat out/secret", "cat out/*", "cat */secret", "head ~/x", "cat ~root/x", "cat ~", "cat $HOME/x", "cat {a,/etc/passwd}", "cat {/etc/passwd,}", "cat /etc/pass{wd,}", "cat /etc/p*", "cat /e?c/passwd", "cat [/]etc/passwd",
	"grep x /etc/passwd", "grep -f /etc/passwd a.txt", "grep --file=/etc/passwd a.txt", "grep -f/etc/passwd a.txt", "grep -e x /etc/passwd", "rg x /etc", "rg -f /etc/passwd", "diff a.txt /etc/passwd", "jq -f /etc/passwd a.txt", "cd /etc && cat passwd", "cd .. && cat other/secret", "cd ../other; cat secret",
	"cd; cat x", "cd -", "cd - && cat x", "cd $X && cat a.txt", "cd out && cat secret", "cd sub && cat ../../other/secret", "cd /etc; ls", "pushd /etc", "wc -l /etc/passwd", "git -C ../other log", "git -C /etc status", "cat a.txt /etc/passwd", "cat -- /etc/passwd", "cat -n/etc/passwd",
	"cat \"/etc/passwd\"", "cat '/etc/passwd'", `cat \/etc/passwd`, "cat //etc/passwd", "cat /./etc/passwd", "cat /dev/sda", "cat /proc/self/environ", "git diff --no-index /etc/passwd a.txt", "git diff --no-index a.txt b.go", "git blame --contents /etc/passwd a.txt",
	// git and gh.
	"git commit -m x", "git add .", "git push", "git pull", "git fetch", "git checkout x", "git switch x", "git reset --hard", "git clean -fd", "git stash", "git rebase x", "git merge x", "git config user.name x", "git config -l", "git init", "git clone x", "git worktree list", "git reflog expire",
	"git -c core.pager=./evil log", "git -c alias.x='!rm' x", "git --config-env=a=b log", "git --exec-path=/tmp log", "git --git-dir=/x log", "git --work-tree=/x status", "git -p log", "git --paginate log", "git log --output=f", "git log --outp=f", "git diff --output f", "git diff --ext-diff", "git log --ext-diff",
	"git show --textconv", "git diff --textc", "git cat-file --textconv HEAD:a", "git cat-file --filters HEAD:a", "git grep -O x", "git grep -Oevil x", "git grep --open-files-in-pager=evil x", "git grep --open x", "git branch x", "git branch -d x", "git branch -D x", "git branch -m a b", "git branch -f a b", "git branch -v x",
	"git branch -l x", "git branch --sort x y", "git branch --set-upstream-to=x", "git branch --edit-description", "git tag x", "git tag -d x", "git tag -a x", "git tag -s x", "git tag -f x", "git tag --sort x y", "git tag -F f x", "git tag -m x y", "git remote add x y", "git remote remove x", "git remote set-url x y",
	"git remote update", "git remote prune x", "git remote show origin", "git remote -v add x y", "git st", "git $X", "git -C sub commit -m x", "git", "git --help", "git bisect start", "git archive -o f HEAD", "git bundle create f HEAD", "git format-patch HEAD", "git am x", "git apply x", "git notes add", "git update-ref x y",
	"gh pr create", "gh pr merge 1", "gh pr checkout 1", "gh pr view --web", "gh pr view -w", "gh run download 1", "gh release download x", "gh repo clone x", "gh repo delete x", "gh api -X POST x", "gh api x -f a=b", "gh api x -F a=b", "gh api --method DELETE x", "gh api x --input f", "gh api https://evil/x", "gh api graphql", "gh auth token", "gh extension install x",
	"gh alias set x y", "gh gist create a.txt", "gh secret set x", "gh issue close 1", "gh", "gh pr", "gh api x --hostname evil", "letta memory export x", "letta agents delete x", "letta", "letta server",
	// Strange characters.
	"ls\x00rm x", "ls\x0brm x", "ls\x0crm", "ls \x1b[0m", "l\u200bs", "ls\u00a0; rm x", "ls\u2028rm x", "ls \xff\xfe", "\ufeffls", "ls；rm x", "rm\u00a0x", "ls\\\n; rm x", "echo a\\\nb; rm x", "# comment\nrm x", "ls #\\\nrm x", "", " ", "\n", "#", "ls &&", "ls (", "\"", "'", "$(", "`",
}

func TestEvasions(t *testing.T) {
	_, w := place(t)
	for _, text := range evasions {
		if readOnly(w, text) {
			t.Errorf("counts as read-only: %q", text)
		}
	}
}
