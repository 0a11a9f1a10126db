package llm

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// An origin says how a provider came into the catalogue.
type origin string

const (
	fromRecord  origin = "record"
	fromEnv     origin = "environment"
	fromProbe   origin = "found"
	fromDefault origin = "default" // named in a handle, nothing known yet
)

// A connection is one provider at one address.
type connection struct {
	name    string
	spec    *provider
	base    string
	key     string
	timeout time.Duration
	from    origin
	chat    *Chat

	mu       sync.Mutex // guards what follows; never held during I/O
	list     []Info
	err      error
	listedAt time.Time     // zero = never
	flight   chan struct{} // closed when the request under way ends; nil = none
}

// newConnection makes a connection of a complete record.
func (c *Catalogue) newConnection(r Record, p *provider, from origin) *connection {
	header := make(http.Header, len(p.header))
	for k, v := range p.header {
		header.Set(k, v)
	}
	label := p.label
	if r.Name != p.id {
		label = r.Name
	}
	return &connection{
		name: r.Name, spec: p, base: r.BaseURL, key: r.Key, timeout: r.Timeout, from: from,
		chat: NewChat(ChatConfig{
			Provider: r.Name, Label: label, BaseURL: r.BaseURL, Key: r.Key, Header: header,
			Idle: r.Timeout, Client: c.cfg.Client, Logger: c.log, quirks: p.quirks,
		}),
	}
}

// load reads the records once, or again.
func (c *Catalogue) load(ctx context.Context, again bool) error {
	c.mu.Lock()
	done := c.loaded && !again
	c.mu.Unlock()
	if done {
		return nil
	}
	var records []Record
	if c.cfg.Records != nil {
		var err error
		if records, err = c.cfg.Records.Providers(ctx); err != nil {
			return fmt.Errorf("read providers: %w", err)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.loaded = true
	c.arrange(records)
	return nil
}

// arrange makes the list of connections anew: records, environment, local
// servers that were found. A connection that did not change is kept with what
// it knows; one whose settings are wrong is set aside. c.mu is held.
func (c *Catalogue) arrange(records []Record) {
	var conns []*connection
	broken := make(map[string]error)
	var wrongEnv []error
	has := func(name string) bool {
		return slices.ContainsFunc(conns, func(k *connection) bool { return k.name == name })
	}
	add := func(r Record, from origin) {
		p := providerByID(r.Type)
		if p == nil || p.api != chatAPI || has(r.Name) {
			return
		}
		r, err := c.complete(r, p)
		if err != nil {
			broken[r.Name] = err
			if from == fromEnv {
				wrongEnv = append(wrongEnv, err)
			} else {
				c.log.Warn("the settings of a provider are wrong", "provider", r.Name, "error", err)
			}
			return
		}
		conns = append(conns, c.keepOrMake(r, p, from))
	}
	for _, r := range records {
		add(r, fromRecord)
	}
	for i := range providers {
		if p := &providers[i]; c.inEnvironment(p) {
			add(Record{Name: p.id, Type: p.id}, fromEnv)
		}
	}
	for _, k := range c.conns {
		if (k.from == fromProbe || k.from == fromDefault) && !has(k.name) {
			conns = append(conns, k)
		}
	}
	for _, k := range c.conns {
		if !slices.Contains(conns, k) {
			k.chat.Close()
		}
	}
	c.records, c.conns, c.broken, c.wrongEnv = records, conns, broken, errors.Join(wrongEnv...)
}

// keepOrMake returns the connection there is already if it is the same.
func (c *Catalogue) keepOrMake(r Record, p *provider, from origin) *connection {
	for _, k := range c.conns {
		if k.name == r.Name && k.spec == p && k.base == r.BaseURL && k.key == r.Key && k.timeout == r.Timeout && k.from == from {
			return k
		}
	}
	return c.newConnection(r, p, from)
}

// inEnvironment says whether the environment alone connects a provider.
func (c *Catalogue) inEnvironment(p *provider) bool {
	if c.firstEnv(p.keyVars()) != "" {
		return true
	}
	return p.keyless && c.firstEnv(p.baseVars()) != ""
}

// firstEnv is the value of the first variable that is set.
func (c *Catalogue) firstEnv(names []string) string {
	for _, n := range names {
		if v := strings.TrimSpace(c.cfg.Getenv(n)); v != "" {
			return v
		}
	}
	return ""
}

// complete fills in what a record leaves open: environment, then default.
func (c *Catalogue) complete(r Record, p *provider) (Record, error) {
	if r.Key == "" {
		r.Key = c.firstEnv(p.keyVars())
	}
	field := fieldBase
	if r.BaseURL == "" {
		for _, v := range p.baseVars() {
			if r.BaseURL == "" {
				r.BaseURL, field = strings.TrimSpace(c.cfg.Getenv(v)), v
			}
		}
	}
	if r.BaseURL == "" {
		r.BaseURL = p.base
	}
	base, err := NormalizeBaseURL(field, r.BaseURL)
	if err != nil {
		return r, err
	}
	r.BaseURL = base
	if r.Timeout == 0 && p.stem != "" {
		for _, v := range []string{p.stem + "_TIMEOUT_MS", "LETTA_CODE_" + p.stem + "_TIMEOUT_MS", "MNEME_PROVIDER_TIMEOUT"} {
			if text := strings.TrimSpace(c.cfg.Getenv(v)); text != "" && r.Timeout == 0 {
				if r.Timeout, err = ParseTimeout(v, text); err != nil {
					return r, err
				}
			}
		}
	}
	return r, nil
}
