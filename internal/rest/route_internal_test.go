package rest

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mneme/internal/auth"
	"mneme/internal/store"
)

func TestRouter(t *testing.T) {
	here := func(*Door, http.ResponseWriter, *http.Request) error { return nil }
	rt := newRouter([]route{
		{"GET", "/v1/a", here, doc{}}, {"POST", "/v1/a", here, doc{}}, {"GET", "/v1/a/{id}", here, doc{}}, {"GET", "/v1/a/count", nil, doc{}},
		{"PATCH", "/v1/a/{id}/b/{label}", here, doc{}}, {"PATCH", "/v1/a/{other}/b/attach/{block}", here, doc{}},
		{"DELETE", "/v1/a/{other}", here, doc{}}, {"*", "/v1/c", nil, doc{}}, {"*", "/v1/c/{rest...}", nil, doc{}}, {"GET", "/v1/c/{id}/known", here, doc{}},
	})
	for _, c := range []struct{ request, want string }{
		{"GET /v1/a", "GET /v1/a"}, {"GET /v1/a/", "GET /v1/a"}, {"HEAD /v1/a", "GET /v1/a"}, {"POST /v1/a/?x=/y", "POST /v1/a"},
		{"GET /v1/a/count", "GET /v1/a/count"}, {"GET /v1/a/x", "GET /v1/a/{id} id=x"}, {"DELETE /v1/a/x", "DELETE /v1/a/{other} other=x"},
		{"DELETE /v1/a/count", "DELETE /v1/a/{other} other=count"}, // the word has no such method
		{"GET /v1/a/x%2Fy%20z", "GET /v1/a/{id} id=x/y z"}, {"GET /v1/a/%E4%BA%BA", "GET /v1/a/{id} id=人"},
		{"PATCH /v1/a/x/b/attach", "PATCH /v1/a/{id}/b/{label} id=x label=attach"},
		{"PATCH /v1/a/x/b/attach/y/", "PATCH /v1/a/{other}/b/attach/{block} block=y other=x"},
		{"PATCH /v1/a/x/b/p%2Fq", "PATCH /v1/a/{id}/b/{label} id=x label=p/q"},
		{"PUT /v1/c", "* /v1/c"}, {"GET /v1/c/x/y/z", "* /v1/c/{rest...}"}, {"GET /v1/c/x/known", "GET /v1/c/{id}/known id=x"},
		{"PUT /v1/c/x/known", "* /v1/c/{rest...}"},
		{"GET /v1/b", "none []"}, {"GET /v1/a/x/b", "none []"}, {"GET /", "none []"}, {"GET /v1/a//", "none []"}, {"GET /v1//a", "none []"},
		{"PUT /v1/a", "none [GET POST]"}, {"PUT /v1/a/x", "none [DELETE GET]"}, {"PUT /v1/a/count", "none [DELETE GET]"},
	} {
		method, target, _ := strings.Cut(c.request, " ")
		r := httptest.NewRequest(method, target, nil)
		found, allow := rt.find(r)
		got := fmt.Sprint("none ", allow)
		if found != nil {
			got = found.method + " " + found.path
			for _, name := range []string{"id", "label", "block", "other"} {
				if v := r.PathValue(name); v != "" {
					got += " " + name + "=" + v
				}
			}
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.request, got, c.want)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("a route may be in the tables twice")
		}
	}()
	newRouter([]route{{"GET", "/a/{x}", here, doc{}}, {"GET", "/a/{y}", here, doc{}}})
}

// TestTables: a row says what it is, and the tables hold no row twice.
func TestTables(t *testing.T) {
	for _, rt := range newRouter(tables()...).routes {
		if rt.doc.summary == "" || strings.HasSuffix(rt.path, "/") {
			t.Errorf("%s %s: %+v", rt.method, rt.path, rt.doc)
		}
	}
}

