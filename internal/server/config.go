package server

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"mneme/internal/agent"
	"mneme/internal/auth"
	"mneme/internal/mcpserver"
)

// ConfigFile is the name of the settings file in the state directory.
const ConfigFile = "config.yaml"

// DefaultListen is where `mneme serve` listens.
const DefaultListen = "ws://127.0.0.1:4500"

// A setting is one row of the table of everything that can be set. Its name is
// the key in config.yaml and, with dashes, the flag.
type setting struct {
	name   string
	env    string
	preset string
	list   bool // may be given several times
	secret bool // shown as "(set)"
	// only is where it can be set besides the flag and the environment:
	// "" = config.yaml too, "env" = the environment only.
	only  string
	about string
}

// settings in the order `mneme doctor` shows them.
var settings = []setting{
	{name: "home", env: "MNEME_HOME", only: "env", about: "state directory"},
	{name: "listen", env: "MNEME_LISTEN", preset: DefaultListen, about: "address of the listener"},
	{name: "database-url", env: "MNEME_DATABASE_URL", secret: true, about: "PostgreSQL instead of the embedded database"},
	{name: "model", env: "MNEME_MODEL", about: "the default model, provider/model"},
	{name: "permission-mode", env: "MNEME_PERMISSION_MODE", preset: string(agent.ModeStandard), about: "standard, acceptEdits, unrestricted or strict"},
	{name: "unattended-approval", preset: "park", about: "park or deny: what becomes of approvals nobody watches"},
	{name: "keep-run-events", preset: "3h", about: "how long background runs can be resumed, at most 24h"},
	{name: "private-callbacks", preset: "refuse", about: "refuse or allow: callbacks to private addresses, and images from there"},
	{name: "web-search-url", env: "MNEME_WEB_SEARCH_URL", about: "search page of the SearXNG instance that web_search asks"},
	{name: "max-steps", preset: "200", about: "model calls per turn"},
	{name: "drain", preset: "10s", about: "how long a stop waits for running turns"},
	{name: "log-level", env: "MNEME_LOG_LEVEL", preset: "warn", about: "debug, info, warn or error"},
	{name: "allow-origin", list: true, about: "further origins that browsers may use"},
	{name: "allow-host", list: true, about: "further host names of a loopback listener"},
	{name: "token-file", about: "file with the token of the listener"},
	{name: "token", env: "MNEME_TOKEN", only: "env", secret: true, about: "the token itself"},
	{name: "ws-auth", about: "capability-token or signed-bearer-token"},
	{name: "ws-token-file", about: "file with the capability token"},
	{name: "ws-token-sha256", about: "SHA-256 of the capability token"},
	{name: "ws-shared-secret-file", about: "file with the secret of signed tokens"},
	{name: "ws-issuer", about: "issuer that signed tokens must have"},
	{name: "ws-audience", about: "audience that signed tokens must have"},
	{name: "ws-max-clock-skew-seconds", about: "clock difference that signed tokens may have, 30 if not set"},
	{name: "secret-key", env: "MNEME_SECRET_KEY", only: "env", secret: true, about: "key of stored secrets, instead of secret.key"},
}

// A Value is one effective setting and where it comes from.
type Value struct {
	Name   string
	Text   string // empty = not set; secrets show as "(set)"
	Source string // default, config.yaml, the name of a variable, or the flag
	About  string
}

// Sources are what settings are read from.
type Sources struct {
	// Flags are the values given on the command line, by name without dashes in
	// front.
	Flags map[string][]string
	// Getenv reads the environment.
	Getenv func(string) string
	// Command is the subcommand: serve, server, chat …
	Command string
}

