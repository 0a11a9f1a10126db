package server

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"syscall"
)

// DefaultSocketPath is where the WebSocket is unless the listen URL names another path.
const DefaultSocketPath = "/ws"

// A Listen is a parsed listen URL, ws://host[:port][/path].
type Listen struct {
	Typed string // as it was given
	Host  string // without brackets
	Port  int    // 0 = any free one
	Path  string // of the socket
}

// ParseListen reads a listen URL. Its errors are the start-up texts of
// spec/app-server-core.md section 1.1.
func ParseListen(s string) (Listen, error) {
	invalid := fmt.Errorf("Invalid app-server listen URL: %s", s) //nolint:staticcheck // the text is fixed
	u, err := url.Parse(s)
	if err != nil || u.Scheme == "" {
		return Listen{}, invalid
	}
	if u.Scheme != "ws" {
		return Listen{}, errors.New("app-server MVP only supports ws:// listen URLs")
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return Listen{}, errors.New("app-server listen URL cannot include auth, query, or hash")
	}
	l := Listen{Typed: s, Host: u.Hostname(), Path: u.Path}
	if l.Host == "" {
		return Listen{}, invalid
	}
	if port := u.Port(); port != "" {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil {
			return Listen{}, invalid
		}
		l.Port = int(n)
	}
	if l.Path == "" || l.Path == "/" {
		l.Path = DefaultSocketPath
	}
	return l, nil
}

// address is HOST:PORT as messages name it.
func (l Listen) address() string { return net.JoinHostPort(l.Host, strconv.Itoa(l.Port)) }

// open binds the listener.
func (l Listen) open() (net.Listener, error) {
	ln, err := net.Listen("tcp", l.address())
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("listen EADDRINUSE: address already in use %s:%d", l.Host, l.Port)
	}
	var op *net.OpError
	if errors.As(err, &op) {
		return nil, fmt.Errorf("listen on %s: %w", l.address(), op.Err)
	}
	return ln, err
}

// base is scheme://host:port with the host as typed and the port that was bound.
func (l Listen) base(scheme string, ln net.Listener) string {
	port := l.Port
	if a, ok := ln.Addr().(*net.TCPAddr); ok {
		port = a.Port
	}
	return scheme + "://" + net.JoinHostPort(l.Host, strconv.Itoa(port))
}

// Socket is the URL of the WebSocket on a bound listener.
func (l Listen) Socket(ln net.Listener) string {
	return l.base("ws", ln) + "/" + strings.TrimPrefix(l.Path, "/")
}
