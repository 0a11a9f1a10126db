package rest

import (
	"bytes"
	"encoding/json"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// The description of the API is made from the route tables and from the structs
// that they name, so that it tells what is served: routes that are not built are
// not in it (spec/rest.md section 2.9).

var openapiRoutes = []route{
	{"GET", "/openapi.json", (*Door).openapi, doc{summary: "This description", answer: object{}}},
}

func (d *Door) openapi(w http.ResponseWriter, _ *http.Request) error {
	return reply(w, describe(d.router.routes, d.version))
}

// An ordered is a JSON object whose keys keep their order.
type ordered []member

type member struct {
	key   string
	value any
}

// MarshalJSON implements json.Marshaler.
func (o ordered) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, m := range o {
		if i > 0 {
			b.WriteByte(',')
		}
		key, err := json.Marshal(m.key)
		if err != nil {
			return nil, err
		}
		value, err := json.Marshal(m.value)
		if err != nil {
			return nil, err
		}
		b.Write(key)
		b.WriteByte(':')
		b.Write(value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// get finds the object under a key, which is made if it is not there.
func (o *ordered) get(key string) *ordered {
	for _, m := range *o {
		if m.key == key {
			return m.value.(*ordered)
		}
	}
	child := new(ordered)
	*o = append(*o, member{key, child})
	return child
}

func (o *ordered) put(key string, value any) { *o = append(*o, member{key, value}) }

// ref points to a component.
func ref(kind, name string) ordered { return ordered{{"$ref", "#/components/" + kind + "/" + name}} }

// describe makes the description of routes.
func describe(routes []*route, version string) ordered {
	s := &schemas{known: map[reflect.Type]string{}}
	paths := new(ordered)
	for _, rt := range routes {
		if rt.serve != nil {
			paths.get(rt.path).put(strings.ToLower(rt.method), s.operation(rt))
		}
	}
	fault := s.of(reflect.TypeFor[detail]())
	return ordered{
		{"openapi", "3.1.0"},
		{"info", ordered{
			{"title", "mneme: Letta REST API"}, {"version", version},
			{"description", "Every path is accepted with and without a trailing slash. Errors have the field `detail`, a text, or `error` where the model's provider failed."},
		}},
		{"paths", paths},
		{"components", ordered{
			{"schemas", s.defs},
			{"responses", ordered{{"Error", ordered{
				{"description", "The request failed"}, {"content", jsonContent(fault)},
			}}}},
			{"securitySchemes", ordered{
				{"token", ordered{{"type", "http"}, {"scheme", "bearer"}}},
				{"password", ordered{{"type", "apiKey"}, {"in", "header"}, {"name", "X-BARE-PASSWORD"}, {"description", "The word password, a space, the token"}}},
			}},
		}},
		{"security", []ordered{{}, {{"token", []string{}}}, {{"password", []string{}}}}},
	}
}

func jsonContent(schema any) ordered {
	return ordered{{"application/json", ordered{{"schema", schema}}}}
}

// operation describes a route.
func (s *schemas) operation(rt *route) ordered {
	op := ordered{{"summary", rt.doc.summary}, {"operationId", operationID(rt)}}
	if params := s.parameters(rt); len(params) > 0 {
		op.put("parameters", params)
	}
	if rt.doc.body != nil {
		op.put("requestBody", ordered{{"required", !rt.doc.optional}, {"content", jsonContent(s.ofValue(rt.doc.body))}})
	}
	content := ordered{}
	if rt.doc.answer != nil {
		content = jsonContent(s.ofValue(rt.doc.answer))
	}
	if rt.doc.stream {
		schema := ordered{{"type", "string"}}
		if rt.doc.chunk != nil {
			schema = ordered{{"description", "Each event's data is one of these, the last is [DONE]"}, {"anyOf", []any{s.ofValue(rt.doc.chunk)}}}
		}
		content.put("text/event-stream", ordered{{"schema", schema}})
	}
	good := ordered{{"description", "Success"}}
	if len(content) > 0 {
		good.put("content", content)
	}
	op.put("responses", ordered{{"200", good}, {"default", ref("responses", "Error")}})
	if rt.doc.open {
		op.put("security", []ordered{{}})
	}
	return op
}

// operationID is a name for code: the method and the words of the path.
func operationID(rt *route) string {
	id := strings.ToLower(rt.method)
	for _, word := range strings.FieldsFunc(strings.TrimPrefix(rt.path, "/v1"), func(r rune) bool { return !unicode.IsLetter(r) }) {
		id += "_" + word
	}
	return id
}

// parameters describes what stands in the path and in the query.
func (s *schemas) parameters(rt *route) []ordered {
	var out []ordered
	for _, seg := range segments(rt.path) {
		if name, ok := strings.CutPrefix(seg, "{"); ok {
			out = append(out, ordered{
				{"name", strings.TrimSuffix(name, "}")}, {"in", "path"}, {"required", true}, {"schema", ordered{{"type", "string"}}},
			})
		}
	}
	if rt.doc.query == nil {
		return out
	}
	for _, f := range queryFields(reflect.TypeOf(rt.doc.query)) {
		p := ordered{{"name", f.param}, {"in", "query"}}
		if text := f.Tag.Get("doc"); text != "" {
			p.put("description", text)
		}
		out = append(out, append(p, member{"schema", s.parameter(f)}))
	}
	return out
}

func (s *schemas) parameter(f queryField) ordered {
	t := f.Type
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	limits := constraints(f.StructField)
	if t.Kind() == reflect.Slice {
		items, _ := s.of(t.Elem()).(ordered)
		return ordered{{"type", "array"}, {"items", append(slices.Clip(items), limits...)}}
	}
	for _, key := range []string{"min", "max", "default"} {
		text := f.Tag.Get(key)
		if text == "" {
			continue
		}
		var value any = text
		if n, err := strconv.Atoi(text); err == nil {
			value = n
		} else if b, ok := parseBool(text); ok && t.Kind() == reflect.Bool {
			value = b
		}
		limits.put(map[string]string{"min": "minimum", "max": "maximum", "default": "default"}[key], value)
	}
	base, _ := s.of(t).(ordered)
	return append(slices.Clip(base), limits...)
}

// constraints are the words that a field may hold, from its tag enum.
func constraints(f reflect.StructField) (out ordered) {
	if words := f.Tag.Get("enum"); words != "" {
		out.put("enum", strings.Split(words, ","))
	}
	return out
}

// An alternatives is, in a doc, one of several types.
type alternatives []any

// schemas collects the schemas of structs, each once under its name.
type schemas struct {
	defs  ordered
	known map[reflect.Type]string
}

func (s *schemas) ofValue(v any) any {
	if all, ok := v.(alternatives); ok {
		var list []any
		for _, one := range all {
			list = append(list, s.ofValue(one))
		}
		return ordered{{"anyOf", list}}
	}
	return s.of(reflect.TypeOf(v))
}

// An element tells the type of the value of an optional field.
type element interface{ elem() reflect.Type }

func (o optional[T]) elem() reflect.Type { return reflect.TypeFor[T]() }

// of is the schema of a type.
func (s *schemas) of(t reflect.Type) any {
	switch t {
	case reflect.TypeFor[stamp]():
		return ordered{{"type", []string{"string", "null"}}, {"format", "date-time"}}
	case reflect.TypeFor[date](), reflect.TypeFor[time.Time]():
		return ordered{{"type", "string"}, {"format", "date-time"}}
	case reflect.TypeFor[object]():
		return ordered{{"type", []string{"object", "null"}}}
	case reflect.TypeFor[json.RawMessage](), reflect.TypeFor[any]():
		return anything
	case reflect.TypeFor[variant]():
		return s.messages()
	case reflect.TypeFor[textOrBool]():
		return ordered{{"type", []string{"string", "boolean"}}}
	case reflect.TypeFor[none]():
		return ordered{{"type", "object"}}
	case reflect.TypeFor[*none]():
		return ordered{{"type", "null"}}
	}
	if o, ok := reflect.Zero(t).Interface().(element); ok {
		return nullable(s.of(o.elem()))
	}
	switch t.Kind() {
	case reflect.Pointer:
		return nullable(s.of(t.Elem()))
	case reflect.Slice, reflect.Array:
		return ordered{{"type", "array"}, {"items", s.of(t.Elem())}}
	case reflect.Map:
		return ordered{{"type", "object"}, {"additionalProperties", s.of(t.Elem())}}
	case reflect.Struct:
		return s.named(t)
	case reflect.String:
		return ordered{{"type", "string"}}
	case reflect.Bool:
		return ordered{{"type", "boolean"}}
	case reflect.Float32, reflect.Float64:
		return ordered{{"type", "number"}}
	}
	return ordered{{"type", "integer"}}
}

// nullable lets a schema be null as well.
func nullable(schema any) any {
	o, ok := schema.(ordered)
	if ok && len(o) > 0 && o[0].key == "type" {
		if kind, ok := o[0].value.(string); ok {
			return append(ordered{{"type", []string{kind, "null"}}}, o[1:]...)
		}
		return o // it is nullable already
	}
	if schema == any(anything) {
		return schema
	}
	return ordered{{"anyOf", []any{schema, ordered{{"type", "null"}}}}}
}

// anything is the schema of values that are passed on.
const anything = true

// messages is the schema of a message, in any of the variants.
func (s *schemas) messages() any {
	const name = "Message"
	if !slices.ContainsFunc(s.defs, func(m member) bool { return m.key == name }) {
		at := len(s.defs)
		s.defs = append(s.defs, member{name, nil})
		s.defs[at].value = s.ofValue(alternatives{
			systemVariant{}, userVariant{}, assistantVariant{}, reasoningVariant{}, hiddenVariant{}, callVariant{},
			returnVariant{}, responseVariant{}, summaryVariant{}, eventVariant{},
		})
	}
	return ref("schemas", name)
}

// named puts the schema of a struct under its name and returns a reference.
func (s *schemas) named(t reflect.Type) any {
	if name, ok := s.known[t]; ok {
		return ref("schemas", name)
	}
	name := strings.ToUpper(t.Name()[:1]) + t.Name()[1:]
	s.known[t] = name
	at := len(s.defs)
	s.defs = append(s.defs, member{name, nil})
	props, required := s.properties(t)
	schema := ordered{{"type", "object"}}
	if len(required) > 0 {
		schema.put("required", required)
	}
	schema.put("properties", props)
	s.defs[at].value = schema
	return ref("schemas", name)
}

// properties are the fields of a struct as encoding/json sees them. Those that are
// never left out are required. A list or map that may be nil has the tag null:"yes".
func (s *schemas) properties(t reflect.Type) (props ordered, required []string) {
	for _, f := range reflect.VisibleFields(t) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && name == "" || !f.IsExported() || name == "-" || name == "" {
			continue
		}
		schema := s.of(f.Type)
		if f.Type.Kind() == reflect.Interface || f.Tag.Get("null") != "" {
			schema = nullable(schema)
		}
		if o, ok := schema.(ordered); ok {
			schema = append(slices.Clip(o), constraints(f)...)
		}
		props.put(name, schema)
		if _, may := reflect.Zero(f.Type).Interface().(element); !may && !strings.Contains(options, "omit") {
			required = append(required, name)
		}
	}
	return props, required
}
