package mcpserver

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"mneme/internal/agent"
	"mneme/internal/memory"
	"mneme/protocol"
)

const (
	pageSize = 200
	jsonType = "application/json"
)

// addResources registers what can be read. The list of resources is made anew
// for each request (listResources): agents and files come and go.
func (s *Server) addResources() {
	s.addAgentsResource()
	for _, t := range []mcp.ResourceTemplate{
		{URITemplate: agentTemplate, Name: "agent", Title: "An agent", MIMEType: jsonType,
			Description: "An agent without its system prompt. {agent} is an id or a name."},
		{URITemplate: memoryTemplate, Name: "memory", Title: "An agent's memory files", MIMEType: jsonType,
			Description: "Paths, descriptions and sizes of the agent's memory files."},
		{URITemplate: fileTemplate, Name: "memory-file", Title: "A memory file",
			Description: "One memory file as it is stored."},
		{URITemplate: historyTemplate, Name: "memory-history", Title: "History of an agent's memory", MIMEType: jsonType,
			Description: "The last 50 commits of the memory, or of one path."},
	} {
		s.mcp.AddResourceTemplate(&t, s.readResource)
	}
}

func (s *Server) addAgentsResource() {
	s.mcp.AddResource(&mcp.Resource{
		URI: agentsURI, Name: "agents", Title: "All agents", MIMEType: jsonType,
		Description: "Ids, names, models and tags of all agents.",
	}, s.readResource)
}

// readResource reads any of our resources.
func (s *Server) readResource(ctx context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.cfg.RequestTimeout, errRequestTimeout)
	defer cancel()
	uri := req.Params.URI
	if asked, ok := ctx.Value(askedURI{}).(string); ok {
		uri = asked
	}
	contents, err := s.contents(ctx, uri)
	if err != nil {
		return nil, s.resourceError(req, uri, err)
	}
	contents.URI = uri
	return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{contents}}, nil
}

// askedURI is the key of the URI that a client asked for, where the SDK was told
// of another.
type askedURI struct{}

// reading answers resources/read: ours in any spelling of their URIs, which
// templates are too strict for, and those of others by the SDK. It is told of the
// one URI that it surely knows, because only it can mark a result as complete.
func (s *Server) reading(ctx context.Context, next mcp.MethodHandler, req *mcp.ReadResourceRequest) (mcp.Result, error) {
	if parseURI(req.Params.URI).kind != noResource {
		known, params := *req, *req.Params
		params.URI, known.Params = agentsURI, &params
		return next(context.WithValue(ctx, askedURI{}, req.Params.URI), "resources/read", &known)
	}
	r, err := next(ctx, "resources/read", req)
	var failed *jsonrpc.Error
	if errors.As(err, &failed) && failed.Code == mcp.CodeResourceNotFound { //nolint:staticcheck // what the SDK sends
		return nil, s.resourceError(req, req.Params.URI, agent.Errorf(agent.CodeNotFound, "no resource has this URI"))
	}
	if err != nil {
		return nil, err
	}
	return r, nil
}

// codeNotFound is what the legacy era has for a resource that is not there.
const codeNotFound = -32002

// resourceError is the protocol error of a resource that cannot be read.
func (s *Server) resourceError(req *mcp.ReadResourceRequest, uri string, err error) error {
	e := explain(err)
	missing := agent.CodeOf(err) == agent.CodeNotFound || e.Code == CodeAgentNotFound || e.Code == CodeAgentAmbiguous ||
		e.Code == CodeInvalidRequest
	if !missing {
		message := e.Message
		if e.Code == CodeInternal {
			ref := reference()
			message = strings.TrimSuffix(message, ".") + " (reference " + ref + ")."
			s.log.Error("resource not read", "uri", uri, "reference", ref, "err", err)
		}
		return &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: message}
	}
	data, merr := json.Marshal(map[string]string{"uri": uri})
	if merr != nil {
		return merr
	}
	code := int64(jsonrpc.CodeInvalidParams)
	if req.ProtocolVersion() < versionModern {
		code = codeNotFound
	}
	return &jsonrpc.Error{Code: code, Message: "Resource not found: " + e.Message, Data: data}
}

