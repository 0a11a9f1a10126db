package rest

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// A handler answers one request. An error is written by writeError; once it has
// begun to write the answer itself it returns nil.
type handler func(d *Door, w http.ResponseWriter, r *http.Request) error

// A route is one row of a resource's table. The path has no trailing slash; the
// router accepts one, without redirecting. A label in braces stands for one
// segment of the path, which may contain an escaped slash; r.PathValue has it. A
// label that ends with "..." stands for all that is left, and the method "*" for all
// methods.
type route struct {
	method string
	path   string
	serve  handler // nil = known, but not built
	doc    doc
}

// A doc describes a route for /openapi.json. Query, body and answer are zero
// values of the types that the handler reads and writes; nil = none.
type doc struct {
	summary string
	query   any
	body    any
	answer  any
	// optional says that the body may be missing.
	optional bool
	// stream says that the answer is, or may be, a stream of server-sent events of
	// the type chunk.
	stream bool
	chunk  any
	// open says that no credential is needed.
	open bool
}

// A router finds the route of a request. It is a tree over the segments of the
// paths in which a word goes before a label, and that before the rest of a path.
type router struct {
	root   *node
	routes []*route
}

type node struct {
	words  map[string]*node
	label  *node
	rest   *node             // takes all segments that are left
	routes map[string]*route // by method
	// names are the labels on the way here, by method: two routes may name the
	// same segment differently.
	names map[string][]string
}

func newRouter(tables ...[]route) *router {
	t := &router{root: &node{}}
	for _, table := range tables {
		for i := range table {
			t.add(&table[i])
		}
	}
	return t
}

// add panics if a route is there twice, which is a mistake in a table.
func (t *router) add(rt *route) {
	n := t.root
	var names []string
	for _, seg := range segments(rt.path) {
		if strings.HasSuffix(seg, "...}") {
			if n.rest == nil {
				n.rest = &node{}
			}
			n = n.rest
			continue
		}
		if name, ok := strings.CutPrefix(seg, "{"); ok {
			names = append(names, strings.TrimSuffix(name, "}"))
			if n.label == nil {
				n.label = &node{}
			}
			n = n.label
			continue
		}
		if n.words == nil {
			n.words = map[string]*node{}
		}
		if n.words[seg] == nil {
			n.words[seg] = &node{}
		}
		n = n.words[seg]
	}
	if n.routes[rt.method] != nil {
		panic("route " + rt.method + " " + rt.path + " is in the tables twice")
	}
	if n.routes == nil {
		n.routes, n.names = map[string]*route{}, map[string][]string{}
	}
	n.routes[rt.method], n.names[rt.method] = rt, names
	t.routes = append(t.routes, rt)
}

// segments cuts an escaped path; one trailing slash does not count.
func segments(path string) []string {
	return strings.Split(strings.TrimSuffix(strings.TrimPrefix(path, "/"), "/"), "/")
}

// find returns the route of a request and sets its path values. Without one,
// allow lists the methods that the path has; it is empty for an unknown path.
func (t *router) find(r *http.Request) (rt *route, allow []string) {
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet // net/http leaves the body out
	}
	segs := segments(r.URL.EscapedPath())
	var values []string
	n := t.root.find(segs, &values, func(n *node) bool {
		for m := range n.routes {
			if !slices.Contains(allow, m) {
				allow = append(allow, m)
			}
		}
		return n.routes[method] != nil || n.routes["*"] != nil
	})
	if n == nil {
		slices.Sort(allow)
		return nil, allow
	}
	if n.routes[method] == nil {
		method = "*"
	}
	for i, name := range n.names[method] {
		r.SetPathValue(name, values[i])
	}
	return n.routes[method], nil
}

// find walks down the segments and returns the first end that accept takes;
// values are the unescaped segments that labels stand for.
func (n *node) find(segs []string, values *[]string, accept func(*node) bool) *node {
	if len(segs) == 0 {
		if n.routes != nil && accept(n) {
			return n
		}
		return nil
	}
	seg, err := url.PathUnescape(segs[0])
	if err != nil {
		return nil
	}
	if next := n.words[seg]; next != nil {
		if end := next.find(segs[1:], values, accept); end != nil {
			return end
		}
	}
	if n.label != nil && seg != "" {
		*values = append(*values, seg)
		if end := n.label.find(segs[1:], values, accept); end != nil {
			return end
		}
		*values = (*values)[:len(*values)-1]
	}
	if n.rest != nil && accept(n.rest) {
		return n.rest
	}
	return nil
}
