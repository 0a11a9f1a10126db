package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"mneme/test/harness"
)

// A version is major and minor.
type version [2]int

func (v version) String() string { return fmt.Sprintf("%d.%d", v[0], v[1]) }

func (v version) older(than version) bool {
	return v[0] < than[0] || v[0] == than[0] && v[1] < than[1]
}

// parseVersion reads the likes of "v22.19.0" and "Python 3.11.7".
func parseVersion(s string) (version, error) {
	fields := strings.Fields(s)
	if len(fields) == 0 {
		return version{}, errors.New("no version")
	}
	parts := strings.Split(strings.TrimPrefix(fields[len(fields)-1], "v"), ".")
	if len(parts) < 2 {
		return version{}, fmt.Errorf("%q is no version", s)
	}
	var v version
	for i := range v {
		n, err := strconv.Atoi(parts[i])
		if err != nil {
			return version{}, fmt.Errorf("%q is no version", s)
		}
		v[i] = n
	}
	return v, nil
}

// ask is the version that a program says it has.
func ask(ctx context.Context, program string) (version, error) {
	out, err := exec.CommandContext(ctx, program, "--version").Output()
	if err != nil {
		return version{}, fmt.Errorf("%s --version: %w", program, err)
	}
	return parseVersion(string(out))
}

// nodeSuite runs the test files of a folder with Node's own test runner.
func (r *runner) nodeSuite(ctx context.Context, s suite, env []string) error {
	node, err := r.node(ctx, s, s.name)
	if err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(r.dir, s.name, "*.test.mjs"))
	if err != nil || len(files) == 0 {
		return fmt.Errorf("no test files in %s (%v)", s.name, err)
	}
	args := []string{"--test", "--test-reporter=spec", "--test-timeout=120000", "--test-force-exit"}
	if r.match != "" {
		args = append(args, "--test-name-pattern="+r.match)
	}
	cmd := exec.CommandContext(ctx, node, append(args, files...)...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = r.dir, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), env...)
	return harness.Run(cmd)
}

// node is a Node for a suite, with its packages installed: those of all suites,
// and those of a folder that has its own.
func (r *runner) node(ctx context.Context, s suite, folder string) (string, error) {
	if err := installNode(ctx, r.dir); err != nil {
		return "", err
	}
	own := filepath.Join(r.dir, folder)
	if _, err := os.Stat(filepath.Join(own, "package.json")); err == nil {
		if err := installNode(ctx, own); err != nil {
			return "", err
		}
	}
	return findNode(ctx, r.dir, s.node)
}

// findNode is a Node that is new enough: $NODE, that of $PATH, or the one that
// the lock file brings for some platforms.
func findNode(ctx context.Context, dir string, oldest version) (string, error) {
	candidates := []string{os.Getenv("NODE"), "node", filepath.Join(dir, "node_modules", ".bin", "node")}
	var found []string
	for _, name := range candidates {
		if name == "" {
			continue
		}
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		v, err := ask(ctx, path)
		if err != nil {
			return "", err
		}
		if !v.older(oldest) {
			return path, nil
		}
		found = append(found, v.String())
	}
	if found == nil {
		return "", fmt.Errorf("%w: no Node found", errSkipped)
	}
	return "", fmt.Errorf("%w: needs Node %s, found %s", errSkipped, oldest, strings.Join(found, " and "))
}

// installNode brings in the packages of the lock file, unless those are there.
func installNode(ctx context.Context, dir string) error {
	stamp := filepath.Join(dir, "node_modules", ".installed")
	want, err := digest(filepath.Join(dir, "package.json"), filepath.Join(dir, "package-lock.json"))
	if err != nil || installed(stamp, want) {
		return err
	}
	if _, err := exec.LookPath("npm"); err != nil {
		return fmt.Errorf("%w: no npm found to install the clients (%v)", errSkipped, err)
	}
	cmd := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--loglevel=error")
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, os.Stdout, os.Stderr
	if err := harness.Run(cmd); err != nil {
		return fmt.Errorf("npm ci: %w", err)
	}
	return os.WriteFile(stamp, []byte(want), 0o644)
}

// digest is a checksum over the contents of files.
func digest(files ...string) (string, error) {
	h := sha256.New()
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			return "", err
		}
		h.Write(data)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// installed says whether the stamp of an installation is that of these files.
func installed(stamp, want string) bool {
	have, err := os.ReadFile(stamp)
	return err == nil && string(have) == want
}
