package llm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
)

// Times and sizes of the chat-completions client.
const (
	// DefaultIdle is how long a provider may send nothing, before its first
	// byte and between two.
	DefaultIdle = 300 * time.Second
	// afterFinish is how long the usage may come after the finish reason.
	afterFinish = 5 * time.Second
	// afterDone is how long the connection may take to end after [DONE], so
	// that it can be used again.
	afterDone   = 50 * time.Millisecond
	maxErrBody  = 64 << 10
	maxJSONBody = 16 << 20
)

// A ChatConfig describes one chat-completions endpoint.
type ChatConfig struct {
	Provider string // name as in handles
	Label    string // name for people
	BaseURL  string // as NormalizeBaseURL gives it
	Key      string // "" = none is sent
	// Header is sent with every request.
	Header http.Header
	// Idle bounds the silence of the provider: 0 = DefaultIdle, negative = none.
	Idle   time.Duration
	Client *http.Client // nil = one of its own
	Logger *slog.Logger // nil = none
	quirks quirks
}

// quirks are what is special about a provider.
type quirks struct {
	lacks       feature // what it refuses
	cacheKey    bool    // takes prompt_cache_key
	session     string  // header that takes the conversation's key
	shortPrompt bool    // cuts long prompts silently (case H07)
}

// Chat is a client of one chat-completions endpoint. It implements Model and
// is safe for concurrent use.
type Chat struct {
	cfg     ChatConfig
	client  *http.Client
	own     bool // the client is ours to close
	log     *slog.Logger
	refused atomic.Uint32 // features that the server turned out to refuse
}

var _ Model = (*Chat)(nil)

// NewChat makes a client; no request is made.
func NewChat(cfg ChatConfig) *Chat {
	c := &Chat{cfg: cfg, client: cfg.Client, log: cfg.Logger}
	if c.client == nil {
		c.client, c.own = newHTTPClient(), true
	}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	if c.cfg.Idle == 0 {
		c.cfg.Idle = DefaultIdle
	}
	return c
}

