package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"mneme/test/harness"
)

// The revisions that the conformance suite is run for: the last of the era with
// sessions, and the first without.
var revisions = []string{"2025-11-25", "2026-07-28"}

// needFixtures are the scenarios that call tools, resources or prompts of
// prescribed names, which no product has. mneme's own server fails them; that
// it does is checked too, so that this list stays true.
var needFixtures = []string{
	"tools-call-simple-text", "tools-call-image", "tools-call-audio", "tools-call-embedded-resource",
	"tools-call-mixed-content", "tools-call-with-logging", "tools-call-error", "tools-call-with-progress",
	"tools-call-sampling", "tools-call-elicitation", "elicitation-sep1034-defaults", "elicitation-sep1330-enums",
	"resources-read-text", "resources-read-binary", "resources-templates-read",
	"prompts-get-simple", "prompts-get-with-args", "prompts-get-embedded-resource", "prompts-get-with-image",
	"input-required-result-basic-elicitation", "input-required-result-basic-sampling",
	"input-required-result-basic-list-roots", "input-required-result-request-state",
	"input-required-result-multiple-input-requests", "input-required-result-multi-round",
	"input-required-result-non-tool-request", "input-required-result-result-type",
	"input-required-result-tampered-state", "input-required-result-capability-check",
	"json-schema-2020-12", "http-custom-header-server-validation",
}

// needFixtureChecks are such checks of scenarios that pass else.
var needFixtureChecks = map[string][]string{
	"server-stateless": {
		"sep-2575-server-rejects-undeclared-capability", "sep-2575-missing-capability-http-400",
		"sep-2575-http-server-no-independent-requests-on-stream", "sep-2575-server-no-log-without-loglevel",
	},
}

// notBuilt are scenarios of an extension that mneme does not offer: tasks, which
// no revision requires.
func notBuilt(scenario string) bool { return strings.HasPrefix(scenario, "tasks-") }

// conformance runs the official conformance suite: with fixtures everything must
// pass; without, everything that needs none.
func (r *runner) conformance(ctx context.Context, s suite, env []string) error {
	node, err := r.node(ctx, s, "mcp")
	if err != nil {
		return err
	}
	out, err := os.MkdirTemp("", "mcp-conformance-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(out)
	var failed []error
	scenarios := map[string]int{} // by revision
	for _, server := range []struct {
		name, variable string
		fixtures       bool
	}{
		{"fixtures", "MNEME_MCP_FIXTURE_URL", true},
		{"embedded", "MNEME_MCP_URL", false},
		{"bridge", "MNEME_MCP_BRIDGE_URL", false},
	} {
		door, err := withToken(value(env, server.variable))
		if err != nil {
			return err
		}
		for _, revision := range revisions {
			dir := filepath.Join(out, server.name+"-"+revision)
			code, err := r.play(ctx, node, door.URL+"/mcp", revision, dir)
			n := 0
			if err == nil {
				n, err = judge(dir, server.fixtures, code)
			}
			if server.fixtures {
				scenarios[revision] = n
			} else if err == nil && n != scenarios[revision] {
				err = fmt.Errorf("the suite ran %d scenarios here, and %d with fixtures", n, scenarios[revision])
			}
			if err != nil {
				failed = append(failed, fmt.Errorf("%s, %s: %w", server.name, revision, err))
			}
		}
		door.Close()
	}
	return errors.Join(failed...)
}

// value is that of a variable.
func value(env []string, name string) string {
	for _, e := range env {
		if v, ok := strings.CutPrefix(e, name+"="); ok {
			return v
		}
	}
	return ""
}

// withToken is a door in front of a server that adds the token, for which the
// suite has no option. Host and Origin stay as they come.
func withToken(endpoint string) (*httptest.Server, error) {
	to, err := url.Parse(endpoint)
	if err != nil || to.Host == "" {
		return nil, fmt.Errorf("%q is no endpoint", endpoint)
	}
	pass := &httputil.ReverseProxy{
		FlushInterval: -1,
		ErrorLog:      log.New(io.Discard, "", 0), // the suite hangs up as it likes
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host = to.Scheme, to.Host
			r.Out.Header.Set("Authorization", "Bearer "+mcpToken)
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			http.Error(w, err.Error(), http.StatusBadGateway)
		},
	}
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// A proxy of Go's loses answers that come before it has seen the end of
		// the body it passes on.
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		pass.ServeHTTP(w, r)
	})), nil
}

// play runs the suite against an endpoint and returns its exit code.
func (r *runner) play(ctx context.Context, node, endpoint, revision, out string) (int, error) {
	program := filepath.Join(r.dir, "mcp", "node_modules", "@modelcontextprotocol", "conformance", "dist", "index.js")
	cmd := exec.CommandContext(ctx, node, program, "server", "--url", endpoint, "--requirements", revision, "-o", out)
	var said strings.Builder
	cmd.Dir, cmd.Stdout, cmd.Stderr = r.dir, &said, &said
	err := harness.Run(cmd)
	if r.verbose {
		fmt.Print(said.String())
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Exited() {
		return exit.ExitCode(), nil
	}
	if err != nil {
		return 0, fmt.Errorf("%w\n%s", err, said.String())
	}
	return 0, nil
}

// A check is an entry of the checks.json of a scenario.
type check struct {
	ID      string `json:"id"`
	Status  string `json:"status"`
	Message string `json:"errorMessage"`
}

// judge reads what the suite wrote down, counts the scenarios and says what
// should not be so.
func judge(dir string, fixtures bool, code int) (scenarios int, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "server-*", "checks.json"))
	if err != nil {
		return 0, err
	}
	passed, expected := 0, 0
	var wrong []string
	for _, name := range files {
		scenario := scenarioOf(filepath.Base(filepath.Dir(name)))
		failures, err := failuresOf(name, scenario, fixtures)
		switch {
		case err != nil:
			return 0, err
		case notBuilt(scenario):
		case fixtures || !slices.Contains(needFixtures, scenario):
			passed++
			wrong = append(wrong, failures...)
		case failures == nil:
			wrong = append(wrong, scenario+" passes without fixtures: it belongs into no list")
		default:
			expected++
		}
	}
	if fixtures && code != 0 {
		wrong = append(wrong, fmt.Sprintf("the suite ended with %d", code))
	}
	if wrong != nil {
		return len(files), fmt.Errorf("not as it should be:\n  %s", strings.Join(wrong, "\n  "))
	}
	if passed == 0 {
		return 0, errors.New("the suite has written down no scenarios")
	}
	fmt.Printf("clients: %s: %d scenarios pass, %d need fixtures\n", filepath.Base(dir), passed, expected)
	return len(files), nil
}

// scenarioOf takes the scenario out of the likes of
// server-ping-2026-08-01T10-00-00-000Z.
func scenarioOf(folder string) string {
	const stamp = len("-2026-08-01T10-00-00-000Z")
	name := strings.TrimPrefix(folder, "server-")
	return name[:max(0, len(name)-stamp)]
}

// failuresOf is what failed in a scenario, in words.
func failuresOf(file, scenario string, fixtures bool) ([]string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var checks []check
	if err := json.Unmarshal(data, &checks); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	var failures []string
	for _, c := range checks {
		excused := !fixtures && slices.Contains(needFixtureChecks[scenario], c.ID)
		if c.Status == "FAILURE" && !excused {
			failures = append(failures, fmt.Sprintf("%s: %s: %s", scenario, c.ID, c.Message))
		}
	}
	return failures, nil
}
