package rest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"syscall"
	"time"
)

// Limits of requests that this door makes on behalf of clients.
const (
	imageTimeout    = 15 * time.Second
	callbackTimeout = 5 * time.Second
	maxRedirects    = 5
)

// An outbound makes HTTP requests to places that clients named. Unless private
// addresses are allowed it connects to public ones only: the address that was
// dialled is checked, after the name was resolved, so that no name can lead
// inwards. It uses no proxy for the same reason.
type outbound struct {
	client    *http.Client
	transport *http.Transport
}

func newOutbound(allowPrivate bool) *outbound {
	dialer := &net.Dialer{Timeout: 5 * time.Second}
	if !allowPrivate {
		dialer.Control = publicOnly
	}
	t := &http.Transport{
		DialContext: dialer.DialContext, TLSHandshakeTimeout: 5 * time.Second, ForceAttemptHTTP2: true,
		MaxIdleConns: 8, IdleConnTimeout: 30 * time.Second, ResponseHeaderTimeout: imageTimeout,
	}
	return &outbound{transport: t, client: &http.Client{
		Transport: t,
		CheckRedirect: func(r *http.Request, via []*http.Request) error {
			if len(via) >= maxRedirects {
				return errors.New("too many redirects")
			}
			return webURL(r.URL)
		},
	}}
}

func (o *outbound) close() { o.transport.CloseIdleConnections() }

// errPrivate says that an address is not one of the public internet.
var errPrivate = errors.New("the address is private")

// publicOnly refuses to connect to what is not on the public internet.
func publicOnly(_, address string, _ syscall.RawConn) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("address %s: %w", address, err)
	}
	if !isPublic(ap.Addr()) {
		return errPrivate
	}
	return nil
}

// special are ranges that netip does not name and nobody serves the public from:
// shared address space, protocol assignments, benchmarks, tests, and the ways in
// which IPv6 embeds IPv4.
var special = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("198.18.0.0/15"), netip.MustParsePrefix("198.51.100.0/24"),
	netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("240.0.0.0/4"),
	netip.MustParsePrefix("64:ff9b::/96"), netip.MustParsePrefix("64:ff9b:1::/48"), netip.MustParsePrefix("2002::/16"),
	netip.MustParsePrefix("2001::/32"), netip.MustParsePrefix("2001:db8::/32"),
}

func isPublic(a netip.Addr) bool {
	a = a.Unmap()
	if !a.IsGlobalUnicast() || a.IsPrivate() || a.IsLoopback() || a.IsLinkLocalUnicast() {
		return false
	}
	for _, p := range special {
		if p.Contains(a) {
			return false
		}
	}
	return true
}

// webURL says whether an URL can be asked for.
func webURL(u *url.URL) error {
	if u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return errors.New("only http and https URLs can be used")
	}
	return nil
}

// image fetches an image and tells its type by its bytes.
func (o *outbound) image(ctx context.Context, address string) (mediaType string, data []byte, err error) {
	u, err := url.Parse(address)
	if err != nil {
		return "", nil, errors.New("it is not an URL")
	}
	if err := webURL(u); err != nil {
		return "", nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, imageTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return "", nil, err
	}
	req.Header.Set("Accept", "image/png, image/jpeg, image/gif, image/webp")
	resp, err := o.client.Do(req)
	if err != nil {
		return "", nil, plainCause(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return "", nil, fmt.Errorf("the server answered %d", resp.StatusCode)
	}
	data, err = io.ReadAll(io.LimitReader(resp.Body, maxImage+1))
	if err != nil {
		return "", nil, plainCause(err)
	}
	return imageType(data), data, nil
}

// plainCause leaves out of an error what the caller knows already.
func plainCause(err error) error {
	var u *url.Error
	if errors.Is(err, errPrivate) {
		return errPrivate
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return errors.New("it took too long")
	}
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}
