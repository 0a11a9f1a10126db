-- Full text search of messages, see fulltext.go. The tokens are made by our own
-- code; FTS5 splits them at the blanks and changes nothing.

CREATE INDEX messages_time ON messages (created_ns);

-- Messages that are to be indexed.
CREATE TABLE search_queue (
    ord        INTEGER PRIMARY KEY,
    tenant     TEXT NOT NULL,
    message_id TEXT NOT NULL
);
INSERT INTO search_queue (tenant, message_id) SELECT tenant, id FROM messages
    WHERE role IN ('user', 'assistant', 'tool', 'system', 'summary') AND interrupted = 0 ORDER BY created_ns, id;

-- The messages of the index. Its rowid is their ord.
CREATE TABLE message_index (
    ord        INTEGER PRIMARY KEY,
    tenant     TEXT NOT NULL,
    message_id TEXT NOT NULL UNIQUE,
    created_ns BIGINT NOT NULL
);
CREATE VIRTUAL TABLE message_fts USING fts5 (tokens, content = '', contentless_delete = 1, detail = none, tokenize = ascii);
