package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"mneme/internal/auth"
	"mneme/internal/llm"
	"mneme/internal/prompt"
	"mneme/internal/store"
)

// DefaultSystem is the raw system text of agents that people make on the command
// line.
func DefaultSystem() string { return prompt.DefaultSystem() }

// KeyVariables are the environment variables that hold a provider's key.
func KeyVariables(provider string) []string { return llm.KeyVariables(provider) }

// ProviderID resolves another name of a provider to its id; what is none stays.
func ProviderID(name string) string { return cmp.Or(llm.Aliases()[name], name) }

// A ConnectRequest asks to connect a model provider, or to test a connection.
type ConnectRequest struct {
	Provider string // id or alias, or the name of a stored connection
	Name     string // of the connection; "" = the provider's
	BaseURL  string // "" = as it is stored, else the default
	// Key is stored with the connection. Without it a stored connection loses its
	// key when its BaseURL changes: the key was meant for another server.
	Key string
	// EnvKey is the key where Key is not given and nothing is stored to be tested.
	EnvKey string
}

// A Connected is a stored connection.
type Connected struct {
	Name   string
	Models []string // handles
	// Problem says in one sentence why the provider could not be tested; "" = it
	// answered.
	Problem string
}

// Connect stores a connection to a provider in the state directory and tests it;
// one that is stored already is tested as it is where nothing new is said about
// it. It opens the state for that: a *HeldError says that a server has it.
func Connect(ctx context.Context, cfg *Config, req ConnectRequest) (done Connected, err error) {
	err = withModels(ctx, cfg, func(models *llm.Catalogue) error {
		out, err := connect(ctx, models, req)
		if err != nil {
			return err
		}
		done.Name = out.Name
		for _, m := range out.Models {
			done.Models = append(done.Models, m.Handle)
		}
		if out.ProbeErr != nil {
			done.Problem = out.ProbeErr.Error()
		}
		return nil
	})
	return done, err
}

func connect(ctx context.Context, models *llm.Catalogue, req ConnectRequest) (llm.Connected, error) {
	stored, found, err := models.Stored(ctx, cmp.Or(req.Name, req.Provider))
	if err != nil {
		return llm.Connected{}, err
	}
	if found && req.BaseURL == "" && req.Key == "" {
		return models.Retest(ctx, stored)
	}
	if found && req.Name == "" {
		req.Provider, req.Name = stored.Type, stored.Name
	}
	if found && req.BaseURL == "" && req.Provider == stored.Type {
		req.BaseURL = stored.BaseURL
	}
	fields := map[string]string{}
	if req.BaseURL != "" {
		fields["baseUrl"] = req.BaseURL
	}
	if key := cmp.Or(req.Key, req.EnvKey); key != "" {
		fields["apiKey"] = key
	}
	return models.Connect(ctx, llm.ConnectRequest{ProviderID: req.Provider, Name: req.Name, Fields: fields, Probe: true})
}

// Disconnect forgets the stored connection of that name. Without one it is an
// error; a *HeldError says that a server has the state.
func Disconnect(ctx context.Context, cfg *Config, name string) error {
	return withModels(ctx, cfg, func(models *llm.Catalogue) error {
		r, found, err := models.Stored(ctx, name)
		if err == nil && !found {
			err = fmt.Errorf("no connection named %s is stored", name)
		}
		if err != nil {
			return err
		}
		return models.Disconnect(ctx, r.Type, r.Name)
	})
}

