package memory_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"mneme/internal/memory"
)

func TestParseDoc(t *testing.T) {
	for _, tc := range []struct {
		name, text, body string
		fields           map[string]any
	}{
		{"none", "just text\n", "just text\n", nil},
		{"empty", "", "", nil},
		{"plain", "---\ndescription: a\nlimit: 3\n---\nbody", "body", map[string]any{"description": "a", "limit": 3}},
		{"windows", "---\r\ndescription: a\r\n---\r\nbody\r\n", "body\r\n", map[string]any{"description": "a"}},
		{"no body", "---\ndescription: a\n---", "", map[string]any{"description": "a"}},
		{"empty front", "---\n---\nbody", "body", map[string]any{}},
		{"comment only", "---\n# x\n---\nbody", "body", map[string]any{}},
		{"rule in the body", "---\na: 1\n---\none\n---\ntwo", "one\n---\ntwo", map[string]any{"a": 1}},
		{"unclosed", "---\ndescription: a\nbody", "---\ndescription: a\nbody", nil},
		{"two rules", "---\nplain words\n---\nmore", "---\nplain words\n---\nmore", nil},
		{"colon in a value", "---\ndescription: notes: on x\nread_only: true\n---\nb", "b", map[string]any{"description": "notes: on x", "read_only": "true"}},
		{"quoted by hand", "---\ndescription: 'it's'\n---\nb", "b", map[string]any{"description": "it's"}},
		{"list", "---\ntags:\n- x\n- y\n---\nb", "b", map[string]any{"tags": []any{"x", "y"}}},
		{"longer rule", "----\na: 1\n----\n", "----\na: 1\n----\n", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			doc := memory.ParseDoc(tc.text)
			if doc.Body != tc.body {
				t.Errorf("body is %q, want %q", doc.Body, tc.body)
			}
			if diff := cmp.Diff(tc.fields, doc.Fields()); diff != "" {
				t.Errorf("fields (-want +got):\n%s", diff)
			}
			if got := doc.String(); got != tc.text {
				t.Errorf("comes back as %q", got)
			}
		})
	}
}

