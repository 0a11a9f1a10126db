package tool

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"syscall"
	"time"

	"mneme/internal/agent"
)

//go:embed fetch_webpage.md
var fetchText string

//go:embed web_search.md
var webSearchText string

const (
	fetchTimeout    = 30 * time.Second
	fetchRedirects  = 5
	maxPage         = 4 << 20 // bytes that are read of a page
	maxSearchAnswer = 1 << 20
	defaultResults  = 8
	maxResults      = 20
	agentName       = "mneme"
)

// WebSearchSetting is the setting that web_search needs.
const WebSearchSetting = "web-search-url (MNEME_WEB_SEARCH_URL)"

// Web says how tools reach the web.
type Web struct {
	// SearchURL is the search page of a SearXNG instance, which may be private; ""
	// = there is no web search.
	SearchURL string
	// AllowPrivate lets fetch_webpage read pages on private addresses.
	AllowPrivate bool
}

// A surfer fetches pages that the model named. The address that is dialled is
// checked, after names were resolved and for every redirect, so that no name leads
// inwards. It uses no proxy for the same reason.
type surfer struct{ client *http.Client }

func newSurfer(w Web) *surfer {
	dialer := &net.Dialer{Timeout: 10 * time.Second}
	if !w.AllowPrivate {
		dialer.Control = publicOnly
	}
	return &surfer{&http.Client{
		Timeout: fetchTimeout,
		Transport: &http.Transport{
			DialContext: dialer.DialContext, TLSHandshakeTimeout: 10 * time.Second, ForceAttemptHTTP2: true,
			DisableKeepAlives: true, // pages are read once
		},
		CheckRedirect: func(r *http.Request, via []*http.Request) error {
			if len(via) > fetchRedirects {
				return errors.New("it redirects too often")
			}
			return checkWebURL(r.URL)
		},
	}}
}

var errPrivateAddress = errors.New("its address is not on the public internet")

func publicOnly(_, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("address %s: %w", address, err)
	}
	if !PublicAddress(at.Addr()) {
		return errPrivateAddress
	}
	return nil
}

// notPublic are blocks that the internet does not route or that lead elsewhere: RFC
// 6890 and the prefixes in which IPv6 embeds IPv4.
var notPublic = [...]string{
	"0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "198.18.0.0/15", "198.51.100.0/24",
	"203.0.113.0/24", "240.0.0.0/4", "::/96", "64:ff9b::/96", "64:ff9b:1::/48", "100::/64", "2001::/23", "2001:db8::/32", "2002::/16",
	"3fff::/20", "5f00::/16", "fec0::/10",
}

// PublicAddress says whether an address is one of a host on the public internet.
func PublicAddress(a netip.Addr) bool {
	a = a.Unmap()
	if !a.IsValid() || a.Zone() != "" || !a.IsGlobalUnicast() || a.IsPrivate() {
		return false
	}
	for _, block := range notPublic {
		if netip.MustParsePrefix(block).Contains(a) {
			return false
		}
	}
	return true
}

func checkWebURL(u *url.URL) error {
	if u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return errors.New("only http and https addresses can be fetched")
	}
	return nil
}

type fetchArgs struct {
	URL string `json:"url"`
}

func fetchTool(w Web) *Tool {
	s := newSurfer(w)
	t := define("fetch_webpage", fetchText, `"url":{"type":"string","description":"Address of the page"}`, "url")
	t.Class, t.ReadOnly = Parallel, true
	t.Run = func(ctx context.Context, c *Call) agent.ToolResult {
		var in fetchArgs
		if r, ok := decode(c, &in); !ok {
			return r
		}
		text, err := s.fetch(ctx, strings.TrimSpace(in.URL))
		if ctx.Err() != nil {
			return errResult(ctx, ctx.Err())
		}
		if err != nil {
			return failf("The page %s cannot be fetched: %v.", in.URL, plainWebError(err))
		}
		return success(text)
	}
	return t
}

// fetch returns the text of a page below its title and address.
func (s *surfer) fetch(ctx context.Context, address string) (string, error) {
	u, err := url.Parse(address)
	if err != nil {
		return "", errors.New("it is not an address")
	}
	if err := checkWebURL(u); err != nil {
		return "", err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return "", err
	}
	req.Header.Set("User-Agent", agentName)
	req.Header.Set("Accept", "text/html, text/plain, text/markdown, application/json;q=0.9, */*;q=0.5")
	resp, err := s.client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return "", fmt.Errorf("the server answered %d", resp.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxPage))
	if err != nil {
		return "", err
	}
	kind := resp.Header.Get("Content-Type")
	if kind == "" {
		kind = http.DetectContentType(body)
	}
	title, text, err := pageText(kind, body)
	if err != nil {
		return "", err
	}
	head := "Address: " + resp.Request.URL.String()
	if title != "" {
		head = "Title: " + title + "\n" + head
	}
	if text == "" {
		text = "(the page has no text)"
	}
	return head + "\n\n" + text, nil
}

