package mcpserver

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"

	"mneme/internal/agent"
)

const (
	maxCandidates = 10 // of an ambiguous reference, in the answer
	maxNear       = 3  // names offered for one that is not there
)

// resolve finds the agent that a reference means (spec/mcp.md section 4): its id,
// its name, its name in another case, or a part of its name. Names are asked for
// each time, so that a rename counts at once.
func resolve(ctx context.Context, b Backend, ref string) (*Agent, error) {
	ref = strings.TrimSpace(ref)
	if ref == "" {
		return nil, invalid(`"agent_id" must not be blank: give an agent's id or name; agent_lookup lists them.`)
	}
	if strings.HasPrefix(ref, "agent-") {
		// Most references are ids, and an id needs no list.
		ag, err := b.Agent(ctx, ref)
		if err == nil || agent.CodeOf(err) != agent.CodeNotFound {
			return ag, err
		}
	}
	all, err := b.Agents(ctx)
	if err != nil {
		return nil, err
	}
	hits := match(all, ref)
	switch len(hits) {
	case 1:
		return &hits[0], nil
	case 0:
		// A hidden agent, or one known by an earlier id, may not be listed.
		ag, err := b.Agent(ctx, ref)
		if agent.CodeOf(err) == agent.CodeNotFound {
			return nil, notFound(all, ref)
		}
		return ag, err
	}
	return nil, ambiguous(hits, ref)
}

// match is the agents that a reference fits best: by the first of the rules
// that fits any.
func match(all []Agent, ref string) []Agent {
	for _, a := range all {
		if a.ID == ref {
			return []Agent{a}
		}
	}
	want := fold(ref)
	rules := []func(a *Agent) bool{
		func(a *Agent) bool { return a.Name == ref },
		func(a *Agent) bool { return fold(a.Name) == want },
		func(a *Agent) bool { return !a.Hidden && strings.Contains(fold(a.Name), want) },
	}
	for _, fits := range rules {
		var hits []Agent
		for i := range all {
			if fits(&all[i]) {
				hits = append(hits, all[i])
			}
		}
		if len(hits) > 0 {
			slices.SortFunc(hits, byName)
			return hits
		}
	}
	return nil
}

// fold is the form in which names are compared: regardless of case and of how
// accents are composed.
func fold(s string) string { return cases.Fold().String(norm.NFC.String(s)) }

// byName orders agents by name, then id.
func byName(a, b Agent) int {
	return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
}

func ambiguous(hits []Agent, ref string) error {
	e := &Error{Code: CodeAgentAmbiguous}
	for _, a := range hits[:min(len(hits), maxCandidates)] {
		e.Candidates = append(e.Candidates, fmt.Sprintf("%s (%s)", a.Name, a.ID))
	}
	more := ""
	if n := len(hits) - len(e.Candidates); n > 0 {
		more = fmt.Sprintf(" and %d more", n)
	}
	e.Message = fmt.Sprintf("%q fits %d agents: %s%s. Use an id.", clip(ref, 80), len(hits), strings.Join(e.Candidates, ", "), more)
	return e
}

func notFound(all []Agent, ref string) error {
	message := fmt.Sprintf("There is no agent %q.", clip(ref, 80))
	if near := nearest(all, ref); len(near) > 0 {
		message += " Similar names: " + strings.Join(near, ", ") + "."
	} else {
		message += " agent_lookup lists the agents."
	}
	return &Error{Code: CodeAgentNotFound, Message: message}
}

// nearest is up to three names that differ little from a reference, the most
// similar first.
func nearest(all []Agent, ref string) []string {
	type near struct {
		name string
		far  int
	}
	var found []near
	want := []rune(fold(clip(ref, 80)))
	for _, a := range all {
		if a.Hidden {
			continue
		}
		d := distance(want, []rune(fold(clip(a.Name, 80))))
		if d <= max(1, len(want)/3) {
			found = append(found, near{a.Name, d})
		}
	}
	slices.SortFunc(found, func(a, b near) int {
		return cmp.Or(cmp.Compare(a.far, b.far), cmp.Compare(a.name, b.name))
	})
	found = slices.Compact(found)
	names := make([]string, 0, maxNear)
	for _, n := range found[:min(len(found), maxNear)] {
		names = append(names, n.name)
	}
	return names
}

// distance is the number of letters to change, add or drop.
func distance(a, b []rune) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i, x := range a {
		last := row[0]
		row[0] = i + 1
		for j, y := range b {
			d := last
			if x != y {
				d = 1 + min(last, row[j], row[j+1])
			}
			last, row[j+1] = row[j+1], d
		}
	}
	return row[len(b)]
}
