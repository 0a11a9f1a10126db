package llm

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"mneme/internal/agent"
)

// A ConnectRequest asks to connect a provider.
type ConnectRequest struct {
	ProviderID string // id or alias
	// Name is the prefix of the handles; "" = the provider's id. Another name
	// connects the same provider a second time.
	Name   string
	Fields map[string]string
	// IgnoreUnknown passes over fields that the provider does not have, as the
	// App Server does (spec/app-server-commands.md section 2.4).
	IgnoreUnknown bool
	// Probe asks the provider for its models after storing.
	Probe bool
}

// A Connected is the result of Connect.
type Connected struct {
	Name   string
	Models []Info // with Probe
	// ProbeErr says why the models could not be listed, with Probe. The
	// connection is stored all the same: the server may not be running yet.
	ProbeErr error
}

var connectionName = regexp.MustCompile(`^[\p{L}\p{N}][\p{L}\p{N}._-]{0,63}$`)

// reserved names mean something else in handles.
var reserved = []string{"auto", "letta", "local", "mneme"}

// Connect stores a connection to a provider, over one of the same name. Errors
// are *agent.Error: CodeNotFound for a provider that does not exist,
// CodeNotBuilt for one that is not offered yet, CodeInvalid for the fields.
func (c *Catalogue) Connect(ctx context.Context, req ConnectRequest) (Connected, error) {
	p := providerByID(canonical(strings.TrimSpace(req.ProviderID)))
	if p == nil {
		return Connected{}, agent.Errorf(agent.CodeNotFound, "Unknown provider: %s", req.ProviderID)
	}
	if p.oauth {
		return Connected{}, agent.Errorf(agent.CodeNotBuilt, "%s uses OAuth, which is not offered yet.", p.label)
	}
	r, err := c.record(p, req)
	if err != nil {
		return Connected{}, err
	}
	c.mu.Lock()
	if i := slices.IndexFunc(c.records, func(o Record) bool { return o.Name == r.Name }); i >= 0 {
		r.CreatedAt = c.records[i].CreatedAt
	}
	c.mu.Unlock()
	if p.api != chatAPI {
		return Connected{}, agent.Errorf(agent.CodeNotBuilt, "%s is not offered yet: its API is not spoken by this version.", p.label)
	}
	var out Connected
	if req.Probe {
		out.Models, out.ProbeErr = c.try(ctx, &r, p)
	}
	if c.cfg.Records == nil {
		return Connected{}, agent.Errorf(agent.CodeInternal, "Providers cannot be stored here.")
	}
	if err := c.cfg.Records.PutProvider(ctx, r); err != nil {
		return Connected{}, fmt.Errorf("store provider %s: %w", r.Name, err)
	}
	out.Name = r.Name
	return out, c.load(ctx, true)
}

// record checks a request and makes the record of it.
func (c *Catalogue) record(p *provider, req ConnectRequest) (Record, error) {
	now := time.Now().UTC()
	r := Record{Name: strings.TrimSpace(req.Name), Type: p.id, CreatedAt: now, UpdatedAt: now}
	if r.Name == "" || canonical(r.Name) == p.id {
		r.Name = p.id
	}
	if r.Name != p.id {
		if !connectionName.MatchString(r.Name) || slices.Contains(reserved, r.Name) || providerByID(canonical(r.Name)) != nil {
			return r, agent.Invalid("name", "%q cannot be the name of a connection: use letters, digits, dot, hyphen and underscore, and no other provider's name.", r.Name)
		}
	}
	fields := p.fields()
	for key := range req.Fields {
		if !req.IgnoreUnknown && !slices.ContainsFunc(fields, func(f Field) bool { return f.Key == key }) {
			return r, agent.Invalid(key, "%s has no field %q.", p.label, key)
		}
	}
	for _, f := range fields {
		if f.Required && strings.TrimSpace(req.Fields[f.Key]) == "" {
			return r, agent.Invalid(f.Key, "Missing %s.", f.Label)
		}
	}
	r.Key = strings.TrimSpace(req.Fields[fieldKey])
	if strings.ContainsFunc(r.Key, func(c rune) bool { return c < ' ' || c == 0x7f }) {
		return r, agent.Invalid(fieldKey, "The API key holds characters that no key has.")
	}
	var err error
	if base := strings.TrimSpace(req.Fields[fieldBase]); base != "" {
		if r.BaseURL, err = NormalizeBaseURL(fieldBase, base); err != nil {
			return r, err
		}
	}
	if t := strings.TrimSpace(req.Fields[fieldTimeout]); t != "" {
		r.Timeout, err = ParseTimeout(fieldTimeout, t)
	}
	return r, err
}