// contents reads what a URI names. CodeNotFound for what is not there.
func (s *Server) contents(ctx context.Context, uri string) (*mcp.ResourceContents, error) {
	t := parseURI(uri)
	if t.kind == noResource {
		return nil, agent.Errorf(agent.CodeNotFound, "no resource has this URI")
	}
	if t.kind == agentsResource {
		list, err := lookup(ctx, s.backend, "")
		return jsonContents(list, err)
	}
	ag, err := resolve(ctx, s.backend, t.agent)
	if err != nil {
		return nil, err
	}
	switch t.kind {
	case agentResource:
		record, err := withIDs(ctx, s.backend, ag)
		if err != nil {
			return nil, err
		}
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(record, &fields); err != nil {
			return nil, err
		}
		delete(fields, "system")
		return jsonContents(fields, nil)
	case memoryResource:
		return s.memoryTree(ctx, ag)
	case historyResource:
		return s.history(ctx, ag, t.path)
	}
	return s.file(ctx, ag, t.path)
}

func jsonContents(v any, err error) (*mcp.ResourceContents, error) {
	if err != nil {
		return nil, err
	}
	text, err := protocol.Marshal(v)
	if err != nil {
		return nil, err
	}
	return &mcp.ResourceContents{MIMEType: jsonType, Text: string(text)}, nil
}

// memoryTree lists an agent's files with the commit that has them.
func (s *Server) memoryTree(ctx context.Context, ag *Agent) (*mcp.ResourceContents, error) {
	snap, err := s.backend.Memory(ctx, ag.ID, Dated)
	if err != nil {
		return nil, err
	}
	type entry struct {
		Path        string  `json:"path"`
		URI         string  `json:"uri"`
		Description *string `json:"description"`
		Size        int     `json:"size"`
		UpdatedAt   string  `json:"updated_at,omitempty"`
	}
	tree := struct {
		AgentID   string  `json:"agent_id"`
		AgentName string  `json:"agent_name"`
		Commit    *string `json:"commit"`
		Files     []entry `json:"files"`
	}{ag.ID, ag.Name, orNull(snap.Commit), []entry{}}
	for _, f := range snap.served() {
		tree.Files = append(tree.Files, entry{f.Path, fileURI(ag.ID, f.Path), described(f), sizeOf(f), timeOf(snap.updated(f))})
	}
	return jsonContents(tree, nil)
}

func (s *Server) history(ctx context.Context, ag *Agent, path string) (*mcp.ResourceContents, error) {
	commits, err := s.backend.MemoryHistory(ctx, ag.ID, path)
	if err != nil {
		return nil, err
	}
	type entry struct {
		Commit  string `json:"commit"`
		Message string `json:"message"`
		Time    string `json:"time"`
		Author  string `json:"author"`
	}
	list := []entry{}
	for _, c := range commits {
		list = append(list, entry{c.SHA, c.Message, timeOf(c.Time), c.AuthorName})
	}
	return jsonContents(map[string]any{"agent_id": ag.ID, "agent_name": ag.Name, "path": path, "commits": list}, nil)
}

// file reads one memory file as it is stored.
func (s *Server) file(ctx context.Context, ag *Agent, path string) (*mcp.ResourceContents, error) {
	data, err := s.backend.MemoryFile(ctx, ag.ID, path)
	if err != nil {
		return nil, err
	}
	contents := &mcp.ResourceContents{MIMEType: memory.MediaType(path)}
	if strings.HasPrefix(contents.MIMEType, "text/") {
		contents.Text = string(data)
	} else {
		contents.Blob = data
	}
	return contents, nil
}

