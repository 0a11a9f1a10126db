package rest

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"mneme/internal/tool"
)

// A toolState is a tool as answers show it.
type toolState struct {
	ID               string   `json:"id"`
	Name             string   `json:"name"`
	Description      *string  `json:"description"`
	ToolType         string   `json:"tool_type"`
	SourceType       *string  `json:"source_type"`
	SourceCode       *string  `json:"source_code"`
	JSONSchema       object   `json:"json_schema"`
	ArgsSchema       object   `json:"args_json_schema"`
	Tags             []string `json:"tags"`
	ReturnLimit      int      `json:"return_char_limit"`
	PipRequirements  []none   `json:"pip_requirements"`
	NpmRequirements  []none   `json:"npm_requirements"`
	RequiresApproval *bool    `json:"default_requires_approval"`
	Parallel         bool     `json:"enable_parallel_execution"`
	CreatedByID      *string  `json:"created_by_id"`
	LastUpdatedByID  *string  `json:"last_updated_by_id"`
	Metadata         object   `json:"metadata_"`
	ProjectID        *string  `json:"project_id"`
}

// A Toolbox knows the tools that agents can be given. *tool.Box does.
type Toolbox interface {
	// Attachable describes all of them.
	Attachable() []tool.Info
}

// renderTool shows a tool.
func renderTool(i tool.Info) (toolState, error) {
	st := toolState{
		ID: i.ID, Name: i.Name, Description: &i.Description, ToolType: i.Type, SourceType: new("python"), ArgsSchema: object(i.Parameters),
		Tags: orEmpty(i.Tags), ReturnLimit: returnLimit, PipRequirements: []none{}, NpmRequirements: []none{}, Parallel: i.Parallel,
	}
	schema, err := json.Marshal(map[string]any{"name": i.Name, "description": i.Description, "parameters": i.Parameters})
	st.JSONSchema = schema
	return st, err
}

// returnLimit is shown as the number of characters that a tool may return.
const returnLimit = 50_000

// toolStates shows the attached tools of an agent, in their order.
func (d *Door) toolStates(names []string) ([]toolState, error) {
	out := []toolState{}
	all := d.tools.Attachable()
	for _, name := range names {
		i := slices.IndexFunc(all, func(t tool.Info) bool { return t.Name == name })
		if i < 0 {
			continue // of another version
		}
		st, err := renderTool(all[i])
		if err != nil {
			return nil, err
		}
		out = append(out, st)
	}
	return out, nil
}

// toolNames are the tools that a new agent is given: those of the body, and the
// base tools unless it wants none.
func (d *Door) toolNames(b *agentCreate) ([]string, error) {
	all := d.tools.Attachable()
	var unknown []string
	names := slices.Clone(b.Tools.Value)
	for _, name := range names {
		if !slices.ContainsFunc(all, func(t tool.Info) bool { return t.Name == name }) {
			unknown = append(unknown, name)
		}
	}
	if len(unknown) > 0 {
		return nil, &httpError{Status: http.StatusBadRequest, Body: detail{"Tools not found by name: " + strings.Join(unknown, ", ")}, Final: true}
	}
	byID, err := d.namesOfTools(b.ToolIDs.Value)
	if err != nil {
		return nil, err
	}
	names = append(names, byID...)
	if b.BaseTools.Or(true) {
		names = append(names, tool.BaseTools()...)
	}
	return unique(names), nil
}

// namesOfTools finds the names of tools by their ids.
func (d *Door) namesOfTools(ids []string) ([]string, error) {
	all := d.tools.Attachable()
	names := []string{}
	for _, id := range ids {
		i := slices.IndexFunc(all, func(t tool.Info) bool { return t.ID == id })
		if i < 0 {
			return nil, notFound("Tool not found with id='%s'", id)
		}
		names = append(names, all[i].Name)
	}
	return unique(names), nil
}

// unique drops what is repeated; the order stays.
func unique(names []string) []string {
	var out []string
	for _, name := range names {
		if !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

// A toolRule is a rule for the attached tools of an agent. Its further fields
// depend on the type; the object is stored and shown as it was given, completed by
// the fields that clients expect.
type toolRule = object

// ruleFields are the types of rules, with the fields that each needs besides
// tool_name.
var ruleFields = map[string][]string{
	"run_first": nil, "exit_loop": nil, "continue_loop": nil, "required_before_exit": nil, "requires_approval": nil,
	"constrain_child_tools": {"children"}, "parent_last_tool": {"children"},
	"conditional": {"child_output_mapping"}, "max_count_per_step": {"max_count_limit"},
}

// checkRules refuses rules that are none and completes the others. Null and nothing
// stay nothing.
func checkRules(raw json.RawMessage) (json.RawMessage, error) {
	if notNull(raw) == nil {
		return nil, nil
	}
	var rules []map[string]json.RawMessage
	if json.Unmarshal(raw, &rules) != nil {
		return nil, unprocessable("body.tool_rules", "Input should be an array of objects")
	}
	for i, rule := range rules {
		where := "body.tool_rules." + strconv.Itoa(i)
		var name, kind string
		if json.Unmarshal(rule["tool_name"], &name) != nil || name == "" {
			return nil, unprocessable(where+".tool_name", "Field required")
		}
		if json.Unmarshal(rule["type"], &kind) != nil {
			return nil, unprocessable(where+".type", "Field required")
		}
		needs, ok := ruleFields[kind]
		if !ok {
			return nil, unprocessable(where+".type", "%s is not a type of tool rules", quoted(kind))
		}
		for _, field := range needs {
			if notNull(rule[field]) == nil {
				return nil, unprocessable(where+"."+field, "Field required")
			}
		}
		var limit int
		if v := rule["max_count_limit"]; kind == "max_count_per_step" && (json.Unmarshal(v, &limit) != nil || limit < 1) {
			return nil, unprocessable(where+".max_count_limit", "Input should be an integer above 0")
		}
		if _, ok := rule["prompt_template"]; !ok {
			rule["prompt_template"] = json.RawMessage("null")
		}
	}
	return json.Marshal(rules)
}

// rulesState shows the stored rules; none is an empty list.
func rulesState(raw json.RawMessage) []toolRule {
	rules := []toolRule{}
	if notNull(raw) != nil && json.Unmarshal(raw, &rules) != nil {
		return []toolRule{} // what is stored was checked
	}
	return slices.Clip(rules)
}
