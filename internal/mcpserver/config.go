package mcpserver

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
)

// The settings that have a default (spec/mcp.md section 7).
const (
	DefaultPort = 6507
	DefaultDir  = "/workspace"

	defaultHost      = "127.0.0.1"
	defaultSessions  = 1000
	defaultBody      = 4 << 20
	defaultTTL       = time.Hour
	defaultRequest   = 60 * time.Second
	defaultTurn      = 10 * time.Minute
	defaultListLimit = 20
	defaultTopK      = 5
)

// TokenPlaceholder stands in .env.example where a token belongs. It is no token.
const TokenPlaceholder = "change-me"

// ErrNoToken says that no token is set: then there is no MCP server.
var ErrNoToken = errors.New("MCP_AUTH_TOKEN is not set: the MCP server needs the token that its clients must send; set MCP_AUTH_TOKEN or MCP_AUTH_TOKEN_FILE")

// A Config says how the MCP server behaves. Make it with LoadConfig.
type Config struct {
	Token string
	Host  string
	Port  int // 0 = any free one

	// ServerURL is the App Server of a bridge; "" = none. ServerToken may be empty.
	ServerURL, ServerToken string

	// Dir is the working directory of turns. DirGiven says that it was set; if
	// not and it does not exist, the server's own is used.
	Dir      string
	DirGiven bool

	Model, Embedding, Persona, Human string // of new agents; "" = the server decides
	ListLimit, TopK                  int
	RequestTimeout, TurnTimeout      time.Duration
	MaxReply                         int // characters; 0 = no limit

	AllowedOrigins []string // exact
	AllowedHosts   []string // lower case, without port
	SessionTTL     time.Duration
	MaxSessions    int
	MaxBody        int64
	Stateless      bool
	ElicitConfirm  bool
	MemoryIndex    bool

	// OAuthIssuer turns on OAuth. PublicURL is the endpoint as clients know it,
	// which is the audience of their tokens: never what a request says, or a
	// token for another service would do. OAuthScope is what tokens must have;
	// "" = nothing particular.
	OAuthIssuer, PublicURL, OAuthScope string
}

// LoadConfig reads the settings from the environment. Errors name the variable.
func LoadConfig(getenv func(string) string) (*Config, error) {
	c, err := LoadStdioConfig(getenv)
	if err == nil && c.Token == "" {
		return nil, ErrNoToken
	}
	return c, err
}

// LoadStdioConfig is LoadConfig for a server without a listener, which needs no
// token.
func LoadStdioConfig(getenv func(string) string) (*Config, error) {
	e := env{get: getenv}
	c := &Config{
		Token:          e.token(),
		Host:           cmp.Or(e.text("MCP_HOST"), defaultHost),
		Port:           e.number("MCP_PORT", DefaultPort, 0, 65535),
		ServerURL:      e.serverURL(),
		ServerToken:    e.text("LETTA_APP_SERVER_TOKEN"),
		Dir:            cmp.Or(e.text("SESSION_CWD"), DefaultDir),
		DirGiven:       e.text("SESSION_CWD") != "",
		Model:          e.text("DEFAULT_MODEL"),
		Embedding:      e.text("DEFAULT_EMBEDDING"),
		Persona:        e.text("DEFAULT_PERSONA"),
		Human:          e.text("DEFAULT_HUMAN"),
		ListLimit:      e.number("DEFAULT_LIST_LIMIT", defaultListLimit, 1, maxListLimit),
		TopK:           e.number("DEFAULT_TOP_K", defaultTopK, 1, maxTopK),
		RequestTimeout: e.milliseconds("REQUEST_TIMEOUT_MS", defaultRequest),
		TurnTimeout:    e.milliseconds("TURN_TIMEOUT_MS", defaultTurn),
		MaxReply:       e.number("STREAM_MAX_CHARS", 0, 0, 1<<30),
		AllowedOrigins: e.origins(),
		AllowedHosts:   e.hosts(),
		SessionTTL:     e.duration("MCP_SESSION_TTL", defaultTTL),
		MaxSessions:    e.number("MCP_MAX_SESSIONS", defaultSessions, 1, 1<<20),
		MaxBody:        int64(e.number("MCP_MAX_BODY_BYTES", defaultBody, 1024, 1<<30)),
		Stateless:      e.yes("MCP_STATELESS"),
		ElicitConfirm:  e.yes("MCP_ELICIT_CONFIRM"),
		MemoryIndex:    e.yes("MCP_MEMORY_INDEX"),
		OAuthIssuer:    e.webAddress("MCP_OAUTH_ISSUER"),
		OAuthScope:     e.text("MCP_OAUTH_SCOPE"),
		PublicURL:      e.webAddress("MCP_PUBLIC_URL"),
	}
	if c.OAuthIssuer != "" && c.PublicURL == "" {
		if ip := net.ParseIP(c.Host); ip != nil && ip.IsUnspecified() || c.Port == 0 {
			e.fail("MCP_PUBLIC_URL", "must be set with MCP_OAUTH_ISSUER: the address of the endpoint as clients know it, such as https://mcp.example.org/mcp")
		}
		c.PublicURL = "http://" + net.JoinHostPort(c.Host, strconv.Itoa(c.Port)) + "/mcp"
	}
	if e.err != nil {
		return nil, e.err
	}
	return c, nil
}

