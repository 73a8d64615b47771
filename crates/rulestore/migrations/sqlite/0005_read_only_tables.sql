-- Rules are changed by tidegate, which gives each change a version that every node follows. A direct
-- edit would be ignored until a restart, so it is refused here with the command to use. A table for
-- another program to edit is read with --rules-table.
--
-- tidegate never updates these rows: it deletes and inserts them in the transaction that makes a
-- version, after the version is signed and before its changes are on record. So an edit is direct when
-- the latest version already has its changes, or when there is no version.

CREATE VIEW rule_version_in_the_making AS
    SELECT number FROM rule_version AS latest
    WHERE number = (SELECT max(number) FROM rule_version)
      AND NOT EXISTS (SELECT 1 FROM rule_change WHERE version = latest.number);

CREATE TRIGGER rate_limit_rule_direct_insert BEFORE INSERT ON rate_limit_rule
WHEN NOT EXISTS (SELECT 1 FROM rule_version_in_the_making)
BEGIN
    SELECT RAISE(ABORT, 'rate_limit_rule is read-only: tidegate writes it with a version for each change; change rules with: tidegate rules apply FILE');
END;

CREATE TRIGGER rate_limit_rule_direct_update BEFORE UPDATE ON rate_limit_rule
BEGIN
    SELECT RAISE(ABORT, 'rate_limit_rule is read-only: tidegate writes it with a version for each change; change rules with: tidegate rules apply FILE');
END;

CREATE TRIGGER rate_limit_rule_direct_delete BEFORE DELETE ON rate_limit_rule
WHEN NOT EXISTS (SELECT 1 FROM rule_version_in_the_making)
BEGIN
    SELECT RAISE(ABORT, 'rate_limit_rule is read-only: tidegate writes it with a version for each change; change rules with: tidegate rules apply FILE');
END;

CREATE TRIGGER rule_setting_direct_insert BEFORE INSERT ON rule_setting
WHEN NOT EXISTS (SELECT 1 FROM rule_version_in_the_making)
BEGIN
    SELECT RAISE(ABORT, 'rule_setting is read-only: tidegate writes it with a version for each change; change settings with: tidegate rules apply FILE');
END;

CREATE TRIGGER rule_setting_direct_update BEFORE UPDATE ON rule_setting
BEGIN
    SELECT RAISE(ABORT, 'rule_setting is read-only: tidegate writes it with a version for each change; change settings with: tidegate rules apply FILE');
END;

CREATE TRIGGER rule_setting_direct_delete BEFORE DELETE ON rule_setting
WHEN NOT EXISTS (SELECT 1 FROM rule_version_in_the_making)
BEGIN
    SELECT RAISE(ABORT, 'rule_setting is read-only: tidegate writes it with a version for each change; change settings with: tidegate rules apply FILE');
END;

CREATE TRIGGER subject_direct_insert BEFORE INSERT ON subject
WHEN NOT EXISTS (SELECT 1 FROM rule_version_in_the_making)
BEGIN
    SELECT RAISE(ABORT, 'subject is read-only: tidegate writes it with a version for each change; change subjects with: tidegate subject set FACT=VALUE ...');
END;

CREATE TRIGGER subject_direct_update BEFORE UPDATE ON subject
BEGIN
    SELECT RAISE(ABORT, 'subject is read-only: tidegate writes it with a version for each change; change subjects with: tidegate subject set FACT=VALUE ...');
END;

CREATE TRIGGER subject_direct_delete BEFORE DELETE ON subject
WHEN NOT EXISTS (SELECT 1 FROM rule_version_in_the_making)
BEGIN
    SELECT RAISE(ABORT, 'subject is read-only: tidegate writes it with a version for each change; change subjects with: tidegate subject set FACT=VALUE ...');
END;

CREATE TRIGGER rate_override_direct_insert BEFORE INSERT ON rate_override
WHEN NOT EXISTS (SELECT 1 FROM rule_version_in_the_making)
BEGIN
    SELECT RAISE(ABORT, 'rate_override is read-only: tidegate writes it with a version for each change; change overrides with: tidegate override set RULE FACT=VALUE ... --requests N');
END;

CREATE TRIGGER rate_override_direct_update BEFORE UPDATE ON rate_override
BEGIN
    SELECT RAISE(ABORT, 'rate_override is read-only: tidegate writes it with a version for each change; change overrides with: tidegate override set RULE FACT=VALUE ... --requests N');
END;

CREATE TRIGGER rate_override_direct_delete BEFORE DELETE ON rate_override
WHEN NOT EXISTS (SELECT 1 FROM rule_version_in_the_making)
BEGIN
    SELECT RAISE(ABORT, 'rate_override is read-only: tidegate writes it with a version for each change; change overrides with: tidegate override set RULE FACT=VALUE ... --requests N');
END;
