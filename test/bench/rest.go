package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// A restClient is the leanest REST client there is: it looks at bodies as bytes,
// so that it costs the machine less than what it measures.
type restClient struct {
	url  string
	http *http.Client
}

func (b *bench) rest() *restClient {
	return &restClient{url: b.server.HTTP(), http: &http.Client{Transport: &http.Transport{
		MaxIdleConnsPerHost: 2000, MaxIdleConns: 2000,
	}}}
}

// do asks and returns the whole body; any answer but 200 is an error.
func (c *restClient) do(method, path, body string) ([]byte, error) {
	resp, err := c.open(method, path, body)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return io.ReadAll(resp.Body)
}

func (c *restClient) open(method, path, body string) (*http.Response, error) {
	req, err := http.NewRequest(method, c.url+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 300))
		return nil, fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, text)
	}
	return resp, nil
}

// make makes an agent or a conversation and returns its id.
func (c *restClient) make(path, body string) (string, error) {
	data, err := c.do("POST", path, body)
	if err != nil {
		return "", err
	}
	var made struct{ ID string }
	err = json.Unmarshal(data, &made)
	return made.ID, err
}

func (c *restClient) agent() (string, error) {
	return c.make("/v1/agents/", `{"name":"bench","model":"lmstudio/mock-1","include_base_tools":false}`)
}

// message is the body of a send.
func message(text, fields string) string {
	return fmt.Sprintf(`{"messages":[{"role":"user","content":%q}]%s}`, text, fields)
}

// creates measures non-streaming sends, as fast as 32 clients can.
func (b *bench) creates() error {
	const clients = 32
	c := b.rest()
	agents := make([]string, clients)
	counts := make([]int, clients)
	ask := func(i int) (turn, error) {
		if counts[i]++; counts[i]%renewEvery == 0 {
			if _, err := c.do("PATCH", "/v1/agents/"+agents[i]+"/reset-messages", `{}`); err != nil {
				return turn{}, err
			}
		}
		begin := time.Now()
		answer, err := c.do("POST", "/v1/agents/"+agents[i]+"/messages", message(script, ""))
		if err == nil && !bytes.Contains(answer, []byte(`"end_turn"`)) {
			err = fmt.Errorf("the turn failed: %.300s", answer)
		}
		return turn{whole: time.Since(begin)}, err
	}
	err := each(clients, 8, func(i int) (err error) {
		if agents[i], err = c.agent(); err == nil {
			_, err = ask(i) // warm
		}
		return err
	})
	if err != nil {
		return err
	}
	before, err := cpu(b.server.PID())
	if err != nil {
		return err
	}
	got, took, err := b.load(clients, ask)
	if err != nil {
		return err
	}
	after, err := cpu(b.server.PID())
	if err != nil {
		return err
	}
	d := b.direct()
	top, topTook, err := b.load(clients, func(int) (turn, error) { return d.turn(script) })
	if err != nil {
		return err
	}
	perSecond := float64(len(got)) / took.Seconds()
	per := (after - before) / time.Duration(len(got))
	b.add("REST creates/s, not streaming, 32 clients", "250", fmt.Sprintf("%.0f", float64(len(top))/topTook.Seconds()), perSecond >= 250, "%.0f", perSecond)
	b.add("REST create, 32 clients, p99", "", ms(percentile(top, 99)), true, "%s", ms(percentile(got, 99)))
	b.add("CPU of the server per REST create", "2 ms", "", per <= 2*time.Millisecond, "%.2f ms", per.Seconds()*1000)
	return nil
}

// load has n clients ask, one after the other each, for as long as a load lasts.
func (b *bench) load(n int, ask func(i int) (turn, error)) ([]time.Duration, time.Duration, error) {
	var mu sync.Mutex
	var wholes []time.Duration
	begin := time.Now()
	err := each(n, n, func(i int) error {
		for time.Since(begin) < b.length {
			t, err := ask(i)
			if err != nil {
				return err
			}
			mu.Lock()
			wholes = append(wholes, t.whole)
			mu.Unlock()
		}
		return nil
	})
	return wholes, time.Since(begin), err
}

// restStream measures one long answer over SSE, one token per event of the model.
func (b *bench) restStream() error {
	const tokens = 100_000
	c, d := b.rest(), b.direct()
	text := fmt.Sprintf("TOKENS %d", tokens)
	top, err := median(3, func() (time.Duration, error) {
		t, err := d.turn(text)
		return t.whole, err
	})
	if err != nil {
		return err
	}
	ceiling := fmt.Sprintf("%.0f", tokens/top.Seconds())
	for _, way := range []struct{ name, fields string }{
		{"REST tokens/s in one stream", `,"streaming":true,"stream_tokens":true`},
		{"REST tokens/s in one background stream", `,"streaming":true,"stream_tokens":true,"background":true`},
	} {
		took, err := median(3, func() (time.Duration, error) {
			agent, err := c.agent()
			if err != nil {
				return 0, err
			}
			begin := time.Now()
			resp, err := c.open("POST", "/v1/agents/"+agent+"/messages", message(text, way.fields))
			if err != nil {
				return 0, err
			}
			defer resp.Body.Close()
			err = untilDone(resp.Body)
			return time.Since(begin), err
		})
		if err != nil {
			return fmt.Errorf("%s: %w", way.name, err)
		}
		b.add(way.name, "", ceiling, true, "%.0f", tokens/took.Seconds())
	}
	return nil
}

// untilDone reads a stream to its [DONE].
func untilDone(r io.Reader) error {
	lines := bufio.NewReaderSize(r, 1<<16)
	for {
		line, err := lines.ReadSlice('\n')
		if bytes.HasPrefix(line, []byte("data: [DONE]")) {
			return nil
		}
		if err != nil && err != bufio.ErrBufferFull {
			return fmt.Errorf("the stream broke off: %w", err)
		}
	}
}

// median runs f n times.
func median(n int, f func() (time.Duration, error)) (time.Duration, error) {
	var all []time.Duration
	for range n {
		d, err := f()
		if err != nil {
			return 0, err
		}
		all = append(all, d)
	}
	return percentile(all, 50), nil
}
