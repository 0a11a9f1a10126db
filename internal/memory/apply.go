package memory

import (
	"context"
	"path"
	"strings"

	"mneme/internal/agent"
)

// An Op is one operation of the memory tool (spec/harness.md section 4.3). Its
// fields are the tool's parameters.
type Op struct {
	Command     string // create, str_replace, insert, delete, rename, update_description
	Reason      string // the commit's message
	FilePath    string
	OldPath     string
	NewPath     string
	OldString   string
	NewString   string
	InsertLine  *int // 1-based; out of range means the nearest
	InsertText  string
	Description string
	FileText    string
}

// Apply does one operation of the memory tool and returns its commit. Errors are
// sentences for the model: CodeInvalid, CodeNotFound, CodeConflict where a
// target exists, CodeMemoryConflict for uncommitted edits and for a text that no
// longer matches.
func (m *Memory) Apply(ctx context.Context, agentID string, o Op) (commit string, err error) {
	edit := map[string]func(*Snapshot) ([]FileChange, error){
		"create":             o.create,
		"str_replace":        o.replace,
		"insert":             o.insert,
		"delete":             o.delete,
		"rename":             o.rename,
		"update_description": o.describe,
	}[o.Command]
	if edit == nil {
		return "", agent.Invalid("command", "unknown memory command %q: use create, str_replace, insert, delete, rename or update_description", o.Command)
	}
	for _, p := range []*string{&o.FilePath, &o.OldPath, &o.NewPath} {
		*p = m.underRoot(agentID, *p)
	}
	message := o.Reason
	if strings.TrimSpace(message) == "" {
		message = "memory " + o.Command
	}
	commit, changed, err := m.Update(ctx, Author{}, agentID, message, edit)
	if err == nil && !changed {
		err = agent.Errorf(agent.CodeInvalid, "Nothing to change: the memory says that already.")
	}
	return commit, err
}

// underRoot makes a path relative that names the agent's memory directory, by
// its place or by the variable that the prompt shows.
func (m *Memory) underRoot(agentID, p string) string {
	p = strings.TrimSpace(p)
	for _, root := range []string{m.Dir(agentID), "$MEMORY_DIR", "${MEMORY_DIR}"} {
		if rest, ok := strings.CutPrefix(p, root+"/"); ok {
			return rest
		}
	}
	return p
}

// toolPath checks a path of the model. Unlike CleanPath it takes no "..", which
// the model never needs.
func toolPath(field, p string) (string, error) {
	if p == "" {
		return "", agent.Invalid(field, "%s is missing.", field)
	}
	if p[0] == '~' {
		return "", agent.Invalid(field, "%s must be relative to the memory directory.", field)
	}
	for segment := range strings.SplitSeq(p, "/") {
		if segment == ".." {
			return "", agent.Invalid(field, "%s must not hold \"..\".", field)
		}
	}
	clean, err := CleanPath(p)
	if err != nil {
		return "", err
	}
	return clean, nil
}

// withMD adds the ending that the model may leave out.
func withMD(p string) string {
	if strings.EqualFold(path.Ext(p), ".md") {
		return p
	}
	return p + ".md"
}

// markdown finds the file that an edit is about.
func (o *Op) markdown(s *Snapshot) (*File, error) {
	p, err := toolPath("file_path", o.FilePath)
	if err != nil {
		return nil, err
	}
	f := s.File(withMD(p))
	if f == nil {
		return nil, agent.Errorf(agent.CodeNotFound, "There is no memory file %s.", withMD(p))
	}
	if f.Kind != KindMarkdown || f.Oversized {
		return nil, agent.Invalid("file_path", "%s cannot be edited here.", f.Path)
	}
	if f.ReadOnly {
		return nil, agent.Invalid("file_path", "%s is read-only.", f.Path)
	}
	return f, nil
}

// withBody is the change that gives a file another body.
func withBody(f *File, body string) []FileChange {
	doc := f.Doc()
	doc.Body = body
	return []FileChange{{Path: f.Path, Content: []byte(doc.String())}}
}

func (o *Op) create(s *Snapshot) ([]FileChange, error) {
	p, err := toolPath("file_path", o.FilePath)
	if err != nil {
		return nil, err
	}
	p = withMD(p)
	switch {
	case strings.TrimSpace(o.Description) == "":
		return nil, agent.Invalid("description", "description is missing: say in one line what the file holds.")
	case strings.TrimSpace(o.FileText) == "":
		return nil, agent.Invalid("file_text", "file_text is missing.")
	case s.File(p) != nil:
		return nil, agent.Errorf(agent.CodeConflict, "%s exists already; change it with str_replace or insert.", p)
	}
	doc := Doc{Body: o.FileText}
	if err := doc.Set("description", strings.TrimSpace(o.Description)); err != nil {
		return nil, err
	}
	return []FileChange{{Path: p, Content: []byte(doc.String())}}, nil
}

