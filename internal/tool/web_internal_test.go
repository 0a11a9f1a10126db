package tool

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
)

// TestRedirectInwards: a page that may be fetched leads to one that may not.
func TestRedirectInwards(t *testing.T) {
	inside := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("secret")) }))
	defer inside.Close()
	outside := httptest.NewServer(http.RedirectHandler(inside.URL, http.StatusFound))
	defer outside.Close()
	s := newSurfer(Web{})
	dialer := net.Dialer{Control: func(network, address string, c syscall.RawConn) error {
		if address == strings.TrimPrefix(outside.URL, "http://") {
			return nil // as if it were on the internet
		}
		return publicOnly(network, address, c)
	}}
	s.client.Transport.(*http.Transport).DialContext = dialer.DialContext
	if text, err := s.fetch(t.Context(), outside.URL); !errors.Is(err, errPrivateAddress) {
		t.Errorf("got %q, %v", text, err)
	}
}

func TestHTMLText(t *testing.T) {
	for page, want := range map[string]string{
		"":                                    "",
		"no tags at all":                      "no tags at all",
		"a < b && c > d":                      "a < b && c > d",
		"<p>a<p>b":                            "a\nb",
		"a<br>b<br/>c":                        "a\nb\nc",
		"<td>a</td><td>b</td>":                "a b",
		"x<!-- <p>hidden</p> -->y":            "xy",
		"x<!-- open":                          "x",
		"<a href='>'>link</a> end":            "link end",
		`<p title="unclosed>text`:             "text",
		"a\n  <i>b</i>\n c":                   "a b c",
		"<script>a</scripty></p>":             "",
		"<SCRIPT>a</SCRIPT>b":                 "b",
		"<style>a</style >b":                  "b",
		"<div><div><div>a":                    "a",
		"a<div></div><div></div><div></div>b": "a\n\nb",
		"&nbsp;&eacute;&#233;&bogus;":         "éé&bogus;",
		"</p>a</unknown>b<":                   "ab<",
		"<?php x ?>a<![CDATA[b]]>":            "a",
	} {
		if _, got := htmlText(page); got != want {
			t.Errorf("%q became %q, want %q", page, got, want)
		}
	}
	for _, part := range []string{"</a", "<a '", "<!", "<a \"", "<script></", "<title></x>", "<", "&"} { // time grows with the length alone
		htmlText("<script>" + strings.Repeat(part, 1<<20/len(part)))
		htmlText(strings.Repeat(part, 1<<20/len(part)))
	}
	if title, text := htmlText("<title> A\n &lt;B> </title>x<title>C</title>"); title != "A <B>" || text != "x" {
		t.Errorf("%q, %q", title, text)
	}
}

func FuzzHTMLText(f *testing.F) {
	for _, page := range []string{"<p>a</p>", "<script>", "<!--", "<a b='c>", "</", "<<<>>>", "<li><td>&amp;"} {
		f.Add(page)
	}
	f.Fuzz(func(t *testing.T, page string) {
		if _, text := htmlText(page); len(text) > 4*len(page)+16 {
			t.Fatalf("%d bytes became %d", len(page), len(text))
		}
	})
}