// A Config says what to build. Make it with Load.
type Config struct {
	Command string
	Home    string // absolute; need not exist yet
	Listen  Listen

	DatabaseURL  string // "" = the embedded database in Home
	DefaultModel string // a handle; "" = the first that is found
	Mode         agent.Mode
	Unattended   string // park or deny
	MaxSteps     int
	Drain        time.Duration
	// KeepRunEvents is how long background runs can be resumed.
	KeepRunEvents time.Duration
	// PrivateCallbacks allows callbacks to private addresses, and images from there.
	PrivateCallbacks bool
	// WebSearchURL is where the tool web_search asks; "" = there is no web search.
	WebSearchURL string
	LogLevel     string

	AllowOrigin, AllowHost []string
	Auth                   auth.Options
	SecretKey              string
	// REST turns the REST door on; OpenAI prints the third line and answers on its
	// paths (see routes.go).
	REST    bool
	OpenAI  bool
	Version string    // of mneme
	Log     io.Writer // gets the log; nil = nobody
	// Private makes a server for this process alone: clients need a random token,
	// which Server.Token tells, and which a file that only this user can read
	// tells other commands.
	Private bool

	// MCP are the settings of the MCP server, which `mneme serve` has where a
	// token for it is set; nil = off.
	MCP *mcpserver.Config

	getenv func(string) string
	values []Value
}

// Values lists the effective settings with their sources, for people.
func (c *Config) Values() []Value { return slices.Clone(c.values) }

// Load reads the settings: flags over the environment over config.yaml over
// what is preset.
func Load(src Sources) (*Config, error) {
	c := &Config{Command: src.Command, getenv: src.Getenv}
	home, source, err := stateDir(src.Getenv)
	if err != nil {
		return nil, err
	}
	c.Home = home
	file, err := readFile(home)
	if err != nil {
		return nil, err
	}
	all := map[string][]string{}
	for _, s := range settings {
		v := Value{Name: s.name, Source: "default", About: s.about}
		var texts []string
		switch {
		case s.name == "home":
			texts, v.Source = []string{home}, source
		case src.Flags[s.name] != nil:
			texts, v.Source = src.Flags[s.name], "--"+s.name
		case s.env != "" && src.Getenv(s.env) != "":
			texts, v.Source = []string{src.Getenv(s.env)}, s.env
		case file[s.name] != nil:
			texts, v.Source = file[s.name], ConfigFile
		case s.preset != "":
			texts = []string{s.preset}
		}
		all[s.name] = texts
		if v.Text = strings.Join(texts, ", "); s.secret && v.Text != "" {
			v.Text = "(set)"
		}
		c.values = append(c.values, v)
	}
	if err := c.fill(all); err != nil {
		return c, err
	}
	if c.Command != "serve" {
		return c, nil
	}
	v := Value{Name: "mcp", Source: "default", About: "address of the MCP server; it is on where MCP_AUTH_TOKEN is set"}
	if c.MCP, err = loadMCP(src.Getenv); c.MCP != nil {
		v.Text, v.Source = net.JoinHostPort(c.MCP.Host, strconv.Itoa(c.MCP.Port)), "MCP_AUTH_TOKEN"
	}
	c.values = append(c.values, v)
	return c, err
}

// stateDir is $MNEME_HOME or ~/.mneme.
func stateDir(getenv func(string) string) (dir, source string, err error) {
	if dir = getenv("MNEME_HOME"); dir != "" {
		dir, err = filepath.Abs(dir)
		return dir, "MNEME_HOME", err
	}
	user := getenv("HOME")
	if user == "" {
		return "", "", errors.New("neither MNEME_HOME nor HOME is set: there is no place for the state")
	}
	return filepath.Join(user, ".mneme"), "default", nil
}

