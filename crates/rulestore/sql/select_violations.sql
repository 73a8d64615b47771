SELECT violation_id, requested_at, rule_id, bucket_key, user_id, ip_address, endpoint,
    tokens_at_time, enforced
FROM rate_limit_violation
