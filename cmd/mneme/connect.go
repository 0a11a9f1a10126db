package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"

	"github.com/mattn/go-isatty"

	"mneme/client"
	"mneme/internal/server"
	"mneme/protocol"
)

// connectCommand stores a connection to a model provider, or tests a stored one.
type connectCommand struct {
	Provider string `arg:"" optional:"" help:"Provider, such as openai, openrouter, ollama or lmstudio, or a stored connection to test again; none lists them."`
	BaseURL  string `name:"base-url" placeholder:"URL" help:"Address of the provider's API."`
	APIKey   string `name:"api-key" placeholder:"KEY" help:"Its key; - reads it from stdin. Without it the provider's environment variable counts, such as OPENAI_API_KEY or HF_TOKEN."`
	Name     string `placeholder:"NAME" help:"Name of the connection, the first part of its model handles."`
}

// Run implements the command.
func (c *connectCommand) Run(p *program) error {
	ctx := context.Background()
	if c.Provider == "" {
		return p.listProviders(ctx)
	}
	req := server.ConnectRequest{Provider: c.Provider, Name: c.Name, BaseURL: c.BaseURL}
	var err error
	if req.Key, err = c.key(p); err != nil {
		return err
	}
	variables := server.KeyVariables(c.Provider)
	for _, name := range variables {
		req.EnvKey = cmp.Or(req.EnvKey, strings.TrimSpace(p.getenv(name)))
	}
	done, err := p.connect(ctx, req)
	switch {
	case err == nil:
		return p.report(done)
	case strings.HasPrefix(err.Error(), "Missing Base URL"):
		return fmt.Errorf("%w Give it with --base-url URL", err)
	case !strings.HasPrefix(err.Error(), "Missing API"):
		return err
	case !isatty.IsTerminal(p.stdin.Fd()):
		ways := "with --api-key KEY, or with --api-key - on stdin"
		if len(variables) > 0 {
			ways = "with --api-key KEY, with --api-key - on stdin, or as " + strings.Join(variables, " or ")
		}
		return fmt.Errorf("%w Give it %s", err, ways)
	}
	if req.Key, err = p.askKey(c.Provider); err != nil {
		return err
	}
	if done, err = p.connect(ctx, req); err != nil {
		return err
	}
	return p.report(done)
}

// key takes the key from the flag, or from stdin for "-".
func (c *connectCommand) key(p *program) (string, error) {
	if c.APIKey == "-" {
		return p.readKey()
	}
	return strings.TrimSpace(c.APIKey), nil
}

// readKey reads a key from the first line of stdin.
func (p *program) readKey() (string, error) {
	line, err := bufio.NewReader(p.stdin).ReadString('\n')
	if key := strings.TrimSpace(line); key != "" {
		return key, nil
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return "", fmt.Errorf("read the key: %w", err)
	}
	return "", errors.New("no key was given")
}

// askKey asks for a key on the terminal, without showing it where the terminal
// can do that.
func (p *program) askKey(provider string) (string, error) {
	fmt.Fprintf(p.stderr, "API key for %s: ", provider)
	echo := func(how string) {
		cmd := exec.Command("stty", how)
		cmd.Stdin = p.stdin
		cmd.Run() //nolint:errcheck // then the key is seen while it is typed
	}
	echo("-echo")
	defer fmt.Fprintln(p.stderr)
	defer echo("echo")
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt)
	defer signal.Stop(interrupted)
	answer := make(chan func() (string, error), 1)
	go func() {
		key, err := p.readKey()
		answer <- func() (string, error) { return key, err }
	}()
	select {
	case got := <-answer:
		return got()
	case <-interrupted: // the reader stays behind; the process ends now
		return "", errors.New("interrupted")
	}
}

// connect stores a connection: in the state directory, or through the server
// that holds it.
func (p *program) connect(ctx context.Context, req server.ConnectRequest) (server.Connected, error) {
	cfg, err := server.Load(server.Sources{Getenv: p.getenv, Command: "connect"})
	if err != nil {
		return server.Connected{}, err
	}
	cfg.Log = p.stderr
	done, err := server.Connect(ctx, cfg, req)
	var held *server.HeldError
	if errors.As(err, &held) {
		return p.connectThrough(ctx, held.Holder, req)
	}
	return done, err
}

