package prompt

import (
	"fmt"
	"slices"
	"strings"

	"mneme/internal/memory"
)

// MemoryNotice tells the model, in the middle of a conversation, of the memory
// as it is now. before is the memory it was last told of: only what differs is
// shown then. before nil means that this is not known: all core memory is shown.
// "" if nothing that the model sees has changed.
func MemoryNotice(before, now *memory.Snapshot) string {
	if now == nil {
		now = &memory.Snapshot{}
	}
	var body string
	if before == nil {
		if body = projection(now); body == "" {
			body = "Your memory is empty now."
		}
	} else if body = changes(before, now); body == "" {
		return ""
	}
	var b strings.Builder
	b.WriteString("<memory_update>\n")
	fmt.Fprintf(&b, "Your memory changed after this conversation began; it is now at revision %s. ", revision(now))
	b.WriteString("Where what follows differs from what you were shown earlier, the newer holds.\n\n")
	b.WriteString(body)
	b.WriteString("\n</memory_update>")
	return b.String()
}

func revision(s *memory.Snapshot) string {
	if s.Commit == "" {
		return "none"
	}
	return s.Commit[:min(len(s.Commit), 12)]
}

// changes shows the core files that differ in full, and names the other files
// that came or went.
func changes(before, now *memory.Snapshot) string {
	var gone, added, removed []string
	shown := map[string]bool{}
	changed := &memory.Snapshot{Commit: now.Commit}
	for _, f := range now.Files {
		if f.Kind != memory.KindMarkdown || strings.HasPrefix(f.Path, "skills/") {
			continue
		}
		shown[f.Path] = true
		old := before.File(f.Path)
		switch {
		case f.Label() != "" && (old == nil || old.Blob != f.Blob):
			changed.Files = append(changed.Files, f)
		case f.Label() == "" && old == nil:
			added = append(added, f.Path)
		}
	}
	for _, f := range before.Files {
		switch {
		case f.Kind != memory.KindMarkdown, strings.HasPrefix(f.Path, "skills/"), shown[f.Path]:
		case f.Label() != "":
			gone = append(gone, f.Path)
		default:
			removed = append(removed, f.Path)
		}
	}
	parts := []string{
		projection(changed),
		list("No longer in your memory:", gone),
		list("New files outside system/:", added),
		list("Files outside system/ that are gone:", removed),
	}
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), "\n\n")
}

// list is paths below a heading, the first of them if they are many; "" for none.
func list(heading string, paths []string) string {
	if len(paths) == 0 {
		return ""
	}
	lines := []string{heading}
	for _, p := range paths[:min(len(paths), maxSaved)] {
		lines = append(lines, "- $MEMORY_DIR/"+p)
	}
	if more := len(paths) - maxSaved; more > 0 {
		lines = append(lines, fmt.Sprintf("- … %d more, search them", more))
	}
	return strings.Join(lines, "\n")
}
