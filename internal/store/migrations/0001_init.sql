-- The first schema, the same for SQLite and PostgreSQL.
--
-- Times are nanoseconds since 1970 (0 = never), flags 0 or 1, nested values
-- JSON text. Foreign keys guard only the tables that are written rarely; rows of
-- the journal are guarded by the lease of their conversation, which goes with it.
-- {ord} is a growing row number, {clustered} keeps the rows in key order.

CREATE TABLE agents (
    id              TEXT NOT NULL PRIMARY KEY,
    tenant          TEXT NOT NULL,
    created_ns      BIGINT NOT NULL,
    updated_ns      BIGINT NOT NULL,
    last_run_ns     BIGINT NOT NULL,
    listed          INTEGER NOT NULL, -- 0 = left out of lists unless asked for
    hidden          INTEGER,
    context_limit   BIGINT NOT NULL,
    name            TEXT NOT NULL,
    name_folded     TEXT NOT NULL,
    foreign_id      TEXT,
    model           TEXT NOT NULL,
    toolset         TEXT NOT NULL,
    description     TEXT,
    tags            TEXT,
    model_settings  TEXT NOT NULL,
    compaction      TEXT,
    metadata        TEXT,
    search          TEXT NOT NULL, -- what a search looks at, in lower case
    system          TEXT NOT NULL
);
CREATE UNIQUE INDEX agents_foreign ON agents (tenant, foreign_id);
CREATE INDEX agents_name ON agents (tenant, name_folded);

CREATE TABLE agent_tags (
    agent_id TEXT NOT NULL REFERENCES agents (id) ON DELETE CASCADE,
    tag      TEXT NOT NULL,
    tenant   TEXT NOT NULL,
    PRIMARY KEY (agent_id, tag)
) {clustered};

CREATE TABLE conversations (
    id              TEXT NOT NULL PRIMARY KEY,
    tenant          TEXT NOT NULL,
    agent_id        TEXT NOT NULL REFERENCES agents (id) ON DELETE CASCADE,
    own             INTEGER NOT NULL,
    created_ns      BIGINT NOT NULL,
    updated_ns      BIGINT NOT NULL,
    last_message_ns BIGINT NOT NULL,
    sort_ns         BIGINT NOT NULL, -- last message, else update, else creation
    archived_ns     BIGINT NOT NULL,
    hidden          INTEGER,
    context_limit   BIGINT NOT NULL,
    foreign_id      TEXT,
    mode            TEXT NOT NULL,
    cwd             TEXT NOT NULL,
    toolset         TEXT NOT NULL,
    rules           TEXT,
    model           TEXT,
    model_settings  TEXT,
    tags            TEXT,
    summary         TEXT,
    search          TEXT NOT NULL
);
CREATE UNIQUE INDEX conversations_own ON conversations (agent_id) WHERE own = 1;
CREATE UNIQUE INDEX conversations_foreign ON conversations (tenant, foreign_id);
CREATE INDEX conversations_sorted ON conversations (agent_id, sort_ns, id);

CREATE TABLE prompts (
    conversation_id TEXT NOT NULL PRIMARY KEY REFERENCES conversations (id) ON DELETE CASCADE,
    tenant          TEXT NOT NULL,
    created_ns      BIGINT NOT NULL,
    raw_hash        TEXT NOT NULL,
    revision        TEXT NOT NULL,
    noticed_at      TEXT NOT NULL,
    body            TEXT NOT NULL
);

CREATE TABLE leases (
    conversation_id TEXT NOT NULL PRIMARY KEY REFERENCES conversations (id) ON DELETE CASCADE,
    tenant          TEXT NOT NULL,
    owner           TEXT NOT NULL,
    epoch           BIGINT NOT NULL,
    expires_ns      BIGINT NOT NULL -- 0 = free
) {clustered};

CREATE TABLE inputs (
    ord             {ord},
    id              TEXT NOT NULL UNIQUE,
    tenant          TEXT NOT NULL,
    agent_id        TEXT NOT NULL,
    conversation_id TEXT NOT NULL,
    key             TEXT, -- NULL = none
    digest          TEXT NOT NULL,
    door            TEXT NOT NULL,
    kind            TEXT NOT NULL,
    source          TEXT NOT NULL,
    if_busy         TEXT NOT NULL,
    on_orphan       TEXT NOT NULL,
    logged          INTEGER NOT NULL,
    origin          TEXT NOT NULL,
    state           TEXT NOT NULL,
    paused          INTEGER NOT NULL,
    started         INTEGER NOT NULL,
    turn_id         TEXT NOT NULL,
    created_ns      BIGINT NOT NULL,
    options         TEXT NOT NULL,
    messages        TEXT
);
CREATE UNIQUE INDEX inputs_key ON inputs (conversation_id, key);
CREATE INDEX inputs_queue ON inputs (conversation_id, ord) WHERE state = 'queued';

