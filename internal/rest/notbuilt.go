package rest

import (
	"net/http"
	"strings"
)

// tolerated are the routes that the official command line takes for optional: they
// are 404 as long as they are not built (spec/rest.md section 2.10).
var tolerated = map[string]bool{
	"POST /v1/tools/add-base-tools":          true,
	"GET /v1/agents/{agent_id}/secrets":      true,
	"PUT /v1/agents/{agent_id}/secrets":      true,
	"GET /v1/agents/{agent_id}/mcp-servers":  true,
	"GET /v1/agents/{agent_id}/repositories": true,
}

// A lack is a feature that clients know and this server does not offer: what its
// routes answer, and the routes. "*" is every method, {…...} the rest of a path.
type lack struct {
	text   string
	routes []string
}

const (
	later  = " are not part of this version of mneme"
	hosted = " are only available on the hosted service"
)

// lacks are the known routes that are not built.
var lacks = []lack{
	{"Archives" + later, []string{
		"* /v1/archives", "* /v1/archives/{path...}", "PATCH /v1/agents/{agent_id}/archives/attach/{archive_id}",
		"PATCH /v1/agents/{agent_id}/archives/detach/{archive_id}",
	}},
	{"Passages of archival memory" + later, []string{
		"POST /v1/agents/{agent_id}/archival-memory", "GET /v1/agents/{agent_id}/archival-memory",
		"GET /v1/agents/{agent_id}/archival-memory/search", "DELETE /v1/agents/{agent_id}/archival-memory/{memory_id}",
		"* /v1/passages/{path...}",
	}},
	{"Folders and files" + later, []string{
		"* /v1/folders", "* /v1/folders/{path...}", "* /v1/sources", "* /v1/sources/{path...}",
		"GET /v1/agents/{agent_id}/files", "PATCH /v1/agents/{agent_id}/files/close-all",
		"PATCH /v1/agents/{agent_id}/files/{file_id}/open", "PATCH /v1/agents/{agent_id}/files/{file_id}/close",
		"GET /v1/agents/{agent_id}/folders", "PATCH /v1/agents/{agent_id}/folders/attach/{folder_id}",
		"PATCH /v1/agents/{agent_id}/folders/detach/{folder_id}", "GET /v1/agents/{agent_id}/sources",
		"PATCH /v1/agents/{agent_id}/sources/attach/{source_id}", "PATCH /v1/agents/{agent_id}/sources/detach/{source_id}",
	}},
	{"Identities" + later, []string{
		"* /v1/identities", "* /v1/identities/{path...}", "PATCH /v1/agents/{agent_id}/identities/attach/{identity_id}",
		"PATCH /v1/agents/{agent_id}/identities/detach/{identity_id}", "PATCH /v1/blocks/{block_id}/identities/attach/{identity_id}",
		"PATCH /v1/blocks/{block_id}/identities/detach/{identity_id}",
	}},
	{"Tools of one's own" + later, []string{
		"* /v1/tools", "* /v1/tools/{path...}", "POST /v1/tools/add-base-tools", "GET /v1/agents/{agent_id}/tools",
		"PATCH /v1/agents/{agent_id}/tools/attach/{tool_id}", "PATCH /v1/agents/{agent_id}/tools/detach/{tool_id}",
		"PATCH /v1/agents/{agent_id}/tools/approval/{tool_name}", "POST /v1/agents/{agent_id}/tools/{tool_name}/run",
	}},
	{"Remote MCP servers" + later, []string{
		"* /v1/mcp-servers", "* /v1/mcp-servers/{path...}", "GET /v1/agents/{agent_id}/mcp-servers",
	}},
	{"Export and import of agents" + later, []string{
		"GET /v1/agents/{agent_id}/export", "POST /v1/agents/{agent_id}/export", "POST /v1/agents/import",
	}},
	{"Secrets and repositories of an agent as resources of their own" + later, []string{
		"GET /v1/agents/{agent_id}/secrets", "PUT /v1/agents/{agent_id}/secrets", "GET /v1/agents/{agent_id}/repositories",
	}},
	{"Lists of tags" + later, []string{"GET /v1/tags"}},
	{"Counts" + later, []string{"GET /v1/agents/count", "GET /v1/blocks/count"}},
	{"Views of an agent's whole context" + later, []string{
		"GET /v1/agents/{agent_id}/context", "GET /v1/agents/{agent_id}/core-memory",
	}},
	{"Previews of the provider's request and raw completions" + later, []string{
		"POST /v1/agents/{agent_id}/messages/preview-raw-payload", "POST /v1/conversations/{conversation_id}/messages/preview-raw-payload",
		"POST /v1/agents/{agent_id}/generate",
	}},
	{"Searches over the messages of one route" + later, []string{"POST /v1/agents/messages/search"}},
	{"Deletion, metrics and the old list of active runs" + later, []string{
		"GET /v1/runs/active", "GET /v1/runs/{run_id}/metrics", "DELETE /v1/runs/{run_id}",
	}},
	{"Groups of agents" + later, []string{"* /v1/groups", "* /v1/groups/{path...}", "GET /v1/agents/{agent_id}/groups"}},
	{"Jobs and batches of messages" + later, []string{
		"* /v1/jobs", "* /v1/jobs/{path...}", "* /v1/messages/batches", "* /v1/messages/batches/{path...}",
	}},
	{"Providers as a resource: connect them with the command `mneme connect`; they" + later, []string{"* /v1/providers", "* /v1/providers/{path...}"}},
	{"Client-side access tokens" + hosted, []string{
		"POST /v1/client-side-access-tokens", "GET /v1/client-side-access-tokens", "DELETE /v1/client-side-access-tokens/{token}",
	}},
	{"Schedules of an agent" + hosted, []string{
		"POST /v1/agents/{agent_id}/schedule", "GET /v1/agents/{agent_id}/schedule",
		"GET /v1/agents/{agent_id}/schedule/{scheduled_message_id}", "DELETE /v1/agents/{agent_id}/schedule/{scheduled_message_id}",
	}},
	{"Templates" + hosted, []string{"* /v1/templates", "* /v1/templates/{path...}"}},
	{"Messages to environments" + hosted, []string{"POST /v1/environments/{connection_id}/messages"}},
}