func (o *Op) replace(s *Snapshot) ([]FileChange, error) {
	f, err := o.markdown(s)
	switch {
	case err != nil:
		return nil, err
	case o.OldString == "":
		return nil, agent.Invalid("old_string", "old_string is missing.")
	case o.NewString == "":
		return nil, agent.Invalid("new_string", "new_string is missing; to remove a text, repeat what stands beside it in both.")
	case !strings.Contains(f.Body, o.OldString):
		return nil, agent.Errorf(agent.CodeMemoryConflict, "old_string does not occur in %s; read the file again.", f.Path)
	}
	return withBody(f, strings.Replace(f.Body, o.OldString, o.NewString, 1)), nil
}

func (o *Op) insert(s *Snapshot) ([]FileChange, error) {
	f, err := o.markdown(s)
	switch {
	case err != nil:
		return nil, err
	case o.InsertLine == nil:
		return nil, agent.Invalid("insert_line", "insert_line is missing.")
	case o.InsertText == "":
		return nil, agent.Invalid("insert_text", "insert_text is missing.")
	}
	return withBody(f, insertLine(f.Body, *o.InsertLine, o.InsertText)), nil
}

// insertLine puts text as lines of its own before line n, 1-based and clamped.
func insertLine(body string, n int, text string) string {
	lines := strings.SplitAfter(body, "\n")
	if lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	at := min(max(n, 1)-1, len(lines))
	before, after := strings.Join(lines[:at], ""), strings.Join(lines[at:], "")
	if before != "" && !strings.HasSuffix(before, "\n") {
		before += "\n"
	}
	if (after != "" || strings.HasSuffix(body, "\n")) && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	return before + text + after
}

// targets is the file, or the files of the directory, that a path of the model
// means.
func targets(s *Snapshot, field, given string) (p string, files []*File, err error) {
	if p, err = toolPath(field, given); err != nil {
		return "", nil, err
	}
	if f := s.File(p); f != nil {
		return p, []*File{f}, nil
	}
	if f := s.File(withMD(p)); f != nil {
		return withMD(p), []*File{f}, nil
	}
	if files = s.Under(p); len(files) > 0 {
		return p, files, nil
	}
	return "", nil, agent.Errorf(agent.CodeNotFound, "There is no memory file or directory %s.", p)
}

// unlocked refuses read-only files.
func unlocked(field string, files []*File) error {
	for _, f := range files {
		if f.ReadOnly {
			return agent.Invalid(field, "%s is read-only.", f.Path)
		}
	}
	return nil
}

func (o *Op) delete(s *Snapshot) ([]FileChange, error) {
	_, files, err := targets(s, "file_path", o.FilePath)
	if err != nil {
		return nil, err
	}
	if err := unlocked("file_path", files); err != nil {
		return nil, err
	}
	changes := make([]FileChange, len(files))
	for i, f := range files {
		changes[i] = FileChange{Path: f.Path, Delete: true}
	}
	return changes, nil
}

func (o *Op) rename(s *Snapshot) ([]FileChange, error) {
	from, files, err := targets(s, "old_path", o.OldPath)
	if err != nil {
		return nil, err
	}
	if err := unlocked("old_path", files); err != nil {
		return nil, err
	}
	to, err := toolPath("new_path", o.NewPath)
	if err != nil {
		return nil, err
	}
	if len(files) == 1 && files[0].Path == from && files[0].Kind == KindMarkdown {
		to = withMD(to)
	}
	if s.File(to) != nil || len(s.Under(to)) > 0 {
		return nil, agent.Errorf(agent.CodeConflict, "%s exists already.", to)
	}
	if strings.HasPrefix(to, ".") || strings.Contains(to, "/.") {
		return nil, agent.Invalid("new_path", "new_path: a name must not begin with a dot.")
	}
	if strings.HasPrefix(to, from+"/") {
		return nil, agent.Invalid("new_path", "%s cannot move into itself.", from)
	}
	var changes []FileChange
	for _, f := range files {
		changes = append(changes,
			FileChange{Path: f.Path, Delete: true},
			FileChange{Path: to + strings.TrimPrefix(f.Path, from), keep: f})
	}
	return changes, nil
}

func (o *Op) describe(s *Snapshot) ([]FileChange, error) {
	f, err := o.markdown(s)
	if err != nil {
		return nil, err
	}
	if strings.TrimSpace(o.Description) == "" {
		return nil, agent.Invalid("description", "description is missing.")
	}
	doc := f.Doc()
	if err := doc.Set("description", strings.TrimSpace(o.Description)); err != nil {
		return nil, err
	}
	return []FileChange{{Path: f.Path, Content: []byte(doc.String())}}, nil
}
