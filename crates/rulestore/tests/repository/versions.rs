//! Versions: commits, reads, changes and history.

use tidegate_core::time::Timestamp;
use tidegate_rulestore::{
    EntryKind, RepositoryError, RuleConfig, RuleEdit, StoredEntry, VersionChange,
};

use crate::common::{NOON, RepositoryFixture, edit, put, remove, test_on_both_databases};

test_on_both_databases!(
    new_repository_is_empty,
    commit_makes_a_readable_version,
    outdated_commit_changes_nothing,
    unchanged_entries_are_left_out,
    changes_replay_between_any_versions,
    history_is_paged_newest_first,
    readable_columns_are_derived_from_json,
    key_pattern_is_unique,
    one_commit_holds_many_entries,
);

const RULE: &str = r#"{"position": 1, "rule": {"id": "a", "limit": "10/s burst 20"}}"#;

async fn new_repository_is_empty(fixture: RepositoryFixture) {
    let repository = fixture.open().await;
    assert_eq!(repository.head().await, Ok(0));
    assert_eq!(repository.load_config().await, Ok(RuleConfig::default()));
    assert_eq!(repository.changes(0, u64::MAX).await, Ok(vec![]));
    assert_eq!(repository.history(u64::MAX, 10).await, Ok(vec![]));
}

