package tool

import (
	_ "embed"
	"encoding/json"
	"strings"

	"mneme/internal/agent"
	"mneme/internal/sandbox"
)

// A Kit is what the built-in tools need of the process.
type Kit struct {
	Shells *sandbox.Shells
	Memory Memory // nil = no memory tool
	// What follows is for tools that are attached over REST.
	Blocks   Blocks   // nil = no memory_insert and memory_replace
	Messages Messages // nil = no conversation_search
	Web      Web
}

// Builtin makes the built-in tools. Which of them a turn gets is up to the
// toolsets.
func Builtin(k Kit) []*Tool {
	tools := []*Tool{
		askTool(),
		bashTool(k.Shells),
		editTool(),
		globTool(),
		grepTool(),
		killTool(k.Shells),
		readTool(),
		stopTool(k.Shells),
		writeTool(),
	}
	if k.Memory != nil {
		tools = append(tools, memoryTool(k.Memory))
	}
	if k.Blocks != nil {
		tools = append(tools, memoryInsertTool(k.Blocks), memoryReplaceTool(k.Blocks))
	}
	if k.Messages != nil {
		tools = append(tools, conversationSearchTool(k.Messages))
	}
	return append(tools, fetchTool(k.Web), webSearchTool(k.Web))
}

// define makes the definition of a tool from its description and the
// properties of its parameters; required ones are checked before a call runs.
func define(name, description, properties string, required ...string) *Tool {
	list, err := json.Marshal(append([]string{}, required...))
	if err != nil {
		panic(err) // strings always encode
	}
	schema := `{"type":"object","properties":{` + properties + `},"required":` + string(list) + `,"additionalProperties":false}`
	return &Tool{
		Def: agent.ToolDef{
			Name: name, Description: strings.TrimSpace(description), Parameters: json.RawMessage(schema),
		},
		Required: required,
	}
}
