package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"mneme/internal/server"
)

// serve runs `mneme serve` and `mneme server` until a signal comes.
func (p *program) serve(command string, args []string) int {
	flags, help, err := parseFlags(command, args)
	if help {
		printUsage(p.stdout, command)
		return 0
	}
	if err == nil {
		err = p.checkFlags(command, flags, args)
	}
	var usage *usageError
	if errors.As(err, &usage) {
		printUsage(p.stdout, command)
	}
	if err != nil {
		return p.fail(err)
	}
	cfg, err := server.Load(server.Sources{Flags: flags, Getenv: p.getenv, Command: command})
	if err != nil {
		return p.fail(err)
	}
	cfg.Version = version()
	cfg.REST = command == "serve" || flags["rest"] != nil
	cfg.OpenAI = flags["openai-api"] != nil
	cfg.Log = p.stderr

	ctx, stop := untilSignal()
	defer stop()
	srv, err := server.New(ctx, cfg)
	if err != nil {
		return p.fail(err)
	}
	for _, line := range srv.Lines() {
		fmt.Fprintln(p.stdout, line)
	}
	p.introduce(srv, command)
	err = srv.Run(ctx)
	var s *stopped
	if errors.As(context.Cause(ctx), &s) {
		fmt.Fprintf(p.stdout, "\nStopped App Server (%s).\n", s.name)
	}
	if err != nil {
		return p.fail(err)
	}
	return 0
}

// checkFlags applies the rules that tie flags together.
func (p *program) checkFlags(command string, flags map[string][]string, args []string) error {
	if command != "server" {
		if v := flags["listen"]; v != nil && v[len(v)-1] == "" {
			flags["listen"] = []string{server.DefaultListen}
		}
		return nil
	}
	if flags["listen"] == nil {
		if len(flags) == 0 {
			return usagef("`mneme server` needs --listen; `mneme serve` runs the server with every door")
		}
		i := slices.IndexFunc(args, func(a string) bool { return len(a) > 2 && a[:2] == "--" })
		return usagef("Unknown option '%s' without --listen", args[i])
	}
	if v := flags["listen"]; v[len(v)-1] == "" {
		flags["listen"] = []string{"ws://127.0.0.1:0"}
	}
	for _, name := range []string{"computer-name", "channels"} {
		if flags[name] != nil {
			return fmt.Errorf("--%s cannot be used with --listen", name)
		}
	}
	return nil
}

// introduce says on stderr what people want to know. Stdout has fixed lines.
func (p *program) introduce(srv *server.Server, command string) {
	say(p.stderr, "Permission mode: %s", srv.ModeText())
	if command == "serve" {
		doors := "App Server, REST"
		if url := srv.MCP(); url != "" {
			doors += ", MCP on " + url
		}
		say(p.stderr, "Doors: %s. The OpenAI-compatible API is not part of this version.", doors)
		if srv.MCP() == "" {
			say(p.stderr, "Set MCP_AUTH_TOKEN to serve MCP tools too.")
		}
		say(p.stderr, "Talk to an agent with `mneme chat` in another terminal.")
	} else if srv.OpenAI() {
		say(p.stderr, "The OpenAI-compatible API is not part of this version: its paths answer 501.")
	}
	srv.WhenModelKnown(func(text string) { say(p.stderr, "Model: %s", text) })
}
