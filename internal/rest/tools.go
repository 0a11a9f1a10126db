package rest

import (
	"encoding/json"
	"slices"
	"strconv"
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
