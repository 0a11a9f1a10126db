package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"time"

	"mneme/internal/agent"
	"mneme/internal/store"
)

// restStreams measures the memory of a reader of a background run, and of a
// running turn, each with 1,000 streams open. What the client side needs is in
// another process.
func (b *bench) restStreams() error {
	const n = 1000
	c := b.rest()
	agents, err := c.agent()
	if err != nil {
		return err
	}
	slow := message("SAY begun\nSLOW 1000\nTOKENS 600", `,"streaming":true,"stream_tokens":true,"background":true`)
	first, err := c.open("POST", "/v1/agents/"+agents+"/messages", slow)
	if err != nil {
		return err
	}
	defer first.Body.Close()
	run, err := runOf(first)
	if err != nil {
		return err
	}
	readers := make([]*http.Response, n)
	defer closeAll(readers)
	per, err := b.growth(n, func(i int) (err error) {
		readers[i], err = c.open("POST", "/v1/runs/"+run+"/stream", `{}`)
		return err
	})
	if err != nil {
		return err
	}
	b.add("memory per reader of a run, 1,000 readers", "60 KB", "", per <= 60<<10, "%.1f KB", float64(per)/1024)

	if err := b.fresh(); err != nil {
		return err
	}
	c = b.rest()
	if agents, err = c.agent(); err != nil {
		return err
	}
	conversations, turns := make([]string, n), make([]*http.Response, n)
	defer closeAll(turns)
	err = each(n, 16, func(i int) (err error) {
		conversations[i], err = c.make("/v1/conversations/?agent_id="+agents, `{}`)
		return err
	})
	if err != nil {
		return err
	}
	per, err = b.growth(n, func(i int) error {
		var err error
		if turns[i], err = c.open("POST", "/v1/conversations/"+conversations[i]+"/messages", slow); err != nil {
			return err
		}
		_, err = runOf(turns[i])
		return err
	})
	if err != nil {
		return err
	}
	b.add("memory per running turn with its stream, 1,000 turns", "200 KB", "", per <= 200<<10, "%.1f KB", float64(per)/1024)
	return nil
}

// growth does something n times and returns by how much the server's resident
// memory grew for each.
func (b *bench) growth(n int, f func(i int) error) (int64, error) {
	time.Sleep(2 * time.Second)
	before, err := rss(b.server.PID())
	if err != nil {
		return 0, err
	}
	if err := each(n, 16, f); err != nil {
		return 0, err
	}
	time.Sleep(5 * time.Second)
	after, err := rss(b.server.PID())
	return (after - before) / int64(n), err
}

// runOf reads the first chunk of a stream, which names the run.
func runOf(resp *http.Response) (string, error) {
	buf := make([]byte, 0, 1<<12)
	for len(buf) < cap(buf) {
		n, err := resp.Body.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if i := bytes.Index(buf, []byte(`"run_id":"`)); i >= 0 {
			if id, _, ok := bytes.Cut(buf[i+len(`"run_id":"`):], []byte(`"`)); ok {
				return string(id), nil
			}
		}
		if err != nil {
			return "", fmt.Errorf("the stream broke off: %w", err)
		}
	}
	return "", fmt.Errorf("no run is named in %.300q", buf)
}

func closeAll(responses []*http.Response) {
	for _, r := range responses {
		if r != nil {
			_ = r.Body.Close() // the server is stopped anyway
		}
	}
}

