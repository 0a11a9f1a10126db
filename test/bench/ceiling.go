package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// direct asks the scripted model itself, the way the server would.
type direct struct {
	url  string
	http *http.Client
}

func (b *bench) direct() *direct {
	return &direct{url: b.model.URL + "/chat/completions", http: &http.Client{
		Transport: &http.Transport{MaxIdleConnsPerHost: 64},
	}}
}

// turn streams one answer and throws it away.
func (d *direct) turn(text string) (turn, error) {
	body := fmt.Sprintf(`{"model":"mock-1","stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"user","content":%q}]}`, text)
	begin := time.Now()
	resp, err := d.http.Post(d.url, "application/json", strings.NewReader(body))
	if err != nil {
		return turn{}, err
	}
	defer resp.Body.Close()
	var t turn
	r := bufio.NewReader(resp.Body)
	for {
		line, err := r.ReadSlice('\n')
		if t.first == 0 && bytes.Contains(line, []byte(`"content":"t`)) {
			t.first = time.Since(begin)
		}
		if err == io.EOF {
			t.whole = time.Since(begin)
			return t, nil
		}
		if err != nil {
			return t, err
		}
	}
}
