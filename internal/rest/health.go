package rest

import (
	"net/http"
	"strings"
)

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
	return reply(w, healthAnswer{Version: semver(d.version), Status: "ok"})
}

// semver makes a version that clients can compare: one that was not stamped comes
// before all others.
func semver(version string) string {
	version = strings.TrimPrefix(version, "v")
	if version == "" || version[0] < '0' || version[0] > '9' {
		return "0.0.0-devel"
	}
	return version
}
