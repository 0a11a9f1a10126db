package tool_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"mneme/internal/agent"
	"mneme/internal/tool"
)

// web is a small site.
func web(t *testing.T) *httptest.Server {
	mux := http.NewServeMux()
	page := func(path, kind, body string) {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", kind)
			fmt.Fprint(w, body)
		})
	}
	page("/page", "text/html; charset=utf-8", `<!doctype html><html><head><title>A &amp; B</title><style>p{}</style><script>if (a<b) {"</p>"}</script></head>
		<body><h1>Head</h1><p>One <b>bold</b>text &lt;tag&gt;.</p><ul><li>x<li>y</ul></body></html>`)
	page("/text", "text/plain", " plain <b>text</b>\n")
	page("/json", "application/vnd.api+json", `{"a": 1}`)
	page("/latin", "text/html; charset=ISO-8859-1", "<p>caf\xe9")
	page("/image", "image/png", "\x89PNG")
	page("/empty", "text/html", "<script>1</script>")
	page("/large", "text/plain", strings.Repeat("x", 5<<20))
	mux.HandleFunc("/moved", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/page", http.StatusFound) })
	mux.HandleFunc("/loop", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/loop", http.StatusFound) })
	mux.HandleFunc("/file", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "file:///etc/passwd", http.StatusFound)
	})
	mux.HandleFunc("/hang", func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	mux.HandleFunc("/search", func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		switch q.Get("q") {
		case "none":
			fmt.Fprint(w, `{"results":[]}`)
		case "broken":
			fmt.Fprint(w, `<html>`)
		default:
			fmt.Fprintf(w, `{"results":[{"title":"T %s %s","url":"http://a/1","content":" first "},{"title":"U","url":"http://a/2"}]}`, q.Get("q"), q.Get("format"))
		}
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

func TestFetchWebpage(t *testing.T) {
	site := web(t)
	r := newRig(t)
	r.tools = tool.Builtin(tool.Kit{Web: tool.Web{AllowPrivate: true}})
	for path, want := range map[string]string{
		"/page":  "Title: A & B\nAddress: URL/page\n\nHead\n\nOne boldtext <tag>.\n\n- x\n- y",
		"/moved": "Title: A & B\nAddress: URL/page\n\nHead",
		"/text":  "Address: URL/text\n\nplain <b>text</b>",
		"/json":  "Address: URL/json\n\n{\"a\": 1}",
		"/latin": "Address: URL/latin\n\ncafé",
		"/empty": "Address: URL/empty\n\n(the page has no text)",
		"/large": "Address: URL/large\n\nxxx",
	} {
		status, text := r.do("fetch_webpage", "url", " "+site.URL+path)
		if want = strings.ReplaceAll(want, "URL", site.URL); status != agent.StatusSuccess || !strings.HasPrefix(text, want) {
			t.Errorf("%s: %s\n%.300s\nwant\n%s", path, status, text, want)
		}
	}
	for address, want := range map[string]string{
		site.URL + "/none":       "the server answered 404",
		site.URL + "/image":      "it is image/png, not text",
		site.URL + "/loop":       "it redirects too often",
		site.URL + "/file":       "only http and https addresses can be fetched",
		"ftp://example.com/x":    "only http and https addresses can be fetched",
		"/etc/passwd":            "only http and https addresses can be fetched",
		"http://%zz":             "it is not an address",
		"http://nobody.invalid/": "cannot be fetched",
		"http://127.0.0.1:1/x":   "refused",
	} {
		if status, text := r.do("fetch_webpage", "url", address); status != agent.StatusError || !strings.Contains(text, want) {
			t.Errorf("%s: %s %s", address, status, text)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	res := tool.Find(r.tools, "fetch_webpage").Run(ctx, r.call("fetch_webpage", in("url", site.URL+"/hang")))
	if res.Status != agent.StatusError || agent.TextOf(res.Parts) != "Interrupted by user" {
		t.Errorf("%+v", res)
	}
}

func TestFetchStaysOutside(t *testing.T) {
	site := web(t)
	r := newRig(t)
	r.tools = tool.Builtin(tool.Kit{})
	port := site.URL[strings.LastIndexByte(site.URL, ':'):]
	for _, address := range []string{
		site.URL, "http://localhost" + port, "http://[::1]" + port, "http://0.0.0.0" + port, "http://[::ffff:127.0.0.1]" + port,
		"http://10.0.0.1/", "http://169.254.169.254/latest/meta-data/", "http://[fe80::1]/", "http://[fd00::1]/", "http://2130706433" + port, "http://127.1" + port,
	} {
		status, text := r.do("fetch_webpage", "url", address)
		// Some forms of an address are none to the resolver.
		if status != agent.StatusError || !strings.Contains(text, "not on the public internet") && !strings.Contains(text, "lookup") {
			t.Errorf("%s: %s %s", address, status, text)
		}
	}
}

func TestPublicAddress(t *testing.T) {
	for address, want := range map[string]bool{
		"8.8.8.8": true, "2606:4700::1111": true, "::ffff:8.8.8.8": true, "193.0.0.1": true,
		"127.0.0.1": false, "10.1.2.3": false, "172.16.0.1": false, "192.168.1.1": false, "169.254.1.1": false, "100.64.0.1": false,
		"0.0.0.0": false, "255.255.255.255": false, "224.0.0.1": false, "198.18.0.1": false, "192.0.2.1": false,
		"::": false, "::1": false, "fe80::1": false, "fc00::1": false, "ff02::1": false, "::ffff:10.0.0.1": false, "::127.0.0.1": false,
		"64:ff9b::7f00:1": false, "2002:7f00:1::": false, "2001:db8::1": false, "fe80::1%eth0": false, "2606:4700::1111%x": false,
	} {
		if got := tool.PublicAddress(netip.MustParseAddr(address)); got != want {
			t.Errorf("%s: %v", address, got)
		}
	}
	if tool.PublicAddress(netip.Addr{}) {
		t.Error("no address is public")
	}
}

func TestWebSearch(t *testing.T) {
	site := web(t)
	r := newRig(t)
	r.tools = tool.Builtin(tool.Kit{})
	if status, text := r.do("web_search", "query", "x"); status != agent.StatusError || !strings.Contains(text, "nobody has set web-search-url (MNEME_WEB_SEARCH_URL)") {
		t.Errorf("%s %s", status, text)
	}
	r.tools = tool.Builtin(tool.Kit{Web: tool.Web{SearchURL: site.URL + "/search?lang=en"}})
	for _, c := range []struct {
		query string
		n     int
		want  string
	}{
		{"a & b", 8, "1. T a & b json\nhttp://a/1\nfirst\n\n2. U\nhttp://a/2"},
		{"a", 1, "1. T a json\nhttp://a/1\nfirst"},
		{"none", 1, "Nothing was found."},
	} {
		if status, text := r.do("web_search", "query", c.query, "num_results", c.n); status != agent.StatusSuccess || text != c.want {
			t.Errorf("%s: %s %s", c.query, status, text)
		}
	}
	if status, text := r.do("web_search", "query", "broken"); status != agent.StatusError || !strings.Contains(text, "did not answer with JSON") {
		t.Errorf("%s %s", status, text)
	}
	site.Close()
	if status, text := r.do("web_search", "query", "x"); status != agent.StatusError || !strings.Contains(text, "The web search failed") {
		t.Errorf("%s %s", status, text)
	}
}