// newHTTPClient is a client without a total timeout, as answers of slow local
// models take minutes (case H11); silence is bounded per request. Redirects are
// not followed: a key goes only where it was configured for.
func newHTTPClient() *http.Client {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DialContext = (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	t.MaxIdleConns = 256
	t.MaxIdleConnsPerHost = 64
	t.DisableCompression = true
	return &http.Client{
		Transport:     t,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Close closes idle connections.
func (c *Chat) Close() {
	if c.own {
		c.client.CloseIdleConnections()
	}
}

func (c *Chat) source(model string) Source {
	return Source{Provider: c.cfg.Provider, Label: c.cfg.Label, Model: model, BaseURL: c.cfg.BaseURL}
}

// Stream asks the model. See Model.
func (c *Chat) Stream(ctx context.Context, req *Request) iter.Seq2[Part, error] {
	return func(yield func(Part, error) bool) {
		a := newAnswer(c.source(req.Model), req, yield)
		err := c.stream(ctx, a)
		if err == nil || err == errStopped {
			return
		}
		if a.flush() != errStopped {
			yield(Part{}, contextOr(ctx, err))
		}
	}
}

// stream makes the request and feeds its answer to a.
func (c *Chat) stream(parent context.Context, a *answer) error {
	ctx, watch := watchIdle(parent, c.cfg.Idle)
	defer watch.stop()
	resp, err := c.ask(ctx, a.req)
	if err != nil {
		return c.explain(ctx, a.src, err)
	}
	defer resp.Body.Close()
	body := &watchedBody{body: resp.Body, watch: watch}
	if isJSON(resp.Header) {
		return c.whole(ctx, a, body)
	}
	if err := c.events(ctx, a, body); err != nil {
		return err
	}
	c.checkPrompt(a)
	return a.end()
}

// ask sends the request. A server that refuses an optional part of it is asked
// again without, at once and from then on (case H12).
func (c *Chat) ask(ctx context.Context, req *Request) (*http.Response, error) {
	for {
		with := allFeatures &^ (c.cfg.quirks.lacks | feature(c.refused.Load()))
		cacheKey := ""
		if c.cfg.quirks.cacheKey {
			cacheKey = req.CacheKey
		}
		body, used := encodeRequest(req, with, cacheKey)
		resp, err := c.post(ctx, "/chat/completions", body, req.CacheKey)
		if err != nil || resp.StatusCode/100 == 2 {
			return resp, err
		}
		text, err := io.ReadAll(io.LimitReader(resp.Body, maxErrBody))
		resp.Body.Close()
		if err != nil && len(text) == 0 {
			text = []byte(err.Error())
		}
		if f := refusedFeature(resp.StatusCode, string(text)) & used; f != 0 {
			c.refused.Or(uint32(f))
			c.log.Info("provider refuses an optional part of requests; it is left out from now on",
				"provider", c.cfg.Provider, "said", clip(string(text), 300))
			continue
		}
		return nil, StatusError(c.source(req.Model), resp.StatusCode, resp.Header, text)
	}
}

// post sends a JSON body to a path below the base URL.
func (c *Chat) post(ctx context.Context, path string, body []byte, session string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.cfg.BaseURL+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	c.headers(r)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "text/event-stream, application/json")
	if h := c.cfg.quirks.session; h != "" && session != "" {
		r.Header.Set(h, session)
	}
	return c.client.Do(r)
}

func (c *Chat) headers(r *http.Request) {
	for k, v := range c.cfg.Header {
		r.Header[k] = v
	}
	r.Header.Set("User-Agent", "mneme")
	if c.cfg.Key != "" {
		r.Header.Set("Authorization", "Bearer "+c.cfg.Key)
	}
}

// explain turns an error of a request into an *Error.
func (c *Chat) explain(ctx context.Context, src Source, err error) error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	if errors.Is(context.Cause(ctx), errIdle) {
		err = errIdle
	}
	return connectionError(src, err, c.cfg.Idle)
}

// events reads an event stream to its end. A nil error means that the answer
// is whole.
func (c *Chat) events(ctx context.Context, a *answer, body *watchedBody) error {
	lines := newLineReader(body)
	for {
		kind, data, err := lines.next()
		if err != nil {
			return c.streamEnd(ctx, a, err)
		}
		switch {
		case kind == lineBlank:
			err = a.eventEnd()
		case kind != lineData:
		case isDone(data):
			if err := a.eventEnd(); err != nil {
				return err
			}
			body.watch.deadline(afterDone)
			_, _ = io.CopyN(io.Discard, body, 4<<10) // for the connection's sake; the answer is whole
			return nil
		default:
			err = a.data(data)
			if a.finish != "" {
				body.watch.deadline(afterFinish)
			}
		}
		if err != nil {
			return err
		}
	}
}

func isDone(data []byte) bool { return string(bytes.TrimSpace(data)) == "[DONE]" }

// streamEnd decides about a stream that ended, or broke, without [DONE]: it
// must have given its finish reason.
func (c *Chat) streamEnd(ctx context.Context, a *answer, err error) error {
	if err == io.EOF {
		if pending := a.eventEnd(); pending != nil {
			return pending
		}
	}
	switch {
	case a.finish != "" && err != errLongLine:
		return nil
	case err == io.EOF:
		return brokenStream(a.src, "ended its answer in the middle", io.ErrUnexpectedEOF)
	case errors.Is(context.Cause(ctx), errIdle):
		return connectionError(a.src, errIdle, c.cfg.Idle)
	case err == errLongLine:
		return a.unreadable(err)
	}
	return brokenStream(a.src, "broke off its answer in the middle", err)
}

// whole reads an answer that is one JSON object though a stream was asked for.
func (c *Chat) whole(ctx context.Context, a *answer, body io.Reader) error {
	raw, err := io.ReadAll(io.LimitReader(body, maxJSONBody+1))
	switch {
	case err != nil:
		return c.explain(ctx, a.src, err)
	case len(raw) > maxJSONBody:
		return a.fail(fmt.Sprintf("sent more than %d MiB in one answer", maxJSONBody>>20))
	}
	var ch chunk
	if err := json.Unmarshal(raw, &ch); err != nil {
		return a.unreadable(err)
	}
	if err := a.chunk(&ch, raw); err != nil {
		return err
	}
	if len(ch.Choices) == 0 {
		return a.unreadable(errors.New("the answer has no choices"))
	}
	c.checkPrompt(a)
	return a.end()
}

// checkPrompt notices that a server read much less than it was sent, as Ollama
// does beyond the size it was started with (case H07).
func (c *Chat) checkPrompt(a *answer) {
	if !c.cfg.quirks.shortPrompt || a.usage == nil {
		return
	}
	sent := sizeHint(a.req) / 4
	if got := int(a.usage.Prompt); got > 0 && sent > 4096 && got < sent/3 {
		c.log.Warn("the provider seems to have cut the prompt: start it with a larger context size",
			"provider", c.cfg.Provider, "model", a.req.Model, "prompt_tokens", got, "estimated_tokens", sent)
	}
}

func isJSON(h http.Header) bool {
	media, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	return err == nil && media == "application/json"
}

// refusals tell by a server's words which optional part it does not take. The
// first word names the part; one of the others, if there are any, must be there
// as well.
var refusals = []struct {
	feature feature
	word    string
	also    []string
}{
	{featStreamOptions, "stream_options", nil},
	{featStreamOptions, "include_usage", nil},
	{featStore, "store", nil},
	{featNewMaxTokens, "max_completion_tokens", nil},
	{featParallel, "parallel_tool_calls", nil},
	{featEffort, "reasoning_effort", nil},
	{featReasoning, "reasoning_content", nil},
	{featReasoning, "reasoning_details", nil},
	{featReasoning, "reasoning_text", nil},
	{featReasoning, "reasoning", []string{"unsupported", "not permitted", "extra", "unknown", "unrecognized"}},
	{featNullContent, "content", []string{"null", "none", "required", "missing"}},
	{featParts, "content", []string{"must be a string", "be a valid string", "expected string", "type string", "a string"}},
}

// refusedFeature reads the answer to a request that the server refused.
func refusedFeature(status int, said string) (f feature) {
	if status != http.StatusBadRequest && status != http.StatusUnprocessableEntity {
		return 0
	}
	said = strings.ToLower(said)
	for _, r := range refusals {
		if !containsWord(said, r.word) {
			continue
		}
		if r.also == nil {
			f |= r.feature
		}
		for _, w := range r.also {
			if strings.Contains(said, w) {
				f |= r.feature
			}
		}
	}
	return f
}

// containsWord finds word in s, not as a part of a longer name.
func containsWord(s, word string) bool {
	for {
		i := strings.Index(s, word)
		if i < 0 {
			return false
		}
		end := i + len(word)
		if (i == 0 || !nameByte(s[i-1])) && (end == len(s) || !nameByte(s[end])) {
			return true
		}
		s = s[end:]
	}
}

func nameByte(c byte) bool {
	return c == '_' || c >= 'a' && c <= 'z' || c >= '0' && c <= '9'
}
