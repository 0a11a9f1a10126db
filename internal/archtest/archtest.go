// Package archtest keeps the import direction of docs/architecture.md
// ("Packages"): a test reads the imports of every package of the module and
// compares them with the tables here.
//
// A unit is a package with those below it: internal/llm/fake belongs to
// internal/llm, cmd/mneme to cmd. Each unit may import the units of its row,
// and internal/agent, which imports the standard library only. A unit without
// a row fails: a new one enters docs/architecture.md first and then the table.
//
// Three more rules follow from the design. The heart knows no door, so runtime
// has no HTTP and no WebSocket. A library that one package is there to hide is
// imported by that package only. Packages made for tests are imported by tests
// and by each other.
//
// Imports of _test.go files are free: tests may look at everything.
package archtest

import (
	"fmt"
	"slices"
	"strings"
)

const module = "mneme"

// doorsMay is what every door may import.
var doorsMay = []string{"roster", "runtime", "store", "memory", "prompt", "skill", "workspace", "sandbox", "tool", "llm", "auth", "protocol"}

// doors never import each other; server passes one to another where needed.
var doors = []string{"appserver", "rest", "openai", "mcpserver", "schedule", "channel"}

// table is who may import whom. Units below internal/ go by their name.
var table = map[string][]string{
	"cmd":       {"server", "client", "importer", "protocol"}, // client's answers are protocol's types
	"server":    slices.Concat(doors, doorsMay, []string{"bus", "telemetry"}),
	"appserver": doorsMay,
	"rest":      doorsMay,
	"openai":    doorsMay,
	"mcpserver": append(slices.Clone(doorsMay), "client"),
	"schedule":  doorsMay,
	"channel":   doorsMay,
	"roster":    {"runtime", "memory", "store", "llm"},
	"runtime":   {"prompt", "tool", "llm", "store", "bus"},
	"prompt":    {"memory", "skill", "llm"},
	"tool":      {"sandbox", "workspace", "memory", "skill"},
	"memory":    {"store"},
	"skill":     {"store"},
	"importer":  {"roster", "store", "memory"},
	"client":    {"protocol"},

	"agent": {}, "auth": {}, "bus": {}, "llm": {}, "protocol": {}, "sandbox": {}, "store": {},
	"telemetry": {}, "workspace": {},
}

// forTests are the packages made for tests, with those below them. They may
// import anything and are imported by tests and each other only.
var forTests = []string{"internal/archtest", "internal/llm/fake", "internal/store/storetest", "internal/transcript", "test"}

// owners are the libraries, with those below them, that only some units import.
var owners = map[string][]string{
	"charm.land":                 {"llm"},
	"github.com/coder/websocket": {"appserver", "client"},
	"github.com/jackc/pgx":       {"store"},
	"github.com/pressly/goose":   {"store"},
	"modernc.org/sqlite":         {"store"},
	"mvdan.cc/sh":                {"tool"},
}

// Package is one package as `go list` describes it.
type Package struct {
	ImportPath string
	Imports    []string
}

// unit is the part of the design that a package of the module belongs to.
func unit(path string) string {
	path = strings.TrimPrefix(strings.TrimPrefix(path, module+"/"), "internal/")
	name, _, _ := strings.Cut(path, "/")
	return name
}

func ours(path string) bool { return within(path, module) }

func within(path, parent string) bool {
	return path == parent || strings.HasPrefix(path, parent+"/")
}

func madeForTests(path string) bool {
	return slices.ContainsFunc(forTests, func(p string) bool { return within(path, module+"/"+p) })
}

// standard says whether the path belongs to the standard library, whose first
// element never has a dot.
func standard(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return !strings.Contains(first, ".") && !ours(path)
}

// Violations are the imports that the design does not allow, one sentence each.
func Violations(packages []Package) (out []string) {
	for _, p := range packages {
		if p.ImportPath == module || madeForTests(p.ImportPath) {
			continue
		}
		may, known := table[unit(p.ImportPath)]
		if !known {
			out = append(out, fmt.Sprintf("%s is in no row of the table in internal/archtest: put it into docs/architecture.md, then there", p.ImportPath))
			continue
		}
		for _, i := range p.Imports {
			if why := forbidden(p.ImportPath, i, may); why != "" {
				out = append(out, fmt.Sprintf("%s imports %s: %s", p.ImportPath, i, why))
			}
		}
	}
	return out
}

// forbidden says why the package may not import the path, or nothing.
func forbidden(from, path string, may []string) string {
	u := unit(from)
	if !ours(path) {
		if u == "agent" && !standard(path) {
			return "agent imports the standard library only"
		}
		return owned(u, path)
	}
	switch to := unit(path); {
	case madeForTests(path):
		return "that package is for tests"
	case to == u || to == "agent" || slices.Contains(may, to):
		return ""
	case slices.Contains(doors, u) && slices.Contains(doors, to):
		return "doors never import each other"
	case len(may) == 0:
		return u + " may import agent only"
	default:
		return fmt.Sprintf("%s may import %s", u, strings.Join(slices.Sorted(slices.Values(append([]string{"agent"}, may...))), ", "))
	}
}

// owned says why the unit may not import a library, or nothing.
func owned(unit, path string) string {
	if unit == "runtime" && within(path, "net/http") {
		return "runtime has no HTTP"
	}
	for library, who := range owners {
		if within(path, library) && !slices.Contains(who, unit) {
			return "only " + strings.Join(who, " and ") + " may"
		}
	}
	return ""
}