// connectThrough connects through the server that holds the state.
func (p *program) connectThrough(ctx context.Context, h server.Holder, req server.ConnectRequest) (done server.Connected, err error) {
	s, err := p.dialHolder(ctx, h)
	if err != nil {
		return done, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	id, stored, err := findConnection(ctx, s.Client, cmp.Or(req.Name, server.ProviderID(req.Provider)))
	if err != nil {
		return done, err
	}
	if stored != nil {
		if req.BaseURL == "" && req.Key == "" {
			return tested(ctx, s.Client, *stored.ProviderName)
		}
		if req.Name == "" {
			req.Provider, req.Name = id, *stored.ProviderName
		}
		if req.BaseURL == "" && stored.BaseURL != nil && req.Provider == id {
			req.BaseURL = *stored.BaseURL
		}
	}
	req.Key = cmp.Or(req.Key, req.EnvKey)
	cmd := &protocol.ConnectProvider{Target: protocol.TargetLocal, ProviderID: req.Provider, Fields: protocol.Map[string]{}}
	if req.BaseURL != "" {
		cmd.Fields["baseUrl"] = req.BaseURL
	}
	if req.Key != "" {
		cmd.Fields["apiKey"] = req.Key
	}
	if req.Name != "" {
		cmd.ProviderName = &req.Name
	}
	if _, err := client.Call(ctx, s.Client, cmd); err != nil {
		var refused *client.ServerError
		if errors.As(err, &refused) && refused.Message != "" {
			return done, errors.New(refused.Message)
		}
		return done, err
	}
	return tested(ctx, s.Client, cmp.Or(req.Name, server.ProviderID(req.Provider)))
}

// tested asks a connection for its models, through the server.
func tested(ctx context.Context, c *client.Client, name string) (server.Connected, error) {
	done := server.Connected{Name: name}
	var err error
	if done.Models, err = modelsOf(ctx, c, name); err == nil && len(done.Models) == 0 {
		done.Problem = "it lists no models at the moment"
	}
	return done, err
}

// findConnection finds a connection of the server by its name, and the id of its
// provider; nil = there is none.
func findConnection(ctx context.Context, c *client.Client, name string) (string, *protocol.ProviderConnection, error) {
	list, err := client.Call(ctx, c, &protocol.ListConnectProviders{Target: protocol.TargetLocal})
	if err != nil {
		return "", nil, err
	}
	for _, p := range list.Providers {
		for _, conn := range p.ConnectedProviders {
			if conn.IsConnected && conn.ProviderName != nil && *conn.ProviderName == name {
				return p.ID, &conn, nil
			}
		}
	}
	return "", nil, nil
}

// modelsOf lists the handles of a provider, asking it anew.
func modelsOf(ctx context.Context, c *client.Client, provider string) ([]string, error) {
	force := true
	list, err := client.Call(ctx, c, &protocol.ListModels{Force: &force})
	if err != nil {
		return nil, err
	}
	var handles []string
	for _, m := range list.Entries {
		if strings.HasPrefix(m.Handle, provider+"/") && !slices.Contains(handles, m.Handle) {
			handles = append(handles, m.Handle)
		}
	}
	return handles, nil
}

// report says what was stored and what the provider offers. A provider that
// does not answer is stored all the same, and is a failure.
func (p *program) report(done server.Connected) error {
	fmt.Fprintf(p.stdout, "Connected %s.\n", done.Name)
	if done.Problem != "" {
		fmt.Fprintf(p.stderr, "The connection is stored, but could not be tested: %s\n", done.Problem)
		return errFailed
	}
	for _, handle := range done.Models {
		fmt.Fprintf(p.stdout, "  %s\n", handle)
	}
	return nil
}

// listProviders shows what can be connected.
func (p *program) listProviders(ctx context.Context) (err error) {
	s, err := p.open(ctx, "connect")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	list, err := client.Call(ctx, s.Client, &protocol.ListConnectProviders{Target: protocol.TargetLocal})
	if err != nil {
		return err
	}
	for _, e := range list.Providers {
		mark := " "
		if e.Connected.IsConnected {
			mark = "*"
		}
		fmt.Fprintf(p.stdout, "%s %-28s %s\n", mark, e.ID, e.Description)
	}
	fmt.Fprintln(p.stdout, "\n* connected. `mneme connect PROVIDER` connects one.")
	return nil
}
