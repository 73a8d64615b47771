-- Who writes violations: each process numbers its batches, so that one that is sent again, because nobody
-- heard what became of it, is on record once. `seen_at` is when the newest violation of the last one
-- was, in microseconds since the Unix epoch.
CREATE TABLE violation_writer (
    writer  TEXT PRIMARY KEY,
    last    BIGINT NOT NULL,
    seen_at BIGINT NOT NULL
);
