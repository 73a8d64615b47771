-- Violations are listed newest first, by number. An index in this order is read from its end, and new
-- rows are appended at the end of their key.
DROP INDEX rate_limit_violation_user;
DROP INDEX rate_limit_violation_ip;
DROP INDEX rate_limit_violation_rule;
CREATE INDEX rate_limit_violation_user ON rate_limit_violation (user_id, violation_id);
CREATE INDEX rate_limit_violation_ip ON rate_limit_violation (ip_address, violation_id);
CREATE INDEX rate_limit_violation_rule ON rate_limit_violation (rule_id, violation_id);
