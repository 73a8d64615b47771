-- Takes the next version number. Inserts nothing if $1 does not follow the latest version, or if a
-- concurrent writer has taken it (PostgreSQL waits here until that transaction ends).
INSERT INTO rule_version (number, author, reason, at)
SELECT CAST($1 AS bigint), CAST($2 AS text), CAST($3 AS text), CAST($4 AS bigint)
WHERE $1 = 1 + (SELECT coalesce(max(number), 0) FROM rule_version)
ON CONFLICT (number) DO NOTHING
