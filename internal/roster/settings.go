package roster

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"mneme/internal/agent"
)

// Auto is the stored model of an agent that follows the configured default.
const Auto = "auto"

// The keys of model settings that have a field of their own in requests.
const (
	keyMaxTokens    = "max_tokens"
	keyParallel     = "parallel_tool_calls"
	keyContextLimit = "context_window_limit"
	keyProvider     = "provider_type"
)

// storedModel is the handle to store for what a client asked for.
func storedModel(handle string) string {
	handle = strings.TrimSpace(handle)
	if handle == "" || handle == Auto || strings.HasPrefix(handle, "letta/") {
		return Auto
	}
	return handle
}

// parseSettings reads a settings object; nil, null and empty give an empty map.
func parseSettings(raw json.RawMessage) (map[string]json.RawMessage, error) {
	settings := map[string]json.RawMessage{}
	if len(raw) == 0 {
		return settings, nil
	}
	if err := json.Unmarshal(raw, &settings); err != nil {
		return nil, agent.Invalid("model_settings", "model_settings must be an object")
	}
	if settings == nil { // null
		settings = map[string]json.RawMessage{}
	}
	return settings, nil
}

// merge lays over on top of base; a null value removes its key.
func merge(base, over map[string]json.RawMessage) map[string]json.RawMessage {
	out := maps.Clone(base)
	if out == nil {
		out = map[string]json.RawMessage{}
	}
	for k, v := range over {
		if isNull(v) {
			delete(out, k)
		} else {
			out[k] = v
		}
	}
	return out
}

// put sets the settings that have a field of their own: zero and nil leave
// what is there.
func put(settings map[string]json.RawMessage, maxTokens int, parallel *bool) {
	if maxTokens > 0 {
		settings[keyMaxTokens] = fmt.Append(nil, maxTokens)
	}
	if parallel != nil {
		settings[keyParallel] = fmt.Append(nil, *parallel)
	}
}

// takeContextLimit moves the context limit out of the settings: it is stored in
// a field of its own and nowhere else. ok is false if they hold none.
func takeContextLimit(settings map[string]json.RawMessage) (limit int, ok bool) {
	raw, found := settings[keyContextLimit]
	delete(settings, keyContextLimit)
	if !found || json.Unmarshal(raw, &limit) != nil || limit < 0 {
		return 0, false
	}
	return limit, true
}

// encode writes settings with sorted keys.
func encode(settings map[string]json.RawMessage) (json.RawMessage, error) {
	for k, v := range settings {
		if !json.Valid(v) {
			return nil, agent.Invalid("model_settings", "model_settings.%s is not valid JSON", k)
		}
	}
	return json.Marshal(settings)
}

func isNull(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

// compactionModes that can be stored: the first two are what the App Server
// accepts, all of them what REST does.
var compactionModes = []string{"all", "sliding_window", "self_compact_all", "self_compact_sliding_window"}

// checkCompaction normalises compaction settings; null becomes nil.
func checkCompaction(raw json.RawMessage, anyMode bool) (json.RawMessage, error) {
	if isNull(raw) {
		return nil, nil
	}
	var settings map[string]json.RawMessage
	if err := json.Unmarshal(raw, &settings); err != nil {
		return nil, agent.Invalid("compaction_settings", "compaction_settings must be an object")
	}
	mode, ok := settings["mode"]
	if !ok || isNull(mode) {
		return raw, nil
	}
	var name string
	if err := json.Unmarshal(mode, &name); err != nil {
		name = string(mode)
	}
	modes := compactionModes[:2]
	if anyMode {
		modes = compactionModes
	}
	if slices.Contains(modes, name) {
		return raw, nil
	}
	if anyMode {
		return nil, agent.Invalid("compaction_settings", "compaction_settings.mode must be one of %s (received %q)",
			strings.Join(modes, ", "), name)
	}
	return nil, agent.Invalid("compaction_settings",
		`Local backend compaction currently supports only modes "all" and "sliding_window" (received "%s").`, name)
}