// try lists the models of a record that is not stored yet. A /v1 that the base
// URL was given and the server does not have is taken off again.
func (c *Catalogue) try(ctx context.Context, r *Record, p *provider) ([]Info, error) {
	full, err := c.complete(*r, p)
	if err != nil {
		return nil, err
	}
	models, err := c.tryAt(ctx, full, p)
	var e *Error
	if r.BaseURL == "" || !errors.As(err, &e) || e.Status != http.StatusNotFound {
		return models, err
	}
	bare := full
	bare.BaseURL = strings.TrimSuffix(full.BaseURL, "/v1")
	if other, otherErr := c.tryAt(ctx, bare, p); otherErr == nil {
		r.BaseURL = bare.BaseURL
		return other, nil
	}
	return models, err
}

// tryAt lists the models of a complete record.
func (c *Catalogue) tryAt(ctx context.Context, r Record, p *provider) ([]Info, error) {
	k := c.newConnection(r, p, fromRecord)
	defer k.chat.Close()
	c.fresh(ctx, k, true)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return k.list, k.err
}

// Disconnect forgets a connection; name "" = the provider's id. A connection
// that is not there, or that comes from the environment, is no error.
func (c *Catalogue) Disconnect(ctx context.Context, providerID, name string) error {
	p := providerByID(canonical(strings.TrimSpace(providerID)))
	if p == nil {
		return agent.Errorf(agent.CodeNotFound, "Unknown provider: %s", providerID)
	}
	if name = strings.TrimSpace(name); name == "" || canonical(name) == p.id {
		name = p.id
	}
	if c.cfg.Records != nil {
		if err := c.cfg.Records.DeleteProvider(ctx, name); err != nil {
			return fmt.Errorf("delete provider %s: %w", name, err)
		}
	}
	return c.load(ctx, true)
}

// A ProviderStatus is a row of the table of providers with what is connected.
type ProviderStatus struct {
	ID          string
	Label       string
	Description string
	Type        string // what clients call its API family
	Offered     bool   // false = connecting it is refused
	RequiresKey bool
	OAuth       bool
	Fields      []Field
	Connected   []Connection // stored ones first
}

// A Connection is one connected provider.
type Connection struct {
	ID      string // local-provider-<name>
	Name    string // prefix of its handles
	Source  string // record, environment or found
	BaseURL string
	Timeout time.Duration // 0 = default, negative = none
	// Err says why its models could not be listed the last time; nil = they
	// could, or were not asked for yet.
	Err error
}

// Providers lists every provider that can be named, without any request.
func (c *Catalogue) Providers(ctx context.Context) ([]ProviderStatus, error) {
	if err := c.load(ctx, false); err != nil {
		return nil, err
	}
	c.mu.Lock()
	conns := slices.Clone(c.conns)
	c.mu.Unlock()
	out := make([]ProviderStatus, 0, len(providers))
	for i := range providers {
		p := &providers[i]
		s := ProviderStatus{
			ID: p.id, Label: p.label, Description: p.about, Type: p.kind, Offered: p.api == chatAPI && !p.oauth,
			RequiresKey: !p.keyless && !p.oauth, OAuth: p.oauth, Fields: p.fields(),
		}
		for _, k := range conns {
			if k.spec == p && (k.from != fromDefault || len(k.listed()) > 0) {
				s.Connected = append(s.Connected, k.status())
			}
		}
		out = append(out, s)
	}
	return out, nil
}

func (k *connection) status() Connection {
	k.mu.Lock()
	defer k.mu.Unlock()
	source := k.from
	if source == fromDefault {
		source = fromProbe
	}
	return Connection{
		ID: "local-provider-" + k.name, Name: k.name, Source: string(source),
		BaseURL: k.base, Timeout: k.timeout, Err: k.err,
	}
}

// ParseTimeout reads a provider's timeout: "600s", "10m", "90000" in
// milliseconds, or "off", which is negative.
func ParseTimeout(field, text string) (time.Duration, error) {
	if text == "off" {
		return -1, nil
	}
	if ms, err := strconv.Atoi(text); err == nil && ms > 0 && ms < 1<<31 {
		return time.Duration(ms) * time.Millisecond, nil
	}
	if d, err := time.ParseDuration(text); err == nil && d > 0 {
		return d, nil
	}
	return 0, agent.Invalid(field, "%s must be a time such as 600s or 10m, a number of milliseconds, or off: %s", field, text)
}