// TestPanics are answered and end nothing else.
func TestPanics(t *testing.T) {
	checker, err := auth.New(auth.Options{})
	if err != nil {
		t.Fatal(err)
	}
	d := New(Config{Auth: checker})
	defer d.Close(context.Background())
	d.router = newRouter([]route{{"GET", "/v1/x", func(*Door, http.ResponseWriter, *http.Request) error { panic("oh") }, doc{}}})
	w := httptest.NewRecorder()
	d.ServeHTTP(w, httptest.NewRequest("GET", "/v1/x", nil))
	if w.Code != 500 || w.Body.String() != `{"detail":"An unknown error occurred"}` {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestWindow(t *testing.T) {
	all := []string{"a", "b", "c", "d", "e"}
	for _, c := range []struct {
		after, before string
		limit         int
		want          string
	}{
		{"", "", -1, "abcde"}, {"", "", 2, "ab"}, {"b", "", 2, "cd"}, {"e", "", 2, ""}, {"", "d", 2, "bc"}, {"", "a", 2, ""}, {"", "c", 9, "ab"},
		{"a", "e", 2, "bc"}, {"c", "b", 2, ""}, {"", "", 0, ""}, {"x", "", 2, "?"}, {"", "x", 2, "?"},
	} {
		page, ok := window(all, func(s string) string { return s }, c.after, c.before, c.limit)
		got := strings.Join(page, "")
		if !ok {
			got = "?"
		}
		if got != c.want || ok && page == nil {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

// TestPlacesAreBounded: what is remembered longest is forgotten first.
func TestPlacesAreBounded(t *testing.T) {
	p := newPlaces()
	for i := range maxPlaces + 10 {
		p.note("l", fmt.Sprint(i), int64(i))
		p.note("l", fmt.Sprint(i), int64(i)) // again
	}
	if len(p.at) != maxPlaces || len(p.ring) != maxPlaces {
		t.Errorf("%d and %d are remembered", len(p.at), len(p.ring))
	}
	for id, want := range map[string]bool{"9": false, "10": true, fmt.Sprint(maxPlaces + 9): true} {
		if _, ok := p.find("l", id); ok != want {
			t.Errorf("%s is remembered: %v", id, ok)
		}
	}
	if _, ok := p.find("m", "10"); ok {
		t.Error("lists are mixed up")
	}
}

// TestScan: pages of what a condition leaves, in both directions.
func TestScan(t *testing.T) {
	var all []int // 1 … 40
	for i := range 40 {
		all = append(all, i+1)
	}
	fetch := func(p store.Page) ([]int, error) {
		from, to := 0, len(all)
		if p.AfterValue != nil {
			from = int(*p.AfterValue)
		}
		if p.BeforeValue != nil {
			to = int(*p.BeforeValue) - 1
			from = max(from, to-p.Limit)
		}
		return all[from:min(to, from+p.Limit)], nil
	}
	at := func(n int) (string, int64) { return fmt.Sprint(n), int64(n) }
	third := func(n int) bool { return n%3 == 0 }
	place := func(n int64) *int64 { return &n }
	for _, c := range []struct {
		page  store.Page
		limit int
		want  []int
	}{
		{store.Page{}, 2, []int{3, 6}}, {store.Page{After: "6", AfterValue: place(6)}, 3, []int{9, 12, 15}},
		{store.Page{After: "30", AfterValue: place(30)}, 9, []int{33, 36, 39}}, {store.Page{After: "39", AfterValue: place(39)}, 9, nil},
		{store.Page{Before: "12", BeforeValue: place(12)}, 2, []int{6, 9}}, {store.Page{Before: "12", BeforeValue: place(12)}, 9, []int{3, 6, 9}},
		{store.Page{Before: "3", BeforeValue: place(3)}, 9, nil},
	} {
		got, err := scan(c.page, c.limit, third, fetch, at)
		if diff := cmp.Diff(c.want, append([]int(nil), got...)); diff != "" || err != nil {
			t.Errorf("%+v limit %d: %s %v", c.page, c.limit, diff, err)
		}
	}
}

func TestDates(t *testing.T) {
	want := time.Date(2026, 8, 22, 10, 15, 30, 0, time.UTC)
	for _, s := range []string{
		"2026-08-22T10:15:30Z", "2026-08-22T12:15:30+02:00", "2026-08-22T10:15:30", "2026-08-22 10:15:30", "2026-08-22T12:15:30 02:00",
		"2026-08-22T12:15:30+0200", "2026-08-22 12:15:30+02:00", " 2026-08-22T10:15:30.000Z ", "2026-08-22T10:15:30.000000000",
	} {
		if got, ok := parseDate(s); !ok || !got.Equal(want) {
			t.Errorf("%q: %v, %v", s, got, ok)
		}
	}
	for _, s := range []string{"", "yesterday", "2026-13-01", "10:15", "1724321730"} {
		if got, ok := parseDate(s); ok {
			t.Errorf("%q is %v", s, got)
		}
	}
	if got := messageDate(want.Add(999 * time.Millisecond)); got != "2026-08-22T10:15:30+00:00" {
		t.Errorf("message date %s", got)
	}
}
