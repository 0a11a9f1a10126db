package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseFlags(t *testing.T) {
	type flags = map[string][]string
	for name, c := range map[string]struct {
		command, args string
		want          flags
		fault         string
	}{
		"nothing":              {"serve", "", flags{}, ""},
		"listen alone":         {"server", "--listen", flags{"listen": {""}}, ""},
		"listen before a flag": {"server", "--listen --openai-api", flags{"listen": {""}, "openai-api": {""}}, ""},
		"listen with a value":  {"server", "--listen ws://127.0.0.1:1", flags{"listen": {"ws://127.0.0.1:1"}}, ""},
		"inline":               {"server", "--listen=ws://a:1 --ws-max-clock-skew-seconds=-1", flags{"listen": {"ws://a:1"}, "ws-max-clock-skew-seconds": {"-1"}}, ""},
		"repeated":             {"serve", "--allow-host a --allow-host b", flags{"allow-host": {"a", "b"}}, ""},
		"value missing":        {"server", "--listen --ws-auth", nil, "Option '--ws-auth <value>' argument missing"},
		"dash value":           {"server", "--listen --ws-max-clock-skew-seconds -1", nil, "Option '--ws-max-clock-skew-seconds <value>' argument missing"},
		"unknown":              {"server", "--listen --debug", nil, "Unknown option '--debug'"},
		"unknown short":        {"server", "-x", nil, "Unknown option '-x'"},
		"unknown with value":   {"server", "--nope=1", nil, "Unknown option '--nope'"},
		"value for none":       {"server", "--openai-api=1", nil, "Option '--openai-api' does not take an argument"},
		"positional":           {"server", "--openai-api x", nil, "Unexpected argument 'x'"},
		"positional after --":  {"server", "-- --listen", nil, "Unexpected argument '--listen'"},
		"flag of serve":        {"server", "--token-file /x", nil, "Unknown option '--token-file'"},
		"flag of server":       {"serve", "--openai-api", nil, "Unknown option '--openai-api'"},
	} {
		got, help, err := parseFlags(c.command, strings.Fields(c.args))
		if help {
			t.Errorf("%s: taken for help", name)
		}
		if c.fault != "" {
			if err == nil || !strings.HasPrefix(err.Error(), c.fault) {
				t.Errorf("%s: got %v, want %s", name, err, c.fault)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
	for _, args := range []string{"-h", "--listen --help --nope"} {
		if _, help, err := parseFlags("server", strings.Fields(args)); !help || err != nil {
			t.Errorf("%s: help %v, %v", args, help, err)
		}
	}
}

func TestUsageNamesEveryFlagOfTheCommand(t *testing.T) {
	for _, command := range []string{"serve", "server"} {
		var b strings.Builder
		printUsage(&b, command)
		for _, d := range flagDefs {
			if got, want := strings.Contains(b.String(), "--"+d.name+" "), findFlag(command, d.name) != nil && d.about != ""; got != want {
				t.Errorf("%s, --%s: shown %v, known %v", command, d.name, got, want)
			}
		}
	}
}
