package llm

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"mneme/internal/agent"
)

// Times of the catalogue.
const (
	listTTL      = 30 * time.Second // how long a list of models is fresh
	listTimeout  = 8 * time.Second  // for one provider's list
	firstList    = 4 * time.Second  // for the same while a turn waits for it
	probeTimeout = time.Second      // for a local server on its default port
	// firstProbe is how long the first question for "any model" waits for the
	// probes that began with the server.
	firstProbe = 1500 * time.Millisecond
)

// OfflineHandle is the model that is always there.
const OfflineHandle = "mneme/offline"

// A Record is a stored connection to a provider.
type Record struct {
	Name    string // prefix of its handles, unique
	Type    string // id in the table of providers
	BaseURL string // "" = environment or default
	Key     string // plain here; sealed by the store
	// Timeout bounds the provider's silence: 0 = default, negative = none.
	Timeout   time.Duration
	CreatedAt time.Time
	UpdatedAt time.Time
}

// A RecordStore keeps connections.
type RecordStore interface {
	Providers(ctx context.Context) ([]Record, error)
	// PutProvider stores a record over one of the same name.
	PutProvider(ctx context.Context, r Record) error
	// DeleteProvider is no error where there is no such record.
	DeleteProvider(ctx context.Context, name string) error
}

// A Config is what a Catalogue works with.
type Config struct {
	Records RecordStore
	Getenv  func(string) string // nil = no environment
	Offline Model               // answers as mneme/offline
	// Client is used for all providers; nil = each has one of its own.
	Client *http.Client
	Logger *slog.Logger // nil = none
	// Default is the configured default handle; "" = the first model found.
	Default string
	// Probe looks for local servers on their default ports.
	Probe bool
}

// A Catalogue knows the providers and their models. A provider is there through
// a record, through the environment, or because a local server was found. What
// it lists is kept for a while; resolving a handle makes no request once its
// provider has been listed. Safe for concurrent use.
type Catalogue struct {
	cfg    Config
	log    *slog.Logger
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup
	probed chan struct{} // closed after the first probes

	mu       sync.Mutex // guards what follows; never held during I/O
	loaded   bool
	records  []Record
	conns    []*connection
	broken   map[string]error // by name: connections whose settings are wrong
	wrongEnv error            // those of them that the environment is to blame for
	standard string           // configured default handle
	started  bool
	closed   bool
	lastTry  time.Time // of the probes
}

