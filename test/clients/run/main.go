// Command run builds the server, starts it beside the scripted model and runs
// the suites of the official clients against it.
//
// The clients come from the registries as test/clients/package-lock.json and
// test/clients/rest-py/requirements.txt pin them. A suite whose Node or Python
// is missing or too old is skipped, and that is said aloud; a failing
// installation is an error where the registry answered. A suite is a folder of
// tests for the test runner of its language; what it is given is in lib/mneme.mjs.
//
// The REST suites write down what they asked and how it was answered. After a
// whole run that is held against endpoints.json: every call that must be there
// was answered well at least once and refused at least once.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"mneme/test/harness"
)

type options struct {
	suites  string
	match   string
	bin     string
	verbose bool
	limit   time.Duration
}

// errSkipped says that there was nothing to run a suite with.
var errSkipped = errors.New("SKIPPED")

// A suite is one folder of tests.
type suite struct {
	name string // of the folder
	// run runs the tests with these variables added to the environment.
	run func(r *runner, ctx context.Context, s suite, env []string) error
	// counts says that the suite's calls are held against endpoints.json.
	counts bool
	// node is the oldest Node that the client runs on.
	node version
	// mcp says that the tests need MCP servers: the one within `mneme serve`, and
	// `mneme mcp` in front of it, plain and with the fixtures of the conformance
	// suite.
	mcp bool
}

var suites = []suite{
	{name: "appserver", run: (*runner).nodeSuite, node: version{20, 0}},
	{name: "rest-ts", run: (*runner).nodeSuite, node: version{20, 0}, counts: true},
	{name: "rest-py", run: (*runner).pythonSuite, counts: true},
	{name: "cli", run: (*runner).nodeSuite, node: version{22, 19}},
	{name: "mcp", run: (*runner).nodeSuite, node: version{20, 0}, mcp: true},
	{name: "mcp-conformance", run: (*runner).conformance, node: version{22, 0}, mcp: true},
}

func main() {
	var o options
	flag.StringVar(&o.suites, "suite", "", "run only these suites, names with commas between")
	flag.StringVar(&o.match, "match", "", "run only the tests whose name matches this pattern")
	flag.StringVar(&o.bin, "bin", "", "take mneme, mockllm and mcpfixture from this directory instead of building them")
	flag.BoolVar(&o.verbose, "v", false, "print what the server logs")
	flag.DurationVar(&o.limit, "timeout", 15*time.Minute, "limit for everything")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeoutCause(ctx, o.limit, fmt.Errorf("not done after %s", o.limit))
	defer cancel()
	err := run(ctx, o)
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "clients:", err)
		stop()
		os.Exit(1)
	}
}

// A runner has what all suites share.
type runner struct {
	options
	dir string // test/clients
}

// choose returns the suites that were asked for.
func choose(names string) ([]suite, error) {
	if names == "" {
		return suites, nil
	}
	var chosen []suite
	for name := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(suites, func(s suite) bool { return s.name == name })
		if i < 0 {
			return nil, fmt.Errorf("there is no suite %s", name)
		}
		chosen = append(chosen, suites[i])
	}
	return chosen, nil
}

func run(ctx context.Context, o options) (err error) {
	chosen, err := choose(o.suites)
	if err != nil {
		return err
	}
	root, err := harness.Root()
	if err != nil {
		return err
	}
	if o.bin == "" {
		if o.bin, err = harness.Build(ctx, "mneme", "mockllm", "mcpfixture"); err != nil {
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
	r := &runner{options: o, dir: filepath.Join(root, "test", "clients")}
	var failed []error
	for _, s := range chosen {
		if ctx.Err() != nil {
			break
		}
		fmt.Printf("clients: == %s\n", s.name)
		switch err := r.one(ctx, s, filepath.Join(tmp, s.name)); {
		case errors.Is(err, errSkipped):
			fmt.Printf("clients: %s: %v\n", s.name, err)
		case err != nil:
			fmt.Fprintf(os.Stderr, "clients: %s: %v\n", s.name, err)
			failed = append(failed, errors.New(s.name))
		}
	}
	if len(failed) > 0 {
		return fmt.Errorf("failed: %w", errors.Join(failed...))
	}
	return nil
}

// one runs a suite against a server and a model of its own.
func (r *runner) one(ctx context.Context, s suite, tmp string) error {
	var g harness.Group
	defer g.Close()
	model, err := g.StartModel(ctx, r.bin)
	if err != nil {
		return err
	}
	spec, err := r.prepare(tmp)
	if err != nil {
		return err
	}
	if err := spec.Connect(ctx, model); err != nil {
		return err
	}
	if s.mcp {
		serveMCP(&spec, filepath.Join(tmp, "workspace"))
	}
	server, err := g.StartServer(ctx, spec)
	if err != nil {
		return err
	}
	calls := filepath.Join(tmp, "calls")
	env := []string{
		"MNEME_WS_URL=" + server.Listen, "MNEME_HTTP_URL=" + server.HTTP(),
		"MNEME_MODEL=lmstudio/mock-1", "MNEME_MODEL_URL=" + model.URL,
		"MNEME_BIN=" + filepath.Join(r.bin, "mneme"), "MNEME_WORKSPACE=" + filepath.Join(tmp, "workspace"),
		"MNEME_CALLS=" + calls,
	}
	if s.mcp {
		more, err := startMCP(ctx, &g, spec, server)
		if err != nil {
			return err
		}
		env = append(env, more...)
	}
	err = s.run(r, ctx, s, env)
	switch {
	case errors.Is(err, errSkipped):
		return err
	case err != nil:
		return fmt.Errorf("%w\nthe server said last:\n%s", err, server.Output())
	}
	if err := server.Stop(); err != nil {
		return fmt.Errorf("stop the server: %w: %s", err, server.Output())
	}
	if s.counts && r.match == "" {
		return checkCoverage(filepath.Join(r.dir, "..", "..", "internal", "rest", "testdata", "endpoints.json"), calls)
	}
	return nil
}

// prepare makes the directories of the server that a suite's tests share. Its
// settings are those that people get.
func (r *runner) prepare(tmp string) (harness.Server, error) {
	s := harness.Server{
		Bin: r.bin, Home: filepath.Join(tmp, "home"), Dir: filepath.Join(tmp, "boot"),
		Args: []string{"server", "--listen", "ws://127.0.0.1:0", "--rest"},
	}
	s.State = filepath.Join(s.Home, ".mneme")
	if r.verbose {
		s.Log = os.Stderr
	}
	for _, d := range []string{s.Home, s.Dir, filepath.Join(tmp, "workspace")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return s, err
		}
	}
	return s, nil
}