CREATE TABLE turns (
    ord             {ord},
    id              TEXT NOT NULL UNIQUE,
    tenant          TEXT NOT NULL,
    agent_id        TEXT NOT NULL,
    conversation_id TEXT NOT NULL,
    state           TEXT NOT NULL,
    door            TEXT NOT NULL,
    on_orphan       TEXT NOT NULL,
    logged          INTEGER NOT NULL,
    mergeable       INTEGER NOT NULL,
    steps           BIGINT NOT NULL,
    started_ns      BIGINT NOT NULL,
    ended_ns        BIGINT NOT NULL,
    origin          TEXT NOT NULL,
    stop_reason     TEXT NOT NULL,
    error           TEXT,
    options         TEXT NOT NULL
);
CREATE INDEX turns_conversation ON turns (conversation_id, ord);
CREATE UNIQUE INDEX turns_open ON turns (conversation_id) WHERE state <> 'ended';

CREATE TABLE runs (
    ord             {ord},
    id              TEXT NOT NULL UNIQUE,
    tenant          TEXT NOT NULL,
    turn_id         TEXT NOT NULL,
    agent_id        TEXT NOT NULL,
    conversation_id TEXT NOT NULL,
    ended           INTEGER NOT NULL,
    started_ns      BIGINT NOT NULL,
    ended_ns        BIGINT NOT NULL,
    stop_reason     TEXT NOT NULL,
    error           TEXT
);
CREATE INDEX runs_conversation ON runs (conversation_id, ord);

CREATE TABLE steps (
    id              TEXT NOT NULL PRIMARY KEY,
    tenant          TEXT NOT NULL,
    run_id          TEXT NOT NULL,
    turn_id         TEXT NOT NULL,
    agent_id        TEXT NOT NULL,
    conversation_id TEXT NOT NULL,
    n               BIGINT NOT NULL,
    state           TEXT NOT NULL,
    started_ns      BIGINT NOT NULL,
    ended_ns        BIGINT NOT NULL,
    message_id      TEXT NOT NULL,
    model           TEXT NOT NULL,
    stop_reason     TEXT NOT NULL,
    usage           TEXT NOT NULL,
    client_keys     TEXT
) {clustered};
CREATE INDEX steps_turn ON steps (conversation_id, turn_id);

CREATE TABLE tool_calls (
    step_id         TEXT NOT NULL,
    id              TEXT NOT NULL,
    tenant          TEXT NOT NULL,
    turn_id         TEXT NOT NULL,
    agent_id        TEXT NOT NULL,
    conversation_id TEXT NOT NULL,
    message_id      TEXT NOT NULL,
    idx             BIGINT NOT NULL,
    state           TEXT NOT NULL,
    kind            TEXT NOT NULL,
    auto            INTEGER NOT NULL,
    result_order    BIGINT NOT NULL,
    created_ns      BIGINT NOT NULL,
    asked_ns        BIGINT NOT NULL,
    done_ns         BIGINT NOT NULL,
    name            TEXT NOT NULL,
    arguments       TEXT NOT NULL,
    input           TEXT,
    suggestions     TEXT,
    diffs           TEXT,
    result          TEXT,
    PRIMARY KEY (step_id, id)
);

CREATE TABLE messages (
    id              TEXT NOT NULL PRIMARY KEY,
    tenant          TEXT NOT NULL,
    agent_id        TEXT NOT NULL,
    conversation_id TEXT NOT NULL,
    seq             BIGINT NOT NULL,
    hidden          INTEGER NOT NULL,
    interrupted     INTEGER NOT NULL,
    created_ns      BIGINT NOT NULL,
    role            TEXT NOT NULL,
    turn_id         TEXT NOT NULL,
    run_id          TEXT NOT NULL,
    step_id         TEXT NOT NULL,
    client_key      TEXT NOT NULL,
    otid            TEXT NOT NULL,
    sender_id       TEXT NOT NULL,
    name            TEXT NOT NULL,
    call_id         TEXT NOT NULL,
    status          TEXT NOT NULL,
    stats           TEXT,
    output          TEXT, -- a tool's stdout and stderr
    context         TEXT NOT NULL,
    parts           TEXT
);
-- hidden is part of the key so that the context of a long conversation is found
-- without reading the rows that are no longer in it.
CREATE UNIQUE INDEX messages_seq ON messages (conversation_id, seq, hidden);
CREATE INDEX messages_agent ON messages (agent_id, created_ns, id);

