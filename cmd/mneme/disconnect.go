package main

import (
	"context"
	"errors"
	"fmt"

	"mneme/client"
	"mneme/internal/server"
	"mneme/protocol"
)

// disconnectCommand forgets a stored connection and its key.
type disconnectCommand struct {
	Name string `arg:"" help:"Name of the connection, the first part of its model handles."`
}

// Run implements the command.
func (c *disconnectCommand) Run(p *program) error {
	ctx := context.Background()
	cfg, err := server.Load(server.Sources{Getenv: p.getenv, Command: "disconnect"})
	if err != nil {
		return err
	}
	cfg.Log = p.stderr
	err = server.Disconnect(ctx, cfg, c.Name)
	var held *server.HeldError
	if errors.As(err, &held) {
		err = p.disconnectThrough(ctx, held.Holder, c.Name)
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(p.stdout, "Disconnected %s.\n", c.Name)
	return nil
}

// disconnectThrough disconnects through the server that holds the state.
func (p *program) disconnectThrough(ctx context.Context, h server.Holder, name string) (err error) {
	s, err := p.dialHolder(ctx, h)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	id, found, err := findConnection(ctx, s.Client, name)
	if err != nil {
		return err
	}
	if found == nil {
		return fmt.Errorf("no connection named %s is stored", name)
	}
	cmd := &protocol.DisconnectProvider{Target: protocol.TargetLocal, ProviderID: id, ProviderName: &name}
	if _, err := client.Call(ctx, s.Client, cmd); err != nil {
		return err
	}
	if _, found, err = findConnection(ctx, s.Client, name); err == nil && found != nil {
		return fmt.Errorf("%s stays connected: its settings come from the server's environment, or it was found on this machine", name)
	}
	return err
}