func TestSetKeepsTheRest(t *testing.T) {
	for _, tc := range []struct {
		name, text, key string
		value           any
		want            string
	}{
		{"add front", "body", "description", "x", "---\ndescription: x\n---\nbody"},
		{"add key", "---\na: 1\n---\nb", "description", "x: y", "---\na: 1\ndescription: 'x: y'\n---\nb"},
		{"replace", "---\n# note\ndescription: old\nother:   kept  # as is\n---\nb", "description", "new", "---\n# note\ndescription: new\nother:   kept  # as is\n---\nb"},
		{"replace many lines", "---\ndescription: |-\n  one\n\n  two\nz: 1\n---\nb", "description", "x", "---\ndescription: x\nz: 1\n---\nb"},
		{"replace a list", "---\ntags:\n- a\n- b\nz: 1\n---\nb", "tags", []string{"c"}, "---\ntags:\n    - c\nz: 1\n---\nb"},
		{"remove", "---\nread_only: true\nz: 1\n---\nb", "read_only", nil, "---\nz: 1\n---\nb"},
		{"remove the last", "---\nread_only: true\n---\nb", "read_only", nil, "---\n---\nb"},
		{"remove from none", "b", "read_only", nil, "b"},
		{"flow style", "---\n{description: a, z: 1}\n---\nb", "description", "x", "---\ndescription: x\nz: 1\n---\nb"},
		{"quoted key", "---\n\"description\": a\nz: 1\n---\nb", "description", "x", "---\ndescription: x\nz: 1\n---\nb"},
		{"by hand", "---\ndescription: a: b\nz: 1\n---\nb", "description", "x", "---\ndescription: x\nz: 1\n---\nb"},
		{"a text like a number", "---\na: 1\n---\nb", "description", "12", "---\na: 1\ndescription: \"12\"\n---\nb"},
		{"no newline at the end", "---\na: 1\n---", "limit", 5, "---\na: 1\nlimit: 5\n---"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			doc := memory.ParseDoc(tc.text)
			if err := doc.Set(tc.key, tc.value); err != nil {
				t.Fatal(err)
			}
			if got := doc.String(); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// Whatever the body is, it comes back byte for byte.
func TestBodySurvives(t *testing.T) {
	for _, start := range []string{"", "---\na: 1\n---\n", "---\na: 1\n---"} {
		for _, body := range []string{"", "x", "---\n", "---\nb: 2\n---\nx", "---\n---\n", "---\r\nb: 2\r\n---", "\n---\n", "---"} {
			doc := memory.ParseDoc(start)
			doc.Body = body
			if got := memory.ParseDoc(doc.String()); got.Body != body {
				t.Errorf("body %q behind %q comes back as %q", body, start, got.Body)
			}
		}
	}
}

// text draws text that likes to look like front matter.
var text = rapid.StringOf(rapid.OneOf(
	rapid.SampledFrom([]rune("---\n\n\n::  #'\"{}[]&*!|>\t\rabc1é")),
	rapid.Rune(),
))

func TestSetIsRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		keys := []string{"description", "read_only", "limit", "tags", "other_key"}
		doc := memory.ParseDoc("")
		doc.Body = text.Draw(t, "body")
		body := doc.Body
		want := map[string]any{}
		for range rapid.IntRange(0, 6).Draw(t, "steps") {
			key := rapid.SampledFrom(keys).Draw(t, "key")
			var value any
			switch rapid.IntRange(0, 4).Draw(t, "kind") {
			case 0:
				value = text.Draw(t, "text")
			case 1:
				value = rapid.Bool().Draw(t, "bool")
			case 2:
				value = rapid.IntRange(0, 1<<30).Draw(t, "int")
			case 3:
				value = []string{text.Draw(t, "tag"), "x"}
			}
			if err := doc.Set(key, value); err != nil {
				t.Fatalf("set %s to %q: %v", key, value, err)
			}
			delete(want, key)
			switch v := value.(type) {
			case nil:
			case string:
				want[key] = strings.ToValidUTF8(v, "\uFFFD")
			case []string:
				want[key] = []any{strings.ToValidUTF8(v[0], "\uFFFD"), "x"}
			default:
				want[key] = v
			}
			doc = memory.ParseDoc(doc.String())
			if got := doc.Fields(); len(got)+len(want) > 0 && !reflect.DeepEqual(got, want) {
				t.Fatalf("fields are %#v, want %#v in %q", got, want, doc.String())
			}
			if doc.Body != body {
				t.Fatalf("body is %q, want %q", doc.Body, body)
			}
		}
	})
}

func TestDocRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.SampledFrom([]string{"", "---\n", "---\na: b\n---\n"}).Draw(t, "start") + text.Draw(t, "rest")
		if got := memory.ParseDoc(s).String(); got != s {
			t.Fatalf("%q comes back as %q", s, got)
		}
	})
}

func FuzzDoc(f *testing.F) {
	for _, s := range []string{"", "x", "---\na: 1\n---\nb", "---\n{a: 1}\n---", "---\n&a [*a]\n---\n", "---\na: &x [1]\nb: *x\n---\n", "---\na: !!binary x\n---\n"} {
		f.Add(s, "d")
	}
	f.Fuzz(func(t *testing.T, s, description string) {
		doc := memory.ParseDoc(s)
		if got := doc.String(); got != s {
			t.Fatalf("%q comes back as %q", s, got)
		}
		body := doc.Body
		if err := doc.Set("description", description); err != nil {
			t.Fatal(err)
		}
		again := memory.ParseDoc(doc.String())
		if again.Body != body {
			t.Fatalf("body %q became %q by a description", body, again.Body)
		}
	})
}