CREATE TABLE run_events (
    run_id     TEXT NOT NULL,
    seq        BIGINT NOT NULL,
    tenant     TEXT NOT NULL,
    kind       TEXT NOT NULL,
    at_ns      BIGINT NOT NULL,
    expires_ns BIGINT NOT NULL,
    data       TEXT NOT NULL,
    PRIMARY KEY (run_id, seq)
) {clustered};
CREATE INDEX run_events_expiry ON run_events (expires_ns, run_id) WHERE seq = 1;

CREATE TABLE schedules (
    id              TEXT NOT NULL PRIMARY KEY,
    tenant          TEXT NOT NULL,
    agent_id        TEXT NOT NULL,
    conversation_id TEXT NOT NULL, -- an id, "new" or "default"
    name            TEXT NOT NULL,
    description     TEXT NOT NULL,
    cron            TEXT NOT NULL,
    timezone        TEXT NOT NULL,
    recurring       INTEGER NOT NULL,
    prompt          TEXT NOT NULL,
    status          TEXT NOT NULL,
    created_ns      BIGINT NOT NULL,
    scheduled_ns    BIGINT NOT NULL, -- of a task that fires once
    next_ns         BIGINT NOT NULL, -- 0 = never
    state           TEXT NOT NULL    -- counters and last outcomes
);
CREATE INDEX schedules_due ON schedules (next_ns) WHERE status = 'active';
CREATE INDEX schedules_agent ON schedules (agent_id);

CREATE TABLE blocks (
    id          TEXT NOT NULL PRIMARY KEY,
    tenant      TEXT NOT NULL,
    label       TEXT NOT NULL,
    char_limit  BIGINT NOT NULL,
    read_only   INTEGER NOT NULL,
    hidden      INTEGER,
    version     BIGINT NOT NULL,
    created_ns  BIGINT NOT NULL,
    updated_ns  BIGINT NOT NULL,
    description TEXT,
    tags        TEXT,
    metadata    TEXT,
    extra       TEXT, -- template and project fields that only REST knows
    value       TEXT NOT NULL
);
CREATE INDEX blocks_label ON blocks (tenant, label);

CREATE TABLE agent_blocks (
    agent_id    TEXT NOT NULL REFERENCES agents (id) ON DELETE CASCADE,
    label       TEXT NOT NULL,
    block_id    TEXT NOT NULL REFERENCES blocks (id) ON DELETE CASCADE,
    tenant      TEXT NOT NULL,
    attached_ns BIGINT NOT NULL,
    PRIMARY KEY (agent_id, label)
) {clustered};
CREATE INDEX agent_blocks_block ON agent_blocks (block_id);

CREATE TABLE providers (
    tenant     TEXT NOT NULL,
    name       TEXT NOT NULL,
    type       TEXT NOT NULL,
    base_url   TEXT NOT NULL,
    sealed_key BYTEA,
    extra      TEXT,
    created_ns BIGINT NOT NULL,
    updated_ns BIGINT NOT NULL,
    PRIMARY KEY (tenant, name)
);

CREATE TABLE secrets (
    agent_id TEXT NOT NULL REFERENCES agents (id) ON DELETE CASCADE,
    name     TEXT NOT NULL,
    tenant   TEXT NOT NULL,
    sealed   BYTEA NOT NULL,
    PRIMARY KEY (agent_id, name)
);

CREATE TABLE settings (
    tenant TEXT NOT NULL,
    key    TEXT NOT NULL,
    value  TEXT NOT NULL,
    PRIMARY KEY (tenant, key)
);

CREATE TABLE project_rules (
    tenant   TEXT NOT NULL,
    dir      TEXT NOT NULL,
    rule     TEXT NOT NULL,
    added_ns BIGINT NOT NULL,
    PRIMARY KEY (tenant, dir, rule)
);
