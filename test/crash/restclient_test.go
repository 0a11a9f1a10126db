package crash

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// An item is a message variant or another item of a stream, with the fields
// that the checks look at.
type item struct {
	ID      string   `json:"id"`
	Kind    string   `json:"message_type"`
	OTID    string   `json:"otid"`
	SeqID   int      `json:"seq_id"`
	Content any      `json:"content"`
	Calls   callList `json:"tool_calls"`
	Returns []struct {
		CallID string `json:"tool_call_id"`
		Status string `json:"status"`
	} `json:"tool_returns"`
}

type call struct {
	ID        string `json:"tool_call_id"`
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// A callList is a list of calls, or the delta of one.
type callList []call

func (l *callList) UnmarshalJSON(data []byte) error {
	if bytes.HasPrefix(data, []byte("[")) {
		return json.Unmarshal(data, (*[]call)(l))
	}
	var one call
	err := json.Unmarshal(data, &one)
	*l = callList{one}
	return err
}

// A restClient asks one server over HTTP.
type restClient struct {
	url  string
	seen func(kind string) // is told of what comes; may kill the server
}

var restHTTP = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// A refusal is an answer that is not 200.
type refusal struct {
	status int
	text   string
}

func (r *refusal) Error() string { return fmt.Sprintf("%d %.300s", r.status, r.text) }

// do asks, and hands the body of the answer to read. An error of the connection
// is errGone; answered says that 200 came.
func (c *restClient) do(ctx context.Context, method, path string, body any, read func(io.Reader) error) (answered bool, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("%s %s was not answered within %s", method, path, patience))
	defer cancel()
	var in io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return false, err
		}
		in = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.url+path, in)
	if err != nil {
		return false, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := restHTTP.Do(req)
	if err != nil {
		return false, gone(ctx)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode == http.StatusServiceUnavailable {
			return false, gone(ctx)
		}
		return false, &refusal{resp.StatusCode, string(text)}
	}
	c.note("answer")
	err = read(resp.Body)
	var syntax *json.SyntaxError
	if err != nil && !errors.As(err, &syntax) && !errors.Is(err, errGone) {
		return true, gone(ctx)
	}
	return true, err
}

// gone is errGone, unless it was patience that ended.
func gone(ctx context.Context) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	return errGone
}

func (c *restClient) note(kind string) {
	if c.seen != nil {
		c.seen(kind)
	}
}

// get reads a JSON answer.
func (c *restClient) get(ctx context.Context, path string, v any) error {
	_, err := c.do(ctx, http.MethodGet, path, nil, into(v))
	return err
}

func (c *restClient) post(ctx context.Context, path string, body, v any) (answered bool, err error) {
	return c.do(ctx, http.MethodPost, path, body, into(v))
}

// into reads a JSON body into v.
func into(v any) func(io.Reader) error { return func(r io.Reader) error { return decode(r, v) } }

// decode reads a whole JSON body; one that is cut is errGone.
func decode(r io.Reader, v any) error {
	data, err := io.ReadAll(r)
	if err != nil {
		return errGone
	}
	return json.Unmarshal(data, v)
}

// stream reads the items of a stream to its [DONE].
func (c *restClient) stream(ctx context.Context, path string, body any) (items []item, answered bool, err error) {
	answered, err = c.do(ctx, http.MethodPost, path, body, func(r io.Reader) error {
		lines := bufio.NewScanner(r)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			data, ok := strings.CutPrefix(lines.Text(), "data: ")
			switch {
			case !ok:
				continue
			case data == "[DONE]":
				return nil
			}
			var it item
			if err := json.Unmarshal([]byte(data), &it); err != nil {
				return errGone // cut in the middle
			}
			items = append(items, it)
			c.note(it.Kind)
		}
		return errGone
	})
	return items, answered, err
}

// history lists all messages of a conversation, oldest first.
func (c *restClient) history(ctx context.Context, conversation string) ([]item, error) {
	var all []item
	for after := ""; ; {
		var page []item
		q := url.Values{"order": {"asc"}, "limit": {"100"}}
		if after != "" {
			q.Set("after", after)
		}
		if err := c.get(ctx, "/v1/conversations/"+conversation+"/messages?"+q.Encode(), &page); err != nil {
			return nil, err
		}
		if len(page) == 0 {
			return all, nil
		}
		all = append(all, page...)
		after = page[len(page)-1].ID
	}
}
