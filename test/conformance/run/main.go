// Command run builds the server and the conformance kit, plays the scenarios
// against the server, and sums up.
//
// There are three kinds of servers, as the scenarios ask for them: one that
// wants no token, one with a capability token ("auth") and one with signed
// bearer tokens ("jwt"). Each runs as a process with a state of its own, with
// the provider lmstudio connected to the scripted model and with the
// permission mode that the transcripts assume. wsdiff does the comparing; its
// lines are passed on as they come.
//
// What the server cannot do yet is named in notyet.txt, where it departs from
// the reference on purpose there is a transcript in deviations. The exit code
// is 1 if anything failed or nothing was played.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"mneme/test/harness"
)

type options struct {
	match   string
	bin     string
	all     bool
	verbose bool
	strict  bool
	keep    bool
	limit   time.Duration

	deviate, reason, mends string // the scenario to record as a deviation
}

func main() {
	var o options
	flag.StringVar(&o.match, "match", "", "play only the scenarios whose name contains this")
	flag.StringVar(&o.bin, "bin", "", "take mneme, mockllm and wsdiff from this directory instead of building them")
	flag.BoolVar(&o.all, "all", false, "play also what notyet.txt names")
	flag.BoolVar(&o.verbose, "v", false, "print every frame, and what the server logs")
	flag.BoolVar(&o.strict, "strict", false, "compare prose word for word")
	flag.BoolVar(&o.keep, "keep", false, "keep the state, logs and workspaces, and say where")
	flag.StringVar(&o.deviate, "deviate", "", "record what the server does in this scenario into deviations; needs -reason and -mends")
	flag.StringVar(&o.reason, "reason", "", "with -deviate: why the server departs from the reference")
	flag.StringVar(&o.mends, "mends", "", "with -deviate: the weakness or the section of the specification")
	flag.DurationVar(&o.limit, "timeout", 20*time.Minute, "limit for everything")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeoutCause(ctx, o.limit, fmt.Errorf("not done after %s", o.limit))
	defer cancel()
	total, err := conformance(ctx, o, os.Stdout)
	if o.deviate == "" {
		fmt.Println("conformance:", total)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
	}
	if err != nil || total.failed > 0 || total.passed+total.deviate == 0 {
		stop()
		os.Exit(1)
	}
}

// conformance plays the scenarios that the options select. The total counts
// what was played until an error.
func conformance(ctx context.Context, o options, out io.Writer) (total counts, err error) {
	root, err := harness.Root()
	if err != nil {
		return total, err
	}
	kit := filepath.Join(root, "test", "conformance")
	scenarios, err := load(kit)
	if err != nil {
		return total, err
	}
	if o.bin == "" {
		if o.bin, err = harness.Build(ctx, "mneme", "mockllm", "wsdiff"); err != nil {
			return total, err
		}
	} else if o.bin, err = filepath.Abs(o.bin); err != nil {
		return total, err
	}
	dir, err := os.MkdirTemp("", "conformance-")
	if err != nil {
		return total, err
	}
	if o.keep {
		fmt.Fprintln(out, "kept in", dir)
	} else {
		defer os.RemoveAll(dir)
	}
	r := run{options: o, kit: kit, dir: dir, out: out, openai: wantsOpenAI(scenarios, o.all)}
	for _, v := range variants {
		played := slices.DeleteFunc(slices.Clone(scenarios), func(s scenario) bool {
			return s.Server != v.server || !o.wants(s.name)
		})
		n := len(played)
		if !o.all && o.deviate == "" {
			played = slices.DeleteFunc(played, func(s scenario) bool { return s.notYet })
		}
		if len(played) == 0 {
			total.notYet += n
			continue
		}
		c, err := r.variant(ctx, v)
		total.add(c)
		if err != nil {
			return total, err
		}
	}
	return total, nil
}

func (o options) wants(name string) bool {
	if o.deviate != "" {
		return name == o.deviate
	}
	return strings.Contains(name, o.match)
}

// run is one run of the kit.
type run struct {
	options
	kit    string // test/conformance
	dir    string // for everything the servers and scenarios write
	out    io.Writer
	openai bool // switch on the OpenAI routes
}

