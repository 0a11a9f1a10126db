package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"mneme/test/harness"
)

var oldestPython = version{3, 9}

// pythonSuite runs the tests of a folder with Python's unittest, in a virtual
// environment that holds what requirements.txt names.
func (r *runner) pythonSuite(ctx context.Context, s suite, env []string) error {
	dir := filepath.Join(r.dir, s.name)
	python, err := installPython(ctx, dir)
	if err != nil {
		return err
	}
	args := []string{"-W", "ignore::DeprecationWarning", "-m", "unittest", "discover", "--start-directory", dir}
	if r.match != "" {
		args = append(args, "-k", r.match)
	}
	cmd := exec.CommandContext(ctx, python, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, os.Stdout, os.Stderr
	cmd.Env = append(append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1"), env...)
	return harness.Run(cmd)
}

// installPython makes the virtual environment, unless it is there, and returns
// its Python. Where the packages cannot be had the suite is skipped: the
// registry is not reached everywhere.
func installPython(ctx context.Context, dir string) (string, error) {
	base := os.Getenv("PYTHON")
	if base == "" {
		base = "python3"
	}
	base, err := exec.LookPath(base)
	if err != nil {
		return "", fmt.Errorf("%w: no Python found (%v)", errSkipped, err)
	}
	v, err := ask(ctx, base)
	if err != nil {
		return "", err
	}
	if v.older(oldestPython) {
		return "", fmt.Errorf("%w: Python %s is older than %s", errSkipped, v, oldestPython)
	}
	venv, requirements := filepath.Join(dir, "venv"), filepath.Join(dir, "requirements.txt")
	python, stamp := filepath.Join(venv, "bin", "python"), filepath.Join(venv, ".installed")
	want, err := digest(requirements)
	if err != nil {
		return "", err
	}
	if installed(stamp, want) && exec.CommandContext(ctx, python, "-c", "import letta_client").Run() == nil {
		return python, nil
	}
	if out, err := exec.CommandContext(ctx, base, "-m", "venv", "--clear", venv).CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: no virtual environment can be made (%v): %s", errSkipped, err, lastLine(out))
	}
	cmd := exec.CommandContext(ctx, python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--requirement", requirements)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: pip install (%v): %s", errSkipped, err, lastLine(out))
	}
	return python, os.WriteFile(stamp, []byte(want), 0o644)
}

func lastLine(out []byte) string {
	s := strings.TrimSpace(string(out))
	return s[strings.LastIndexByte(s, '\n')+1:]
}
