package mcpserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"mneme/client"
	"mneme/internal/agent"
	"mneme/protocol"
)

const (
	dialTimeout = 10 * time.Second
	// allAgents is a limit that no server reaches: a stock one lists 20 otherwise.
	allAgents = 100_000
)

// A Bridge is the Backend of another process: an App Server that is reached by
// its WebSocket. A mneme announces extensions, which make it the same as an
// Embedded one; of a stock server what it has is put together
// (bridge_stock.go).
//
// There is one connection for all calls, made when it is first needed and made
// again after it was lost. Turns have connections of their own, because what
// they leave behind ends with those.
type Bridge struct {
	url, token string
	dir        string
	dirGiven   bool
	version    string // of mneme
	log        *slog.Logger
	life       context.Context
	end        context.CancelFunc
	work       sync.WaitGroup
	dialing    chan struct{} // held while a connection is made
	saving     *locks        // by agent: reading and writing again
	indexes    indexCache    // of stock servers

	mu    sync.Mutex
	conn  *connection // nil = none yet, or lost
	info  Info        // of the last connection
	tells map[*func(Change)]bool
	heads map[string]string // stock: the commit of an agent's memory as last seen
}

// A connection is a client with what its server can do.
type connection struct {
	*client.Client
	mneme *protocol.Extensions // nil = a stock server
}

// NewBridge makes the Backend. It connects when it is first used.
func NewBridge(cfg *Config, version string, log *slog.Logger) *Bridge {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	b := &Bridge{
		url: cfg.ServerURL, token: cfg.ServerToken, dir: cfg.Dir, dirGiven: cfg.DirGiven, version: version, log: log,
		dialing: make(chan struct{}, 1), saving: newLocks(), tells: map[*func(Change)]bool{}, heads: map[string]string{},
	}
	b.life, b.end = context.WithCancel(context.Background())
	b.info = Info{Configured: b.url != "", URL: publicURL(b.url)}
	return b
}

// Close ends the connections.
func (b *Bridge) Close() error {
	b.end()
	b.mu.Lock()
	conn := b.conn
	b.conn = nil
	b.mu.Unlock()
	if conn != nil {
		conn.Close() //nolint:errcheck // it never fails
	}
	b.work.Wait()
	return nil
}

