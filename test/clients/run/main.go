// Command run builds the server, starts it beside the scripted model and runs
// the suites of the official clients against it.
//
// The clients come from the registry as test/clients/package-lock.json pins
// them. Where Node is missing or too old that is said aloud and nothing is
// checked; a failing installation is an error. The suites are Node's own kind
// of tests, one folder per client; what they are given is in appserver/lib.mjs.
package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"mneme/test/harness"
)

const oldestNode = 20

type options struct {
	match   string
	bin     string
	verbose bool
	limit   time.Duration
}

// errSkipped says that there was nothing to run the suites with.
var errSkipped = errors.New("SKIPPED")

func main() {
	var o options
	flag.StringVar(&o.match, "match", "", "run only the tests whose name matches this pattern")
	flag.StringVar(&o.bin, "bin", "", "take mneme and mockllm from this directory instead of building them")
	flag.BoolVar(&o.verbose, "v", false, "print what the server logs")
	flag.DurationVar(&o.limit, "timeout", 10*time.Minute, "limit for everything")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeoutCause(ctx, o.limit, fmt.Errorf("not done after %s", o.limit))
	defer cancel()
	err := run(ctx, o)
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	switch {
	case errors.Is(err, errSkipped):
		fmt.Println("clients:", err)
	case err != nil:
		fmt.Fprintln(os.Stderr, "clients:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) (err error) {
	root, err := harness.Root()
	if err != nil {
		return err
	}
	dir := filepath.Join(root, "test", "clients")
	node, err := findNode(ctx)
	if err != nil {
		return err
	}
	if err := install(ctx, dir); err != nil {
		return err
	}
	if o.bin == "" {
		if o.bin, err = harness.Build(ctx, "mneme", "mockllm"); err != nil {
			return err
		}
	} else if o.bin, err = filepath.Abs(o.bin); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp("", "clients-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)

	var g harness.Group
	defer g.Close()
	model, err := g.StartModel(ctx, o.bin)
	if err != nil {
		return err
	}
	s, err := prepare(tmp, o)
	if err != nil {
		return err
	}
	if err := s.Connect(ctx, model); err != nil {
		return err
	}
	server, err := g.StartServer(ctx, s)
	if err != nil {
		return err
	}
	if err := suites(ctx, dir, node, o.match, []string{
		"MNEME_WS_URL=" + server.Listen, "MNEME_MODEL=lmstudio/mock-1", "MNEME_MODEL_URL=" + model.URL,
		"MNEME_BIN=" + filepath.Join(o.bin, "mneme"), "MNEME_WORKSPACE=" + filepath.Join(tmp, "workspace"),
	}); err != nil {
		return fmt.Errorf("%w\nthe server said last:\n%s", err, server.Output())
	}
	if err := server.Stop(); err != nil {
		return fmt.Errorf("stop the server: %w: %s", err, server.Output())
	}
	return nil
}

// prepare makes the directories of the server that the suites share. Its
// settings are those that people get.
func prepare(tmp string, o options) (harness.Server, error) {
	s := harness.Server{Bin: o.bin, Home: filepath.Join(tmp, "home"), Dir: filepath.Join(tmp, "boot")}
	s.State = filepath.Join(s.Home, ".mneme")
	if o.verbose {
		s.Log = os.Stderr
	}
	for _, d := range []string{s.Home, s.Dir, filepath.Join(tmp, "workspace")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return s, err
		}
	}
	return s, nil
}

// findNode is the path of a Node that is new enough, from $NODE or $PATH.
func findNode(ctx context.Context) (string, error) {
	name := os.Getenv("NODE")
	if name == "" {
		name = "node"
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("%w: no Node found (%v)", errSkipped, err)
	}
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("%s --version: %w", path, err)
	}
	version := strings.TrimSpace(string(out))
	major, _, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	if n, err := strconv.Atoi(major); err != nil || n < oldestNode {
		return "", fmt.Errorf("%w: Node %s is older than %d", errSkipped, version, oldestNode)
	}
	return path, nil
}

// install brings in the packages of the lock file, unless those are there.
func install(ctx context.Context, dir string) error {
	h := sha256.New()
	for _, name := range []string{"package.json", "package-lock.json"} {
		f, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		_, err = io.Copy(h, f)
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	want, stamp := hex.EncodeToString(h.Sum(nil)), filepath.Join(dir, "node_modules", ".installed")
	if have, err := os.ReadFile(stamp); err == nil && string(have) == want {
		return nil
	}
	if _, err := exec.LookPath("npm"); err != nil {
		return fmt.Errorf("%w: no npm found to install the clients (%v)", errSkipped, err)
	}
	cmd := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--loglevel=error")
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, os.Stdout, os.Stderr
	if err := harness.Run(cmd); err != nil {
		return fmt.Errorf("npm ci: %w", err)
	}
	return os.WriteFile(stamp, []byte(want), 0o644)
}

// suites runs every test file of the clients.
func suites(ctx context.Context, dir, node, match string, env []string) error {
	files, err := filepath.Glob(filepath.Join(dir, "*", "*.test.mjs"))
	if err != nil || len(files) == 0 {
		return fmt.Errorf("no test files in %s (%v)", dir, err)
	}
	args := []string{"--test", "--test-reporter=spec", "--test-timeout=120000", "--test-force-exit"}
	if match != "" {
		args = append(args, "--test-name-pattern="+match)
	}
	cmd := exec.CommandContext(ctx, node, append(args, files...)...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), env...)
	return harness.Run(cmd)
}
