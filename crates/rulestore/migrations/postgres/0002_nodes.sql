-- Nodes that use these rules. Each node regularly records its active version. `seen_at` is from the
-- clock of the node, in microseconds since the Unix epoch.
CREATE TABLE rule_node (
    name          TEXT PRIMARY KEY,
    rules_version BIGINT NOT NULL,
    seen_at       BIGINT NOT NULL
);
