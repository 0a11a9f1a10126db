package storetest

import (
	"testing"

	"mneme/internal/agent"
	"mneme/internal/store"
)

func testSettings(t *testing.T, s *store.Store) {
	ctx := t.Context()
	if v, found, err := s.Setting(ctx, "k"); v != "" || found || err != nil {
		t.Errorf("unset: %q, %v, %v", v, found, err)
	}
	for _, want := range []string{"one", "", `{"a":1}`} {
		ok(t, s.SetSetting(ctx, "k", want))
		if v, found, err := s.Setting(ctx, "k"); v != want || !found || err != nil {
			t.Errorf("%q: %q, %v, %v", want, v, found, err)
		}
	}
}

func testProviders(t *testing.T, s *store.Store) {
	ctx := t.Context()
	a := &store.Provider{Name: "b", Type: "openai", BaseURL: "http://x/v1", SealedKey: []byte{0, 255, 1}, Extra: []byte(`{"a":1}`), CreatedAt: at(1), UpdatedAt: at(1)}
	b := &store.Provider{Name: "a", Type: "ollama", CreatedAt: at(2), UpdatedAt: at(2)}
	ok(t, s.PutProvider(ctx, a))
	ok(t, s.PutProvider(ctx, b))
	same(t, "providers", must(s.Providers(ctx))(t), []*store.Provider{b, a})
	changed := *a
	changed.BaseURL, changed.SealedKey, changed.CreatedAt, changed.UpdatedAt = "http://y", nil, at(9), at(9)
	ok(t, s.PutProvider(ctx, &changed))
	changed.CreatedAt = at(1)
	same(t, "providers", must(s.Providers(ctx))(t), []*store.Provider{b, &changed})
	ok(t, s.DeleteProvider(ctx, "a"))
	wantCode(t, s.DeleteProvider(ctx, "a"), agent.CodeNotFound)
	same(t, "providers", must(s.Providers(ctx))(t), []*store.Provider{&changed})
}

func testSecrets(t *testing.T, s *store.Store) {
	sc := newScene(t, s)
	ctx, id := t.Context(), sc.agent.ID
	same(t, "none", must(s.Secrets(ctx, id))(t), map[string][]byte{})
	ok(t, s.ChangeSecrets(ctx, id, map[string][]byte{"A": {0, 255}, "B": {1}, "C": {2}}, []string{"C", "X"}))
	ok(t, s.ChangeSecrets(ctx, id, map[string][]byte{"B": {3}}, nil))
	same(t, "secrets", must(s.Secrets(ctx, id))(t), map[string][]byte{"A": {0, 255}, "B": {3}})
	wantCode(t, s.ChangeSecrets(ctx, "agent-none", nil, nil), agent.CodeNotFound)
}

func testProjectRules(t *testing.T, s *store.Store) {
	ctx := t.Context()
	for _, rule := range []string{"Bash(z:*)", "Bash(a:*)", "Bash(z:*)"} {
		ok(t, s.AddProjectRule(ctx, "/p", rule))
	}
	ok(t, s.AddProjectRule(ctx, "/q", "Read"))
	same(t, "rules", must(s.ProjectRules(ctx, "/p"))(t), []string{"Bash(z:*)", "Bash(a:*)"})
	same(t, "rules", len(must(s.ProjectRules(ctx, "/none"))(t)), 0)
}
