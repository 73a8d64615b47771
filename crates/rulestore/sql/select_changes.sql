SELECT version, kind, id, before, after
FROM rule_change
WHERE version > $1 AND version <= $2
ORDER BY version, sequence
