INSERT INTO rule_node (name, rules_version, seen_at)
VALUES ($1, $2, $3)
ON CONFLICT (name) DO UPDATE SET
    rules_version = excluded.rules_version,
    seen_at       = excluded.seen_at
