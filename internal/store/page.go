package store

import (
	"context"
	"slices"
	"strings"
)

// A Page is a stretch of a listing. Its cursors are ids of rows and exclusive:
// After is later in the listing and Before earlier, whatever the order. With Before
// alone it is the stretch that ends just before it. An unknown cursor is
// CodeNotFound.
type Page struct {
	After, Before string
	// AfterValue and BeforeValue are the values by which the rows of the cursors
	// were sorted when they were listed; nil = as they are now. With them a pager
	// goes on where it was although the row has moved since, or is gone.
	AfterValue, BeforeValue *int64
	Limit                   int // 0 = no limit
	Asc                     bool
}

// A listing is a table in the order of keys: SQL expressions that are unique
// together.
type listing struct {
	noun   string // for errors
	from   string // the table, or tables joined
	id     string // the column that cursors name
	tenant string // the column
	keys   []string
}

// page adds the conditions of the cursors to q and returns the end of the query.
// With reverse the rows come in the other order than the one asked for. A negative
// limit is one that the caller keeps itself.
func (s *Store) page(ctx context.Context, q *selection, l listing, p Page) (tail string, reverse bool, err error) {
	later, earlier := "<", ">"
	if p.Asc {
		later, earlier = earlier, later
	}
	if err := s.place(ctx, q, l, p.After, p.AfterValue, later); err != nil {
		return "", false, err
	}
	if err := s.place(ctx, q, l, p.Before, p.BeforeValue, earlier); err != nil {
		return "", false, err
	}
	reverse = p.Before != "" && p.After == "" && p.Limit != 0
	return orderBy(p.Asc == reverse, l.keys...) + limitTo(p.Limit), reverse, nil
}

// place adds the condition that rows lie on one side of the row with the id. value
// stands for the first of two keys.
func (s *Store) place(ctx context.Context, q *selection, l listing, id string, value *int64, side string) error {
	if id == "" {
		return nil
	}
	var values []any
	if value != nil && len(l.keys) == 2 {
		values = []any{*value, id}
	} else {
		values = make([]any, len(l.keys))
		into := make([]any, len(l.keys))
		for i := range into {
			into[i] = &values[i]
		}
		found, err := s.pool().one(ctx, func(r scanner) error { return r.Scan(into...) },
			"SELECT "+strings.Join(l.keys, ", ")+" FROM "+l.from+" WHERE "+l.id+" = ? AND "+l.tenant+" = ?", id, s.tenant)
		if err != nil {
			return s.dialect.fault("find "+strings.ToLower(l.noun)+" "+id, err)
		}
		if !found {
			return notFound(l.noun, id)
		}
	}
	q.where("("+strings.Join(l.keys, ", ")+") "+side+" (?"+strings.Repeat(", ?", len(values)-1)+")", values...)
	return nil
}

// listPage reads one page of a listing. The rows come as asked for.
func listPage[T any](ctx context.Context, s *Store, q *selection, l listing, p Page, columns string, scan func(scanner) (T, error)) ([]T, error) {
	tail, reverse, err := s.page(ctx, q, l, p)
	if err != nil {
		return nil, err
	}
	var all []T
	err = s.pool().eachOf(ctx, appendTo(&all, scan), "SELECT "+columns+" FROM "+l.from+q.text()+tail, q.args...)
	if err != nil {
		return nil, s.dialect.fault("list "+l.from, err)
	}
	if reverse {
		slices.Reverse(all)
	}
	return all, nil
}
