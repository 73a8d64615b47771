-- Processes that write violations. Each numbers its batches, so that a batch that is repeated after
-- a lost answer is stored once. `seen_at` is the time of the newest violation in the last batch, in
-- microseconds since the Unix epoch.
CREATE TABLE violation_writer (
    writer  TEXT PRIMARY KEY,
    last    BIGINT NOT NULL,
    seen_at BIGINT NOT NULL
);
