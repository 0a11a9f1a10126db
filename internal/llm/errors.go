package llm

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"mneme/internal/agent"
)

// maxDetail bounds what of a provider's own words is kept, in bytes.
const maxDetail = 2048

// A Source says whom an error is about, so that its sentence can name the
// provider, the model and the setting to change.
type Source struct {
	Provider string // name as in handles and in `mneme connect`
	Label    string // name for people; "" = Provider
	Model    string // "" = no model is concerned
	BaseURL  string
}

func (s Source) label() string {
	if s.Label != "" {
		return s.Label
	}
	if s.Provider != "" {
		return s.Provider
	}
	return "The model provider"
}

// forModel is " for model X", or nothing.
func (s Source) forModel() string {
	if s.Model == "" {
		return ""
	}
	return fmt.Sprintf(" for model %q", s.Model)
}

// connect is the command that changes the provider's settings.
func (s Source) connect() string {
	return strings.TrimSuffix("`mneme connect "+s.Provider, " ") + "`"
}

// StatusError makes the error of an answer that is not 2xx. The status alone
// decides whether it may be retried; the body tells only an overflow of the
// model's window (spec/harness.md sections 1.6 and 1.7). header may be nil.
func StatusError(src Source, status int, header http.Header, body []byte) *Error {
	said := providerSaid(body)
	e := &Error{Plain: agent.Error{
		Code:      agent.CodeModel,
		Status:    status,
		Detail:    bodyDetail(body),
		Retryable: retryableStatus(status),
	}}
	if e.Retryable {
		e.RetryAfter = retryAfter(header, time.Now())
	}
	e.Overflow = status == http.StatusRequestEntityTooLarge ||
		(status == http.StatusBadRequest || status == http.StatusUnprocessableEntity) && saysOverflow(string(body))
	name, model := src.label(), src.forModel()
	switch {
	case e.Overflow:
		e.Code = agent.CodeModelOverflow
		e.Message = overflowSentence(src)
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		e.Code = agent.CodeModelConfig
		e.Message = fmt.Sprintf("%s refused the API key%s (status %d): set a valid key with %s.", name, model, status, src.connect())
	case status == http.StatusPaymentRequired:
		e.Code = agent.CodeModelConfig
		e.Message = fmt.Sprintf("%s says that the account has no credit left%s (status 402): top it up, or choose another model.", name, model)
	case status == http.StatusNotFound && src.Model != "":
		e.Code = agent.CodeModelConfig
		e.Message = fmt.Sprintf("%s has no model %q at %s (status 404): choose another model, or correct the base URL with %s.", name, src.Model, src.BaseURL, src.connect())
	case status == http.StatusNotFound, status == http.StatusMethodNotAllowed:
		e.Code = agent.CodeModelConfig
		e.Message = fmt.Sprintf("%s does not offer its API at %s (status %d): correct the base URL with %s.", name, src.BaseURL, status, src.connect())
	case status >= 300 && status < 400:
		e.Code = agent.CodeModelConfig
		e.Message = fmt.Sprintf("%s redirects %s%s (status %d): set the new address as base URL with %s.", name, src.BaseURL, redirectTarget(header), status, src.connect())
	case status == http.StatusTooManyRequests:
		e.Code = agent.CodeModelRateLimit
		e.Message = fmt.Sprintf("%s limits the rate of requests%s (status 429): wait a little, or choose another model.", name, model)
	case e.Retryable:
		e.Message = fmt.Sprintf("%s failed to answer%s (status %d): try again later, or choose another model.", name, model, status)
	default:
		e.Message = fmt.Sprintf("%s refused the request%s (status %d)%s: check the agent's model settings, or choose another model.", name, model, status, quoted(said))
	}
	return e
}

// retryableStatus is the rule of spec/harness.md section 1.6.
func retryableStatus(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusConflict, http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	}
	return status >= 500
}

func overflowSentence(src Source) string {
	return fmt.Sprintf("The prompt is longer than %s accepts%s: compact the conversation, or choose a model with a larger context window.", src.label(), src.forModel())
}

// overflowMarkers are how providers say, in lower case, that a prompt is too
// long for the model.
var overflowMarkers = []string{
	"context_length_exceeded", "maximum context length", "prompt is too long", "request_too_large",
	"context window", "context size", "exceed_context_size", "context length", "too many tokens",
	"input is too long", "prompt too long", "maximum prompt length", "input token count", "reduce the length",
	"exceeds the maximum number of tokens",
}

func saysOverflow(s string) bool {
	s = strings.ToLower(s)
	for _, m := range overflowMarkers {
		if strings.Contains(s, m) {
			return true
		}
	}
	return false
}

// retryAfter reads the Retry-After header, seconds or an HTTP date; 0 = none.
func retryAfter(h http.Header, now time.Time) time.Duration {
	v := strings.TrimSpace(h.Get("Retry-After"))
	if v == "" {
		return 0
	}
	if s, err := strconv.ParseFloat(v, 64); err == nil {
		if !(s > 0) {
			return 0
		}
		// A day is far beyond every cap; it keeps the conversion in range.
		return time.Duration(min(s, 86400) * float64(time.Second))
	}
	if t, err := http.ParseTime(v); err == nil {
		return max(t.Sub(now), 0)
	}
	return 0
}

func redirectTarget(h http.Header) string {
	if to := h.Get("Location"); to != "" {
		return " to " + to
	}
	return ""
}

