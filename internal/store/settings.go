package store

import (
	"context"
	"encoding/json"
	"time"
)

const (
	sqlSetting    = `SELECT value FROM settings WHERE tenant = ? AND key = ?`
	sqlPutSetting = `INSERT INTO settings (tenant, key, value) VALUES (?, ?, ?)
		ON CONFLICT (tenant, key) DO UPDATE SET value = excluded.value`
	sqlProviders = `SELECT name, type, base_url, sealed_key, extra, created_ns, updated_ns FROM providers
		WHERE tenant = ? ORDER BY name`
	sqlPutProvider = `INSERT INTO providers (tenant, name, type, base_url, sealed_key, extra, created_ns, updated_ns)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (tenant, name) DO UPDATE SET
		type = excluded.type, base_url = excluded.base_url, sealed_key = excluded.sealed_key,
		extra = excluded.extra, updated_ns = excluded.updated_ns`
	sqlDropProvider = `DELETE FROM providers WHERE tenant = ? AND name = ?`
	sqlRules        = `SELECT rule FROM project_rules WHERE tenant = ? AND dir = ? ORDER BY added_ns, rule`
	sqlAddRule      = `INSERT INTO project_rules (tenant, dir, rule, added_ns) VALUES (?, ?, ?, ?)
		ON CONFLICT (tenant, dir, rule) DO NOTHING`
	sqlSecrets   = `SELECT name, sealed FROM secrets WHERE agent_id = ? AND tenant = ?`
	sqlPutSecret = `INSERT INTO secrets (agent_id, name, tenant, sealed) VALUES (?, ?, ?, ?)
		ON CONFLICT (agent_id, name) DO UPDATE SET sealed = excluded.sealed`
	sqlDropSecret = `DELETE FROM secrets WHERE agent_id = ? AND name = ? AND tenant = ?`
)

// Setting returns the value of a key; ok is false if it was never set.
func (s *Store) Setting(ctx context.Context, key string) (value string, ok bool, err error) {
	ok, err = s.pool().one(ctx, func(r scanner) error { return r.Scan(&value) }, sqlSetting, s.tenant, key)
	return value, ok, s.dialect.fault("read setting "+key, err)
}

// SetSetting stores the value of a key.
func (s *Store) SetSetting(ctx context.Context, key, value string) error {
	return s.write(ctx, "store setting "+key, func(t *tx) error {
		_, err := t.exec(sqlPutSetting, s.tenant, clean(key), clean(value))
		return err
	})
}

// A Provider is a configured model provider.
type Provider struct {
	Name      string // unique
	Type      string
	BaseURL   string
	SealedKey []byte          // encrypted; nil = none
	Extra     json.RawMessage // JSON object; nil = none
	CreatedAt time.Time
	UpdatedAt time.Time
}

// Providers lists the providers by name.
func (s *Store) Providers(ctx context.Context) ([]*Provider, error) {
	var all []*Provider
	err := s.pool().each(ctx, appendTo(&all, func(r scanner) (*Provider, error) {
		p := new(Provider)
		err := r.Scan(&p.Name, &p.Type, &p.BaseURL, &p.SealedKey, scanRaw{&p.Extra}, scanTime{&p.CreatedAt}, scanTime{&p.UpdatedAt})
		return p, err
	}), sqlProviders, s.tenant)
	return all, s.dialect.fault("list providers", err)
}

// PutProvider adds a provider or replaces the one with its name, whose CreatedAt
// stays.
func (s *Store) PutProvider(ctx context.Context, p *Provider) error {
	return s.write(ctx, "store provider "+p.Name, func(t *tx) error {
		_, err := t.exec(sqlPutProvider, s.tenant, clean(p.Name), clean(p.Type), clean(p.BaseURL), p.SealedKey,
			rawText(p.Extra), ns(p.CreatedAt), ns(p.UpdatedAt))
		return err
	})
}

// DeleteProvider deletes a provider, or fails with CodeNotFound.
func (s *Store) DeleteProvider(ctx context.Context, name string) error {
	return s.write(ctx, "delete provider "+name, func(t *tx) error {
		n, err := t.exec(sqlDropProvider, s.tenant, clean(name))
		if err == nil && n == 0 {
			return notFound("Provider", name)
		}
		return err
	})
}

// ProjectRules lists the permission rules saved for a directory, oldest first.
func (s *Store) ProjectRules(ctx context.Context, dir string) ([]string, error) {
	var rules []string
	err := s.pool().each(ctx, func(r scanner) error {
		var rule string
		err := r.Scan(&rule)
		rules = append(rules, rule)
		return err
	}, sqlRules, s.tenant, clean(dir))
	return rules, s.dialect.fault("read the rules of "+dir, err)
}

// AddProjectRule saves a permission rule for a directory; one that is there stays.
func (s *Store) AddProjectRule(ctx context.Context, dir, rule string) error {
	return s.write(ctx, "save a rule of "+dir, func(t *tx) error {
		_, err := t.exec(sqlAddRule, s.tenant, clean(dir), clean(rule), time.Now().UnixNano())
		return err
	})
}

// Secrets returns the sealed secrets of an agent by name.
func (s *Store) Secrets(ctx context.Context, agentID string) (map[string][]byte, error) {
	all := map[string][]byte{}
	err := s.pool().each(ctx, func(r scanner) error {
		var name string
		var sealed []byte
		err := r.Scan(&name, &sealed)
		all[name] = sealed
		return err
	}, sqlSecrets, agentID, s.tenant)
	return all, s.dialect.fault("read the secrets of "+agentID, err)
}

// ChangeSecrets stores and deletes secrets of an agent at once; a name in both is
// deleted. An unknown agent is CodeNotFound.
func (s *Store) ChangeSecrets(ctx context.Context, agentID string, set map[string][]byte, unset []string) error {
	return s.write(ctx, "change the secrets of "+agentID, func(t *tx) error {
		if found, err := t.exists(sqlAgentExists, agentID, s.tenant); err != nil {
			return err
		} else if !found {
			return notFound("Agent", agentID)
		}
		for name, sealed := range set {
			if _, err := t.exec(sqlPutSecret, agentID, clean(name), s.tenant, sealed); err != nil {
				return err
			}
		}
		for _, name := range unset {
			if _, err := t.exec(sqlDropSecret, agentID, clean(name), s.tenant); err != nil {
				return err
			}
		}
		return nil
	})
}
