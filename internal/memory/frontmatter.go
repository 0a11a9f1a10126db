package memory

import (
	"fmt"
	"reflect"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxFront bounds the front matter of a file, in bytes. What is longer is text.
const maxFront = 64 << 10

// A Doc is a Markdown file split in front matter and body. ParseDoc and String
// are exact inverses, whatever the bytes.
type Doc struct {
	open  string // the "---" line with its end, "" = no front matter
	front string // the lines between
	close string
	Body  string // byte for byte what follows the closing line
}

// ParseDoc splits a file. A block between two "---" lines at the start is front
// matter if it is empty or holds keys; otherwise the file is all body.
func ParseDoc(text string) Doc {
	open, rest, ok := cutFence(text)
	if !ok {
		return Doc{Body: text}
	}
	for at := 0; at <= len(rest) && at <= maxFront; {
		if fence, body, ok := cutFence(rest[at:]); ok {
			d := Doc{open: open, front: rest[:at], close: fence, Body: body}
			if _, valid := decodeYAML(d.front); !valid && len(d.Fields()) == 0 {
				break // neither keys nor nothing
			}
			return d
		}
		next := strings.IndexByte(rest[at:], '\n')
		if next < 0 {
			break
		}
		at += next + 1
	}
	return Doc{Body: text}
}

// cutFence cuts a "---" line off the start of s.
func cutFence(s string) (fence, rest string, ok bool) {
	line, _, found := strings.Cut(s, "\n")
	n := len(line)
	if found {
		n++
	}
	if strings.TrimRight(line, "\r") != "---" {
		return "", "", false
	}
	return s[:n], s[n:], true
}

// String is the file's text.
func (d Doc) String() string {
	if d.open == "" {
		if _, _, fenced := cutFence(d.Body); fenced && ParseDoc(d.Body).open != "" {
			return "---\n---\n" + d.Body // the body must not be read as front matter
		}
		return d.Body
	}
	if d.Body != "" && !strings.HasSuffix(d.close, "\n") {
		return d.open + d.front + d.close + "\n" + d.Body
	}
	return d.open + d.front + d.close + d.Body
}

// Fields decodes the front matter. Text that is not valid YAML, such as an
// unquoted value with a colon, is read line by line instead: agents write it by
// hand. nil = no front matter.
func (d Doc) Fields() map[string]any {
	if d.open == "" {
		return nil
	}
	if fields, ok := decodeYAML(d.front); ok {
		return fields
	}
	fields := map[string]any{}
	for line := range strings.Lines(d.front) {
		if m := plainLine.FindStringSubmatch(strings.TrimRight(line, "\r\n")); m != nil {
			fields[m[1]] = unquote(strings.TrimSpace(m[2]))
		}
	}
	return fields
}

var plainLine = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_-]*)[ \t]*:(?:[ \t]+(.*))?$`)

// unquote drops one pair of quotes.
func unquote(s string) string {
	if len(s) >= 2 && (s[0] == '"' || s[0] == '\'') && s[len(s)-1] == s[0] {
		return s[1 : len(s)-1]
	}
	return s
}

// decodeYAML reads a mapping without doubled keys; ok is false for anything else.
func decodeYAML(text string) (fields map[string]any, ok bool) {
	var node yaml.Node
	if err := yaml.Unmarshal([]byte(text), &node); err != nil {
		return nil, false
	}
	fields = map[string]any{}
	if node.Kind == 0 {
		return fields, true // blank or comments only
	}
	root := node.Content[0]
	if root.Kind != yaml.MappingNode {
		return nil, false
	}
	for i := 0; i+1 < len(root.Content); i += 2 {
		var v any
		if _, twice := fields[root.Content[i].Value]; twice {
			return nil, false
		}
		if err := root.Content[i+1].Decode(&v); err != nil {
			return nil, false
		}
		fields[root.Content[i].Value] = v
	}
	return fields, true
}

// Set gives a key of the front matter a value (string, bool, int or []string);
// nil removes it. All other lines stay as they are.
func (d *Doc) Set(key string, value any) error {
	if d.open == "" {
		if value == nil {
			return nil
		}
		d.open, d.close = "---\n", "---\n"
	}
	entry := ""
	if value != nil {
		if s, ok := value.(string); ok {
			value = strings.ToValidUTF8(s, "\uFFFD")
		}
		out, err := yaml.Marshal(map[string]any{key: value})
		if err != nil {
			return fmt.Errorf("front matter %s: %w", key, err)
		}
		entry = string(out)
	}
	before, valid := decodeYAML(d.front)
	edited := replaceKey(d.front, key, entry)
	if valid && !sameBut(before, edited, key, value) {
		// A layout that lines do not show, such as {a: 1}: write it anew.
		if value == nil {
			delete(before, key)
		} else {
			before[key] = value
		}
		out, err := yaml.Marshal(before)
		if err != nil {
			return fmt.Errorf("front matter %s: %w", key, err)
		}
		edited = string(out)
		if len(before) == 0 {
			edited = ""
		}
	}
	d.front = edited
	return nil
}

// replaceKey replaces a key's lines, or adds them at the end.
func replaceKey(front, key, entry string) string {
	var out strings.Builder
	skipping, done := false, false
	for line := range strings.Lines(front) {
		continues := line[0] == ' ' || line[0] == '\t' || line[0] == '-' || strings.TrimSpace(line) == ""
		skipping = skipping && continues
		if m := plainLine.FindStringSubmatch(strings.TrimRight(line, "\r\n")); m != nil && m[1] == key {
			skipping = true
			if !done {
				out.WriteString(entry)
			}
			done = true
		}
		if !skipping {
			out.WriteString(line)
		}
	}
	if !done {
		if s := out.String(); s != "" && !strings.HasSuffix(s, "\n") {
			out.WriteByte('\n')
		}
		out.WriteString(entry)
	}
	return out.String()
}

// sameBut checks an edit: key has the value, all others are untouched.
func sameBut(before map[string]any, edited, key string, value any) bool {
	for line := range strings.Lines(edited) {
		if _, _, fence := cutFence(line); fence {
			return false // it would end the front matter
		}
	}
	after, ok := decodeYAML(edited)
	if !ok {
		return false
	}
	got, has := after[key]
	if has != (value != nil) {
		return false
	}
	if list, ok := value.([]string); ok {
		boxed := make([]any, len(list))
		for i, s := range list {
			boxed[i] = s
		}
		value = boxed
	}
	if has && !reflect.DeepEqual(got, value) {
		return false
	}
	delete(after, key)
	for k, v := range before {
		if k != key && !reflect.DeepEqual(after[k], v) {
			return false
		}
		delete(after, k)
	}
	return len(after) == 0
}
