package transcript

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"mneme/protocol"
)

// A normalizer replaces what differs between runs by placeholders, and back.
type normalizer struct {
	dir    string
	names  map[string]string // value -> placeholder
	values map[string]string // placeholder -> value
	count  map[string]int    // by kind
}

func newNormalizer(dir string) *normalizer {
	n := &normalizer{dir: dir, names: map[string]string{}, values: map[string]string{}, count: map[string]int{}}
	n.values["<dir>"] = dir
	return n
}

var (
	idRE    = regexp.MustCompile(`\b(?:([a-z]+(?:-[a-z]+)*)-)?[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b`)
	timeRE  = regexp.MustCompile(`\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)`)
	epochRE = regexp.MustCompile(`\b1[5-9]\d{11}\b`)
	shaRE   = regexp.MustCompile(`\b[0-9a-f]{40}\b`)
	placeRE = regexp.MustCompile(`<[a-z-]+(:\d+)?>`)
	runsRE  = regexp.MustCompile(`"client_message_ids_by_run_id":\{("[^}]*)\}`)
	runRE   = regexp.MustCompile(`"<step:(\d+)>":\[[^\]]*\]`)
	tailRE  = regexp.MustCompile(`,"event_seq":\d+,"emitted_at":"[^"]*","idempotency_key":"[^"]*"}$`)
)

// frame shows a received frame.
func (n *normalizer) frame(data string) string {
	data = tailRE.ReplaceAllString(data, "}")
	data = strings.ReplaceAll(data, n.dir, "<dir>")
	data = idRE.ReplaceAllStringFunc(data, func(id string) string {
		return n.name(idRE.FindStringSubmatch(id)[1], id)
	})
	data = timeRE.ReplaceAllString(data, "<time>")
	data = epochRE.ReplaceAllString(data, `"<time>"`)
	data = shaRE.ReplaceAllStringFunc(data, func(sha string) string { return n.name("sha", sha) })
	return runsRE.ReplaceAllStringFunc(data, sortRuns)
}

// sortRuns brings the keys of client_message_ids_by_run_id, which are sorted by
// random ids, into the order of their placeholders.
func sortRuns(object string) string {
	number := func(entry string) int {
		n, _ := strconv.Atoi(runRE.FindStringSubmatch(entry)[1])
		return n
	}
	entries := runRE.FindAllString(object, -1)
	slices.SortFunc(entries, func(a, b string) int { return number(a) - number(b) })
	head, _, _ := strings.Cut(object, "{")
	return head + "{" + strings.Join(entries, ",") + "}"
}

func (n *normalizer) name(kind, value string) string {
	if n.names[value] == "" {
		if kind == "" {
			kind = "uuid"
		}
		n.count[kind]++
		name := fmt.Sprintf("<%s:%d>", kind, n.count[kind])
		n.names[value], n.values[name] = name, value
	}
	return n.names[value]
}

// sent puts values in for the placeholders of what is sent.
func (n *normalizer) sent(text string) (string, error) {
	var unknown error
	out := placeRE.ReplaceAllStringFunc(text, func(p string) string {
		v, ok := n.values[p]
		if !ok {
			unknown = fmt.Errorf("nothing is called %s yet", p)
		}
		return v
	})
	return out, unknown
}

// deviceKeys are what is shown of a device status.
var deviceKeys = []string{"is_processing", "current_permission_mode", "current_working_directory", "current_toolset",
	"current_toolset_preference", "current_loaded_tools", "background_processes", "pending_control_requests"}

// cutDevice cuts a device status to what changes.
func cutDevice(data string) (string, error) {
	var f struct {
		Type    string                     `json:"type"`
		Status  map[string]json.RawMessage `json:"device_status"`
		Runtime json.RawMessage            `json:"runtime"`
	}
	if err := json.Unmarshal([]byte(data), &f); err != nil || f.Type != "update_device_status" {
		return data, err
	}
	var b strings.Builder
	fmt.Fprintf(&b, `{"type":%q,"device_status":{`, f.Type)
	for i, k := range deviceKeys {
		v, ok := f.Status[k]
		if !ok {
			return "", fmt.Errorf("device status has no %s", k)
		}
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "%q:%s", k, v)
	}
	fmt.Fprintf(&b, `},"runtime":%s}`, f.Runtime)
	return b.String(), nil
}

// An envelope checks what the server stamps on the events of one connection.
type envelope struct{ seq int64 }

// bare events have no envelope.
var bare = []string{"external_tool_call_request", "memory_updated", "agents_changed", "conversations_changed", "error"}

func (e *envelope) check(data string) error {
	ev, err := protocol.DecodeEvent([]byte(data))
	if err != nil {
		return err
	}
	if ev.Body == nil || slices.Contains(bare, ev.Type) {
		if ev.Seq != 0 {
			return fmt.Errorf("%s has an envelope", ev.Type)
		}
		return nil
	}
	e.seq++
	if ev.Seq != e.seq {
		return fmt.Errorf("%s has event_seq %d, want %d", ev.Type, ev.Seq, e.seq)
	}
	prefix := fmt.Sprintf("%s:%d:", ev.Type, ev.Seq)
	if id, ok := strings.CutPrefix(ev.Key, prefix); !ok || idRE.FindString(id) != id {
		return fmt.Errorf("idempotency_key %q does not begin with %s and end in an id", ev.Key, prefix)
	}
	if ev.EmittedAt.IsZero() {
		return fmt.Errorf("%s has no emitted_at", ev.Type)
	}
	return nil
}