// listResources is a page of what the App Server has: each agent by name and id,
// its memory, and the files of that. Agents and files come and go between pages,
// so a cursor names a place in that order.
func (s *Server) listResources(ctx context.Context, cursor string) (page []*mcp.Resource, next string, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.cfg.RequestTimeout, errRequestTimeout)
	defer cancel()
	from, err := parseCursor(cursor)
	if err != nil {
		return nil, "", err
	}
	all, err := s.backend.Agents(ctx)
	if err != nil {
		return nil, "", err
	}
	all = slices.DeleteFunc(all, func(a Agent) bool { return a.Hidden || byName(a, Agent{Name: from.Name, ID: from.ID}) < 0 })
	slices.SortFunc(all, byName)
	for _, a := range all {
		after := ""
		if a.ID == from.ID {
			after = from.Path
		}
		list, err := s.resourcesOf(ctx, &a, after)
		if agent.CodeOf(err) == agent.CodeNotFound {
			continue // deleted meanwhile
		}
		if err != nil {
			return nil, "", err
		}
		room := pageSize - len(page)
		if len(list) <= room {
			page = append(page, list...)
			continue
		}
		if after == "" && room <= ownEntries {
			return page, place{a.Name, a.ID, ""}.cursor(), nil
		}
		page = append(page, list[:room]...)
		return page, place{a.Name, a.ID, parseURI(list[room-1].URI).path}.cursor(), nil
	}
	return page, "", nil
}

// ownEntries is how many resources an agent is before its files begin.
const ownEntries = 2

// resourcesOf is an agent's own entry, its memory's, and those of its files; with
// a path only the files behind it.
func (s *Server) resourcesOf(ctx context.Context, a *Agent, after string) ([]*mcp.Resource, error) {
	var list []*mcp.Resource
	if after == "" {
		list = append(list,
			&mcp.Resource{URI: agentURI(a.ID), Name: a.Name, MIMEType: jsonType, Description: "The agent " + a.Name + "."},
			&mcp.Resource{URI: memoryURI(a.ID), Name: a.Name + "/memory", MIMEType: jsonType, Description: "The memory files of " + a.Name + "."})
	}
	snap, err := s.backend.Memory(ctx, a.ID, Dated)
	if err != nil {
		return nil, err
	}
	for _, f := range snap.served() {
		if f.Path <= after {
			continue
		}
		r := &mcp.Resource{
			URI: fileURI(a.ID, f.Path), Name: a.Name + "/memory/" + f.Path, MIMEType: memory.MediaType(f.Path), Description: f.Description,
			Size: f.Size, Annotations: &mcp.Annotations{Priority: 0.5, LastModified: timeOf(snap.updated(f))},
		}
		if strings.HasPrefix(f.Path, "system/") {
			r.Annotations.Priority = 1
		}
		list = append(list, r)
	}
	return list, nil
}

// A place is where a page begins: at an agent, or behind a file of its memory.
type place struct {
	Name string `json:"n"`
	ID   string `json:"i"`
	Path string `json:"p"`
}

func (p place) cursor() string {
	raw, err := json.Marshal(p)
	if err != nil {
		panic(err) // three texts
	}
	return base64.RawURLEncoding.EncodeToString(raw)
}

var errCursor = &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "cursor is not valid"}

func parseCursor(s string) (p place, err error) {
	if s == "" {
		return p, nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || json.Unmarshal(raw, &p) != nil || p.ID == "" {
		return p, errCursor
	}
	return p, nil
}

// listing answers resources/list: what is registered with the SDK comes first,
// then what the App Server has.
func (s *Server) listing(ctx context.Context, next mcp.MethodHandler, req *mcp.ListResourcesRequest) (mcp.Result, error) {
	result, cursor := &mcp.ListResourcesResult{Resources: []*mcp.Resource{}}, ""
	if req.Params != nil {
		cursor = req.Params.Cursor
	}
	if cursor == "" {
		fixed, err := next(ctx, "resources/list", req)
		if err != nil {
			return nil, err
		}
		result.Resources = fixed.(*mcp.ListResourcesResult).Resources
	}
	page, more, err := s.listResources(ctx, cursor)
	if errors.Is(err, errCursor) {
		return nil, err
	}
	if err != nil {
		s.log.Warn("resources not listed", "err", err)
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "Resources cannot be listed: " + explain(err).Message}
	}
	result.Resources = append(result.Resources, page...)
	result.NextCursor = more
	result.Cacheable = cacheable(req)
	return result, nil
}
