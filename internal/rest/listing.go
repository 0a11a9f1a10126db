package rest

import (
	"context"
	"slices"

	"mneme/internal/agent"
	"mneme/internal/store"
)

// listedRoles are the roles of messages that have something to show.
var listedRoles = []agent.Role{
	agent.RoleUser, agent.RoleAssistant, agent.RoleTool, agent.RoleSystem, agent.RoleSummary, agent.RoleApproval,
	agent.RoleNotice, // those that clients sent as system messages
}

// rolesOf are the roles whose messages show as a type.
var rolesOf = map[string][]agent.Role{
	typeSystem: {agent.RoleSystem, agent.RoleNotice}, typeUser: {agent.RoleUser, agent.RoleSummary}, typeAssistant: {agent.RoleAssistant},
	typeReasoning: {agent.RoleAssistant}, typeHidden: {agent.RoleAssistant}, typeCall: {agent.RoleAssistant},
	typeRequest: {agent.RoleAssistant}, typeReturn: {agent.RoleTool}, typeResponse: {agent.RoleApproval},
	typeSummary: {agent.RoleSummary},
}

// roles are the roles that a view can show anything of.
func (v *view) roles() []agent.Role {
	if v.Types == nil {
		return listedRoles
	}
	roles := []agent.Role{}
	for _, typ := range v.Types {
		for _, role := range rolesOf[typ] {
			if !slices.Contains(roles, role) {
				roles = append(roles, role)
			}
		}
	}
	return roles
}

// An item is what a list shows of one stored message, or of the results of one
// step: variants that are never split over two pages.
type item []variant

// owner is the id of the stored message that an item shows.
func (it item) owner() string {
	h := it[0].base()
	if h.Type == typeRequest {
		return requestOwner(h.ID)
	}
	return h.ID
}

// A listing reads stored messages and renders them. The limit counts items after
// the view's filter.
type listing struct {
	view view
	// query reads rows with the given positions, order and limit.
	query func(ctx context.Context, f store.MessageFilter) ([]*agent.Message, error)
	store *store.Store
	// failed shows the partial texts of failed, aborted and cut steps as well.
	failed bool
}

// rows is how many rows are read at a time, for a page of limit items.
func rows(limit int) int { return min(max(limit+limit/4, 50), 500) }

// page reads up to limit items from one end of what lies between the positions of
// f, in the order of f. limit < 0 = all.
func (l *listing) page(ctx context.Context, f store.MessageFilter, limit int) ([]item, error) {
	items := []item{}
	f.Roles, f.SkipInterrupted = l.view.roles(), !l.failed
	if limit == 0 || len(f.Roles) == 0 {
		return items, nil
	}
	for {
		f.Limit = 500
		if limit > 0 {
			f.Limit = rows(limit - len(items))
		}
		msgs, err := l.query(ctx, f)
		if err != nil {
			return nil, err
		}
		asOriginals(msgs)
		got, err := l.render(ctx, msgs)
		if err != nil {
			return nil, err
		}
		items = append(items, got...)
		if limit > 0 && len(items) >= limit {
			return items[:limit], nil
		}
		if len(msgs) < f.Limit {
			return items, nil
		}
		last := msgs[len(msgs)-1].ID
		if f.Desc {
			f.BeforeID = last
		} else {
			f.AfterID = last
		}
	}
}

// asOriginals gives the copies of a fork the ids of the messages that they stand for
// (spec/rest.md section 9.3).
func asOriginals(msgs []*agent.Message) {
	for _, m := range msgs {
		if m.CopyOf != "" {
			m.ID = m.CopyOf
		}
	}
}

// render makes the items of stored messages, in their order. The results of a step
// stand where the first of them is stored, the others nowhere.
func (l *listing) render(ctx context.Context, msgs []*agent.Message) ([]item, error) {
	c, err := l.context(ctx, msgs)
	if err != nil {
		return nil, err
	}
	return l.items(c, msgs), nil
}

func (l *listing) items(c *stepContext, msgs []*agent.Message) []item {
	var items []item
	for _, m := range msgs {
		var all []variant
		switch {
		case m.Role != agent.RoleTool:
			all = l.view.stored(m, func(call string) bool { return c.marks[callKey{m.StepID, call}].Waited })
		default:
			if v := l.view.returns(c.group(m)); v != nil && c.group(m).first.ID == m.ID {
				all = []variant{v}
			}
		}
		if all = l.view.keep(all); len(all) > 0 {
			items = append(items, all)
		}
	}
	return items
}

type callKey struct{ step, call string }

// A stepContext is what rows are rendered with besides themselves.
type stepContext struct {
	marks  map[callKey]store.CallMark
	groups map[string]group // by step
}

// group are the results that a result is shown with.
func (c *stepContext) group(m *agent.Message) group {
	if g, ok := c.groups[m.StepID]; ok && m.StepID != "" {
		return g
	}
	return group{first: m, all: []*agent.Message{m}}
}

// context reads what the steps of messages look like beyond the messages.
func (l *listing) context(ctx context.Context, msgs []*agent.Message) (*stepContext, error) {
	c := &stepContext{marks: map[callKey]store.CallMark{}, groups: map[string]group{}}
	var steps, toolSteps, runs []string
	for _, m := range msgs {
		if m.StepID == "" {
			continue
		}
		switch m.Role {
		case agent.RoleTool:
			toolSteps, runs = insert(toolSteps, m.StepID), insert(runs, m.RunID)
			steps = insert(steps, m.StepID)
		case agent.RoleAssistant:
			if len(m.Calls()) > 0 {
				steps = insert(steps, m.StepID)
			}
		}
	}
	marks, err := l.store.CallMarks(ctx, steps)
	if err != nil {
		return nil, err
	}
	for _, m := range marks {
		c.marks[callKey{m.StepID, m.ID}] = m
	}
	results, err := l.store.StepResults(ctx, runs, toolSteps)
	if err != nil {
		return nil, err
	}
	byStep := map[string][]*agent.Message{}
	for _, m := range results {
		byStep[m.StepID] = append(byStep[m.StepID], m)
	}
	for step, msgs := range byStep {
		c.groups[step] = newGroup(msgs, func(call string) int { return c.marks[callKey{step, call}].Index })
	}
	return c, nil
}

// insert adds a value that is not the last one already: rows of a step follow each
// other.
func insert(list []string, v string) []string {
	if len(list) > 0 && list[len(list)-1] == v {
		return list
	}
	return append(list, v)
}

// flat lines the variants of items up.
func flat(items []item) []variant {
	out := []variant{}
	for _, it := range items {
		out = append(out, it...)
	}
	return out
}
