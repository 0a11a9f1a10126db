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

// in matches a column that is one of the values; no values match all.
func (q *selection) in(column string, values []string) {
	if len(values) > 0 {
		q.where(in(column, len(values)), texts(values)...)
	}
}

// anyListed matches a column with a JSON list of texts that holds one of the
// values; no values match all.
func (q *selection) anyListed(column string, values []string) error {
	var conds []string
	var args []any
	for _, v := range values {
		text, err := jsonText(v)
		if err != nil {
			return err
		}
		for _, before := range []string{"[", ","} { // a quote inside a text has "\" before it
			// Portable, and minding case: a text from which something was cut has it.
			conds = append(conds, "replace("+column+", ?, '') <> "+column)
			args = append(args, before+text)
		}
	}
	if len(conds) > 0 {
		q.where("("+strings.Join(conds, " OR ")+")", args...)
	}
	return nil
}

// in is the condition that a column is one of n values.
func in(column string, n int) string { return column + " IN (?" + strings.Repeat(", ?", n-1) + ")" }

func texts[T ~string](values []T) []any {
	args := make([]any, len(values))
	for i, v := range values {
		args[i] = clean(string(v))
	}
	return args
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

// nullsLast is the value to sort a time by when 0, for never, comes last.
func nullsLast(column string, asc bool) string {
	if !asc {
		return column // the least value
	}
	return "CASE WHEN " + column + " = 0 THEN 9223372036854775807 ELSE " + column + " END"
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
