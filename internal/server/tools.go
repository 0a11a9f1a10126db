package server

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"mneme/internal/auth"
	"mneme/internal/llm"
	"mneme/internal/prompt"
	"mneme/internal/store"
)

// DefaultSystem is the raw system text of agents that people make on the command
// line.
func DefaultSystem() string { return prompt.DefaultSystem() }

// A ConnectRequest asks to connect a model provider.
type ConnectRequest struct {
	Provider string // id or alias
	Name     string // of the connection; "" = the provider's
	BaseURL  string
	Key      string
}

// A Connected is a stored connection.
type Connected struct {
	Name   string
	Models []string // handles
	// Problem says in one sentence why the provider could not be tested; "" = it
	// answered.
	Problem string
}

// Connect stores a connection to a provider in the state directory and tests it.
// It opens the state for that: a *HeldError says that a server has it.
func Connect(ctx context.Context, cfg *Config, req ConnectRequest) (done Connected, err error) {
	if err := os.MkdirAll(cfg.Home, 0o700); err != nil {
		return done, fmt.Errorf("create the state directory: %w", err)
	}
	lock, err := AcquireLock(cfg.Home, Holder{PID: os.Getpid(), Command: cfg.Command})
	if err != nil {
		return done, err
	}
	defer lock.Release()
	log := newLogger(cfg)
	st, err := openStore(ctx, cfg, log)
	if err != nil {
		return done, err
	}
	defer func() {
		if cerr := st.Close(); err == nil {
			err = cerr
		}
	}()
	sealer, err := auth.OpenSealer(cfg.Home, cfg.SecretKey)
	if err != nil {
		return done, err
	}
	models := llm.New(llm.Config{Records: &records{store: st, sealer: sealer, log: log}, Getenv: cfg.getenv, Logger: log})
	defer models.Close()
	fields := map[string]string{}
	if req.BaseURL != "" {
		fields["baseUrl"] = req.BaseURL
	}
	if req.Key != "" {
		fields["apiKey"] = req.Key
	}
	out, err := models.Connect(ctx, llm.ConnectRequest{ProviderID: req.Provider, Name: req.Name, Fields: fields, Probe: true})
	if err != nil {
		return done, err
	}
	done.Name = out.Name
	for _, m := range out.Models {
		done.Models = append(done.Models, m.Handle)
	}
	if out.ProbeErr != nil {
		done.Problem = out.ProbeErr.Error()
	}
	return done, nil
}

// openStore opens the database of the settings.
func openStore(ctx context.Context, cfg *Config, log *slog.Logger) (*store.Store, error) {
	url, owner := filepath.Join(cfg.Home, "mneme.db"), "local"
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
			problems = append(problems, fmt.Sprintf("the key of provider %s: %v; `mneme connect %s` stores it anew", row.Name, err, row.Name))
		}
	}
	return problems
}
