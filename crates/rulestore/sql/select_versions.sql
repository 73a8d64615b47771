-- Sequence numbers within a version start at 1, so the largest one is the number of changes.
SELECT number, author, reason, at,
    (SELECT coalesce(max(sequence), 0) FROM rule_change WHERE version = number)
FROM rule_version
WHERE number < $1
ORDER BY number DESC
LIMIT $2
