INSERT INTO rate_limit_violation
    (requested_at, rule_id, bucket_key, user_id, ip_address, endpoint, tokens_at_time, enforced)
SELECT CAST(e->>0 AS bigint), e->>1, e->>2, e->>3, e->>4, e->>5, CAST(e->>6 AS bigint),
    CAST(e->>7 AS boolean)
FROM {rows}
