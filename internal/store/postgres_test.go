package store_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"mneme/internal/agent"
	"mneme/internal/store"
	"mneme/internal/store/storetest"
)

func TestPostgres(t *testing.T) {
	storetest.Run(t, func(t *testing.T) *store.Store { return open(t, storetest.Postgres(t), store.Options{}) })
}

func TestPostgresPair(t *testing.T) {
	storetest.Postgres(t) // the server is started outside of the bubbles
	storetest.RunPair(t, func(t *testing.T) (a, b *store.Store) { return pair(t, storetest.Postgres(t)) })
}

func TestPostgresTenants(t *testing.T) {
	storetest.RunTenants(t, func(t *testing.T) (a, b *store.Store) { return tenants(t, storetest.Postgres(t)) })
}

func TestPostgresOpenTogether(t *testing.T) {
	target := storetest.Postgres(t)
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			s, err := store.Open(context.Background(), target, store.Options{})
			if err != nil {
				t.Error(err)
				return
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

func TestPostgresRefused(t *testing.T) {
	target, err := url.Parse(storetest.Postgres(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what string
		edit func(*url.URL)
	}{
		{"unknown database", func(u *url.URL) { u.Path = "/nowhere" }},
		{"unknown user", func(u *url.URL) { u.User = url.User("nobody_we_know") }},
	} {
		u := *target
		c.edit(&u)
		began := time.Now()
		_, err := store.Open(t.Context(), u.String(), store.Options{})
		if err == nil || time.Since(began) > 15*time.Second {
			t.Errorf("%s: %v after %v", c.what, err, time.Since(began))
		}
	}
	_, err = store.Open(t.Context(), "postgres://u:secretword@h/db?sslmode=nonsense", store.Options{})
	if agent.CodeOf(err) != agent.CodeInvalid || strings.Contains(err.Error(), "secretword") {
		t.Errorf("bad URL: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := store.Open(ctx, "postgres://u@127.0.0.1:1/db", store.Options{}); err == nil {
		t.Error("opened a server that is not there")
	}
}

// A relay is the network between the store and its server; it can be cut.
type relay struct {
	t      *testing.T
	addr   string
	target string // unix socket
	mu     sync.Mutex
	listen net.Listener // nil = cut
	conns  map[net.Conn]bool
	wg     sync.WaitGroup
}

// newRelay reserves an address; it is cut until up is called. It returns the
// database's URL through the relay.
func newRelay(t *testing.T) (*relay, string) {
	u, err := url.Parse(storetest.Postgres(t))
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	r := &relay{t: t, conns: map[net.Conn]bool{}, target: q.Get("host") + "/.s.PGSQL.5432"}
	if q.Get("host") == "" {
		t.Skip("the server has no socket of ours")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.addr = l.Addr().String()
	l.Close()
	q.Del("host")
	u.Host, u.RawQuery = r.addr, q.Encode()
	t.Cleanup(func() {
		r.cut()
		r.wg.Wait()
	})
	return r, u.String()
}

func (r *relay) up() {
	l, err := net.Listen("tcp", r.addr)
	if err != nil {
		r.t.Error(err)
		return
	}
	r.mu.Lock()
	r.listen = l
	r.mu.Unlock()
	r.wg.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("unix", r.target)
			if err != nil {
				in.Close()
				continue
			}
			r.mu.Lock()
			r.conns[in], r.conns[out] = true, true
			r.mu.Unlock()
			r.wg.Go(func() { io.Copy(in, out); in.Close() })
			r.wg.Go(func() { io.Copy(out, in); out.Close() })
		}
	})
}

func (r *relay) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.listen != nil {
		r.listen.Close()
		r.listen = nil
	}
	for c := range r.conns {
		c.Close()
	}
	clear(r.conns)
}

// The server comes up after the store was told to open it.
func TestPostgresComesLater(t *testing.T) {
	r, target := newRelay(t)
	timer := time.AfterFunc(700*time.Millisecond, r.up)
	defer timer.Stop()
	var log bytes.Buffer
	s := open(t, target, store.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	fill(t, s, 1)
	if !strings.Contains(log.String(), "does not answer yet") {
		t.Errorf("log: %s", log.String())
	}
}

// The server goes away while the store works. Writes and reads fail with an error
// that says to try again, and work once it is back.
func TestPostgresGoesAway(t *testing.T) {
	r, target := newRelay(t)
	r.up()
	s := open(t, target, store.Options{})
	fill(t, s, 1)
	for range 2 {
		r.cut()
		for range 3 {
			wantRetryable(t, s.SetSetting(t.Context(), "a", "b"))
			_, _, err := s.Setting(t.Context(), "a")
			wantRetryable(t, err)
		}
		r.up()
		fill(t, s, 3)
		if _, found, err := s.Setting(t.Context(), "key2"); !found || err != nil {
			t.Errorf("after the return: %v, %v", found, err)
		}
	}
}

func wantRetryable(t *testing.T, err error) {
	t.Helper()
	if e, ok := err.(*agent.Error); !ok || !e.Retryable {
		t.Fatalf("error %v is not retryable", err)
	}
}

// A connection that the server closed while it was idle costs no write.
func TestPostgresClosesIdleConnection(t *testing.T) {
	target := storetest.Postgres(t)
	s := open(t, target, store.Options{})
	fill(t, s, 1)
	admin, err := pgx.Connect(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close(context.Background())
	for range 3 {
		if _, err := admin.Exec(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE datname = current_database() AND pid <> pg_backend_pid()`); err != nil {
			t.Fatal(err)
		}
		fill(t, s, 2)
		if _, _, err := s.Setting(t.Context(), "key1"); err != nil {
			t.Error(err)
		}
	}
	if err := s.Backup(t.Context(), t.TempDir()+"/x"); agent.CodeOf(err) != agent.CodeNotBuilt {
		t.Errorf("backup: %v", err)
	}
}
