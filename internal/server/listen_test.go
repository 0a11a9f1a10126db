package server_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"mneme/internal/server"
)

func TestParseListen(t *testing.T) {
	for in, want := range map[string]server.Listen{
		"ws://127.0.0.1:4500":     {Host: "127.0.0.1", Port: 4500, Path: "/ws"},
		"ws://127.0.0.1:0/":       {Host: "127.0.0.1", Path: "/ws"},
		"ws://localhost":          {Host: "localhost", Path: "/ws"},
		"ws://[::1]:80/a/b":       {Host: "::1", Port: 80, Path: "/a/b"},
		"ws://example.com:65535":  {Host: "example.com", Port: 65535, Path: "/ws"},
		"WS://127.0.0.1:1/socket": {Host: "127.0.0.1", Port: 1, Path: "/socket"},
	} {
		want.Typed = in
		got, err := server.ParseListen(in)
		if err != nil {
			t.Errorf("%s: %v", in, err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: %s", in, d)
		}
	}
	const (
		scheme = "app-server MVP only supports ws:// listen URLs"
		extra  = "app-server listen URL cannot include auth, query, or hash"
	)
	for in, want := range map[string]string{
		"wss://127.0.0.1:4500":    scheme,
		"http://127.0.0.1:4500":   scheme,
		"localhost:4500":          scheme,
		"ws://u:p@127.0.0.1:4500": extra,
		"ws://127.0.0.1:4500?x=1": extra,
		"ws://127.0.0.1:4500#x":   extra,
		"ws://127.0.0.1:65536":    "Invalid app-server listen URL: ws://127.0.0.1:65536",
		"ws://127.0.0.1:x":        "Invalid app-server listen URL: ws://127.0.0.1:x",
		"ws://":                   "Invalid app-server listen URL: ws://",
		"127.0.0.1:4500":          "Invalid app-server listen URL: 127.0.0.1:4500",
		"nonsense":                "Invalid app-server listen URL: nonsense",
		"":                        "Invalid app-server listen URL: ",
	} {
		if _, err := server.ParseListen(in); err == nil || err.Error() != want {
			t.Errorf("%q: got %v, want %s", in, err, want)
		}
	}
}
