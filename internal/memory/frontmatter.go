package memory

import (
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"
)

// maxFront bounds the front matter of a file, in bytes. What is longer is text.
const maxFront = 16 << 10

// A Doc is a Markdown file split in front matter and body. ParseDoc and String
// are exact inverses, whatever the bytes.
type Doc struct {
	open  string // the "---" line with its end, "" = no front matter
	front string // the lines between
	close string
	// fields is front, decoded; nil = no front matter.
	fields map[string]any

	Body string // byte for byte what follows the closing line
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
			fields, valid := decodeFront(rest[:at])
			if !valid && len(fields) == 0 {
				break // neither keys nor nothing
			}
			return Doc{open: open, front: rest[:at], close: fence, fields: fields, Body: body}
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

// Fields is the decoded front matter; nil = there is none. Do not change it.
func (d Doc) Fields() map[string]any { return d.fields }

// decodeFront decodes front matter. Text that is not valid YAML, such as an
// unquoted value with a colon, is read line by line instead: agents write it by
// hand.
func decodeFront(front string) (fields map[string]any, valid bool) {
	if fields, valid = decodeYAML(front); valid {
		return fields, true
	}
	fields = map[string]any{}
	for line := range strings.Lines(front) {
		if m := plainLine.FindStringSubmatch(strings.TrimRight(line, "\r\n")); m != nil {
			fields[m[1]] = unquote(strings.TrimSpace(m[2]))
		}
	}
	return fields, false
}

var plainLine = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_-]*)[ \t]*:(?:[ \t]+(.*))?$`)

// unquote drops one pair of quotes.
func unquote(s string) string {
	if len(s) >= 2 && (s[0] == '"' || s[0] == '\'') && s[len(s)-1] == s[0] {
		return s[1 : len(s)-1]
	}
	return s
}

// decodeYAML reads a mapping; ok is false for anything else, and for what front
// matter has no use for: doubled keys, anchors, deep nesting.
func decodeYAML(text string) (fields map[string]any, ok bool) {
	var node yaml.Node
	if err := yaml.Unmarshal([]byte(text), &node); err != nil {
		return nil, false
	}
	if node.Kind == 0 {
		return map[string]any{}, true // blank or comments only
	}
	value, ok := plainValue(node.Content[0], 0)
	fields, isMap := value.(map[string]any)
	return fields, ok && isMap
}

// plainValue turns a node into Go values. The decoder of the library takes time
// that grows with the square of the keys, which a file must not cost us.
func plainValue(n *yaml.Node, depth int) (value any, ok bool) {
	if depth > 20 || n.Anchor != "" {
		return nil, false
	}
	switch n.Kind {
	case yaml.ScalarNode:
		err := n.Decode(&value)
		return value, err == nil
	case yaml.SequenceNode:
		list := make([]any, len(n.Content))
		for i, item := range n.Content {
			if list[i], ok = plainValue(item, depth+1); !ok {
				return nil, false
			}
		}
		return list, true
	case yaml.MappingNode:
		fields := make(map[string]any, len(n.Content)/2)
		for i := 0; i+1 < len(n.Content); i += 2 {
			key := n.Content[i]
			if _, twice := fields[key.Value]; twice || key.Kind != yaml.ScalarNode {
				return nil, false
			}
			if fields[key.Value], ok = plainValue(n.Content[i+1], depth+1); !ok {
				return nil, false
			}
		}
		return fields, true
	}
	return nil, false
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
		var err error
		if entry, err = encodeYAML(map[string]any{key: value}); err != nil {
			return fmt.Errorf("front matter %s: %w", key, err)
		}
	}
	before, valid := decodeFront(d.front)
	edited := replaceKey(d.front, key, entry)
	if valid && !sameBut(before, edited, key, value) {
		// A layout that lines do not show, such as {a: 1}: write it anew.
		if value == nil {
			delete(before, key)
		} else {
			before[key] = value
		}
		var err error
		if edited, err = encodeYAML(before); err != nil {
			return fmt.Errorf("front matter %s: %w", key, err)
		}
	}
	d.front = edited
	d.fields, _ = decodeFront(edited)
	return nil
}

// encodeYAML writes a mapping, sorted by key; "" if it is empty.
func encodeYAML(fields map[string]any) (string, error) {
	if len(fields) == 0 {
		return "", nil
	}
	node, err := yamlNode(fields)
	if err != nil {
		return "", err
	}
	out, err := yaml.Marshal(node)
	return string(out), err
}

// yamlNode is a value as YAML. Texts of more than one line are written in double
// quotes: a block would depend on indentation, which hands get wrong.
func yamlNode(value any) (*yaml.Node, error) {
	node := &yaml.Node{}
	switch v := value.(type) {
	case string:
		v = strings.ToValidUTF8(v, "\uFFFD")
		node.SetString(v)
		if strings.ContainsFunc(v, unicode.IsControl) {
			node.Style = yaml.DoubleQuotedStyle
		}
		return node, nil
	case []string:
		list := make([]any, len(v))
		for i, s := range v {
			list[i] = s
		}
		return yamlNode(list)
	case []any:
		node.Kind = yaml.SequenceNode
		for _, item := range v {
			child, err := yamlNode(item)
			if err != nil {
				return nil, err
			}
			node.Content = append(node.Content, child)
		}
		return node, nil
	case map[string]any:
		node.Kind = yaml.MappingNode
		for _, key := range slices.Sorted(maps.Keys(v)) {
			name, err := yamlNode(key)
			if err != nil {
				return nil, err
			}
			child, err := yamlNode(v[key])
			if err != nil {
				return nil, err
			}
			node.Content = append(node.Content, name, child)
		}
		return node, nil
	}
	return node, node.Encode(value)
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
