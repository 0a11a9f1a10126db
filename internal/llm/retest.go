package llm

import (
	"context"
	"slices"
	"strings"

	"mneme/internal/agent"
)

// Stored finds a stored connection by its name; false = there is none. What the
// environment connects is not stored.
func (c *Catalogue) Stored(ctx context.Context, name string) (Record, bool, error) {
	if err := c.load(ctx, false); err != nil {
		return Record{}, false, err
	}
	name = canonical(strings.TrimSpace(name))
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := slices.IndexFunc(c.records, func(r Record) bool { return r.Name == name }); i >= 0 {
		return c.records[i], true, nil
	}
	return Record{}, false, nil
}

// Retest lists the models of a stored connection as it is stored, and changes
// nothing.
func (c *Catalogue) Retest(ctx context.Context, r Record) (Connected, error) {
	p := providerByID(r.Type)
	if p == nil {
		return Connected{}, agent.Errorf(agent.CodeNotFound, "Unknown provider: %s", r.Type)
	}
	out := Connected{Name: r.Name}
	out.Models, out.ProbeErr = c.try(ctx, &r, p)
	return out, nil
}

// KeyVariables are the environment variables that hold a provider's key; none
// for a provider that is not known, or that takes none from there.
func KeyVariables(providerID string) []string {
	if p := providerByID(canonical(strings.TrimSpace(providerID))); p != nil {
		return p.keyVars()
	}
	return nil
}
