package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"mneme/internal/agent"
	"mneme/internal/store"
)

// callbackDelays are how long after a failed try the next one comes
// (spec/rest.md section 8.6).
var callbackDelays = []time.Duration{time.Second, 5 * time.Second, 25 * time.Second}

// Times of the background work.
const (
	// callbackPoll is how often the callbacks that are due are looked for: a run's
	// end stores one, whoever ran it.
	callbackPoll = 250 * time.Millisecond
	prunePoll    = 10 * time.Minute
	// keptEvents is how long the runtime says that events are to be kept.
	keptEvents = 24 * time.Hour
	// callbacksAtOnce bounds the callbacks that are on their way.
	callbacksAtOnce = 16
)

// checkCallback refuses an URL that cannot be told anything.
func checkCallback(address string) error {
	if address == "" {
		return nil
	}
	u, err := url.Parse(address)
	if err == nil {
		err = webURL(u)
	}
	if err != nil {
		return unprocessable("body.callback_url", "%s is not an http or https URL", quoted(address))
	}
	return nil
}

// Start begins the background work: callbacks at the end of async runs, and the
// removal of events that are no longer kept. Close ends it.
func (d *Door) Start() {
	d.work.Go(d.sendCallbacks)
	d.work.Go(d.pruneEvents)
}

func (d *Door) pruneEvents() {
	tick := time.NewTicker(prunePoll)
	defer tick.Stop()
	for {
		// Events say when they expire; here they may have to go earlier.
		if _, err := d.store.PruneEvents(d.life, time.Now().Add(keptEvents-d.retention)); err != nil && d.life.Err() == nil {
			d.log.Error("expired events not removed", "err", err)
		}
		select {
		case <-tick.C:
		case <-d.life.Done():
			return
		}
	}
}

// sendCallbacks tells callers of the ends of their runs. What is due is in the
// database, so nothing is lost by a restart; a try that was under way then is made
// again.
func (d *Door) sendCallbacks() {
	tick := time.NewTicker(callbackPoll)
	defer tick.Stop()
	busy := make(chan struct{}, callbacksAtOnce)
	sending := map[string]bool{}
	done := make(chan string, callbacksAtOnce)
	for {
		select {
		case <-tick.C:
		case id := <-done:
			delete(sending, id)
			continue
		case <-d.life.Done():
			return
		}
		next, err := d.store.NextCallback(d.life)
		if err != nil || next.IsZero() || next.After(time.Now()) {
			if err != nil && d.life.Err() == nil {
				d.log.Error("callbacks not looked for", "err", err)
			}
			continue
		}
		due, err := d.store.DueCallbacks(d.life, time.Now())
		if err != nil {
			d.log.Error("callbacks not read", "err", err)
			continue
		}
		for _, c := range due {
			if sending[c.RunID] || len(sending) == callbacksAtOnce {
				continue
			}
			sending[c.RunID] = true
			busy <- struct{}{}
			d.work.Go(func() {
				if err := d.sendCallback(d.life, c); err != nil && d.life.Err() == nil {
					d.log.Error("callback not sent", "run", c.RunID, "err", err)
				}
				<-busy
				done <- c.RunID // it has room for all
			})
		}
	}
}

// callbackBody is what a callback tells.
type callbackBody struct {
	RunID       string      `json:"run_id"`
	Status      string      `json:"status"`
	CompletedAt stamp       `json:"completed_at"`
	Metadata    runMetadata `json:"metadata"`
}

// sendCallback makes one try and stores how it went.
func (d *Door) sendCallback(ctx context.Context, c *store.Callback) error {
	payload, err := d.callbackPayload(ctx, c)
	if err != nil {
		return err
	}
	status, fault := d.outbound.tell(ctx, c.URL, payload)
	if ctx.Err() != nil {
		return ctx.Err() // the try does not count
	}
	c.Payload, c.Status, c.Sent, c.Error, c.Next = nil, status, time.Now(), "", time.Time{}
	if fault != nil {
		c.Error = fault.Error()
	}
	c.Tries++
	if again := fault != nil || status >= 500; again && c.Tries <= len(callbackDelays) {
		c.Next = time.Now().Add(callbackDelays[c.Tries-1])
	}
	if fault == nil && status >= 400 {
		c.Error = fmt.Sprintf("the server answered %d", status)
	}
	return d.store.PutCallback(ctx, c)
}

func (d *Door) callbackPayload(ctx context.Context, c *store.Callback) ([]byte, error) {
	run, err := d.store.Run(ctx, c.RunID)
	if agent.CodeOf(err) == agent.CodeNotFound { // deleted with its agent
		return json.Marshal(callbackBody{RunID: c.RunID, Status: string(agent.RunCancelled)})
	}
	if err != nil {
		return nil, err
	}
	st, err := d.runState(ctx, run)
	if err != nil {
		return nil, err
	}
	return json.Marshal(callbackBody{RunID: run.ID, Status: st.Status, CompletedAt: st.CompletedAt, Metadata: st.Metadata})
}

// tell posts a callback once. status is 0 if no answer came.
func (o *outbound) tell(ctx context.Context, address string, body []byte) (status int, err error) {
	ctx, cancel := context.WithTimeout(ctx, callbackTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := o.client.Do(req)
	if err != nil {
		return 0, plainCause(err)
	}
	defer resp.Body.Close()
	_, _ = io.CopyN(io.Discard, resp.Body, 64<<10) // what it says does not matter
	return resp.StatusCode, nil
}
