-- Violations are read newest first, by their number: an index that has them in this order is read from its end and no
-- further, and what is new comes to the end of its key, not to the front.
DROP INDEX rate_limit_violation_user;
DROP INDEX rate_limit_violation_ip;
DROP INDEX rate_limit_violation_rule;
CREATE INDEX rate_limit_violation_user ON rate_limit_violation (user_id, violation_id);
CREATE INDEX rate_limit_violation_ip ON rate_limit_violation (ip_address, violation_id);
CREATE INDEX rate_limit_violation_rule ON rate_limit_violation (rule_id, violation_id);