// restList measures a page of 100 of an agent's 1,000,000 messages. They are
// written into the database itself, and the server may finish its search index
// before it is asked.
func (b *bench) restList() error {
	const total = 1_000_000
	agentID, err := b.rest().agent()
	if err != nil {
		return err
	}
	if err := b.server.Stop(); err != nil {
		return err
	}
	begin := time.Now()
	middle, err := b.fill(agentID, total)
	if err != nil {
		return err
	}
	b.add(fmt.Sprintf("writing %d messages into the database", total), "", "", true, "%.0f s", time.Since(begin).Seconds())
	if b.server, err = b.group.StartServer(b.ctx, b.spec); err != nil {
		return err
	}
	begin = time.Now()
	if err := b.calm(20 * time.Minute); err != nil {
		return err
	}
	b.add("finishing their search index", "", "", true, "%.0f s", time.Since(begin).Seconds())
	c := b.rest()
	top, err := b.times(c, "/v1/health", 0)
	if err != nil {
		return err
	}
	path := "/v1/agents/" + agentID + "/messages?limit=100"
	for _, page := range []struct{ name, query string }{
		{"the newest page", ""}, {"the oldest page", "&order=asc"},
		{"a page in the middle", "&order=asc&after=" + middle}, {"a page of one kind", "&include_return_message_types=user_message"},
	} {
		got, err := b.times(c, path+page.query, 100)
		if err != nil {
			return fmt.Errorf("%s: %w", page.name, err)
		}
		p := percentile(got, 50)
		b.add("GET messages, 100 of 1,000,000, "+page.name+", p50", "5 ms", ms(percentile(top, 50)), p <= 5*time.Millisecond, "%s", ms(p))
	}
	return nil
}

// times asks for a path, one request after the other, and demands that many
// items in each answer.
func (b *bench) times(c *restClient, path string, items int) ([]time.Duration, error) {
	var got []time.Duration
	for begin := time.Now(); time.Since(begin) < b.length/4 || len(got) < 20; {
		at := time.Now()
		body, err := c.do("GET", path, "")
		if err != nil {
			return nil, err
		}
		got = append(got, time.Since(at))
		if items == 0 || len(got) > 1 {
			continue
		}
		var list []json.RawMessage
		if err := json.Unmarshal(body, &list); err != nil || len(list) != items {
			return nil, fmt.Errorf("%d items (%v) in %.300s", len(list), err, body)
		}
	}
	return got, nil
}

// fill writes messages into the agent's own conversation, as many turns would
// have, and returns the id of one in the middle.
func (b *bench) fill(agentID string, total int) (middle string, err error) {
	const batch, context = 5000, 50
	s, err := store.Open(b.ctx, filepath.Join(b.spec.State, "mneme.db"), store.Options{})
	if err != nil {
		return "", err
	}
	defer func() {
		if e := s.Close(); err == nil {
			err = e
		}
	}()
	own, err := s.OwnConversation(b.ctx, agentID)
	if err != nil {
		return "", err
	}
	lease, err := s.Acquire(b.ctx, own.ID)
	if err != nil {
		return "", err
	}
	seq, err := s.LastSeq(b.ctx, own.ID)
	if err != nil {
		return "", err
	}
	at := time.Now().Add(-time.Duration(total) * time.Second)
	for done := 0; done < total; done += batch {
		change := &store.Change{}
		for i := range batch {
			seq++
			role, text := agent.RoleUser, fmt.Sprintf("What is the weather like today, on day %d?", done+i)
			if i%2 == 1 {
				role, text = agent.RoleAssistant, fmt.Sprintf("It rains on day %d. Take a coat with you, and an umbrella.", done+i)
			}
			change.Messages = append(change.Messages, &agent.Message{
				ID: agent.NewID("message"), AgentID: agentID, ConversationID: own.ID, Seq: seq, Role: role, OTID: agent.NewUUID(),
				Parts: []agent.Part{agent.Text(text)}, CreatedAt: at.Add(time.Duration(done+i) * time.Second), Hidden: done+i < total-context,
			})
		}
		if err := s.Commit(b.ctx, lease, change); err != nil {
			return "", err
		}
		if done <= total/2 {
			middle = change.Messages[0].ID
		}
	}
	return middle, s.Release(b.ctx, lease)
}

// calm waits until the server has been nearly idle for some seconds.
func (b *bench) calm(limit time.Duration) error {
	quiet := 0
	for end := time.Now().Add(limit); quiet < 3; {
		before, err := cpu(b.server.PID())
		if err != nil {
			return err
		}
		time.Sleep(time.Second)
		after, err := cpu(b.server.PID())
		if err != nil {
			return err
		}
		if quiet++; after-before > 50*time.Millisecond {
			quiet = 0
		}
		if time.Now().After(end) {
			return fmt.Errorf("the server is still busy after %s", limit)
		}
	}
	return nil
}
