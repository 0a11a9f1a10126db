package rest

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"mneme/internal/agent"
)

var resumeRoutes = []route{
	{"POST", "/v1/runs/{run_id}/stream", (*Door).resumeRun, doc{
		summary: "Stream a background run from a position on", body: resumeBody{}, optional: true, stream: true}},
	{"GET", "/v1/runs/{run_id}/stream", (*Door).resumeRunByGet, doc{
		summary: "Stream a background run; for clients that send Last-Event-ID", query: resumeQuery{}, stream: true}},
	{"POST", "/v1/conversations/{conversation_id}/stream", (*Door).resumeConversation, doc{
		summary: "Stream a background run of a conversation from a position on", body: resumeBody{}, optional: true, stream: true}},
}

// A resumeBody says where a stream shall go on. poll_interval and batch_size are
// accepted and mean nothing here.
type resumeBody struct {
	AgentID optional[string] `json:"agent_id"`
	RunID   optional[string] `json:"run_id"`
	OTID    optional[string] `json:"otid"`
	// After is the number of the last event that the client has.
	After optional[json.RawMessage] `json:"starting_after"`
	Pings optional[bool]            `json:"include_pings"`
}

type resumeQuery struct {
	After string `query:"starting_after" doc:"number of the last event that the client has"`
	Pings bool   `query:"include_pings" default:"true"`
}

// otidPatience is how long a run is waited for that an otid shall name.
const otidPatience = 1750 * time.Millisecond

func (d *Door) resumeRun(w http.ResponseWriter, r *http.Request) error {
	b, err := decodeOptional[resumeBody](d, w, r)
	if err != nil {
		return err
	}
	run, err := d.run(r)
	if err != nil {
		return err
	}
	return d.resume(w, r, run, string(b.After.Value), b.Pings.Or(true))
}

func (d *Door) resumeRunByGet(w http.ResponseWriter, r *http.Request) error {
	q, err := decodeQuery[resumeQuery](r)
	if err != nil {
		return err
	}
	run, err := d.run(r)
	if err != nil {
		return err
	}
	return d.resume(w, r, run, q.After, q.Pings)
}

// resumeConversation finds the run by its id, by an otid of its send, or as the
// newest one that is active (spec/rest.md section 6.3).
func (d *Door) resumeConversation(w http.ResponseWriter, r *http.Request) error {
	b, err := decodeOptional[resumeBody](d, w, r)
	if err != nil {
		return err
	}
	conv, err := d.conversationOrOwn(r, b.AgentID.Or(""))
	if err != nil {
		return err
	}
	run, err := d.runToResume(r.Context(), conv, b.RunID.Or(""), b.OTID.Or(""))
	if err != nil {
		return err
	}
	return d.resume(w, r, run, string(b.After.Value), b.Pings.Or(true))
}

func (d *Door) runToResume(ctx context.Context, conv *agent.Conversation, id, otid string) (*agent.Run, error) {
	switch {
	case id != "":
		run, err := d.store.Run(ctx, id)
		if agent.CodeOf(err) == agent.CodeNotFound || err == nil && run.ConversationID != conv.ID {
			return nil, notFound("Run with ID '%s' not found", id)
		}
		return run, err
	case otid != "":
		return d.runByOTID(ctx, conv.ID, otid)
	}
	runs, err := d.store.ActiveRuns(ctx, "", conv.ID)
	if err == nil && len(runs) == 0 {
		err = badRequest("No active runs found for this conversation.")
	}
	if err != nil {
		return nil, err
	}
	return runs[0], nil
}

// runByOTID waits a little: the send may be on its way still.
func (d *Door) runByOTID(ctx context.Context, conversationID, otid string) (*agent.Run, error) {
	deadline := time.Now().Add(otidPatience)
	for {
		run, err := d.store.RunByOTID(ctx, conversationID, otid)
		if err != nil || run != nil {
			return run, err
		}
		if time.Now().After(deadline) {
			return nil, notFound("No run found for otid=%s", otid)
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// resume streams a run from a position on: what the request says, else the header
// Last-Event-ID.
func (d *Door) resume(w http.ResponseWriter, r *http.Request, run *agent.Run, position string, pings bool) error {
	if !run.Spec.Background {
		return badRequest("Run %s was not created in background mode, so it cannot be streamed again.", run.ID)
	}
	if position == "" || position == "null" {
		position = r.Header.Get("Last-Event-ID")
	}
	after := 0
	if position != "" {
		n, err := strconv.Atoi(position)
		if err != nil || n < 0 {
			return badRequest("The position %s is not the number of an event", quoted(position))
		}
		after = n
	}
	if d.expired(r.Context(), run) {
		return &httpError{Status: http.StatusGone, Final: true, Body: expiredError{
			Detail: "EXPIRED: The events of run " + run.ID + " are no longer kept; its messages are at /v1/runs/" + run.ID + "/messages",
		}}
	}
	return d.streamLog(w, r, run, after, pings)
}