// publicURL is an address without what must not be shown.
func publicURL(address string) string {
	u, err := url.Parse(address)
	if err != nil || address == "" {
		return ""
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	return u.String()
}

// connect is the connection for calls.
func (b *Bridge) connect(ctx context.Context) (*connection, error) {
	if b.url == "" {
		return nil, fault(CodeNotConfigured, "No App Server is configured: set LETTA_APP_SERVER_URL and start the bridge again.")
	}
	if c := b.current(); c != nil {
		return c, nil
	}
	select {
	case b.dialing <- struct{}{}:
		defer func() { <-b.dialing }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if c := b.current(); c != nil {
		return c, nil // made while we waited
	}
	c, err := b.dial(ctx)
	if err != nil {
		return nil, err
	}
	info, err := client.Call(ctx, c, &protocol.AppServerInfo{})
	if err != nil {
		c.Close() //nolint:errcheck // it never fails
		return nil, b.explain(ctx, err)
	}
	conn := &connection{c, info.Capabilities.Mneme}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.life.Err() != nil {
		c.Close() //nolint:errcheck // likewise
		return nil, errStopping
	}
	b.conn, b.info.Version, b.info.Protocol = conn, info.LettaCodeVersion, info.ProtocolVersion
	b.info.Embeddings = conn.mneme != nil
	return conn, nil
}

// current is the connection, if it lives.
func (b *Bridge) current() *connection {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.conn == nil {
		return nil
	}
	select {
	case <-b.conn.Done():
		b.conn = nil
		return nil
	default:
		return b.conn
	}
}

// dial makes a connection.
func (b *Bridge) dial(ctx context.Context) (*client.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	c, err := client.Dial(ctx, b.url, client.Options{
		Token: b.token, ClientInfo: &protocol.ClientInfo{Name: "mneme-mcp", Version: &b.version}, Logger: b.log,
	})
	if err != nil {
		return nil, b.explainDial(err)
	}
	return c, nil
}

// explainDial says why there is no connection, without what the address may hold
// besides host and path.
func (b *Bridge) explainDial(err error) error {
	where := publicURL(b.url)
	var refused *client.DialError
	if errors.As(err, &refused) {
		if refused.Status == 401 || refused.Status == 403 {
			return &Error{Code: CodeUnauthorized, Message: fmt.Sprintf("The App Server at %s refuses the token (status %d): check LETTA_APP_SERVER_TOKEN.", where, refused.Status), Err: err}
		}
		return &Error{Code: CodeUnreachable, Message: fmt.Sprintf("What answers at %s is no App Server (status %d).", where, refused.Status), Err: err}
	}
	return &Error{Code: CodeUnreachable, Message: fmt.Sprintf("The App Server at %s cannot be reached: %s.", where, networkReason(err)), Err: err}
}

// networkReason is what the network said, without addresses.
func networkReason(err error) string {
	var errno syscall.Errno
	var dns *net.DNSError
	switch {
	case errors.As(err, &errno):
		return errno.Error()
	case errors.As(err, &dns):
		return "its name is not known"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return "it does not answer"
	}
	return "the connection failed"
}

// explain turns what the client says into what a tool answers.
func (b *Bridge) explain(ctx context.Context, err error) error {
	var failed *client.ServerError
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.As(err, &failed):
		return serverFault(failed)
	case errors.Is(err, client.ErrConnectionLost), errors.Is(err, client.ErrClosed):
		return &Error{Code: CodeUnreachable, Message: "The connection to the App Server was lost before it answered; what was asked may have been done.", Err: err}
	}
	return &Error{Code: CodeRefused, Message: "The App Server's answer could not be read.", Err: err}
}

// serverFault gives the texts of App Servers their codes.
func serverFault(e *client.ServerError) error {
	text := line(e.Message)
	lower := strings.ToLower(text)
	var code agent.Code
	switch {
	case strings.HasPrefix(lower, "memory_conflict"):
		code = agent.CodeMemoryConflict
	case strings.HasSuffix(lower, "not found") || strings.HasPrefix(lower, "there is no memory file"):
		code = agent.CodeNotFound
	case strings.HasSuffix(lower, "is read-only"):
		code = agent.CodeReadOnly
	default:
		if text == "" {
			text = e.Command + " failed"
		}
		return &Error{Code: CodeRefused, Message: "The App Server refuses: " + text, Err: e}
	}
	return &agent.Error{Code: code, Message: text}
}

// read makes a call that changes nothing, once more if the connection broke.
func read[R any](ctx context.Context, b *Bridge, cmd protocol.Request[R]) (*R, error) {
	for again := false; ; again = true {
		conn, err := b.connect(ctx)
		if err != nil {
			return nil, err
		}
		r, err := client.Call(ctx, conn.Client, cmd)
		if !again && broken(ctx, err) {
			continue
		}
		return r, b.explain(ctx, err)
	}
}

// readRaw is read for the frame itself.
func (b *Bridge) readRaw(ctx context.Context, cmd protocol.Command) (json.RawMessage, error) {
	for again := false; ; again = true {
		conn, err := b.connect(ctx)
		if err != nil {
			return nil, err
		}
		raw, err := conn.CallRaw(ctx, cmd)
		if !again && broken(ctx, err) {
			continue
		}
		return raw, b.explain(ctx, err)
	}
}

func broken(ctx context.Context, err error) bool {
	return errors.Is(err, client.ErrConnectionLost) && ctx.Err() == nil
}

// writeRaw makes a call that changes something: never twice.
func (b *Bridge) writeRaw(ctx context.Context, cmd protocol.Command) (json.RawMessage, error) {
	conn, err := b.connect(ctx)
	if err != nil {
		return nil, err
	}
	raw, err := conn.CallRaw(ctx, cmd)
	return raw, b.explain(ctx, err)
}

func write[R any](ctx context.Context, b *Bridge, cmd protocol.Request[R]) (*R, error) {
	conn, err := b.connect(ctx)
	if err != nil {
		return nil, err
	}
	r, err := client.Call(ctx, conn.Client, cmd)
	return r, b.explain(ctx, err)
}

// Info implements Backend.
func (b *Bridge) Info(context.Context) Info {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.info
}

// Models implements Backend.
func (b *Bridge) Models(ctx context.Context) (*protocol.ListModelsResponse, error) {
	return read(ctx, b, &protocol.ListModels{})
}

// Agents implements Backend.
func (b *Bridge) Agents(ctx context.Context) ([]Agent, error) {
	conn, err := b.connect(ctx)
	if err != nil {
		return nil, err
	}
	query := &protocol.AgentQuery{Limit: new(allAgents)}
	if conn.mneme != nil {
		query.IncludeHidden = new(true)
	}
	raw, err := b.readRaw(ctx, &protocol.AgentList{Query: query})
	if err != nil {
		return nil, err
	}
	var list struct {
		Agents []json.RawMessage `json:"agents"`
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, b.explain(ctx, err)
	}
	all := make([]Agent, len(list.Agents))
	for i, record := range list.Agents {
		if all[i], err = readAgent(record); err != nil {
			return nil, b.explain(ctx, err)
		}
	}
	return all, nil
}

// readAgent reads a record of an App Server.
func readAgent(record json.RawMessage) (Agent, error) {
	var st struct {
		ID          string   `json:"id"`
		Name        string   `json:"name"`
		Description *string  `json:"description"`
		Model       string   `json:"model"`
		Tags        []string `json:"tags"`
		Hidden      *bool    `json:"hidden"`
		CreatedAt   string   `json:"created_at"`
	}
	if err := json.Unmarshal(record, &st); err != nil {
		return Agent{}, fmt.Errorf("read agent: %w", err)
	}
	a := Agent{ID: st.ID, Name: st.Name, Model: st.Model, Tags: st.Tags, Record: record}
	if st.Description != nil {
		a.Description = *st.Description
	}
	a.Hidden = st.Hidden != nil && *st.Hidden || st.Hidden == nil && slices.Contains(st.Tags, subagentTag)
	if t, err := protocol.ParseTime(st.CreatedAt); err == nil {
		a.CreatedAt = t
	}
	return a, nil
}

// oneAgent reads the agent of a response.
func (b *Bridge) oneAgent(ctx context.Context, raw json.RawMessage, err error) (*Agent, error) {
	if err != nil {
		return nil, err
	}
	var resp struct {
		Agent json.RawMessage `json:"agent"`
	}
	if err := json.Unmarshal(raw, &resp); err != nil {
		return nil, b.explain(ctx, err)
	}
	if len(resp.Agent) == 0 || string(resp.Agent) == "null" {
		return nil, agent.Errorf(agent.CodeNotFound, "Agent not found")
	}
	a, err := readAgent(resp.Agent)
	if err != nil {
		return nil, b.explain(ctx, err)
	}
	return &a, nil
}

// Agent implements Backend.
func (b *Bridge) Agent(ctx context.Context, id string) (*Agent, error) {
	raw, err := b.readRaw(ctx, &protocol.AgentRetrieve{AgentID: id})
	return b.oneAgent(ctx, raw, err)
}

// CreateAgent implements Backend.
func (b *Bridge) CreateAgent(ctx context.Context, body protocol.AgentBody) (*Agent, error) {
	raw, err := b.writeRaw(ctx, &protocol.AgentCreate{Body: body})
	a, err := b.oneAgent(ctx, raw, err)
	if err == nil {
		b.changed(Change{AgentID: a.ID, Agent: "created"})
	}
	return a, err
}

// UpdateAgent implements Backend.
func (b *Bridge) UpdateAgent(ctx context.Context, id string, body protocol.AgentBody) (*Agent, error) {
	raw, err := b.writeRaw(ctx, &protocol.AgentUpdate{AgentID: id, Body: body})
	a, err := b.oneAgent(ctx, raw, err)
	if err == nil {
		b.changed(Change{AgentID: id, Agent: "updated"})
	}
	return a, err
}

// DeleteAgent implements Backend.
func (b *Bridge) DeleteAgent(ctx context.Context, id string) error {
	_, err := write(ctx, b, &protocol.AgentDelete{AgentID: id})
	if err == nil {
		b.changed(Change{AgentID: id, Agent: "deleted"})
	}
	return err
}
