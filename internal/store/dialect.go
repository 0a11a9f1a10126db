package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/pressly/goose/v3"

	"mneme/internal/agent"
)

// A dialect holds what differs between the databases.
type dialect struct {
	name    string
	goose   goose.Dialect
	begin   string // starts a write transaction
	numeric bool   // placeholders are $1, $2 … instead of ?
	// prepare says that statements are to be prepared by us; a driver that caches
	// them itself wants the text.
	prepare bool
	ord     string // column type: a growing row number
	// clustered ends the definition of a table whose rows lie in key order.
	clustered string
	// pipeline sends statements in one go and returns the rows that each hit, up to
	// the first that failed. nil = each is executed on its own.
	pipeline func(ctx context.Context, conn *sql.Conn, text func(string) string, stmts []statement, hits []int64) ([]int64, error)
	fullText fullText
	// unique recognizes a violated unique key.
	unique func(error) bool
	// gone recognizes a broken connection, busy a database that is up but cannot
	// do it now. The same call may succeed later.
	gone func(error) bool
	busy func(error) bool
}

// A fullText is how a database searches the tokens of the index.
type fullText struct {
	tokens string // the value to insert, with one argument: tokens with blanks between them
	match  string // a condition with one argument: an expression
	// quote begins and ends a token in an expression.
	quote, and, or string
}

// expression matches rows that have all of the groups of tokens: any one of each.
func (f fullText) expression(groups ...[]string) string {
	var all []string
	for _, group := range groups {
		quoted := make([]string, len(group))
		for i, token := range group {
			quoted[i] = f.quote + token + f.quote
		}
		all = append(all, "("+strings.Join(quoted, f.or)+")")
	}
	return strings.Join(all, f.and)
}

// ddl fills the dialect's words into the text of a migration.
func (d *dialect) ddl(text string) string {
	return strings.NewReplacer("{ord}", d.ord, "{clustered}", d.clustered).Replace(text)
}

// rebind writes the placeholders of the portable SQL in the dialect's way. A
// question mark inside quotes stays.
func (d *dialect) rebind(query string) string {
	if !d.numeric || !strings.Contains(query, "?") {
		return query
	}
	var b strings.Builder
	b.Grow(len(query) + 32)
	n, quote := 0, byte(0)
	for i := range len(query) {
		c := query[i]
		switch {
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '\'' || c == '"':
			quote = c
		case c == '?':
			n++
			b.WriteByte('$')
			b.WriteString(strconv.Itoa(n))
			continue
		}
		b.WriteByte(c)
	}
	return b.String()
}

// fault turns a database error into what callers see: a domain error stays, a
// clash of keys and a database that does not answer get a code, the rest is
// wrapped with what was done.
func (d *dialect) fault(what string, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*agent.Error](err); ok {
		return err
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%s: %w", what, err)
	}
	if d.unique(err) {
		return &agent.Error{Code: agent.CodeConflict, Detail: err.Error(),
			Message: fmt.Sprintf("Cannot %s: it clashes with what is stored already.", what)}
	}
	if d.gone(err) || d.busy(err) {
		return noAnswer(what, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

func noAnswer(what string, err error) error {
	return &agent.Error{Code: agent.CodeInternal, Detail: err.Error(), Retryable: true,
		Message: fmt.Sprintf("Cannot %s now: the database does not answer.", what)}
}
