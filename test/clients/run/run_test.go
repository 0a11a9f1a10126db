package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCoverage(t *testing.T) {
	const table = `[
		{"method":"GET","path":"/v1/agents/{agent_id}","client_call":"client.agents.retrieve","priority":"P0"},
		{"method":"GET","path":"/v1/agents/count","client_call":"client.agents.count","priority":"P1"},
		{"method":"GET","path":"/v1/health/","client_call":"client.health","priority":"P0"},
		{"method":"POST","path":"/v1/agents/","client_call":"client.agents.create","priority":"P0"}]`
	for name, c := range map[string]struct {
		calls string
		want  string
	}{
		"all":             {"GET /v1/health/ 200\nGET /v1/agents/agent-1 200\nGET /v1/agents/x 422\nPOST /v1/agents/ 200\nPOST /v1/agents 422\n", ""},
		"never refused":   {"GET /v1/health/ 200\nGET /v1/agents/agent-1 200\nGET /v1/agents/x 404\nPOST /v1/agents/ 200\n", "client.agents.create was never refused"},
		"never well":      {"GET /v1/health/ 200\nGET /v1/agents/count 200\nGET /v1/agents/x 404\nPOST /v1/agents/ 200\nPOST /v1/agents 422\n", "client.agents.retrieve was never answered well"},
		"failures are no": {"GET /v1/health/ 200\nGET /v1/agents/a 200\nGET /v1/agents/a 500\nPOST /v1/agents/ 200\nPOST /v1/agents 422\n", "client.agents.retrieve was never refused"},
		"not a call":      {"GET\n", "is no call"},
	} {
		dir := t.TempDir()
		rows, calls := filepath.Join(dir, "table"), filepath.Join(dir, "calls")
		for file, text := range map[string]string{rows: table, calls: c.calls} {
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		err := checkCoverage(rows, calls)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}

func TestVersions(t *testing.T) {
	for text, want := range map[string]version{"v22.19.0\n": {22, 19}, "Python 3.11.7": {3, 11}} {
		if got, err := parseVersion(text); err != nil || got != want {
			t.Errorf("%q: got %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "node", "v22", "va.b.c"} {
		if _, err := parseVersion(text); err == nil {
			t.Errorf("%q was taken for a version", text)
		}
	}
	if (version{22, 19}).older(version{22, 19}) || !(version{22, 18}).older(version{22, 19}) || !(version{20, 20}).older(version{22, 19}) {
		t.Error("versions are compared wrongly")
	}
}

func TestSuitesAreChosenByName(t *testing.T) {
	all, err := choose("")
	if err != nil || len(all) != len(suites) {
		t.Errorf("got %d suites, %v", len(all), err)
	}
	some, err := choose("cli,rest-ts")
	if err != nil || len(some) != 2 || some[0].name != "cli" || some[1].name != "rest-ts" {
		t.Errorf("got %+v, %v", some, err)
	}
	if _, err := choose("cli,nonsense"); err == nil || !strings.Contains(err.Error(), "nonsense") {
		t.Errorf("got %v", err)
	}
}

func TestConformanceIsJudged(t *testing.T) {
	const good, bad = `[{"id":"a","status":"SUCCESS"},{"id":"b","status":"SKIPPED"}]`, `[{"id":"a","status":"FAILURE","errorMessage":"no such tool"}]`
	for name, c := range map[string]struct {
		scenario, checks string
		fixtures         bool
		code             int
		want             string
	}{
		"passes":                    {"ping", good, false, 1, ""},
		"fails":                     {"ping", bad, false, 1, "ping: a: no such tool"},
		"needs fixtures":            {"tools-call-image", bad, false, 1, "no scenarios"},
		"has its fixtures":          {"tools-call-image", bad, true, 1, "tools-call-image: a: no such tool"},
		"needs none after all":      {"tools-call-image", good, false, 1, "passes without fixtures"},
		"is not built":              {"tasks-lifecycle", bad, true, 0, "no scenarios"},
		"a bad end":                 {"ping", good, true, 1, "the suite ended with 1"},
		"a check that is no matter": {"server-stateless", strings.Replace(bad, `"a"`, `"sep-2575-missing-capability-http-400"`, 1), false, 1, ""},
		"and with fixtures is":      {"server-stateless", strings.Replace(bad, `"a"`, `"sep-2575-missing-capability-http-400"`, 1), true, 1, "no such tool"},
	} {
		dir := t.TempDir()
		folder := filepath.Join(dir, "server-"+c.scenario+"-2026-08-01T10-00-00-000Z")
		if err := os.Mkdir(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, "checks.json"), []byte(c.checks), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := judge(dir, c.fixtures, c.code)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}
