package rest

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
)

// refused checks that an error of a decoder is an answer that blames the client.
func refused(t *testing.T, err error) {
	t.Helper()
	var h *httpError
	if err != nil && (!errors.As(err, &h) || h.Status != http.StatusUnprocessableEntity) {
		t.Errorf("%T: %v", err, err)
	}
}

// FuzzBodies: whatever is sent as an agent, a block or a conversation, is taken or
// refused, and what is taken can be stored.
func FuzzBodies(f *testing.F) {
	for _, seed := range []string{
		`{}`, `{"name":"Ada","model_settings":{"max_output_tokens":5},"tool_rules":[{"type":"exit_loop","tool_name":"x"}],"hidden":null}`,
		`{"label":"human","value":"x","limit":3,"metadata":{"a":1},"tags":["t"]}`, `{"memory_blocks":[{"label":"a/b","value":null}]}`,
		`{"compaction_settings":{"mode":"all","clip_chars":null},"response_format":{"type":"json_schema","json_schema":{}}}`,
		`{"last_message_at":"2026-08-22T10:15:30","archived":true,"context_window_limit":1e3}`, `[`, `{"name":1}`, `{"secrets":{"a":"b"}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var a agentCreate
		if err := unmarshal(data, &a); err != nil {
			refused(t, err)
		} else if err := a.check(); err != nil {
			refused(t, err)
		} else {
			extra, err := a.extra()
			if err != nil {
				t.Error(err)
			}
			for name, raw := range extra {
				if !json.Valid(raw) {
					t.Errorf("%s is stored as %s", name, raw)
				}
			}
			for i := range a.MemoryBlocks.Value {
				a.MemoryBlocks.Value[i].spec()
			}
		}
		var b blockCreate
		if err := unmarshal(data, &b); err == nil {
			err = b.check()
			refused(t, err)
		}
		var c conversationPatch
		if err := unmarshal(data, &c); err == nil {
			err = c.check()
			refused(t, err)
		}
	})
}

// FuzzQuery: whatever the query, it is taken or refused.
func FuzzQuery(f *testing.F) {
	for _, seed := range []string{"limit=5&tags=a,b&order=asc", "ascending=1&include=agent.tags", "limit=x", "%zz", "connected_to_agents_count_eq=1,2", ";"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, query string) {
		r := httptest.NewRequest("GET", "/", nil)
		r.URL = &url.URL{Path: "/", RawQuery: query}
		q, err := decodeQuery[agentList](r)
		refused(t, err)
		if err == nil && (q.Limit < 0 || q.Limit > 1000) {
			t.Errorf("limit %d", q.Limit)
		}
		_, err = decodeQuery[blockList](r)
		refused(t, err)
	})
}
