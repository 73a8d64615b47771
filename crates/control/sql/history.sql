-- Sequences of a version count from one, so the last is how many there are.
SELECT number, author, reason, at,
    (SELECT coalesce(max(sequence), 0) FROM rule_change WHERE version = number)
FROM rule_version
WHERE number < $1
ORDER BY number DESC
LIMIT $2
