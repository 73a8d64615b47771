DELETE FROM rate_limit_violation
WHERE violation_id IN (
    SELECT violation_id FROM rate_limit_violation WHERE requested_at < $1 LIMIT $2
)
