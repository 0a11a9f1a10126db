package store

import (
	"context"
	"strconv"
	"strings"
)

// A selection collects the conditions of a list query and their arguments.
type selection struct {
	conds []string
	args  []any
}

func (q *selection) where(cond string, args ...any) {
	q.conds = append(q.conds, cond)
	q.args = append(q.args, args...)
}

// contains matches a lower-case column that holds the text, whatever its case.
func (q *selection) contains(column, text string) {
	escape := strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`)
	q.where(column+` LIKE ? ESCAPE '\'`, "%"+escape.Replace(fold(text))+"%")
}

func (q *selection) text() string {
	if len(q.conds) == 0 {
		return ""
	}
	return " WHERE " + strings.Join(q.conds, " AND ")
}

// limitTo ends a query after n rows; 0 = all.
func limitTo(n int) string {
	if n <= 0 {
		return ""
	}
	return " LIMIT " + strconv.Itoa(n)
}

func orderBy(desc bool, keys ...string) string {
	direction := ""
	if desc {
		direction = " DESC"
	}
	return " ORDER BY " + strings.Join(keys, direction+", ") + direction
}

// fold is the form in which texts are compared: lower case by Unicode's rules on
// both databases, whose own functions differ.
func fold(s string) string { return strings.ToLower(clean(s)) }

// appendTo makes a scan function that collects what scan reads.
func appendTo[T any](to *[]T, scan func(scanner) (T, error)) func(scanner) error {
	return func(r scanner) error {
		v, err := scan(r)
		if err == nil {
			*to = append(*to, v)
		}
		return err
	}
}

// get reads the one row of a fixed query, or fails with CodeNotFound.
func get[T any](ctx context.Context, r reader, noun, id string, scan func(scanner) (T, error), query string, args ...any) (T, error) {
	var v, none T
	found, err := r.one(ctx, func(row scanner) (err error) {
		v, err = scan(row)
		return err
	}, query, args...)
	if err != nil {
		return none, r.s.dialect.fault("read "+strings.ToLower(noun)+" "+id, err)
	}
	if !found {
		return none, notFound(noun, id)
	}
	return v, nil
}
