//! SQL that bypasses Tidegate: the database refuses edits that Tidegate would ignore, and names the
//! command to use instead.

use tidegate_rulestore::EntryKind;

use crate::common::{RepositoryFixture, edit, put, remove, test_on_both_databases};

test_on_both_databases!(
    direct_edits_are_refused_with_the_command,
    empty_database_refuses_direct_insert
);

const RULE: &str = r#"{"position":0,"rule":{"id":"r","key_by":"ip","limit":"5/h"}}"#;

/// The entry tables: name, a column, the required columns, and the command to use.
const TABLES: [(&str, &str, &str, &str); 4] = [
    ("rate_limit_rule", "burst_capacity", "rule_id, definition", "tidegate rules apply FILE"),
    ("rule_setting", "value", "name, value", "tidegate rules apply FILE"),
    ("subject", "tier", "subject_id, value", "tidegate subject set"),
    ("rate_override", "until", "override_id, value", "tidegate override set"),
];

async fn direct_edits_are_refused_with_the_command(fixture: RepositoryFixture) {
    let repository = fixture.open().await;
    let one_of_each = [
        put(EntryKind::Rule, "r", RULE),
        put(EntryKind::Setting, "s", "1"),
        put(EntryKind::Subject, "user_id:00", "{}"),
        put(EntryKind::Override, "r:00", "{}"),
    ];
    assert_eq!(repository.commit(0, &edit(one_of_each)).await, Ok(1));
    let config = repository.load_config().await;
    for (table, column, needed, command) in TABLES {
        let insert = format!(
            "INSERT INTO {table} ({needed}, version, created_at) VALUES ('x', '{{}}', 1, 0)"
        );
        let mut edits = vec![
            format!("UPDATE {table} SET {column} = NULL"),
            format!("UPDATE {table} SET version = version"),
            format!("DELETE FROM {table}"),
            insert,
        ];
        if matches!(fixture, RepositoryFixture::Postgres(_)) {
            edits.push(format!("TRUNCATE {table}"));
            // The trigger works with any search path.
            edits.push(format!("SET search_path TO pg_catalog; DELETE FROM public.{table}"));
        }
        for sql in edits {
            let error = fixture.refused_sql(&sql);
            let wanted = format!("{table} is read-only");
            assert!(error.contains(&wanted) && error.contains(command), "{sql}: {error}");
        }
    }
    assert_eq!(repository.load_config().await, config, "nothing was changed");
    let changed = RULE.replace("5/h", "6/h");
    let next = [put(EntryKind::Rule, "r", &changed), remove(EntryKind::Setting, "s")];
    assert_eq!(
        repository.commit(1, &edit(next)).await,
        Ok(2),
        "edits through the repository still work"
    );
    assert_eq!(fixture.sql("SELECT burst_capacity FROM rate_limit_rule"), "6");
}

async fn empty_database_refuses_direct_insert(fixture: RepositoryFixture) {
    fixture.open().await;
    let error = fixture.refused_sql(
        "INSERT INTO rule_setting (name, value, version, created_at) VALUES ('a', '1', 0, 0)",
    );
    assert!(error.contains("tidegate rules apply FILE"), "{error}");
}
