// Command mneme runs stateful agents: a server with doors for apps and people,
// and the commands around it.
//
// `mneme serve` and `mneme server` are the server itself (serve.go), with flags
// parsed here because clients rely on their exact form (flags.go). The other
// commands need the state too. They reach it by the App Server protocol: if a
// server holds the state directory, they dial it with the token it names; else
// they start one inside themselves on a loopback port that nobody else knows
// (state.go). So chat and connect go through the same door as every client.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/alecthomas/kong"
)

func main() { os.Exit(run()) }

// run is main for tests: it returns the exit code.
func run() int {
	return (&program{
		args: os.Args[1:], stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, getenv: os.Getenv,
	}).run()
}

// A program is one run of the command line.
type program struct {
	args           []string
	stdin          *os.File
	stdout, stderr *os.File
	getenv         func(string) string
}

// commands are the subcommands as kong parses them. serve and server are here
// for the help only.
type commands struct {
	Serve      serverStub        `cmd:"" help:"Run the server with every door (see mneme serve --help)."`
	Server     serverStub        `cmd:"" help:"Run the App Server alone (see mneme server --help)."`
	Chat       chatCommand       `cmd:"" help:"Talk to an agent."`
	Connect    connectCommand    `cmd:"" help:"Connect a model provider."`
	Disconnect disconnectCommand `cmd:"" help:"Forget a stored connection and its key."`
	MCP        mcpCommand        `cmd:"" name:"mcp" help:"Serve MCP tools over an App Server that runs elsewhere."`
	Doctor     doctorCommand     `cmd:"" help:"Show the effective settings and look for trouble."`
	Version    versionCommand    `cmd:"" help:"Show the version."`
}

type serverStub struct {
	Args []string `arg:"" optional:"" passthrough:"" hidden:""`
}

// errFailed is a failure whose text has been shown already.
var errFailed = errors.New("failed")

func (p *program) run() int {
	if len(p.args) > 0 && (p.args[0] == "serve" || p.args[0] == "server") {
		return p.serve(p.args[0], p.args[1:])
	}
	var cmds commands
	exit := -1
	parser, err := kong.New(&cmds,
		kong.Name("mneme"),
		kong.Description("Stateful agents behind open protocols."),
		kong.Writers(p.stdout, p.stderr),
		kong.Exit(func(code int) { exit = code }),
		kong.UsageOnError(),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, NoExpandSubcommands: true}),
	)
	if err != nil {
		return p.fail(err)
	}
	args := p.args
	if len(args) == 0 {
		args = []string{"--help"}
	}
	kctx, err := parser.Parse(args)
	if exit >= 0 { // help was shown
		return exit
	}
	if err != nil {
		fmt.Fprintf(p.stderr, "Error: %v\n`mneme --help` lists the commands, `mneme COMMAND --help` their flags.\n", err)
		return 1
	}
	if err := kctx.Run(p); err != nil {
		return p.fail(err)
	}
	return 0
}

// fail shows an error as one line on stderr.
func (p *program) fail(err error) int {
	if !errors.Is(err, errFailed) {
		fmt.Fprintf(p.stderr, "Error: %v\n", err)
	}
	return 1
}

// A stopped is the cause with which a context ends on a signal.
type stopped struct{ name string }

func (s *stopped) Error() string { return "stopped by " + s.name }

// untilSignal returns a context that ends with the first SIGINT or SIGTERM, with
// a *stopped as its cause. The second one ends the process at once.
func untilSignal() (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	done := make(chan struct{})
	var wait sync.WaitGroup
	wait.Go(func() {
		for n := 1; ; n++ {
			select {
			case s := <-signals:
				if n > 1 {
					os.Exit(1)
				}
				name := "SIGTERM"
				if s == os.Interrupt {
					name = "SIGINT"
				}
				cancel(&stopped{name})
			case <-done:
				return
			}
		}
	})
	return ctx, func() {
		signal.Stop(signals)
		close(done)
		wait.Wait()
		cancel(context.Canceled)
	}
}

// say writes a line for people.
func say(w io.Writer, format string, args ...any) {
	fmt.Fprintf(w, format+"\n", args...)
}
