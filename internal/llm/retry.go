package llm

import (
	"context"
	"errors"
	"time"
)

// The one retry budget of a step, whatever failed (spec/harness.md section 1.6).
const (
	MaxAttempts = 4 // requests in total
	firstDelay  = time.Second
	maxDelay    = 60 * time.Second
)

// RetryDelay says whether to ask again after attempt requests have failed, the
// last one with err, and how long to wait before. The provider's Retry-After
// counts where it gave one, up to 60 s; otherwise 1, 2, 4 s. Errors of a
// context, and errors that are no *Error, are never retried.
func RetryDelay(err error, attempt int) (time.Duration, bool) {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return 0, false
	}
	var e *Error
	if !errors.As(err, &e) || !e.Retryable || attempt < 1 || attempt >= MaxAttempts {
		return 0, false
	}
	if e.RetryAfter > 0 {
		return min(e.RetryAfter, maxDelay), true
	}
	return firstDelay << (attempt - 1), true
}
