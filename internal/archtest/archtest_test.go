package archtest_test

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"strings"
	"testing"

	"mneme/internal/archtest"
)

// packages are all packages of the module, as `go list` sees them.
func packages(t *testing.T) (all []archtest.Package) {
	t.Helper()
	// -e: what does not compile fails elsewhere, and still has imports.
	cmd := exec.Command("go", "list", "-e", "-json=ImportPath,Imports", "mneme/...")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v: %s", err, stderr.String())
	}
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p archtest.Package
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

func TestImportDirection(t *testing.T) {
	all := packages(t)
	if len(all) < 5 {
		t.Fatalf("go list found only %d packages", len(all))
	}
	for _, v := range archtest.Violations(all) {
		t.Error(v)
	}
}

func TestViolationsAreFound(t *testing.T) {
	for _, c := range []struct {
		from, to string
		want     string // part of the violation; none if empty
	}{
		{"mneme/internal/appserver", "mneme/internal/runtime", ""},
		{"mneme/internal/appserver", "mneme/internal/agent", ""},
		{"mneme/internal/appserver", "mneme/internal/rest", "doors never import each other"},
		{"mneme/internal/runtime", "mneme/internal/appserver", "runtime may import agent, bus, llm, prompt, store, tool"},
		{"mneme/internal/runtime", "mneme/internal/memory", "runtime may import"},
		{"mneme/internal/runtime", "net/http", "runtime has no HTTP"},
		{"mneme/internal/runtime", "net/http/httptest", "runtime has no HTTP"},
		{"mneme/internal/rest", "net/http", ""},
		{"mneme/internal/llm", "net/http", ""},
		{"mneme/internal/runtime", "github.com/coder/websocket", "only appserver and client may"},
		{"mneme/internal/appserver", "github.com/coder/websocket", ""},
		{"mneme/internal/rest", "modernc.org/sqlite/lib", "only store may"},
		{"mneme/internal/rest", "modernc.org/sqlitefoo", ""},
		{"mneme/internal/agent", "github.com/google/uuid", "standard library only"},
		{"mneme/internal/agent", "time", ""},
		{"mneme/internal/agent", "mneme/internal/store", "agent may import agent only"},
		{"mneme/internal/store", "mneme/internal/bus", "store may import agent only"},
		{"mneme/internal/llm/offline", "mneme/internal/llm", ""},
		{"mneme/internal/llm/offline", "mneme/internal/memory", "llm may import agent only"},
		{"mneme/internal/server", "mneme/internal/llm/fake", "is for tests"},
		{"mneme/internal/transcript", "mneme/internal/llm/fake", ""},
		{"mneme/test/bench", "mneme/internal/server", ""},
		{"mneme/cmd/mneme", "mneme/internal/server", ""},
		{"mneme/cmd/mneme", "mneme/internal/runtime", "cmd may import"},
		{"mneme/client", "mneme/protocol", ""},
		{"mneme/client", "mneme/internal/appserver", "client may import"},
		{"mneme/protocol", "mneme/client", "protocol may import agent only"},
		{"mneme/internal/mcpserver", "mneme/client", ""},
		{"mneme/internal/rest", "mneme/client", "rest may import"},
		{"mneme/internal/util", "strings", "internal/util is in no row"},
	} {
		got := strings.Join(archtest.Violations([]archtest.Package{{ImportPath: c.from, Imports: []string{c.to}}}), "\n")
		if (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s -> %s: got %q, want %q", c.from, c.to, got, c.want)
		}
	}
}
