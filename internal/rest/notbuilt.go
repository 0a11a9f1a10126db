package rest

// tolerated are the routes that the official command line takes for optional: they
// are 404 as long as they are not built (spec/rest.md section 2.10).
var tolerated = map[string]bool{
	"POST /v1/tools/add-base-tools":          true,
	"GET /v1/agents/{agent_id}/secrets":      true,
	"PUT /v1/agents/{agent_id}/secrets":      true,
	"GET /v1/agents/{agent_id}/mcp-servers":  true,
	"GET /v1/agents/{agent_id}/repositories": true,
}

// notBuiltRoutes are known and not offered.
var notBuiltRoutes = []route{}
