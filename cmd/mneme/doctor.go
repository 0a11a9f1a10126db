package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"runtime/debug"
	"slices"
	"strings"

	"mneme/client"
	"mneme/internal/server"
	"mneme/protocol"
)

// doctorCommand shows the effective settings and looks for trouble. It exits 1
// if it finds any.
type doctorCommand struct{}

// An examination collects what the doctor finds.
type examination struct {
	p        *program
	problems int
	model    string // the configured default
}

func (e *examination) ok(format string, args ...any) {
	fmt.Fprintf(e.p.stdout, "  ok       "+format+"\n", args...)
}

func (e *examination) note(format string, args ...any) {
	fmt.Fprintf(e.p.stdout, "  note     "+format+"\n", args...)
}

func (e *examination) problem(format string, args ...any) {
	e.problems++
	fmt.Fprintf(e.p.stdout, "  PROBLEM  "+format+"\n", args...)
}

func (e *examination) heading(text string) { fmt.Fprintf(e.p.stdout, "\n%s\n", text) }

// Run implements the command.
func (doctorCommand) Run(p *program) error {
	ctx := context.Background()
	e := &examination{p: p}
	fmt.Fprintln(p.stdout, describe(debug.ReadBuildInfo()))
	if e.settings() {
		e.state(ctx)
	}
	fmt.Fprintln(p.stdout)
	if e.problems == 0 {
		fmt.Fprintln(p.stdout, "No problems found.")
		return nil
	}
	fmt.Fprintf(p.stdout, "%s found.\n", plural(e.problems, "problem"))
	return errFailed
}

// defaultModel looks whether the configured model is one of those listed.
func (e *examination) defaultModel(models []protocol.ModelEntry) {
	if e.model == "" || e.model == "auto" || strings.HasPrefix(e.model, "letta/") {
		return
	}
	if !slices.ContainsFunc(models, func(m protocol.ModelEntry) bool { return m.Handle == e.model }) {
		e.problem("the default model %s is not offered by any connected provider; turns that use it fail", e.model)
	}
}

// settings shows each setting of `mneme serve` with its source; false if they
// cannot be used, or the state must not be opened.
func (e *examination) settings() bool {
	e.heading("Settings")
	cfg, err := server.Load(server.Sources{Getenv: e.p.getenv, Command: "serve"})
	if cfg != nil {
		for _, v := range cfg.Values() {
			text := v.Text
			if text == "" {
				text = "-"
			}
			fmt.Fprintf(e.p.stdout, "  %-26s %-34s %s\n", v.Name, text, v.Source)
		}
	}
	e.heading("Machine")
	if out, gerr := exec.Command("git", "--version").Output(); gerr != nil {
		e.problem("the git program does not run: %v", gerr)
	} else {
		e.ok("%s", strings.TrimSpace(string(out)))
	}
	if err != nil {
		e.problem("%v", err)
		return false
	}
	e.model = cfg.DefaultModel
	for _, f := range server.CheckFiles(cfg) {
		e.problem("%s", f)
	}
	for _, f := range server.CheckMemory(context.Background(), cfg) {
		e.problem("%s", f)
	}
	if lost := server.LostDatabase(cfg); lost != "" {
		e.problem("%s", lost)
		return false
	}
	if _, err := os.Stat(cfg.Home); errors.Is(err, fs.ErrNotExist) {
		e.note("there is no state in %s yet; the first command that needs it makes it", cfg.Home)
		return false
	}
	return true
}

// state looks at the state through whoever holds it.
func (e *examination) state(ctx context.Context) {
	e.heading("State")
	s, err := e.p.open(ctx, "doctor")
	if err != nil {
		e.problem("the state cannot be opened: %v", err)
		return
	}
	if s.own == nil {
		e.ok("held by a running server: pid %d, %s", s.holder.PID, s.holder.URL)
	} else {
		e.ok("no server runs; the state was opened for this check")
		for _, text := range s.own.Problems(ctx) {
			e.problem("%s", text)
		}
	}
	if err := errors.Join(e.agents(ctx, s.Client), e.models(ctx, s.Client)); err != nil {
		e.problem("%v", err)
	}
	if err := s.close(); err != nil {
		e.problem("the state could not be closed: %v", err)
	}
}

// agents counts agents and names the approvals that wait.
func (e *examination) agents(ctx context.Context, c *client.Client) error {
	limit := 100_000
	list, err := client.Call(ctx, c, &protocol.AgentList{Query: &protocol.AgentQuery{Limit: &limit}})
	if err != nil {
		return err
	}
	e.ok("%s", plural(len(list.Agents), "agent"))
	for _, a := range list.Agents {
		if w := a.PendingApproval; w != nil {
			e.note("agent %s (%s) waits for an answer about %s", a.Name, a.ID, w.ToolName)
		}
	}
	return nil
}

// models asks every connected provider for its models.
func (e *examination) models(ctx context.Context, c *client.Client) error {
	e.heading("Models")
	providers, err := client.Call(ctx, c, &protocol.ListConnectProviders{Target: protocol.TargetLocal})
	if err != nil {
		return err
	}
	force := true
	models, err := client.Call(ctx, c, &protocol.ListModels{Force: &force})
	if err != nil {
		return err
	}
	count := map[string]int{}
	for _, m := range models.Entries {
		name, _, _ := strings.Cut(m.Handle, "/")
		count[name]++
		if m.IsDefault != nil && *m.IsDefault {
			e.ok("default model: %s", m.Handle)
		}
	}
	e.defaultModel(models.Entries)
	connected := 0
	for _, p := range providers.Providers {
		for _, conn := range p.ConnectedProviders {
			if !conn.IsConnected {
				continue
			}
			name := p.ID
			if conn.ProviderName != nil {
				name = *conn.ProviderName
			}
			connected++
			where := ""
			if conn.BaseURL != nil {
				where = " at " + *conn.BaseURL
			}
			if count[name] == 0 {
				e.problem("provider %s%s lists no models; `mneme connect %s` tests it as it is stored and says why", name, where, name)
			} else {
				e.ok("provider %s%s: %s", name, where, plural(count[name], "model"))
			}
		}
	}
	if connected == 0 {
		e.note("no provider is connected: mneme/offline answers; `mneme connect` lists the providers")
	}
	return nil
}
