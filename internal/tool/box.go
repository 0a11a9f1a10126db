package tool

import (
	"slices"

	"mneme/internal/agent"
)

// A Box holds the built-in tools and hands out those of a turn.
type Box struct {
	tools []*Tool
	// absent can be attached to agents by their names and do nothing else.
	absent []*Tool
}

// NewBox makes a box of tools with unique names.
func NewBox(tools ...*Tool) *Box { return &Box{tools: tools, absent: absentTools(tools)} }

// A Selection says which tools a turn wants (spec/harness.md section 2.1).
type Selection struct {
	Preference string   // toolset of the conversation
	Base       string   // toolset of this turn; "" = Preference
	Include    []string // more built-in tools
	// Allowlist keeps the named tools alone and also loads built-in ones it
	// names; nil = no filter, empty = nothing. Client tools stay: the request
	// that names the list brought them itself.
	Allowlist []string
	// ExcludeInteractive drops tools that always ask a person.
	ExcludeInteractive bool
	// ReadOnly drops every built-in and attached tool that can change something.
	ReadOnly bool
	// Attached belong to the agent, External to connections, Client to the
	// request. On a clash of names a later one of these wins over an earlier
	// one, and over the toolset.
	Attached, External, Client []*Tool
}

// Select returns the tools of a turn in the order the model sees them: the
// toolset, what was included, then attached, external and client tools. The
// error is CodeInvalid for an unknown toolset or included tool.
func (b *Box) Select(s Selection) ([]*Tool, error) {
	base := s.Base
	if base == "" {
		base = s.Preference
	}
	set, ok := FindSet(b.Resolve(base))
	if !ok {
		return nil, agent.Invalid("client_toolset", "Unknown toolset: %s", base)
	}
	names := slices.Clone(set.Tools)
	for _, name := range s.Include {
		if Find(b.tools, name) == nil {
			return nil, agent.Errorf(agent.CodeInvalid, "Unknown bundled client tool: %s", name)
		}
		names = append(names, name)
	}
	names = append(names, s.Allowlist...)

	var own []*Tool
	for _, name := range names {
		if t := Find(b.tools, name); t != nil && !slices.Contains(own, t) {
			own = append(own, t)
		}
	}
	own = s.override(own, s.Attached)
	if s.ReadOnly {
		own = slices.DeleteFunc(own, func(t *Tool) bool { return !t.ReadOnly })
	}
	all := s.override(own, s.External)
	if s.Allowlist != nil {
		all = slices.DeleteFunc(all, func(t *Tool) bool { return !slices.Contains(s.Allowlist, t.Def.Name) })
	}
	if s.ExcludeInteractive {
		all = slices.DeleteFunc(all, func(t *Tool) bool { return t.Interactive })
	}
	return s.override(all, s.Client), nil
}

// Attached returns the tools of those names that the box has, as tools that
// belong to an agent: they run without asking unless a rule of the agent says
// otherwise.
func (b *Box) Attached(names []string) []*Tool {
	var tools []*Tool
	for _, name := range names {
		if t := b.find(name); t != nil {
			own := *t
			own.Approval = ApprovalNever
			tools = append(tools, &own)
		}
	}
	return tools
}

// find returns the tool of that name, be it absent.
func (b *Box) find(name string) *Tool {
	if t := Find(b.tools, name); t != nil {
		return t
	}
	return Find(b.absent, name)
}

// override appends more to tools and drops those whose names it takes.
func (s *Selection) override(tools, more []*Tool) []*Tool {
	tools = slices.DeleteFunc(slices.Clone(tools), func(t *Tool) bool { return Find(more, t.Def.Name) != nil })
	for i, t := range more {
		if Find(more[i+1:], t.Def.Name) == nil { // of two in one group the later wins
			tools = append(tools, t)
		}
	}
	return tools
}

// Resolve turns a preference into the id of a toolset: "auto" and "" are the
// default one.
func (b *Box) Resolve(preference string) string {
	if preference == "" || preference == SetAuto {
		return SetDefault
	}
	return preference
}

// Find returns the tool of that name, nil if there is none.
func Find(tools []*Tool, name string) *Tool {
	for _, t := range tools {
		if t.Def.Name == name {
			return t
		}
	}
	return nil
}

// Names lists the names of tools in their order.
func Names(tools []*Tool) []string {
	names := make([]string, 0, len(tools))
	for _, t := range tools {
		names = append(names, t.Def.Name)
	}
	return names
}
