package auth_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"mneme/internal/auth"
)

func TestLoopback(t *testing.T) {
	for host, want := range map[string]bool{
		"localhost": true, "LOCALHOST": true, "127.0.0.1": true, "127.9.8.7": true, "::1": true, "[::1]": true,
		"0.0.0.0": false, "::": false, "10.0.0.1": false, "example.com": false, "127.0.0.1.example.com": false, "": false,
	} {
		if got := auth.IsLoopback(host); got != want {
			t.Errorf("%q: got %v", host, got)
		}
	}
}

func TestOpenListenerNeedsAuth(t *testing.T) {
	open, _ := auth.New(auth.Options{})
	closed, _ := auth.New(auth.Options{Token: "x"})
	want := "refusing to start non-loopback websocket listener 0.0.0.0:80 without auth; configure `--ws-auth capability-token` or `--ws-auth signed-bearer-token`"
	if got := text(open.RequireFor("0.0.0.0", 80)); got != want {
		t.Errorf("got %s", got)
	}
	if err := open.RequireFor("127.0.0.1", 80); err != nil {
		t.Error(err)
	}
	if err := closed.RequireFor("0.0.0.0", 80); err != nil {
		t.Error(err)
	}
}

func TestGuard(t *testing.T) {
	local, err := auth.NewGuard([]string{"https://App.example/"}, []string{"dev.box"}, true)
	if err != nil {
		t.Fatal(err)
	}
	public, err := auth.NewGuard(nil, nil, false)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		g            *auth.Guard
		host, origin string
		hostOK       bool
		originOK     bool
	}{
		{local, "127.0.0.1:4500", "", true, true},
		{local, "localhost:4500", "http://localhost:4500", true, true},
		{local, "[::1]:4500", "http://[::1]:4500", true, true},
		{local, "localhost:4500", "http://localhost:4501", true, false},
		{local, "localhost:4500", "http://evil.example", true, false},
		{local, "localhost:4500", "null", true, false},
		{local, "localhost", "https://app.example", true, true},
		{local, "localhost", "https://app.example:444", true, false},
		{local, "evil.example:4500", "http://evil.example:4500", false, true}, // DNS rebinding: the Host rule stops it
		{local, "dev.box:4500", "", true, true},
		{local, "", "", false, true},
		{public, "any.example", "", true, true},
		{public, "any.example", "https://any.example", true, true},
		{public, "any.example", "https://other.example", true, false},
	} {
		r := httptest.NewRequest(http.MethodGet, "/readyz", nil)
		r.Host = c.host
		if c.origin != "" {
			r.Header.Set("Origin", c.origin)
		}
		if got := c.g.HostOK(r); got != c.hostOK {
			t.Errorf("host %q: got %v", c.host, got)
		}
		if got := c.g.OriginOK(r); got != c.originOK {
			t.Errorf("host %q, origin %q: got %v", c.host, c.origin, got)
		}
	}
	two := httptest.NewRequest(http.MethodGet, "/", nil)
	two.Header["Origin"] = []string{"https://app.example", "https://evil.example"}
	if local.OriginOK(two) {
		t.Error("two origins were accepted")
	}
}

func TestGuardRefusesBadValues(t *testing.T) {
	for _, o := range []string{"example.com", "https://", "https://a/b", "https://a?x", "https://u@a", "*"} {
		if _, err := auth.NewGuard([]string{o}, nil, true); err == nil {
			t.Errorf("origin %q was accepted", o)
		}
	}
	for _, h := range []string{"", "http://a", "a/b"} {
		if _, err := auth.NewGuard(nil, []string{h}, true); err == nil {
			t.Errorf("host %q was accepted", h)
		}
	}
}
