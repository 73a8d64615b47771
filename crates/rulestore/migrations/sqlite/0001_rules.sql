-- Rules, their versions and their history. The meaning of a row is in its JSON column (definition,
-- value). The typed columns are derived from it for people, and nothing reads them. Times are
-- microseconds since the Unix epoch: datetime(at / 1e6, 'unixepoch').

CREATE TABLE rule_version (
    number BIGINT PRIMARY KEY,
    author TEXT NOT NULL,
    reason TEXT NOT NULL,
    at     BIGINT NOT NULL
);

-- The history: what each version changed, with the value before.
CREATE TABLE rule_change (
    version  BIGINT NOT NULL,
    sequence BIGINT NOT NULL,
    kind     TEXT NOT NULL,
    id       TEXT NOT NULL,
    before   TEXT,
    after    TEXT,
    PRIMARY KEY (version, sequence)
);

CREATE TABLE rule_setting (
    name       TEXT PRIMARY KEY,
    value      TEXT NOT NULL,
    version    BIGINT NOT NULL,
    created_at BIGINT NOT NULL
);

CREATE TABLE rate_limit_rule (
    rule_id         TEXT PRIMARY KEY,
    position        BIGINT,
    key_pattern     TEXT,
    scope           TEXT,
    rate_per_second DOUBLE PRECISION,
    burst_capacity  BIGINT,
    plan            TEXT,
    is_active       BOOLEAN,
    description     TEXT,
    match_digest    TEXT,
    algorithm       TEXT,
    window_us       BIGINT,
    mode            TEXT,
    definition      TEXT NOT NULL,
    version         BIGINT NOT NULL,
    created_at      BIGINT NOT NULL
);

-- A pattern may occur once for each plan, window and algorithm. Rules that match different requests
-- are distinct: match_digest has a fixed size, because conditions may be too long for an index.
CREATE UNIQUE INDEX rate_limit_rule_pattern ON rate_limit_rule
    (key_pattern, coalesce(plan, ''), match_digest, window_us, algorithm);

CREATE TABLE subject (
    subject_id TEXT PRIMARY KEY,
    fact       TEXT,
    key_hash   TEXT,
    user_id    TEXT,
    tier       TEXT,
    value      TEXT NOT NULL,
    version    BIGINT NOT NULL,
    created_at BIGINT NOT NULL
);

CREATE TABLE rate_override (
    override_id TEXT PRIMARY KEY,
    rule_id     TEXT,
    key_hash    TEXT,
    until       TEXT,
    value       TEXT NOT NULL,
    version     BIGINT NOT NULL,
    created_at  BIGINT NOT NULL
);

CREATE VIEW rule_entry (kind, id, value, version) AS
    SELECT 'setting', name, value, version FROM rule_setting
    UNION ALL SELECT 'rule', rule_id, definition, version FROM rate_limit_rule
    UNION ALL SELECT 'subject', subject_id, value, version FROM subject
    UNION ALL SELECT 'override', override_id, value, version FROM rate_override;

-- No reference to the rule: a violation outlives it.
CREATE TABLE rate_limit_violation (
    violation_id   INTEGER PRIMARY KEY AUTOINCREMENT,
    requested_at   BIGINT NOT NULL,
    rule_id        TEXT NOT NULL,
    bucket_key     TEXT NOT NULL,
    user_id        TEXT,
    ip_address     TEXT,
    endpoint       TEXT,
    tokens_at_time BIGINT NOT NULL,
    enforced       BOOLEAN NOT NULL
);

CREATE INDEX rate_limit_violation_user ON rate_limit_violation (user_id, requested_at DESC);
CREATE INDEX rate_limit_violation_ip ON rate_limit_violation (ip_address, requested_at DESC);
CREATE INDEX rate_limit_violation_rule ON rate_limit_violation (rule_id, requested_at DESC);
CREATE INDEX rate_limit_violation_time ON rate_limit_violation (requested_at);