// New makes a catalogue. It makes no request before Start or its first use.
func New(cfg Config) *Catalogue {
	if cfg.Getenv == nil {
		cfg.Getenv = func(string) string { return "" }
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	c := &Catalogue{cfg: cfg, log: cfg.Logger, standard: cfg.Default, probed: make(chan struct{})}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// Start reads the records and looks for local servers in the background; nothing
// waits for that. A variable of the environment that is wrong is an error here
// rather than in the middle of a turn (case H04); without that provider the
// catalogue works all the same.
func (c *Catalogue) Start(ctx context.Context) error {
	if err := c.load(ctx, false); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.started && !c.closed {
		c.started = true
		c.wg.Go(func() {
			c.probe(c.ctx)
			close(c.probed)
		})
	}
	return c.wrongEnv
}

// Close ends what goes on in the background and closes idle connections.
func (c *Catalogue) Close() {
	c.mu.Lock()
	c.closed = true
	conns := slices.Clone(c.conns)
	c.mu.Unlock()
	c.cancel()
	c.wg.Wait()
	for _, k := range conns {
		k.chat.Close()
	}
}

// SetDefault changes the configured default handle; "" = the first model found.
// The caller stores the setting.
func (c *Catalogue) SetDefault(handle string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.standard = strings.TrimSpace(handle)
}

// Default is the handle that "auto" stands for at this moment.
func (c *Catalogue) Default(ctx context.Context) (string, error) {
	_, info, err := c.Resolve(ctx, "auto")
	return info.Handle, err
}

// IsAuto says whether a handle stands for the default model.
func IsAuto(handle string) bool {
	handle = strings.TrimSpace(handle)
	switch handle {
	case "", "auto", "local/default", "letta":
		return true
	}
	return strings.HasPrefix(handle, "letta/")
}

// Resolve gives the model of a handle. Only the first part of a handle names
// the provider; the rest is the model's name, unchanged (bug-report case H01).
// A name that the provider does not list is tried all the same, with default
// sizes. Errors are CodeModelConfig.
func (c *Catalogue) Resolve(ctx context.Context, handle string) (Model, Info, error) {
	if err := c.load(ctx, false); err != nil {
		return nil, Info{}, err
	}
	handle = strings.TrimSpace(handle)
	if IsAuto(handle) {
		c.mu.Lock()
		standard := c.standard
		c.mu.Unlock()
		if IsAuto(standard) {
			return c.first(ctx)
		}
		handle = standard
	}
	if handle == OfflineHandle {
		return c.offline()
	}
	name, model, ok := strings.Cut(handle, "/")
	if !ok || name == "" || model == "" {
		return nil, Info{}, agent.Errorf(agent.CodeModelConfig, "%q is not a model handle: it must be provider/model, such as %s.", handle, OfflineHandle)
	}
	if local, rest, ok := strings.Cut(model, "/"); ok && canonical(name) == "openai" {
		if p := providerByID(canonical(local)); p != nil && p.probed {
			name, model = local, rest // openai/lmstudio/x is lmstudio/x
		}
	}
	k, err := c.connectionFor(name)
	if err != nil {
		return nil, Info{}, err
	}
	return k.chat, c.info(ctx, k, model), nil
}

func (c *Catalogue) offline() (Model, Info, error) {
	if c.cfg.Offline == nil {
		return nil, Info{}, agent.Errorf(agent.CodeModelConfig, "No model is configured: connect one with `mneme connect`.")
	}
	return c.cfg.Offline, offlineInfo(), nil
}

func offlineInfo() Info {
	return Info{
		Handle: OfflineHandle, Provider: "mneme", ProviderType: "openai", Name: "offline", Label: "Offline",
		Context: DefaultContext, ContextSource: "known", MaxOutput: DefaultMaxOutput,
	}
}

// first is the first model of the providers in their order, of those that
// answer; else the offline model.
func (c *Catalogue) first(ctx context.Context) (Model, Info, error) {
	for range 2 {
		c.mu.Lock()
		conns, started := slices.Clone(c.conns), c.started
		c.mu.Unlock()
		for _, k := range conns {
			models, err := c.models(ctx, k)
			// A local server that does not answer is not there. A connected
			// provider that cannot list its models at the moment still is.
			if len(models) == 0 || err != nil && k.spec.probed && k.from != fromRecord {
				continue
			}
			best := slices.IndexFunc(models, func(i Info) bool { return k.spec.probed && i.ContextSource == "loaded" })
			return k.chat, models[max(best, 0)], nil
		}
		if ctx.Err() != nil {
			return nil, Info{}, ctx.Err()
		}
		if !started || !c.waitProbed(ctx) {
			break
		}
	}
	return c.offline()
}

// waitProbed waits for the first probes, if they are not over yet. It says
// whether there may be more to see now.
func (c *Catalogue) waitProbed(ctx context.Context) bool {
	select {
	case <-c.probed:
		return false
	default:
	}
	t := time.NewTimer(firstProbe)
	defer t.Stop()
	select {
	case <-c.probed:
		return true
	case <-ctx.Done():
	case <-c.ctx.Done():
	case <-t.C:
	}
	return false
}

// info describes one model of a connection.
func (c *Catalogue) info(ctx context.Context, k *connection, model string) Info {
	models, _ := c.models(ctx, k) // what cannot be listed may still answer
	for _, name := range []string{model, model + ":latest"} {
		if i := slices.IndexFunc(models, func(i Info) bool { return i.Name == name }); i >= 0 {
			return models[i]
		}
	}
	return found{id: model}.info(k.name, k.spec.kind, k.base)
}

// connectionFor finds the provider of a handle. A local server need not have
// been found: it may be running by now.
func (c *Catalogue) connectionFor(name string) (*connection, error) {
	id := canonical(name)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range c.conns {
		if k.name == name {
			return k, nil
		}
	}
	for _, k := range c.conns {
		if k.name == id {
			return k, nil
		}
	}
	p := providerByID(id)
	switch {
	case c.broken[name] != nil:
		return nil, agent.Errorf(agent.CodeModelConfig, "%v", c.broken[name])
	case c.broken[id] != nil:
		return nil, agent.Errorf(agent.CodeModelConfig, "%v", c.broken[id])
	case p == nil:
		return nil, agent.Errorf(agent.CodeModelConfig, "There is no provider %q: see `mneme connect` for those that there are.", name)
	case p.api != chatAPI:
		return nil, agent.Errorf(agent.CodeModelConfig, "%s is not offered yet: choose a model of another provider (`mneme connect`).", p.label)
	case p.probed:
		r, err := c.complete(Record{Name: p.id, Type: p.id}, p)
		if err != nil {
			return nil, err
		}
		k := c.newConnection(r, p, fromDefault)
		c.conns = append(c.conns, k)
		return k, nil
	case len(p.keyVars()) > 0:
		return nil, agent.Errorf(agent.CodeModelConfig, "%s is not connected: run `mneme connect %s`, or set %s.", p.label, p.id, p.keyVars()[0])
	}
	return nil, agent.Errorf(agent.CodeModelConfig, "%s is not connected: run `mneme connect %s`.", p.label, p.id)
}

// List gives the models of all providers, then the offline model. A provider
// that fails is left out and hides no other. force asks again and looks for
// local servers again.
func (c *Catalogue) List(ctx context.Context, force bool) ([]Info, error) {
	if err := c.load(ctx, force); err != nil {
		return nil, err
	}
	if force || c.probeDue() {
		c.probe(ctx)
	}
	c.mu.Lock()
	conns := slices.Clone(c.conns)
	c.mu.Unlock()
	lists := make([][]Info, len(conns))
	var wg sync.WaitGroup
	for i, k := range conns {
		wg.Go(func() {
			c.fresh(ctx, k, force)
			lists[i] = k.listed()
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	all := slices.Concat(lists...)
	if c.cfg.Offline != nil {
		all = append(all, offlineInfo())
	}
	return all, nil
}
