package main

import (
	"bufio"
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

// connectCommand stores a connection to a model provider.
type connectCommand struct {
	Provider string `arg:"" optional:"" help:"Provider, such as openai, openrouter, ollama or lmstudio; none lists them."`
	BaseURL  string `name:"base-url" placeholder:"URL" help:"Address of the provider's API."`
	APIKey   string `name:"api-key" placeholder:"KEY" help:"Its key; - reads it from stdin. Without it the provider's environment variable counts."`
	Name     string `placeholder:"NAME" help:"Name of the connection, the first part of its model handles."`
}

// Run implements the command.
func (c *connectCommand) Run(p *program) error {
	ctx := context.Background()
	if c.Provider == "" {
		return p.listProviders(ctx)
	}
	key, err := c.key(p)
	if err != nil {
		return err
	}
	req := server.ConnectRequest{Provider: c.Provider, Name: c.Name, BaseURL: c.BaseURL, Key: key}
	done, err := p.connect(ctx, req)
	if err != nil && key == "" && strings.HasPrefix(err.Error(), "Missing ") {
		if !isatty.IsTerminal(p.stdin.Fd()) {
			return fmt.Errorf("%w Give it with --api-key KEY, with --api-key - on stdin, or as %s", err, keyVariable(c.Provider))
		}
		if req.Key, err = p.askKey(c.Provider); err == nil {
			done, err = p.connect(ctx, req)
		}
	}
	if err != nil {
		return err
	}
	return p.report(done)
}

// key takes the key from the flag, from stdin for "-", or from the environment.
func (c *connectCommand) key(p *program) (string, error) {
	switch {
	case c.APIKey == "-":
		return p.readKey()
	case c.APIKey != "":
		return strings.TrimSpace(c.APIKey), nil
	}
	return strings.TrimSpace(p.getenv(keyVariable(c.Provider))), nil
}

// keyVariable is the environment variable that holds a provider's key.
func keyVariable(provider string) string {
	return strings.ToUpper(strings.NewReplacer("-", "_", ".", "_").Replace(provider)) + "_API_KEY"
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
	done.Name = req.Name
	if done.Name == "" {
		done.Name = req.Provider
	}
	done.Models, err = modelsOf(ctx, s.Client, done.Name)
	if err == nil && len(done.Models) == 0 {
		done.Problem = "it lists no models at the moment"
	}
	return done, err
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
