-- What the REST door adds: attached tools, runs as records of their own, feedback
-- on steps and callbacks.

ALTER TABLE agents ADD COLUMN tools TEXT;
ALTER TABLE agents ADD COLUMN tool_rules TEXT;
ALTER TABLE agents ADD COLUMN extra TEXT; -- fields that only REST knows

ALTER TABLE conversations ADD COLUMN description TEXT;

ALTER TABLE inputs ADD COLUMN run TEXT; -- the run that it begins

-- A run is stored when its input is queued: its turn and start come later.
ALTER TABLE runs ADD COLUMN door TEXT NOT NULL DEFAULT '';
ALTER TABLE runs ADD COLUMN spec TEXT;
ALTER TABLE runs ADD COLUMN background INTEGER NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN created_ns BIGINT NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN first_token_ns BIGINT NOT NULL DEFAULT 0;
UPDATE runs SET created_ns = started_ns;
CREATE INDEX runs_agent ON runs (agent_id, ord);
CREATE INDEX runs_active ON runs (agent_id, ord) WHERE ended = 0;

ALTER TABLE steps ADD COLUMN error TEXT;
ALTER TABLE steps ADD COLUMN feedback TEXT;
ALTER TABLE steps ADD COLUMN tags TEXT;

CREATE INDEX messages_run ON messages (run_id, seq) WHERE run_id <> '';
-- The message of another conversation that this one is a copy of.
ALTER TABLE messages ADD COLUMN copy_of TEXT NOT NULL DEFAULT '';
CREATE INDEX messages_copies ON messages (copy_of, id) WHERE copy_of <> '';
CREATE INDEX messages_system ON messages (conversation_id, seq) WHERE role = 'system';

-- The ids of an input with several messages; an input with one has it as its key.
CREATE TABLE input_keys (
    conversation_id TEXT NOT NULL,
    key             TEXT NOT NULL,
    tenant          TEXT NOT NULL,
    input_id        TEXT NOT NULL,
    PRIMARY KEY (conversation_id, key)
) {clustered};

-- Who is to be told of the end of a run. next_ns 0 = nothing is left to do.
CREATE TABLE callbacks (
    run_id   TEXT NOT NULL PRIMARY KEY,
    tenant   TEXT NOT NULL,
    tries    BIGINT NOT NULL,
    next_ns  BIGINT NOT NULL,
    sent_ns  BIGINT NOT NULL,
    status   BIGINT NOT NULL, -- of the last answer; 0 = none came
    url      TEXT NOT NULL,
    payload  TEXT,
    error    TEXT
) {clustered};
CREATE INDEX callbacks_due ON callbacks (next_ns) WHERE next_ns > 0;