// readFile reads config.yaml: keys with values or lists of values.
func readFile(home string) (map[string][]string, error) {
	path := filepath.Join(home, ConfigFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var nodes map[string]yaml.Node
	if err := yaml.Unmarshal(text, &nodes); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	out := map[string][]string{}
	for key, node := range nodes {
		name := strings.ReplaceAll(key, "_", "-")
		s := slices.IndexFunc(settings, func(s setting) bool { return s.name == name })
		if s < 0 {
			return nil, fmt.Errorf("%s, line %d: unknown setting %q", path, node.Line, key)
		}
		if settings[s].only == "env" {
			return nil, fmt.Errorf("%s, line %d: %q can only be set by %s", path, node.Line, key, settings[s].env)
		}
		values, ok := scalars(&node)
		if !ok || len(values) > 1 && !settings[s].list {
			return nil, fmt.Errorf("%s, line %d: %q has no such form", path, node.Line, key)
		}
		if len(values) > 0 {
			out[name] = values
		}
	}
	return out, nil
}

func scalars(n *yaml.Node) ([]string, bool) {
	switch {
	case n.Kind == yaml.ScalarNode && n.Tag == "!!null":
		return nil, true
	case n.Kind == yaml.ScalarNode:
		return []string{n.Value}, true
	case n.Kind == yaml.SequenceNode:
		var out []string
		for _, e := range n.Content {
			if e.Kind != yaml.ScalarNode {
				return nil, false
			}
			out = append(out, e.Value)
		}
		return out, true
	}
	return nil, false
}

// fill turns texts into typed settings.
func (c *Config) fill(all map[string][]string) error {
	one := func(name string) string {
		if v := all[name]; len(v) > 0 {
			return v[len(v)-1]
		}
		return ""
	}
	var err error
	if c.Listen, err = ParseListen(one("listen")); err != nil {
		return err
	}
	var ok bool
	if c.Mode, ok = agent.ParseMode(one("permission-mode")); !ok {
		return fmt.Errorf("unsupported permission mode %q; expected standard, acceptEdits, unrestricted or strict", one("permission-mode"))
	}
	if c.Unattended = one("unattended-approval"); c.Unattended != "park" && c.Unattended != "deny" {
		return fmt.Errorf("unattended-approval is %q; expected park or deny", c.Unattended)
	}
	if c.MaxSteps, err = strconv.Atoi(one("max-steps")); err != nil || c.MaxSteps < 1 {
		return fmt.Errorf("max-steps is %q; expected a positive number", one("max-steps"))
	}
	if c.Drain, err = duration("drain", one("drain")); err != nil {
		return err
	}
	if c.KeepRunEvents, err = duration("keep-run-events", one("keep-run-events")); err != nil {
		return err
	}
	if c.KeepRunEvents <= 0 || c.KeepRunEvents > maxRunEvents {
		return fmt.Errorf("keep-run-events is %q; expected a time up to 24h", one("keep-run-events"))
	}
	if word := one("private-callbacks"); word != "refuse" && word != "allow" {
		return fmt.Errorf("private-callbacks is %q; expected refuse or allow", word)
	}
	c.PrivateCallbacks = one("private-callbacks") == "allow"
	if c.WebSearchURL = one("web-search-url"); c.WebSearchURL != "" {
		if u, err := url.Parse(c.WebSearchURL); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			return fmt.Errorf("web-search-url is %q; expected an http or https address", c.WebSearchURL)
		}
	}
	if c.LogLevel = one("log-level"); !slices.Contains([]string{"debug", "info", "warn", "error"}, c.LogLevel) {
		return fmt.Errorf("log-level is %q; expected debug, info, warn or error", c.LogLevel)
	}
	c.DatabaseURL, c.DefaultModel, c.SecretKey = one("database-url"), one("model"), one("secret-key")
	c.AllowOrigin, c.AllowHost = all["allow-origin"], all["allow-host"]
	c.Auth = auth.Options{
		Mode: one("ws-auth"), TokenFile: one("ws-token-file"), SHA256: one("ws-token-sha256"),
		SecretFile: one("ws-shared-secret-file"), Issuer: one("ws-issuer"), Audience: one("ws-audience"),
		Skew: one("ws-max-clock-skew-seconds"), PlainTokenFile: one("token-file"),
	}
	if c.Command == "serve" {
		c.Auth.Token = one("token")
	}
	return nil
}

// maxRunEvents is the longest time that the log of a run is kept.
const maxRunEvents = 24 * time.Hour

// duration reads "10s" or a number of seconds.
func duration(name, s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if n, nerr := strconv.ParseFloat(s, 64); nerr == nil && n < 1e6 {
		d, err = time.Duration(n*float64(time.Second)), nil
	}
	if err != nil || d < 0 {
		return 0, fmt.Errorf("%s is %q; expected a time such as 10s", name, s)
	}
	return d, nil
}
