-- Full text search of messages, see fulltext.go. The tokens are made by our own
-- code.

CREATE INDEX messages_time ON messages (created_ns);

-- Messages that are to be indexed.
CREATE TABLE search_queue (
    ord        BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant     TEXT NOT NULL,
    message_id TEXT NOT NULL
);
INSERT INTO search_queue (tenant, message_id) SELECT tenant, id FROM messages
    WHERE role IN ('user', 'assistant', 'tool', 'system', 'summary') AND interrupted = 0 ORDER BY created_ns, id;

-- The messages of the index. Its rowid is their ord.
CREATE TABLE message_index (
    ord        BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant     TEXT NOT NULL,
    message_id TEXT NOT NULL UNIQUE,
    created_ns BIGINT NOT NULL
);
CREATE TABLE message_fts (
    rowid  BIGINT NOT NULL PRIMARY KEY,
    tokens tsvector NOT NULL
);
CREATE INDEX message_fts_tokens ON message_fts USING gin (tokens);
