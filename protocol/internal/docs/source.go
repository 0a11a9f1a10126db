package docs

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// A source is what the comments and constants of the package say.
type source struct {
	types  map[string]string   // type -> its comment
	fields map[string]string   // Type.Field -> its comment
	values map[string][]string // named string type -> its constants
}

func readSource(dir string) (*source, error) {
	s := &source{types: map[string]string{}, fields: map[string]string{}, values: map[string][]string{}}
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("no Go files in %s: %w", dir, os.ErrNotExist)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			return nil, fmt.Errorf("parse %s: %w", name, err)
		}
		for _, decl := range file.Decls {
			if gen, ok := decl.(*ast.GenDecl); ok {
				s.declaration(gen)
			}
		}
	}
	return s, nil
}

func (s *source) declaration(gen *ast.GenDecl) {
	for _, spec := range gen.Specs {
		switch spec := spec.(type) {
		case *ast.TypeSpec:
			s.types[spec.Name.Name] = flat(gen.Doc)
			if st, ok := spec.Type.(*ast.StructType); ok {
				s.structFields(spec.Name.Name, st)
			}
		case *ast.ValueSpec:
			s.constants(gen.Tok, spec)
		}
	}
}

func (s *source) structFields(name string, st *ast.StructType) {
	for _, f := range st.Fields.List {
		text := flat(f.Doc)
		if text == "" {
			text = flat(f.Comment)
		}
		for _, n := range f.Names {
			s.fields[name+"."+n.Name] = text
		}
	}
}

func (s *source) constants(tok token.Token, spec *ast.ValueSpec) {
	typ, ok := spec.Type.(*ast.Ident)
	if tok != token.CONST || !ok {
		return
	}
	for _, v := range spec.Values {
		if lit, ok := v.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			if text, err := strconv.Unquote(lit.Value); err == nil {
				s.values[typ.Name] = append(s.values[typ.Name], text)
			}
		}
	}
}

// flat makes one line of a comment, without the links of Go documentation and
// without Go's nil, which is an absent or null field on the wire.
func flat(c *ast.CommentGroup) string {
	if c == nil {
		return ""
	}
	text := strings.Join(strings.Fields(c.Text()), " ")
	return strings.NewReplacer("[", "", "]", "", "|", `\|`, "nil =", "absent =", "nil ", "none ").Replace(text)
}
