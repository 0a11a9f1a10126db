package mcpserver

import (
	"net/url"
	"strings"
)

// The URIs of resources (spec/mcp.md section 6).
const (
	agentsURI = "letta://agents"

	agentTemplate   = agentsURI + "/{agent}"
	memoryTemplate  = agentTemplate + "/memory"
	fileTemplate    = memoryTemplate + "/{+path}"
	historyTemplate = agentTemplate + "/history{?path}"
)

// A resourceKind is what a URI names.
type resourceKind int

const (
	noResource resourceKind = iota
	agentsResource
	agentResource
	memoryResource
	fileResource
	historyResource
)

// A target is a parsed URI.
type target struct {
	kind  resourceKind
	agent string // id or name
	path  string // of a file; of a history "" = all
}

// parseURI reads a resource URI; kind is noResource for what is none of ours.
func parseURI(uri string) target {
	rest, ok := strings.CutPrefix(uri, agentsURI)
	if !ok {
		return target{}
	}
	if rest == "" {
		return target{kind: agentsResource}
	}
	rest, query, hasQuery := strings.Cut(strings.TrimPrefix(rest, "/"), "?")
	name, rest, deeper := strings.Cut(rest, "/")
	ref, err := url.PathUnescape(name)
	if err != nil || ref == "" {
		return target{}
	}
	t := target{agent: ref}
	switch {
	case rest == "history":
		values, err := url.ParseQuery(query)
		if err != nil {
			return target{}
		}
		t.kind, t.path = historyResource, values.Get("path")
	case hasQuery:
		return target{}
	case !deeper:
		t.kind = agentResource
	case rest == "memory":
		t.kind = memoryResource
	case strings.HasPrefix(rest, "memory/"):
		if t.path, err = url.PathUnescape(strings.TrimPrefix(rest, "memory/")); err != nil || t.path == "" {
			return target{}
		}
		t.kind = fileResource
	default:
		return target{}
	}
	return t
}

func agentURI(id string) string  { return agentsURI + "/" + url.PathEscape(id) }
func memoryURI(id string) string { return agentURI(id) + "/memory" }

// fileURI is the URI of a memory file.
func fileURI(id, path string) string {
	parts := strings.Split(path, "/")
	for i, p := range parts {
		parts[i] = url.PathEscape(p)
	}
	return memoryURI(id) + "/" + strings.Join(parts, "/")
}