// env reads variables and keeps the first thing that is wrong.
type env struct {
	get func(string) string
	err error
}

func (e *env) fail(name, format string, args ...any) {
	if e.err == nil {
		e.err = fmt.Errorf("%s %s", name, fmt.Sprintf(format, args...))
	}
}

func (e *env) text(name string) string { return strings.TrimSpace(e.get(name)) }

// token reads MCP_AUTH_TOKEN, or the file that MCP_AUTH_TOKEN_FILE names.
func (e *env) token() string {
	name, token := "MCP_AUTH_TOKEN", e.text("MCP_AUTH_TOKEN")
	if path := e.text("MCP_AUTH_TOKEN_FILE"); token == "" && path != "" {
		name = "MCP_AUTH_TOKEN_FILE"
		b, err := os.ReadFile(path)
		if err != nil {
			e.fail(name, "cannot be read: %v", err)
			return ""
		}
		if token = strings.TrimSpace(string(b)); token == "" {
			e.fail(name, "names a file without a token: %s", path)
		}
	}
	if token == TokenPlaceholder {
		e.fail(name, "still is the placeholder %q of the example; set a token of your own, for example from `openssl rand -hex 32`", token)
	}
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		e.fail(name, "must hold visible ASCII characters only")
	}
	return token
}

func (e *env) number(name string, preset, least, most int) int {
	text := e.text(name)
	if text == "" {
		return preset
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > most {
		e.fail(name, "is %q; expected a whole number from %d to %d", text, least, most)
	}
	return n
}

func (e *env) milliseconds(name string, preset time.Duration) time.Duration {
	const day = 24 * 60 * 60 * 1000
	return time.Duration(e.number(name, int(preset/time.Millisecond), 1, day)) * time.Millisecond
}

// duration reads "90m", or a number of seconds.
func (e *env) duration(name string, preset time.Duration) time.Duration {
	text := e.text(name)
	if text == "" {
		return preset
	}
	d, err := time.ParseDuration(text)
	if n, nerr := strconv.Atoi(text); nerr == nil && n < 1<<30 {
		d, err = time.Duration(n)*time.Second, nil
	}
	if err != nil || d <= 0 {
		e.fail(name, "is %q; expected a time such as 1h, or seconds", text)
	}
	return d
}

func (e *env) yes(name string) bool {
	text := e.text(name)
	if text == "" {
		return false
	}
	v, err := strconv.ParseBool(strings.ToLower(text))
	if err != nil {
		e.fail(name, "is %q; expected true or false", text)
	}
	return v
}

// list reads values separated by commas or blanks.
func (e *env) list(name string) []string {
	return strings.FieldsFunc(e.get(name), func(r rune) bool { return r == ',' || r <= ' ' })
}

func (e *env) origins() []string {
	var out []string
	for _, o := range e.list("MCP_ALLOWED_ORIGINS") {
		u, err := url.Parse(o)
		if err != nil || u.Scheme == "" || u.Host == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" {
			e.fail("MCP_ALLOWED_ORIGINS", "holds %q; expected scheme://host[:port]", o)
			continue
		}
		out = append(out, strings.ToLower(u.Scheme+"://"+u.Host))
	}
	return out
}

func (e *env) hosts() []string {
	var out []string
	for _, h := range e.list("MCP_ALLOWED_HOSTS") {
		if strings.ContainsAny(h, "/@") {
			e.fail("MCP_ALLOWED_HOSTS", "holds %q; expected a host name", h)
			continue
		}
		out = append(out, hostOf(h))
	}
	return out
}

func (e *env) webAddress(name string) string {
	text := strings.TrimRight(e.text(name), "/")
	if text == "" {
		return ""
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		e.fail(name, "is %q; expected an http or https address", text)
	}
	return text
}

// serverURL reads the address of the App Server: ws or http, with or without
// the path of the socket.
func (e *env) serverURL() string {
	const name = "LETTA_APP_SERVER_URL"
	text := e.text(name)
	if text == "" {
		return ""
	}
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "":
		e.fail(name, "is not an address such as ws://127.0.0.1:4500")
		return ""
	case u.Scheme != "ws" && u.Scheme != "wss" && u.Scheme != "http" && u.Scheme != "https":
		e.fail(name, "must begin with ws://, wss://, http:// or https://")
		return ""
	}
	return text
}