// variant starts a server of that kind, plays its scenarios and stops it. A
// server that ends by itself, or does not end cleanly, is an error.
func (r run) variant(ctx context.Context, v variant) (c counts, err error) {
	dir := filepath.Join(r.dir, "server-"+v.server)
	s := harness.Server{Bin: r.bin, Home: filepath.Join(dir, "home"), Dir: filepath.Join(dir, "boot")}
	s.State = filepath.Join(s.Home, ".mneme")
	for _, d := range []string{s.Home, s.Dir} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return c, err
		}
	}
	flags, vars, err := v.prepare(dir)
	if err != nil {
		return c, err
	}
	s.Args = append([]string{"server", "--listen", "ws://127.0.0.1:0", "--permission-mode", "unrestricted"}, flags...)
	if r.openai {
		s.Args = append(s.Args, "--openai-api")
	}
	log, err := os.Create(filepath.Join(dir, "server.log"))
	if err != nil {
		return c, err
	}
	defer log.Close()
	s.Log = log
	if r.verbose {
		s.Log = io.MultiWriter(log, os.Stderr)
	}

	var g harness.Group
	defer g.Close()
	model, err := g.StartModel(ctx, r.bin, "-log", filepath.Join(dir, "requests.jsonl"))
	if err != nil {
		return c, err
	}
	if err := s.Connect(ctx, model); err != nil {
		return c, err
	}
	server, err := g.StartServer(ctx, s)
	if err != nil {
		return c, err
	}
	c, err = r.play(ctx, v, s, server, vars)
	if err != nil {
		return c, err
	}
	select {
	case <-server.Done():
		return c, fmt.Errorf("the server ended while scenarios ran: %s", server.Output())
	default:
	}
	if err := server.Stop(); err != nil {
		return c, fmt.Errorf("stop the server: %w: %s", err, server.Output())
	}
	return c, nil
}

// play runs wsdiff against the server.
func (r run) play(ctx context.Context, v variant, s harness.Server, server *harness.Running, vars []string) (counts, error) {
	args := []string{"check", "-url", server.Listen,
		"-golden", filepath.Join(r.kit, "golden"), "-workspace", filepath.Join(r.dir, "workspace"),
		"-model", "lmstudio/mock-1", "-var", "model2=lmstudio/mock-2",
		"-scrub", "home=" + s.Home, "-scrub", "state=" + s.State, "-scrub", "boot=" + s.Dir, "-server", v.server}
	for _, v := range vars {
		args = append(args, "-var", v)
	}
	if r.verbose {
		args = append(args, "-v")
	}
	if r.deviate != "" {
		args[0] = "deviate"
		args = append(args, "-scenario", filepath.Join(r.kit, "scenarios", r.deviate+".json"),
			"-out", filepath.Join(r.kit, "deviations"), "-reason", r.reason, "-mends", r.mends)
		if _, err := r.wsdiff(ctx, args); err != nil {
			return counts{}, err
		}
		return counts{deviate: 1}, nil
	}
	skip := filepath.Join(r.kit, "notyet.txt")
	if r.all {
		skip = os.DevNull
	}
	args = append(args, "-scenario", filepath.Join(r.kit, "scenarios"), "-match", r.match,
		"-deviations", filepath.Join(r.kit, "deviations"), "-skip", skip)
	if r.strict {
		args = append(args, "-strict")
	}
	said, err := r.wsdiff(ctx, args)
	if ctx.Err() != nil {
		return counts{}, context.Cause(ctx)
	}
	c, parseErr := readCounts(said)
	if parseErr != nil {
		return c, errors.Join(parseErr, err)
	}
	if c.failed > 0 {
		return c, nil // wsdiff's exit code says no more than that
	}
	return c, err
}

// wsdiff runs one command line, passes its output on and returns it.
func (r run) wsdiff(ctx context.Context, args []string) (said string, err error) {
	cmd := exec.CommandContext(ctx, filepath.Join(r.bin, "wsdiff"), args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = io.MultiWriter(r.out, &out), os.Stderr
	if err := harness.Run(cmd); err != nil {
		return out.String(), fmt.Errorf("wsdiff: %w", err)
	}
	return out.String(), nil
}
