package rest

import "net/http"

var healthRoutes = []route{
	{"GET", "/v1/health", (*Door).health, doc{summary: "Health of the server", answer: healthAnswer{}, open: true}},
	{"GET", "/v1/ready", (*Door).health, doc{summary: "Readiness of the server", answer: healthAnswer{}, open: true}},
}

// A healthAnswer says that the server is there.
type healthAnswer struct {
	Version string `json:"version"`
	Status  string `json:"status"`
}

func (d *Door) health(w http.ResponseWriter, _ *http.Request) error {
	return reply(w, healthAnswer{Version: d.version, Status: "ok"})
}
