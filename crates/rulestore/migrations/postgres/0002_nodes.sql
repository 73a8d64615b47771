-- Who follows these rules: each node says now and then which version it has in force. `seen_at` is by
-- the node's own clock, in microseconds since the Unix epoch.
CREATE TABLE rule_node (
    name          TEXT PRIMARY KEY,
    rules_version BIGINT NOT NULL,
    seen_at       BIGINT NOT NULL
);
