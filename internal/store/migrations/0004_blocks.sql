-- Memory blocks and the files of agents' memories that they are.

ALTER TABLE blocks ADD COLUMN filed INTEGER NOT NULL DEFAULT 0;   -- made from a file: goes with the last one
ALTER TABLE blocks ADD COLUMN deleted INTEGER NOT NULL DEFAULT 0; -- its files are being removed

-- Where a file stands: the digest that it had when it was last in line with a
-- version of the row ('' = not written yet), and what is about to be written.
ALTER TABLE agent_blocks ADD COLUMN digest TEXT NOT NULL DEFAULT '';
ALTER TABLE agent_blocks ADD COLUMN version BIGINT NOT NULL DEFAULT 0;
ALTER TABLE agent_blocks ADD COLUMN next_digest TEXT NOT NULL DEFAULT '';
ALTER TABLE agent_blocks ADD COLUMN next_version BIGINT NOT NULL DEFAULT 0;
ALTER TABLE agent_blocks ADD COLUMN leaving INTEGER NOT NULL DEFAULT 0; -- the file is to be removed

-- The commit of an agent's memory that the rows are in line with.
CREATE TABLE memory_heads (
    agent_id  TEXT NOT NULL PRIMARY KEY REFERENCES agents (id) ON DELETE CASCADE,
    tenant    TEXT NOT NULL,
    commit_id TEXT NOT NULL
) {clustered};