// withModels opens the state for the connections alone.
func withModels(ctx context.Context, cfg *Config, use func(*llm.Catalogue) error) (err error) {
	if err := os.MkdirAll(cfg.Home, 0o700); err != nil {
		return fmt.Errorf("create the state directory: %w", err)
	}
	lock, err := AcquireLock(cfg.Home, Holder{PID: os.Getpid(), Command: cfg.Command})
	if err != nil {
		return err
	}
	defer lock.Release()
	log := newLogger(cfg)
	st, err := openStore(ctx, cfg, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	sealer, err := auth.OpenSealer(cfg.Home, cfg.SecretKey)
	if err != nil {
		return err
	}
	models := llm.New(llm.Config{Records: &records{store: st, sealer: sealer, log: log}, Getenv: cfg.getenv, Logger: log})
	defer models.Close()
	return use(models)
}

// openStore opens the database of the settings.
func openStore(ctx context.Context, cfg *Config, log *slog.Logger) (*store.Store, error) {
	url, owner := cfg.database(), "local"
	if cfg.DatabaseURL != "" {
		var err error
		if owner, err = nodeID(cfg.Home); err != nil {
			return nil, err
		}
		url = cfg.DatabaseURL
	}
	return store.Open(ctx, url, store.Options{Logger: log, Owner: owner, BackupDir: filepath.Join(cfg.Home, "backups")})
}

// CheckFiles looks at the files of a state directory and returns one sentence
// per problem.
func CheckFiles(cfg *Config) (problems []string) {
	private := func(name, what string) {
		info, err := os.Stat(filepath.Join(cfg.Home, name))
		switch {
		case os.IsNotExist(err):
		case err != nil:
			problems = append(problems, fmt.Sprintf("%s cannot be read: %v", what, err))
		case info.Mode().Perm()&0o077 != 0:
			want := fs.FileMode(0o600)
			if info.IsDir() {
				want = 0o700
			}
			problems = append(problems, fmt.Sprintf("%s %s can be read by others (mode %04o); run: chmod %04o %s",
				what, filepath.Join(cfg.Home, name), info.Mode().Perm(), want, filepath.Join(cfg.Home, name)))
		}
	}
	private(".", "the state directory")
	private(auth.KeyFile, "the key of stored secrets")
	return problems
}

// LostDatabase says in one sentence that the database is gone while the memory of
// agents is there; "" = it is not so. Opening the state would make an empty one.
func LostDatabase(cfg *Config) string {
	info, err := os.Stat(cfg.database())
	gone := errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() == 0
	if dirs := memoryDirs(cfg.Home); gone && cfg.DatabaseURL == "" && len(dirs) > 0 {
		return fmt.Sprintf("%s is empty or missing, but %s holds the memory of %d agent(s): the database was lost; copy a backup over it while no server runs",
			cfg.database(), filepath.Join(cfg.Home, "memfs"), len(dirs))
	}
	return ""
}

func (c *Config) database() string { return filepath.Join(c.Home, "mneme.db") }

// memoryDirs are the directories that hold files of an agent's memory.
func memoryDirs(home string) (dirs []string) {
	all, _ := filepath.Glob(filepath.Join(home, "memfs", "*", "memory"))
	for _, dir := range all {
		if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// CheckMemory reads every agent's memory as git does and returns one sentence per
// repository that is damaged. It must run before the state is opened: what is
// missing may be made anew then.
func CheckMemory(ctx context.Context, cfg *Config) (problems []string) {
	for _, dir := range memoryDirs(cfg.Home) {
		name := filepath.Base(filepath.Dir(dir))
		if _, err := os.Stat(filepath.Join(dir, ".git")); err != nil {
			problems = append(problems, fmt.Sprintf("the memory of %s has files but no git repository: %s", name, dir))
			continue
		}
		cmd := exec.CommandContext(ctx, "git", "--git-dir", filepath.Join(dir, ".git"), "fsck", "--connectivity-only", "--no-dangling", "--no-progress")
		if out, err := cmd.CombinedOutput(); err != nil {
			line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
			problems = append(problems, fmt.Sprintf("the memory of %s is damaged (%s): %s", name, cmp.Or(line, err.Error()), dir))
		}
	}
	return problems
}

// Problems examines an open state: a git program that is too old, damage in the
// database, keys that do not open. One sentence each.
func (s *Server) Problems(ctx context.Context) (problems []string) {
	if err := s.parts.memory.Check(ctx); err != nil {
		problems = append(problems, err.Error())
	}
	if err := s.parts.store.Check(ctx); err != nil {
		problems = append(problems, fmt.Sprintf("the database is damaged: %v", err))
	}
	rows, err := s.parts.store.Providers(ctx)
	if err != nil {
		return append(problems, err.Error())
	}
	for _, row := range rows {
		if len(row.SealedKey) == 0 {
			continue
		}
		if _, err := s.parts.records.sealer.Open(row.SealedKey, sealedFor(row.Name)); err != nil {
			problems = append(problems, fmt.Sprintf("the key of provider %s: %v; `mneme connect %s --api-key KEY` stores it anew", row.Name, err, row.Name))
		}
	}
	return problems
}
