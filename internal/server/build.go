package server

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"mneme/internal/appserver"
	"mneme/internal/auth"
	"mneme/internal/llm"
	"mneme/internal/llm/offline"
	"mneme/internal/memory"
	"mneme/internal/prompt"
	"mneme/internal/rest"
	"mneme/internal/roster"
	"mneme/internal/runtime"
	"mneme/internal/sandbox"
	"mneme/internal/store"
	"mneme/internal/tool"
)

// parts are the pieces of one server, in the order in which they are built.
type parts struct {
	life    context.Context // ends when closing begins
	ended   context.CancelFunc
	store   *store.Store
	records *records
	memory  *memory.Memory
	models  *llm.Catalogue
	shells  *sandbox.Shells
	runtime *runtime.Manager
	roster  *roster.Roster
	door    *appserver.Door
	rest    *rest.Door // nil = off
}

// build opens the state and wires everything. On failure what was opened is
// closed.
func build(ctx context.Context, cfg *Config, checker *auth.Checker, guard *auth.Guard, log *slog.Logger) (_ *parts, err error) {
	p := &parts{}
	p.life, p.ended = context.WithCancel(context.WithoutCancel(ctx))
	defer func() {
		if err != nil {
			p.close() //nolint:errcheck // err says more
		}
	}()
	if p.store, err = openStore(ctx, cfg, log); err != nil {
		return nil, err
	}
	if err := p.store.TakeOver(ctx); err != nil {
		return nil, err
	}
	sealer, err := auth.OpenSealer(cfg.Home, cfg.SecretKey)
	if err != nil {
		return nil, err
	}
	boot, err := os.Getwd()
	if err != nil {
		return nil, fmt.Errorf("find the working directory: %w", err)
	}
	p.records = &records{store: p.store, sealer: sealer, log: log}
	p.models = llm.New(llm.Config{
		Records: p.records, Getenv: cfg.getenv, Offline: offline.New(), Logger: log, Default: cfg.DefaultModel, Probe: true,
	})
	if err := p.models.Start(ctx); err != nil {
		return nil, err
	}
	root := filepath.Join(cfg.Home, "memfs")
	p.memory = memory.New(root, memory.Options{
		Logger: log, AuthorName: p.agentName,
		OnCommit: []func(string, string, []string){p.tellCommit},
	})
	p.shells = sandbox.New(0)
	texts := &prompt.Builder{Memory: p.memory, Git: prompt.NewGit(), Version: cfg.Version}
	box := tool.NewBox(tool.Builtin(tool.Kit{
		Shells: p.shells, Memory: p.memory, Blocks: p.memory, Messages: finder{p.store}, Web: tool.Web{SearchURL: cfg.WebSearchURL},
	})...)
	linger := time.Duration(0) // the runtime's own
	if cfg.Private {
		linger = privateLinger
	}
	p.runtime = runtime.New(runtime.Config{
		Linger: linger,
		Store:  p.store, Models: p.models, Prompts: stepTexts{texts, p}, Tools: box, Logger: log,
		Mode: cfg.Mode, BootDir: boot, MaxSteps: cfg.MaxSteps, MemoryDir: p.memory.Dir, MemoryRoot: root,
		OutputDir: filepath.Join(cfg.Home, "output"), Unattended: cfg.Unattended,
		Memory: p.memory, SnapshotPrefix: snapshotPrefix(cfg.Home),
	})
	p.roster = roster.New(roster.Config{
		Store: p.store, Memory: p.memory, Runtime: p.runtime, Prompts: texts, Models: p.models, Logger: log,
	})
	p.door = appserver.New(appserver.Config{
		Runtime: p.runtime, Roster: p.roster, Store: p.store, Memory: p.memory, Models: p.models,
		Auth: checker, Guard: guard, Logger: log,
	})
	if cfg.REST {
		p.rest = rest.New(rest.Config{
			Runtime: p.runtime, Roster: p.roster, Store: p.store, Memory: p.memory, Models: p.models,
			Auth: checker, Tools: box, Sealer: sealer, Logger: log, Version: cfg.Version, System: prompt.DefaultSystem(),
			Retention: cfg.KeepRunEvents, AllowPrivate: cfg.PrivateCallbacks,
		})
		p.rest.Start()
	}
	return p, nil
}

// snapshotPrefix names the temporary copies of memory that ephemeral runtimes of
// this state directory read. What a server that was killed left of them goes: the
// state is ours alone by now.
func snapshotPrefix(home string) string {
	sum := sha256.Sum256([]byte(home))
	prefix := "mneme-memory-" + hex.EncodeToString(sum[:6]) + "-"
	left, _ := filepath.Glob(filepath.Join(os.TempDir(), prefix+"*"))
	for _, dir := range left {
		os.RemoveAll(dir)
	}
	return prefix
}

// restHandler is the REST door for the route table, nil if it is off.
func (p *parts) restHandler() http.Handler {
	if p.rest == nil {
		return nil // and not an interface that holds a nil pointer
	}
	return p.rest
}

// agentName names the author of commits; "" lets the id do.
func (p *parts) agentName(agentID string) string {
	ag, err := p.store.Agent(p.life, agentID)
	if err != nil {
		return ""
	}
	return ag.Name
}

// tellCommit publishes a commit to those who watch the agent's memory.
func (p *parts) tellCommit(agentID, commit string, paths []string) {
	if p.runtime != nil {
		p.runtime.Committed(agentID, commit, paths)
	}
	if p.roster != nil {
		p.roster.MemoryChanged(agentID)
	}
}

// stepTexts are the texts of the runtime, which asks for the revision of an agent's
// memory before each step: what a shell has committed since shows then.
type stepTexts struct {
	*prompt.Builder
	parts *parts
}

func (t stepTexts) Revision(agentID string) (string, error) {
	commit, err := t.Builder.Revision(agentID)
	if err == nil {
		t.parts.roster.MemoryAt(agentID, commit)
	}
	return commit, err
}

// close closes what was built, in reverse order. The runtime and the door have
// come to rest by then, unless building failed: then nothing waits for them.
func (p *parts) close() error {
	p.ended()
	var errs []error
	if p.door != nil {
		p.door.Close(p.life) //nolint:errcheck // it says that the context has ended
	}
	if p.rest != nil {
		p.rest.Close(p.life) //nolint:errcheck // as above
	}
	if p.runtime != nil {
		errs = append(errs, p.runtime.Close(p.life))
	}
	if p.shells != nil {
		errs = append(errs, p.shells.Close())
	}
	if p.models != nil {
		p.models.Close()
	}
	if p.memory != nil {
		errs = append(errs, p.memory.Close())
	}
	if p.store != nil {
		errs = append(errs, p.store.Close())
	}
	return errors.Join(errs...)
}
