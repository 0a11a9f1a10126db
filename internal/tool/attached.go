package tool

import (
	"context"
	"crypto/sha256"
	"encoding/json"

	"github.com/google/uuid"

	"mneme/internal/agent"
)

// The types of tools that agents can be given over REST, as clients know them.
const (
	TypeCore    = "letta_core"
	TypeMemory  = "letta_memory_core"
	TypeBuiltin = "letta_builtin"
)

// attachable are the tools that can be attached to agents over REST
// (spec/rest.md section 11.1), with their types.
var attachable = []struct{ name, kind string }{
	{"archival_memory_insert", TypeCore},
	{"archival_memory_search", TypeCore},
	{"conversation_search", TypeCore},
	{"core_memory_append", TypeMemory},
	{"core_memory_replace", TypeMemory},
	{"fetch_webpage", TypeBuiltin},
	{"memory", TypeMemory},
	{"memory_apply_patch", TypeMemory},
	{"memory_insert", TypeMemory},
	{"memory_replace", TypeMemory},
	{"memory_rethink", TypeMemory},
	{"run_code", TypeBuiltin},
	{"send_message", TypeCore},
	{"web_search", TypeBuiltin},
}

// BaseTools are the tools that an agent made over REST has where nothing else is
// said.
func BaseTools() []string { return []string{"conversation_search", "memory_insert", "memory_replace"} }

// An Info describes a tool to those who attach it.
type Info struct {
	ID          string // always the same for a name
	Name        string
	Description string
	Type        string
	Tags        []string
	Parameters  json.RawMessage // JSON Schema of the arguments
	// Built is false for a tool that exists by name alone: a call of it is answered
	// with an error result.
	Built    bool
	Parallel bool // calls of it may run at the same time
}

// AttachedID is the id of the tool with the name.
func AttachedID(name string) string {
	sum := sha256.Sum256([]byte("mneme tool " + name))
	id := uuid.UUID(sum[:16])
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80 // of the shape of a random one
	return "tool-" + id.String()
}

// Attachable describes all tools that can be attached, by name.
func (b *Box) Attachable() []Info {
	names := make([]string, len(attachable))
	for i, a := range attachable {
		names[i] = a.name
	}
	return b.AttachedInfo(names)
}

// AttachedInfo describes the tools of those names, leaving out those that the box
// does not have.
func (b *Box) AttachedInfo(names []string) []Info {
	var all []Info
	for _, name := range names {
		t := b.find(name)
		if t == nil {
			continue
		}
		kind := TypeBuiltin
		for _, a := range attachable {
			if a.name == name {
				kind = a.kind
			}
		}
		all = append(all, Info{
			ID: AttachedID(name), Name: name, Description: t.Def.Description, Type: kind, Tags: []string{kind},
			Parameters: t.Def.Parameters, Built: Find(b.tools, name) != nil, Parallel: t.Class == Parallel,
		})
	}
	return all
}

// NameOfID is the name of the tool with the id, "" if the box has none.
func (b *Box) NameOfID(id string) string {
	for _, tools := range [][]*Tool{b.tools, b.absent} {
		for _, t := range tools {
			if AttachedID(t.Def.Name) == id {
				return t.Def.Name
			}
		}
	}
	return ""
}

// absentTools stand for the attachable tools that are not among tools, so that
// agents that come with their names can be made.
func absentTools(tools []*Tool) []*Tool {
	var absent []*Tool
	for _, a := range attachable {
		if Find(tools, a.name) != nil {
			continue
		}
		t := define(a.name, "Not available on this server: every call fails. Do without it.", "")
		t.Class, t.ReadOnly = Parallel, true
		t.Run = func(context.Context, *Call) agent.ToolResult {
			return failf("The tool %s is not available on this server.", a.name)
		}
		absent = append(absent, t)
	}
	return absent
}
