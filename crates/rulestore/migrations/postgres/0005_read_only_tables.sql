-- Rules are changed by tidegate, which gives each change a version that every node follows. A direct
-- edit would be ignored until a restart, so it is refused here with the command to use. A table for
-- another program to edit is read with --rules-table.
--
-- tidegate never updates these rows: it deletes and inserts them in the transaction that makes a
-- version, after the version is signed and before its changes are on record. So an edit is direct when
-- the latest version already has its changes, or when there is no version.

-- The command to use is the argument of the trigger.
CREATE FUNCTION tidegate_refuse_direct_edit() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF TG_OP IN ('INSERT', 'DELETE') AND EXISTS (
        SELECT 1 FROM rule_version AS latest
        WHERE number = (SELECT max(number) FROM rule_version)
          AND NOT EXISTS (SELECT 1 FROM rule_change WHERE version = latest.number)
    ) THEN
        RETURN NULL;
    END IF;
    RAISE EXCEPTION '% is read-only: tidegate writes it with a version for each change; change % with: %',
        TG_TABLE_NAME, TG_ARGV[0], TG_ARGV[1];
END
$$;

CREATE TRIGGER rate_limit_rule_direct_edit
    BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON rate_limit_rule
    FOR EACH STATEMENT EXECUTE FUNCTION tidegate_refuse_direct_edit(
        'rules', 'tidegate rules apply FILE');

CREATE TRIGGER rule_setting_direct_edit
    BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON rule_setting
    FOR EACH STATEMENT EXECUTE FUNCTION tidegate_refuse_direct_edit(
        'settings', 'tidegate rules apply FILE');

CREATE TRIGGER subject_direct_edit
    BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON subject
    FOR EACH STATEMENT EXECUTE FUNCTION tidegate_refuse_direct_edit(
        'subjects', 'tidegate subject set FACT=VALUE ...');

CREATE TRIGGER rate_override_direct_edit
    BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON rate_override
    FOR EACH STATEMENT EXECUTE FUNCTION tidegate_refuse_direct_edit(
        'overrides', 'tidegate override set RULE FACT=VALUE ... --requests N');
