package llm

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// models gives what is known of a connection's models: the last list that it
// gave, and the error if it failed since. It makes a request, and waits for it,
// only if there was none yet; what is no longer fresh is asked for again in the
// background.
func (c *Catalogue) models(ctx context.Context, k *connection) ([]Info, error) {
	k.mu.Lock()
	never, stale, busy := k.listedAt.IsZero(), time.Since(k.listedAt) > listTTL, k.flight != nil
	k.mu.Unlock()
	switch {
	case never:
		ctx, cancel := context.WithTimeout(ctx, firstList)
		defer cancel()
		c.fresh(ctx, k, false)
	case stale && !busy:
		c.background(func() { c.fresh(c.ctx, k, false) })
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.list, k.err
}

// background runs f unless the catalogue is closed; Close waits for it.
func (c *Catalogue) background(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.wg.Go(f)
	}
}

// fresh asks a connection for its models unless it was asked within listTTL.
// Calls at the same time share one request.
func (c *Catalogue) fresh(ctx context.Context, k *connection, force bool) {
	for {
		k.mu.Lock()
		flight, recent := k.flight, !k.listedAt.IsZero() && time.Since(k.listedAt) <= listTTL
		if recent && !force {
			k.mu.Unlock()
			return
		}
		if flight == nil {
			k.flight = make(chan struct{})
			k.mu.Unlock()
			c.ask(ctx, k)
			return
		}
		k.mu.Unlock()
		select {
		case <-flight:
			force = false
		case <-ctx.Done():
			return
		}
	}
}

// ask lists a provider's models. The caller has set k.flight. A request that
// the caller gave up says nothing about the provider; one that took too long
// does.
func (c *Catalogue) ask(caller context.Context, k *connection) {
	ctx, cancel := context.WithTimeout(caller, listTimeout)
	defer cancel()
	models, err := k.chat.discover(ctx, k.spec.native)
	list := make([]Info, 0, len(models))
	for _, f := range models {
		list = append(list, f.info(k.name, k.spec.kind, k.base))
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	close(k.flight)
	k.flight = nil
	switch {
	case errors.Is(caller.Err(), context.Canceled):
		return
	case err != nil:
		if k.err == nil {
			c.log.Info("provider does not list its models", "provider", k.name, "url", k.base, "error", err)
		}
		if errors.Is(err, context.DeadlineExceeded) {
			err = connectionError(k.chat.source(""), err, 0)
		}
	default:
		k.list = list
	}
	k.err, k.listedAt = err, time.Now()
}

// listed is what a connection listed last, nothing if it failed since.
func (k *connection) listed() []Info {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err != nil {
		return nil
	}
	return k.list
}

// probeDue says whether local servers should be looked for again.
func (c *Catalogue) probeDue() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Since(c.lastTry) > listTTL
}

// probe looks for local servers on their default ports and adds those that
// answer. It takes probeTimeout at most. Port 8080 is everybody's: llama.cpp
// must know its window, which it alone tells.
func (c *Catalogue) probe(ctx context.Context) {
	if !c.cfg.Probe {
		return
	}
	var candidates []*connection
	c.mu.Lock()
	c.lastTry = time.Now()
	for i := range providers {
		p := &providers[i]
		known := slices.ContainsFunc(c.conns, func(k *connection) bool { return k.spec == p })
		if p.probed && !known {
			if r, err := c.complete(Record{Name: p.id, Type: p.id}, p); err == nil && r.BaseURL == p.base {
				candidates = append(candidates, c.newConnection(r, p, fromProbe))
			}
		}
	}
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	var wg sync.WaitGroup
	for _, k := range candidates {
		k.flight = make(chan struct{})
		wg.Go(func() { c.ask(ctx, k) })
	}
	wg.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range candidates {
		known := slices.ContainsFunc(c.conns, func(o *connection) bool { return o.name == k.name })
		if len(k.list) == 0 || known || c.closed || k.spec.id == "llama-cpp" && k.list[0].ContextSource != "loaded" {
			k.chat.Close()
			continue
		}
		c.log.Info("found a local model server", "provider", k.name, "url", k.base, "models", len(k.list))
		c.conns = append(c.conns, k)
	}
}
