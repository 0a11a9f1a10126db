package server_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mneme/internal/agent"
	"mneme/internal/server"
)

// sources reads flags and an environment in which home holds config.yaml.
func sources(t *testing.T, config string, flags map[string][]string, env map[string]string) server.Sources {
	t.Helper()
	home := t.TempDir()
	if config != "" {
		if err := os.WriteFile(filepath.Join(home, server.ConfigFile), []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return server.Sources{Flags: flags, Command: "serve", Getenv: func(name string) string {
		if name == "MNEME_HOME" {
			return home
		}
		return env[name]
	}}
}

func TestDefaults(t *testing.T) {
	c, err := server.Load(sources(t, "", nil, nil))
	if err != nil {
		t.Fatal(err)
	}
	if c.Listen.Typed != "ws://127.0.0.1:4500" || c.Mode != agent.ModeStandard || c.Drain != 10*time.Second ||
		c.MaxSteps != 200 || c.Unattended != "park" || c.DefaultModel != "" || c.DatabaseURL != "" || c.Auth.Token != "" {
		t.Errorf("%+v", c)
	}
}

func TestPrecedence(t *testing.T) {
	const file = "permission_mode: strict\nlisten: ws://127.0.0.1:1\ndrain: 3\nmodel: a/b\nallow_origin: [https://a, https://b]\n"
	flags := map[string][]string{"permission-mode": {"unrestricted"}, "allow-host": {"x", "y"}}
	env := map[string]string{"MNEME_PERMISSION_MODE": "acceptEdits", "MNEME_LISTEN": "ws://127.0.0.1:2", "MNEME_TOKEN": "t0ken", "MNEME_SECRET_KEY": "k",
		"MNEME_WEB_SEARCH_URL": "http://s/search"}
	c, err := server.Load(sources(t, file, flags, env))
	if err != nil {
		t.Fatal(err)
	}
	if c.Mode != agent.ModeUnrestricted || c.Listen.Port != 2 || c.Drain != 3*time.Second || c.DefaultModel != "a/b" || c.Auth.Token != "t0ken" || c.SecretKey != "k" {
		t.Errorf("%+v", c)
	}
	got := map[string]string{}
	for _, v := range c.Values() {
		if v.Name != "home" {
			got[v.Name] = v.Text + " (" + v.Source + ")"
		}
		if strings.Contains(v.Text, "t0ken") {
			t.Error("the token is shown")
		}
	}
	want := map[string]string{
		"listen":              "ws://127.0.0.1:2 (MNEME_LISTEN)",
		"permission-mode":     "unrestricted (--permission-mode)",
		"drain":               "3 (config.yaml)",
		"model":               "a/b (config.yaml)",
		"allow-origin":        "https://a, https://b (config.yaml)",
		"allow-host":          "x, y (--allow-host)",
		"token":               "(set) (MNEME_TOKEN)",
		"secret-key":          "(set) (MNEME_SECRET_KEY)",
		"max-steps":           "200 (default)",
		"unattended-approval": "park (default)",
		"keep-run-events":     "3h (default)",
		"private-callbacks":   "refuse (default)",
		"web-search-url":      "http://s/search (MNEME_WEB_SEARCH_URL)",
	}
	for name, w := range want {
		if got[name] != w {
			t.Errorf("%s: got %s, want %s", name, got[name], w)
		}
	}
}

func TestTokenVariableIsForServe(t *testing.T) {
	src := sources(t, "", nil, map[string]string{"MNEME_TOKEN": "t"})
	src.Command = "server"
	c, err := server.Load(src)
	if err != nil || c.Auth.Token != "" {
		t.Errorf("token %q, %v", c.Auth.Token, err)
	}
}

func TestStateDirectory(t *testing.T) {
	env := map[string]string{"HOME": "/home/me"}
	load := func() (*server.Config, error) {
		return server.Load(server.Sources{Getenv: func(n string) string { return env[n] }})
	}
	if c, err := load(); err != nil || c.Home != "/home/me/.mneme" {
		t.Errorf("%v, %v", c, err)
	}
	env["MNEME_HOME"] = "rel"
	if c, err := load(); err != nil || !filepath.IsAbs(c.Home) || filepath.Base(c.Home) != "rel" {
		t.Errorf("%v, %v", c, err)
	}
	clear(env)
	if _, err := load(); err == nil {
		t.Error("a state without a place was accepted")
	}
}

func TestBadSettings(t *testing.T) {
	for name, c := range map[string]struct {
		file  string
		flags map[string][]string
		want  string
	}{
		"unknown key": {file: "x: 1\npermision_mode: strict\n", want: "unknown setting"},
		"line":        {file: "drain: 1s\nmodels: x\n", want: "line 2: unknown setting \"models\""},
		"token":       {file: "token: abc\n", want: "can only be set by MNEME_TOKEN"},
		"not YAML":    {file: "a: [", want: "config.yaml"},
		"a map":       {file: "model: {a: b}\n", want: "no such form"},
		"a list":      {file: "model: [a, b]\n", want: "no such form"},
		"mode":        {flags: map[string][]string{"permission-mode": {"bogus"}}, want: `unsupported permission mode "bogus"`},
		"drain":       {file: "drain: soon", want: `drain is "soon"`},
		"negative":    {file: "drain: -1", want: `drain is "-1"`},
		"events":      {file: "keep_run_events: 25h", want: `keep-run-events is "25h"`},
		"no events":   {file: "keep_run_events: 0", want: `keep-run-events is "0"`},
		"callbacks":   {file: "private_callbacks: maybe", want: `private-callbacks is "maybe"`},
		"search":      {file: "web_search_url: searx.local", want: `web-search-url is "searx.local"`},
		"steps":       {file: "max_steps: 0", want: "positive number"},
		"unattended":  {file: "unattended_approval: ask", want: "park or deny"},
		"log":         {file: "log_level: loud", want: "log-level"},
		"listen":      {flags: map[string][]string{"listen": {"wss://x"}}, want: "app-server MVP only supports ws:// listen URLs"},
	} {
		_, err := server.Load(sources(t, c.file, c.flags, nil))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", name, err, c.want)
		}
	}
}

func TestEveryValueIsNamedOnce(t *testing.T) {
	c, err := server.Load(sources(t, "model: null\n", nil, nil))
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]int{}
	for _, v := range c.Values() {
		names[v.Name]++
		if v.About == "" || v.Source == "" {
			t.Errorf("%+v lacks something", v)
		}
	}
	for name, n := range names {
		if n != 1 {
			t.Error(cmp.Diff(1, n), name)
		}
	}
}
