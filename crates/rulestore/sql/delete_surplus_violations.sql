DELETE FROM rate_limit_violation
WHERE violation_id IN (
    SELECT violation_id FROM rate_limit_violation WHERE violation_id <= $1
    ORDER BY violation_id LIMIT $2
)
