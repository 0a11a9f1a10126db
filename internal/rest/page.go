package rest

import (
	"fmt"
	"math"
	"slices"
	"sync"

	"mneme/internal/store"
)

// paging are the parameters that all lists have; embed it in a query struct.
// Cursors are relative to the order that is asked for: after = later in the
// listing. The lists of messages read them differently (spec/rest.md section 2.7).
type paging struct {
	After  string `query:"after" doc:"id after which the page begins"`
	Before string `query:"before" doc:"id before which the page ends"`
	Order  string `query:"order" enum:"asc,desc" doc:"asc or desc"`
	// Ascending is the old form of Order.
	Ascending *bool `query:"ascending" doc:"deprecated: use order"`
}

// asc says whether the list runs from old to new; preset holds where nothing is
// said.
func (p paging) asc(preset bool) bool {
	switch {
	case p.Order != "":
		return p.Order == "asc"
	case p.Ascending != nil:
		return *p.Ascending
	}
	return preset
}

// maxPlaces bounds the cursors that are remembered.
const maxPlaces = 10_000

// places remember where lists were left: the sort value that the first and the last
// row of a page had. So a pager goes on where it was although the row has moved in
// the list since, or was deleted; without that it would see rows twice, or start
// over, or end with an error. It is a help only: a cursor that is not remembered is
// looked up in the store.
type places struct {
	mu   sync.Mutex // guards the rest
	at   map[string]int64
	ring []string // keys in the order they came
	next int
}

func newPlaces() *places { return &places{at: map[string]int64{}} }

// note remembers the sort value of a row in a list that is named by its kind and
// order.
func (p *places) note(list, id string, value int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := list + " " + id
	if _, known := p.at[key]; !known {
		if len(p.ring) < maxPlaces {
			p.ring = append(p.ring, key)
		} else {
			delete(p.at, p.ring[p.next])
			p.ring[p.next] = key
			p.next = (p.next + 1) % maxPlaces
		}
	}
	p.at[key] = value
}

// find returns the sort value that a row had when it was listed last.
func (p *places) find(list, id string) (value int64, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	value, ok = p.at[list+" "+id]
	return value, ok
}

// page is the page that was asked for of a list, with what is remembered of its
// cursors.
func (p *places) page(list string, q paging, presetAsc bool) store.Page {
	page := store.Page{After: q.After, Before: q.Before, Asc: q.asc(presetAsc)}
	if v, ok := p.find(list, q.After); ok {
		page.AfterValue = &v
	}
	if v, ok := p.find(list, q.Before); ok {
		page.BeforeValue = &v
	}
	return page
}

// listName names a list in its order, for places.
func listName(kind, order string, asc bool) string {
	return fmt.Sprint(kind, " ", order, " ", asc)
}

// noteEnds remembers the two rows of a page that a pager may go on from.
func noteEnds[T any](p *places, list string, rows []T, at func(T) (id string, value int64)) {
	if len(rows) > 0 {
		for _, row := range []T{rows[0], rows[len(rows)-1]} {
			id, value := at(row)
			p.note(list, id, value)
		}
	}
}

// last is the sort value of rows that have none and are listed last in an ascending
// list; in a descending one it is 0.
const last = math.MaxInt64

// scan reads up to limit rows that keep takes, fetching pages of p until there are
// enough. at says where a row stands.
func scan[T any](p store.Page, limit int, keep func(T) bool, fetch func(store.Page) ([]T, error), at func(T) (id string, value int64)) ([]T, error) {
	p.Limit = limit
	backward := p.Before != "" && p.After == ""
	var out []T
	for {
		rows, err := fetch(p)
		if err != nil {
			return nil, err
		}
		kept := slices.DeleteFunc(slices.Clone(rows), func(v T) bool { return !keep(v) })
		if backward {
			out = append(kept, out...)
		} else {
			out = append(out, kept...)
		}
		switch {
		case len(rows) < limit || len(out) >= limit:
			if backward {
				return out[max(len(out)-limit, 0):], nil
			}
			return out[:min(len(out), limit)], nil
		case backward:
			id, value := at(rows[0])
			p.Before, p.BeforeValue = id, &value
		default:
			id, value := at(rows[len(rows)-1])
			p.After, p.AfterValue = id, &value
		}
	}
}

// window cuts a page out of a whole list that is in the order of the listing, by
// the ids of its items. An unknown cursor is false. limit < 0 = no limit.
func window[T any](all []T, id func(T) string, after, before string, limit int) ([]T, bool) {
	at := func(cursor string) int {
		return slices.IndexFunc(all, func(v T) bool { return id(v) == cursor })
	}
	from, to := 0, len(all)
	if after != "" {
		i := at(after)
		if i < 0 {
			return nil, false
		}
		from = i + 1
	}
	if before != "" {
		i := at(before)
		if i < 0 {
			return nil, false
		}
		to = i
	}
	if from >= to {
		return []T{}, true
	}
	all = all[from:to]
	if limit >= 0 && len(all) > limit {
		if before != "" && after == "" {
			return all[len(all)-limit:], true // those next to the cursor
		}
		return all[:limit], true
	}
	return all, true
}
