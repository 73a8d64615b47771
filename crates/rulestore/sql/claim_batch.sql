INSERT INTO violation_writer (writer, last, seen_at)
VALUES ($1, $2, $3)
ON CONFLICT (writer) DO UPDATE SET
    last    = excluded.last,
    seen_at = excluded.seen_at
WHERE violation_writer.last < excluded.last