// pageText is a page as text.
func pageText(contentType string, body []byte) (title, text string, err error) {
	kind, params, err := mime.ParseMediaType(contentType)
	if err != nil {
		kind = strings.ToLower(strings.TrimSpace(strings.Split(contentType, ";")[0]))
	}
	page := string(body)
	switch strings.ToLower(params["charset"]) {
	case "iso-8859-1", "latin1", "windows-1252":
		runes := make([]rune, len(body))
		for i, b := range body {
			runes[i] = rune(b)
		}
		page = string(runes)
	}
	page = strings.ToValidUTF8(page, "\uFFFD")
	switch {
	case kind == "text/html" || kind == "application/xhtml+xml":
		title, text = htmlText(page)
		return title, text, nil
	case strings.HasPrefix(kind, "text/") || kind == "application/json" || kind == "application/xml" ||
		strings.HasSuffix(kind, "+json") || strings.HasSuffix(kind, "+xml") || kind == "application/javascript":
		return "", strings.TrimSpace(page), nil
	}
	return "", "", fmt.Errorf("it is %s, not text", kind)
}

// plainWebError leaves out what the caller knows, such as the address.
func plainWebError(err error) error {
	var u *url.Error
	switch {
	case errors.Is(err, errPrivateAddress):
		return errPrivateAddress
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &u) && u.Timeout():
		return errors.New("it took too long")
	case errors.As(err, &u):
		return u.Err
	}
	return err
}

type webSearchArgs struct {
	Query      string  `json:"query"`
	NumResults *number `json:"num_results"`
}

func webSearchTool(w Web) *Tool {
	t := define("web_search", webSearchText, `
		"query":{"type":"string","description":"What to look for"},
		"num_results":{"type":"integer","description":"How many results at most (default 8, at most 20)"}`,
		"query")
	t.Class, t.ReadOnly = Parallel, true
	client := &http.Client{Timeout: fetchTimeout, Transport: &http.Transport{DisableKeepAlives: true}}
	t.Run = func(ctx context.Context, c *Call) agent.ToolResult {
		var in webSearchArgs
		if r, ok := decode(c, &in); !ok {
			return r
		}
		if w.SearchURL == "" {
			return failf("There is no web search on this server: nobody has set %s to the address of a search engine. fetch_webpage reads pages whose address you know.", WebSearchSetting)
		}
		n := defaultResults
		if in.NumResults != nil {
			n = min(max(int(*in.NumResults), 1), maxResults)
		}
		text, err := searchWeb(ctx, client, w.SearchURL, in.Query, n)
		if ctx.Err() != nil {
			return errResult(ctx, ctx.Err())
		}
		if err != nil {
			return failf("The web search failed: %v.", plainWebError(err))
		}
		return success(text)
	}
	return t
}

// searchWeb asks a SearXNG instance.
func searchWeb(ctx context.Context, client *http.Client, endpoint, query string, n int) (string, error) {
	u, err := url.Parse(endpoint)
	if err != nil {
		return "", fmt.Errorf("%s is not an address", WebSearchSetting)
	}
	q := u.Query()
	q.Set("q", query)
	q.Set("format", "json")
	u.RawQuery = q.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return "", err
	}
	req.Header.Set("User-Agent", agentName)
	req.Header.Set("Accept", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("the search engine answered %d", resp.StatusCode)
	}
	var answer struct {
		Results []struct{ Title, URL, Content string } `json:"results"`
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxSearchAnswer)).Decode(&answer); err != nil {
		return "", errors.New("the search engine did not answer with JSON")
	}
	if len(answer.Results) == 0 {
		return "Nothing was found.", nil
	}
	var b strings.Builder
	for i, r := range answer.Results[:min(n, len(answer.Results))] {
		fmt.Fprintf(&b, "%d. %s\n%s\n%s\n\n", i+1, r.Title, r.URL, firstChars(strings.TrimSpace(r.Content), 500))
	}
	return strings.TrimSpace(b.String()), nil
}
