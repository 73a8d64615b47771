//! The repository stores any input unchanged, or refuses it with a reason.

use tidegate_rulestore::{
    EntryKind, EntryUpdate, RepositoryError, RuleConfig, RuleEdit, StoredEntry,
};

use crate::common::{RepositoryFixture, edit, put, random_text, remove, test_on_both_databases};

test_on_both_databases!(
    hostile_text_is_stored_unchanged,
    invalid_edit_is_refused_with_reason,
    odd_json_is_stored_unchanged
);

const NAMES: [&str; 9] = [
    "'; DROP TABLE rule_version; --",
    "\"quoted\" 'twice' `thrice`",
    "$1 ?1 :name @x {rows} %s \\",
    "\\u0000 is not NUL",
    "line\nfeed\r\ttab\u{7F}\u{1}",
    "\u{1F980}\u{202E}مرحبا\u{FEFF}e\u{301}",
    "[1,2]",
    "null",
    "",
];

async fn hostile_text_is_stored_unchanged(fixture: RepositoryFixture) {
    let repository = fixture.open().await;
    let mut entries: Vec<EntryUpdate> = Vec::new();
    for kind in EntryKind::ALL {
        entries.extend(NAMES.iter().map(|name| {
            let value = serde_json::json!({ "position": name, "rule": { "key_pattern": name, "plan": name,
                "description": name, "scope": name, "mode": name }, "until": name, "tier": name });
            put(kind, name, &value.to_string())
        }));
        let (pattern, id) = (random_text(10_000) + "'\"\\", random_text(170));
        let rule = serde_json::json!({ "key_pattern": pattern, "plan": pattern, "limit": "1/s" });
        entries.push(put(kind, &id, &serde_json::json!({ "rule": rule }).to_string()));
    }
    let wanted =
        RuleEdit { author: NAMES.concat(), reason: NAMES.concat(), ..edit(entries.clone()) };
    assert_eq!(repository.commit(0, &wanted).await, Ok(1));
    let kept = |entry: EntryUpdate| {
        (entry.kind, entry.id, StoredEntry { value: entry.value.unwrap_or_default(), version: 1 })
    };
    let expected = RuleConfig::new(1, entries.iter().cloned().map(kept));
    assert_eq!(repository.load_config().await, Ok(expected));
    let mut followed = RuleConfig::default();
    followed.apply_changes(repository.changes(0, 1).await.expect("changes"));
    assert_eq!(
        Ok(followed),
        repository.load_config().await,
        "replaying the audit log gives the same result"
    );
    let history = repository.history(2, 1).await.expect("history");
    assert_eq!((&history[0].author, &history[0].reason), (&wanted.author, &wanted.reason));

    let gone = edit(entries.into_iter().map(|entry| remove(entry.kind, &entry.id)));
    assert_eq!(repository.commit(1, &gone).await, Ok(2));
    assert_eq!(repository.load_config().await, Ok(RuleConfig::new(2, [])));
}

async fn invalid_edit_is_refused_with_reason(fixture: RepositoryFixture) {
    let repository = fixture.open().await;
    repository.commit(0, &edit([put(EntryKind::Setting, "a", "1")])).await.expect("a version");
    let before = repository.load_config().await;
    let good = put(EntryKind::Setting, "good", "1");
    let bad: [(&str, RuleEdit); 7] = [
        ("NUL", edit([good.clone(), put(EntryKind::Rule, "a\0b", "{}")])),
        ("NUL", edit([good.clone(), put(EntryKind::Rule, "a", "\"a\0b\"")])),
        ("NUL", RuleEdit { author: "a\0b".into(), ..edit([good.clone()]) }),
        ("NUL", RuleEdit { reason: "a\0b".into(), ..edit([good.clone()]) }),
        (
            "the maximum is 512",
            edit([good.clone(), put(EntryKind::Override, &"x".repeat(513), "{}")]),
        ),
        ("is not valid JSON", edit([good.clone(), put(EntryKind::Subject, "s", "{")])),
        ("twice", edit([good.clone(), good.clone()])),
    ];
    for (why, wanted) in bad {
        let refused = repository.commit(1, &wanted).await;
        assert!(
            matches!(&refused, Err(RepositoryError::Invalid(message)) if message.contains(why)),
            "{why}: {refused:?}"
        );
    }
    assert_eq!(repository.load_config().await, before);
}

/// Values that do not fit the derived columns are stored all the same.
async fn odd_json_is_stored_unchanged(fixture: RepositoryFixture) {
    let repository = fixture.open().await;
    let deep = "[".repeat(100_000) + &"]".repeat(100_000);
    let odd = [
        "null",
        "1e999",
        "-0",
        "\"text\"",
        "[]",
        "{\"rule\": null}",
        " \n{} ",
        r#"{"position": 1e30, "rule": {"description": "a\u0000b", "plan": "\u0000", "key_pattern": "\u0000"}}"#,
        r#"{"rule": {"rate_per_second": 1e308, "burst_capacity": 99999999999999999999999}}"#,
        r#"{"rule": {"rate_per_second": -1, "limit": "10/s", "is_active": "yes", "description": 7}}"#,
        r#"{"rule": {"a": 1, "a": 2}, "rule": 3}"#,
        &deep,
    ];
    for kind in EntryKind::ALL {
        let head = repository.head().await.expect("the latest");
        let entries =
            odd.iter().enumerate().map(|(id, value)| put(kind, &format!("x:{id}"), value));
        assert_eq!(repository.commit(head, &edit(entries)).await, Ok(head + 1));
        let config = repository.load_config().await.expect("a config");
        for (id, value) in odd.iter().enumerate() {
            let kept = config.get(kind, &format!("x:{id}")).expect("an entry");
            assert_eq!(kept.value, *value, "byte for byte");
        }
    }
}
