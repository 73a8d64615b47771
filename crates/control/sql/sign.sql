-- Takes the next number: nothing when $1 does not follow the latest, or when somebody who is still
-- writing took it and comes through (PostgreSQL waits for them here).
INSERT INTO rule_version (number, author, reason, at)
SELECT CAST($1 AS bigint), CAST($2 AS text), CAST($3 AS text), CAST($4 AS bigint)
WHERE $1 = 1 + (SELECT coalesce(max(number), 0) FROM rule_version)
ON CONFLICT (number) DO NOTHING