// lackRoutes are the rows of what is not built.
func lackRoutes() []route {
	var out []route
	for _, l := range lacks {
		for _, r := range l.routes {
			method, path, _ := strings.Cut(r, " ")
			out = append(out, route{method: method, path: path, doc: doc{summary: l.text}})
		}
	}
	return out
}

// notBuilt answers for a route that is known but not offered.
func notBuilt(rt *route) error {
	if tolerated[rt.method+" "+rt.path] {
		return &httpError{Status: http.StatusNotFound, Body: detail{"Not Found"}}
	}
	return &httpError{Status: http.StatusNotImplemented, Body: detail{rt.doc.summary}, Final: true}
}

// environmentRoutes stand for the list of machines that the hosted service keeps:
// here there is none.
var environmentRoutes = []route{
	{"GET", "/v1/environments", (*Door).listEnvironments, doc{summary: "List environments: there are none", answer: environments{}}},
	{"GET", "/v1/environments/{device_id}", (*Door).getEnvironment, doc{summary: "Show an environment: there are none", answer: environments{}}},
}

// An environments is an empty list in the form that clients expect.
type environments struct {
	Connections []none `json:"connections"`
	More        bool   `json:"hasNextPage"`
}

func (d *Door) listEnvironments(w http.ResponseWriter, _ *http.Request) error {
	return reply(w, environments{Connections: []none{}})
}

func (d *Door) getEnvironment(_ http.ResponseWriter, r *http.Request) error {
	return notFound("Environment %s not found", quoted(r.PathValue("device_id")))
}
