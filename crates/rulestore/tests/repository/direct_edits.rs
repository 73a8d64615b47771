//! SQL past tidegate: what would be ignored is refused, with the command to use.

use tidegate_rulestore::EntryKind;

use crate::common::{RepositoryFixture, edit, put, remove, test_on_both_databases};

test_on_both_databases!(
    direct_edits_are_refused_with_the_command,
    empty_database_refuses_direct_insert
);

const RULE: &str = r#"{"position":0,"rule":{"id":"r","key_by":"ip","limit":"5/h"}}"#;

/// The tables of entries: a column, the columns that must be there, and the command to use.
const TABLES: [(&str, &str, &str, &str); 4] = [
    ("rate_limit_rule", "burst_capacity", "rule_id, definition", "tidegate rules apply FILE"),
    ("rule_setting", "value", "name, value", "tidegate rules apply FILE"),
    ("subject", "tier", "subject_id, value", "tidegate subject set"),
    ("rate_override", "until", "override_id, value", "tidegate override set"),
];

async fn direct_edits_are_refused_with_the_command(place: RepositoryFixture) {
    let office = place.open().await;
    let of_each = [
        put(EntryKind::Rule, "r", RULE),
        put(EntryKind::Setting, "s", "1"),
        put(EntryKind::Subject, "user_id:00", "{}"),
        put(EntryKind::Override, "r:00", "{}"),
    ];
    assert_eq!(office.commit(0, &edit(of_each)).await, Ok(1));
    let book = office.load_config().await;
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
        if matches!(place, RepositoryFixture::Postgres(_)) {
            edits.push(format!("TRUNCATE {table}"));
            // Whatever finds the table, the trigger finds its own.
            edits.push(format!("SET search_path TO pg_catalog; DELETE FROM public.{table}"));
        }
        for sql in edits {
            let said = place.refused_sql(&sql);
            let wanted = format!("{table} is read-only");
            assert!(said.contains(&wanted) && said.contains(command), "{sql}: {said}");
        }
    }
    assert_eq!(office.load_config().await, book, "nothing was changed");
    let changed = RULE.replace("5/h", "6/h");
    let next = [put(EntryKind::Rule, "r", &changed), remove(EntryKind::Setting, "s")];
    assert_eq!(office.commit(1, &edit(next)).await, Ok(2), "its own changes go on");
    assert_eq!(place.sql("SELECT burst_capacity FROM rate_limit_rule"), "6");
}

async fn empty_database_refuses_direct_insert(place: RepositoryFixture) {
    place.open().await;
    let said = place.refused_sql(
        "INSERT INTO rule_setting (name, value, version, created_at) VALUES ('a', '1', 0, 0)",
    );
    assert!(said.contains("tidegate rules apply FILE"), "{said}");
}