// streamError makes the error of an error object inside a 200 stream. Only a
// code that is an HTTP status tells whether to try again.
func streamError(src Source, obj wireError, raw []byte) *Error {
	if obj.Status >= 400 && obj.Status < 600 {
		return StatusError(src, obj.Status, nil, raw)
	}
	e := &Error{Plain: agent.Error{Code: agent.CodeModel, Detail: bodyDetail(raw)}}
	if saysOverflow(string(raw)) {
		e.Code, e.Overflow = agent.CodeModelOverflow, true
		e.Message = overflowSentence(src)
		return e
	}
	code := obj.Code
	if code != "" {
		code = " (" + clip(code, 80) + ")"
	}
	e.Message = fmt.Sprintf("%s broke off its answer%s with an error%s%s: try again, or choose another model.", src.label(), src.forModel(), code, quoted(obj.Message))
	return e
}

// brokenStream is an answer that nobody can read or that ended too early. It
// may be asked for again.
func brokenStream(src Source, what string, cause error) *Error {
	e := &Error{Plain: agent.Error{
		Code:      agent.CodeModel,
		Retryable: true,
		Message:   fmt.Sprintf("%s %s%s: try again, or check %s with %s.", src.label(), what, src.forModel(), src.BaseURL, src.connect()),
	}}
	if cause != nil {
		e.Detail = clip(cause.Error(), maxDetail)
	}
	return e
}

// errIdle is the cause of a request that was given up for lack of bytes.
var errIdle = errors.New("no byte within the idle timeout")

// connectionError says in plain words why a provider could not be reached.
func connectionError(src Source, err error, idle time.Duration) *Error {
	e := &Error{Plain: agent.Error{Code: agent.CodeModel, Retryable: true, Detail: clip(err.Error(), maxDetail)}}
	var (
		dns     *net.DNSError
		cert    *tls.CertificateVerificationError
		host    x509.HostnameError
		record  tls.RecordHeaderError
		timeout net.Error
	)
	where := src.label() + " at " + src.BaseURL
	switch {
	case errors.Is(err, errIdle):
		e.Message = fmt.Sprintf("%s sent nothing for %s%s: try again, or give it more time (setting \"timeout\", see %s).", where, idle, src.forModel(), src.connect())
	case errors.As(err, &dns):
		e.Message = fmt.Sprintf("The host name of %s is unknown: check the base URL with %s.", where, src.connect())
	case errors.As(err, &cert), errors.As(err, &host):
		e.Message = fmt.Sprintf("The certificate of %s is not trusted: check the base URL with %s.", where, src.connect())
	case errors.As(err, &record), strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		e.Message = fmt.Sprintf("%s does not speak TLS: use http in the base URL (%s).", where, src.connect())
	case errors.As(err, &timeout) && timeout.Timeout():
		e.Message = fmt.Sprintf("%s did not answer in time: check that it runs, or the base URL with %s.", where, src.connect())
	default:
		e.Message = fmt.Sprintf("%s cannot be reached: check that it runs, or the base URL with %s.", where, src.connect())
	}
	return e
}

// contextOr returns ctx's own error when ctx has ended, else err.
func contextOr(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// A wireError is a provider's error object in the shapes that are about.
type wireError struct {
	Message string
	Code    string
	Status  int // a code that is an HTTP status, 0 = none
}

// parseError reads {"message","code","type"}, a plain string, or either inside
// {"error": …}.
func parseError(raw []byte) wireError {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return wireError{Message: s}
	}
	var obj struct {
		Error   json.RawMessage `json:"error"`
		Message json.RawMessage `json:"message"`
		Detail  json.RawMessage `json:"detail"`
		Code    json.RawMessage `json:"code"`
		Status  json.RawMessage `json:"status"`
		Type    string          `json:"type"`
	}
	_ = json.Unmarshal(raw, &obj) // fields of another type are left out
	if len(obj.Error) > 0 && string(obj.Error) != "null" && len(obj.Error) < len(raw) {
		return parseError(obj.Error)
	}
	e := wireError{Message: scalar(obj.Message), Code: scalar(obj.Code)}
	if e.Message == "" {
		e.Message = scalar(obj.Detail)
	}
	for _, c := range []string{e.Code, scalar(obj.Status)} {
		if n, err := strconv.Atoi(c); err == nil && n >= 400 && n < 600 {
			e.Status = n
			break
		}
	}
	if e.Code == "" {
		e.Code = obj.Type
	}
	return e
}

// scalar is the text of a JSON string or number, "" for anything else.
func scalar(raw json.RawMessage) string {
	if len(raw) == 0 {
		return ""
	}
	switch c := raw[0]; {
	case c == '"':
		var s string
		_ = json.Unmarshal(raw, &s)
		return s
	case c == '-' || c >= '0' && c <= '9':
		return string(raw)
	}
	return ""
}

// providerSaid is the message in a provider's error body; "" when there is
// none that people could read.
func providerSaid(body []byte) string {
	return parseError(body).Message
}

// quoted appends a provider's words to a sentence, shortened.
func quoted(said string) string {
	said = strings.Join(strings.Fields(said), " ")
	if said == "" {
		return ""
	}
	return fmt.Sprintf(" and says %q", clip(said, 200))
}

func bodyDetail(body []byte) string {
	return clip(strings.TrimSpace(strings.ToValidUTF8(string(body[:min(len(body), 2*maxDetail)]), "�")), maxDetail)
}

// clip cuts s to at most n bytes at a character boundary.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	const mark = "…"
	cut := n - len(mark)
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + mark
}