async fn commit_makes_a_readable_version(fixture: RepositoryFixture) {
    let repository = fixture.open().await;
    let all = [
        put(EntryKind::Setting, "identity", r#"{"ip":  {"trusted_proxies": []}}"#),
        put(EntryKind::Rule, "a", RULE),
        put(EntryKind::Subject, "api_key:00ff", r#"{"tier": "paid"}"#),
        put(EntryKind::Override, "a:00ff", r#"{"limit": "100/s"}"#),
    ];
    assert_eq!(repository.commit(0, &edit(all.clone())).await, Ok(1));
    let entries = all.into_iter().map(|entry| {
        (entry.kind, entry.id, StoredEntry { value: entry.value.expect("it is put"), version: 1 })
    });
    let expected = RuleConfig::new(1, entries);
    assert_eq!(repository.load_config().await, Ok(expected.clone()), "byte for byte");
    assert_eq!(fixture.open().await.load_config().await, Ok(expected), "through another handle");

    let gone = edit([remove(EntryKind::Subject, "api_key:00ff"), put(EntryKind::Rule, "a", "{}")]);
    assert_eq!(repository.commit(1, &gone).await, Ok(2));
    let config = repository.load_config().await.expect("a config");
    assert_eq!(config.version(), 2);
    assert_eq!(config.get(EntryKind::Subject, "api_key:00ff"), None);
    assert_eq!(
        config.get(EntryKind::Rule, "a"),
        Some(&StoredEntry { value: "{}".into(), version: 2 })
    );
    assert_eq!(config.get(EntryKind::Setting, "identity").map(|kept| kept.version), Some(1));
}

async fn outdated_commit_changes_nothing(fixture: RepositoryFixture) {
    let repository = fixture.open().await;
    for (on, id) in [(0, "a"), (1, "b")] {
        repository.commit(on, &edit([put(EntryKind::Setting, id, "1")])).await.expect("a version");
    }
    let before = repository.load_config().await;
    let other = edit([put(EntryKind::Setting, "a", "2"), remove(EntryKind::Setting, "b")]);
    for on in [0, 1, 3, 99, u64::MAX] {
        assert_eq!(
            repository.commit(on, &other).await,
            Err(RepositoryError::VersionConflict { head: 2 }),
            "on {on}"
        );
    }
    let nothing = edit([put(EntryKind::Setting, "a", "1")]);
    assert_eq!(
        repository.commit(1, &nothing).await,
        Err(RepositoryError::VersionConflict { head: 2 })
    );
    assert_eq!(repository.load_config().await, before);
    assert_eq!(repository.history(u64::MAX, 10).await.map(|all| all.len()), Ok(2));
    assert_eq!(repository.changes(2, u64::MAX).await, Ok(vec![]));
}

async fn unchanged_entries_are_left_out(fixture: RepositoryFixture) {
    let repository = fixture.open().await;
    let both = edit([put(EntryKind::Setting, "a", "1"), put(EntryKind::Setting, "b", "1")]);
    assert_eq!(repository.commit(0, &edit([])).await, Ok(0));
    assert_eq!(repository.commit(0, &edit([remove(EntryKind::Rule, "never")])).await, Ok(0));
    assert_eq!(repository.commit(0, &both).await, Ok(1));
    assert_eq!(repository.commit(1, &both).await, Ok(1), "nothing remains to be changed");
    assert_eq!(repository.history(u64::MAX, 10).await.map(|all| all.len()), Ok(1));

    let half = edit([put(EntryKind::Setting, "a", "1"), put(EntryKind::Setting, "b", "2")]);
    assert_eq!(repository.commit(1, &half).await, Ok(2));
    let change = VersionChange {
        version: 2,
        kind: EntryKind::Setting,
        id: "b".into(),
        before: Some("1".into()),
        after: Some("2".into()),
    };
    assert_eq!(repository.changes(1, 2).await, Ok(vec![change]));
    assert_eq!(
        repository
            .load_config()
            .await
            .expect("a config")
            .get(EntryKind::Setting, "a")
            .map(|a| a.version),
        Some(1)
    );
}

async fn changes_replay_between_any_versions(fixture: RepositoryFixture) {
    let repository = fixture.open().await;
    let mut configs = vec![repository.load_config().await.expect("a config")];
    for number in 0..6_u64 {
        let (id, other) = (format!("r{}", number % 3), format!("r{}", (number + 1) % 3));
        let entries =
            [put(EntryKind::Rule, &id, &number.to_string()), remove(EntryKind::Rule, &other)];
        let version = repository.commit(number, &edit(entries)).await.expect("a version");
        assert_eq!(version, number + 1);
        configs.push(repository.load_config().await.expect("a config"));
    }
    for since in 0..7_usize {
        for until in since..7 {
            let (from, to) = (since as u64, until as u64);
            let mut config = configs[since].clone();
            config.apply_changes(repository.changes(from, to).await.expect("changes"));
            assert_eq!(config, configs[until], "from {since} to {until}");
        }
    }
    assert_eq!(repository.changes(5, 2).await, Ok(vec![]));
}

async fn history_is_paged_newest_first(fixture: RepositoryFixture) {
    let repository = fixture.open().await;
    for number in 0..5_u64 {
        let made = RuleEdit {
            author: format!("author {number}"),
            reason: format!("reason {number}"),
            at: Timestamp::from_micros(NOON.as_micros() + number),
            entries: (0..=number)
                .map(|id| put(EntryKind::Rule, &format!("{id}"), &format!("{number}")))
                .collect(),
        };
        repository.commit(number, &made).await.expect("a version");
    }
    let first = repository.history(u64::MAX, 3).await.expect("history");
    assert_eq!(first.iter().map(|info| info.version).collect::<Vec<_>>(), [5, 4, 3]);
    let rest = repository.history(3, 3).await.expect("history");
    assert_eq!(rest.iter().map(|info| info.version).collect::<Vec<_>>(), [2, 1]);
    assert_eq!(repository.history(1, 3).await, Ok(vec![]));
    assert_eq!((first[0].author.as_str(), first[0].reason.as_str()), ("author 4", "reason 4"));
    assert_eq!(first[0].at.as_micros(), NOON.as_micros() + 4, "to the microsecond");
    assert_eq!(first.iter().map(|info| info.changes).collect::<Vec<_>>(), [5, 4, 3]);
}

async fn readable_columns_are_derived_from_json(fixture: RepositoryFixture) {
    let repository = fixture.open().await;
    let table_model = r#"{"position": 7, "rule": {"rule_id": "seed", "scope": "user",
        "key_pattern": "user:{user_id}", "rate_per_second": 10, "burst_capacity": 50, "plan": "free",
        "is_active": false, "description": "from the table"}}"#;
    let document = r#"{"position": 8, "rule": {"id": "doc", "match": {"tier": "paid"},
        "key_by": "api_key", "mode": "shadow",
        "limit": {"requests": 1000, "window": "1h", "algorithm": "sliding_window_counter"}}}"#;
    let entries = [
        put(EntryKind::Rule, "seed", table_model),
        put(EntryKind::Rule, "doc", document),
        put(EntryKind::Rule, "short", r#"{"position": 9, "rule": "100/min by ip burst 20"}"#),
        put(
            EntryKind::Rule,
            "odd",
            r#"{"position": "x", "rule": {"limit": [1e999], "plan": {}, "is_active": 3}}"#,
        ),
        put(EntryKind::Subject, "api_key:00ff", r#"{"user_id": "u1", "tier": "paid"}"#),
        put(EntryKind::Override, "a:b:00ff", r#"{"until": 1793000000123457}"#),
    ];
    repository.commit(0, &edit(entries)).await.expect("a version");
    let later = Timestamp::from_micros(NOON.as_micros() + 1);
    let changed = RuleEdit { at: later, ..edit([put(EntryKind::Rule, "short", "1")]) };
    repository.commit(1, &changed).await.expect("a version");

    let columns = "key_pattern, scope, rate_per_second, burst_capacity, plan, description, algorithm, \
                   window_us, mode, position, version, created_at";
    let one = |id: &str| {
        fixture.sql(&format!("SELECT {columns} FROM rate_limit_rule WHERE rule_id = '{id}'"))
    };
    let same = |text: String| text.replace("10.0|", "10|");
    assert_eq!(
        same(one("seed")),
        "user:{user_id}|user|10|50|free|from the table|token_bucket|1000000|enforce|7|1|1793000000123457"
    );
    assert!(one("doc").starts_with("|api_key|0.2777"), "{}", one("doc"));
    assert!(
        one("doc")
            .ends_with("|1000|paid||sliding_window_counter|3600000000|shadow|8|1|1793000000123457")
    );
    assert_eq!(one("odd"), "||||||||||1|1793000000123457");
    assert_eq!(one("short"), "||||||||||2|1793000000123457", "it exists since the first version");
    let counts = |truth: &str| {
        fixture.sql(&format!("SELECT count(*) FROM rate_limit_rule WHERE is_active = {truth}"))
    };
    assert_eq!((counts("false"), counts("true")), ("1".into(), "1".into()));
    assert_eq!(
        fixture.sql("SELECT fact, key_hash, user_id, tier FROM subject"),
        "api_key|00ff|u1|paid"
    );
    assert_eq!(
        fixture.sql("SELECT rule_id, key_hash, until FROM rate_override"),
        "a:b|00ff|1793000000123457"
    );
}

async fn key_pattern_is_unique(fixture: RepositoryFixture) {
    let repository = fixture.open().await;
    let rule = |pattern: &str, plan: &str, window: &str| {
        format!(
            r#"{{"rule": {{"key_pattern": "{pattern}", "plan": {plan}, "limit": {{"requests": 1, "window": "{window}"}}}}}}"#
        )
    };
    let (one, two) =
        (rule("user:{user_id}", "\"free\"", "1s"), rule("user:{user_id}", "\"pro\"", "1s"));
    let entries = [
        put(EntryKind::Rule, "one", &one),
        put(EntryKind::Rule, "two", &two),
        put(EntryKind::Rule, "hourly", &rule("user:{user_id}", "\"free\"", "1h")),
    ];
    repository.commit(0, &edit(entries)).await.expect("other plans, other windows");
    let refused = repository.commit(1, &edit([put(EntryKind::Rule, "three", &one)])).await;
    assert!(
        matches!(&refused, Err(RepositoryError::Invalid(why)) if why.contains("key_pattern")),
        "{refused:?}"
    );
    assert_eq!(repository.head().await, Ok(1));

    let swapped = edit([put(EntryKind::Rule, "one", &two), put(EntryKind::Rule, "two", &one)]);
    assert_eq!(repository.commit(1, &swapped).await, Ok(2), "two rules swap their patterns");
    let elsewhere = one.replace("\"plan\"", "\"match\": {\"method\": \"GET\"}, \"plan\"");
    let elsewhere = edit([put(EntryKind::Rule, "three", &elsewhere)]);
    assert_eq!(
        repository.commit(2, &elsewhere).await,
        Ok(3),
        "the same pattern for other requests"
    );
}

async fn one_commit_holds_many_entries(fixture: RepositoryFixture) {
    let repository = fixture.open().await;
    let overrides = |value: &'static str| {
        edit((0..100_000).map(move |number| {
            put(EntryKind::Override, &format!("free-writes:{number:032x}"), value)
        }))
    };
    let first = overrides(
        r#"{"limit": {"requests": 100, "window": "1s"}, "until": "2027-01-01T00:00:00Z"}"#,
    );
    assert_eq!(repository.commit(0, &first).await, Ok(1));
    assert_eq!(repository.commit(1, &first).await, Ok(1));
    assert_eq!(repository.commit(1, &overrides("{}")).await, Ok(2));
    let config = repository.load_config().await.expect("a config");
    assert_eq!(config.entries(EntryKind::Override, None).count(), 100_000);
    assert!(
        config
            .entries(EntryKind::Override, None)
            .all(|(_, kept)| kept.value == "{}" && kept.version == 2)
    );
    assert_eq!(repository.changes(0, 1).await.expect("changes").len(), 100_000);
    assert_eq!(repository.history(u64::MAX, 1).await.expect("history")[0].changes, 100_000);
}
