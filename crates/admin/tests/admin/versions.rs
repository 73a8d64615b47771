//! The version history and rollback.

use std::sync::Arc;

use serde_json::{Value as Json, json};
use tidegate_rulestore::{EntryKind, EntryUpdate, Repository, RuleEdit};

use crate::conflicting_repository::ConflictingRepository;
use crate::fixture::{AdminFixture, START};

/// Matches any version.
const IF_MATCH_ANY: (&str, &str) = ("if-match", "*");

/// All entries of the configuration, without their versions.
fn config_entries(admin: &AdminFixture) -> Vec<(EntryKind, String, String)> {
    let config = admin.manager.config();
    let all = EntryKind::ALL.into_iter().flat_map(|kind| {
        let entries = config.entries(kind, None);
        entries.map(|(id, kept)| (kind, id.to_owned(), kept.value.clone())).collect::<Vec<_>>()
    });
    all.collect()
}

/// An admin API with five versions, and the entries of each.
async fn fixture_with_history() -> (AdminFixture, Vec<Vec<(EntryKind, String, String)>>) {
    let admin = AdminFixture::empty().await;
    let mut past = vec![config_entries(&admin)];
    admin.apply("endpoints: [GET /a]\nrules: [{ id: a, limit: 5/h, key_by: user_id }]").await;
    past.push(config_entries(&admin));
    let over = json!({"rule": "a", "key": {"user_id": "u"}, "requests": 9});
    admin.send("POST /v1/overrides", &[], over).await.expect(201);
    past.push(config_entries(&admin));
    admin.send("POST /v1/subjects", &[], json!({"user_id": "u", "tier": "x"})).await.expect(201);
    past.push(config_entries(&admin));
    let id = admin.get("/v1/overrides").await.body["overrides"][0]["id"].clone();
    let line = format!("DELETE /v1/overrides/{}", id.as_str().expect("an id"));
    admin.send(&line, &[("if-match", "*")], "").await.expect(200);
    past.push(config_entries(&admin));
    admin.apply("rules: [{ id: b, limit: 6/h }]").await;
    past.push(config_entries(&admin));
    (admin, past)
}

#[tokio::test]
async fn rollback_to_any_version_makes_new_version() {
    let (admin, past) = fixture_with_history().await;
    // Back and forth: rollback restores deleted entries and removes new ones. Version 0 is empty.
    for (at, number) in [4_usize, 2, 5, 0, 3, 1].into_iter().enumerate() {
        let line = format!("POST /v1/versions/{number}/rollback");
        let done = admin.send(&line, &[IF_MATCH_ANY, ("x-tidegate-confirm", "empty")], "").await;
        let done = done.expect(200);
        assert_eq!(done.body["version"], 6 + at, "{}", done.body);
        assert_eq!(config_entries(&admin), past[number], "version {number}");
        admin.state().await;
        let version = admin.get(&format!("/v1/versions/{}", 6 + at)).await.expect(200).body;
        assert_eq!(version["reason"], format!("rolled back to version {number}"));
    }
    admin.send("POST /v1/versions/99/rollback", &[IF_MATCH_ANY], "").await.expect(404);
}

#[tokio::test]
async fn rollback_to_current_makes_no_version() {
    let (admin, _) = fixture_with_history().await;
    let before = admin.state().await;
    admin.send("POST /v1/versions/5/rollback", &[IF_MATCH_ANY], "").await.expect(200);
    assert_eq!(admin.state().await, before);
}

#[tokio::test]
async fn stale_rollback_is_refused() {
    let (admin, past) = fixture_with_history().await;
    let seen = admin.get("/v1/document").await.etag().to_owned();
    admin.apply("rules: [{ id: b, limit: 7/h }]").await;
    let before = admin.state().await;
    let reply = admin.send("POST /v1/versions/1/rollback", &[("if-match", &seen)], "").await;
    let reply = reply.expect(412);
    let detail = reply.body["detail"].as_str().expect("a detail");
    assert!(detail.contains("this was changed in the meantime, in version 6"), "{detail}");
    assert_eq!(admin.state().await, before, "nothing was rolled back");
    let seen = admin.get("/v1/document").await.etag().to_owned();
    admin.send("POST /v1/versions/1/rollback", &[("if-match", &seen)], "").await.expect(200);
    assert_eq!(config_entries(&admin), past[1]);
}

/// Another change is committed while the rollback is computed. The rollback must not undo it.
#[tokio::test]
async fn rollback_refuses_concurrent_unseen_change() {
    let folder = tempfile::tempdir().expect("a folder");
    let conflicting = ConflictingRepository::with_sqlite(&folder.path().join("rules.db")).await;
    let admin =
        AdminFixture::with_repository(Arc::clone(&conflicting) as Arc<dyn Repository>).await;
    admin.apply("rules: [{ id: a, limit: 5/h }]").await;
    admin.apply("rules: [{ id: a, limit: 6/h }]").await;
    let value = json!({"id": "a", "limit": "9/h"}).to_string();
    let conflicting_update =
        EntryUpdate { kind: EntryKind::Rule, id: "a".to_owned(), value: Some(value.clone()) };
    let (author, reason) = ("bob".to_owned(), "quick".to_owned());
    let edit = RuleEdit { author, reason, at: START, entries: vec![conflicting_update] };
    *conflicting.conflicting_edit.lock() = Some(edit);
    let reply = admin.send("POST /v1/versions/1/rollback", &[IF_MATCH_ANY], "").await.expect(412);
    let detail = reply.body["detail"].as_str().expect("a detail");
    assert!(detail.contains("in version 3"), "{detail}");
    let config = conflicting.load_config().await.expect("a config");
    let kept = config.get(EntryKind::Rule, "a").map(|kept| kept.value.clone());
    assert_eq!((config.version(), kept), (3, Some(value)), "only the other change is stored");
    // A second attempt, after that version, succeeds.
    admin.send("POST /v1/versions/1/rollback", &[IF_MATCH_ANY], "").await.expect(200);
    assert_eq!(admin.get("/v1/rules/a").await.body["rule"]["limit"], "5/h");
}

#[tokio::test]
async fn rollback_restores_overrides_with_their_rules() {
    let admin = AdminFixture::with_rules("rules: [{ id: a, limit: 5/h, key_by: user_id }]").await;
    admin.apply("rules: [{ id: a, limit: 5/h, key_by: ip }]").await;
    let over = json!({"rule": "a", "key": {"ip": "203.0.113.7"}, "requests": 9});
    admin.send("POST /v1/overrides", &[], over).await.expect(201);
    // The override does not fit a rule with another `key_by`, so each rollback removes or restores
    // it too.
    admin.send("POST /v1/versions/1/rollback", &[IF_MATCH_ANY], "").await.expect(200);
    admin.send("POST /v1/versions/3/rollback", &[IF_MATCH_ANY], "").await.expect(200);
    assert_eq!(admin.remaining(&[("ip", "203.0.113.7")]).await, [("a".to_owned(), Some(9))]);
}

#[tokio::test]
async fn versions_are_listed_and_diffed_both_ways() {
    let (admin, _) = fixture_with_history().await;
    let numbers = |page: &Json| -> Vec<u64> {
        let list = page["versions"].as_array().expect("a list");
        list.iter().filter_map(|version| version["version"].as_u64()).collect()
    };
    let first = admin.get("/v1/versions?limit=3").await.expect(200).body;
    assert_eq!((numbers(&first), &first["next"]), (vec![5, 4, 3], &json!(3)));
    let second = admin.get("/v1/versions?limit=3&before=3").await.expect(200).body;
    assert_eq!((numbers(&second), &second["next"]), (vec![2, 1], &json!(null)));
    let ids = |body: &Json| -> Vec<(String, bool, bool)> {
        let diff = body["diff"].as_array().expect("a list").iter();
        let one = |change: &Json| {
            let id = format!("{} {}", change["kind"], change["id"]).replace('"', "");
            (id, change["before"].is_null(), change["after"].is_null())
        };
        diff.map(one)
            .map(|(id, b, a)| (id.split(':').next().unwrap_or_default().to_owned(), b, a))
            .collect()
    };
    let there = admin.get("/v1/versions/5?from=1").await.expect(200).body;
    let expected = [
        ("setting endpoints", false, true),
        ("rule a", false, true),
        ("rule b", true, false),
        ("subject user_id", true, false),
    ];
    let expected = expected.map(|(id, before, after)| (id.to_owned(), before, after));
    assert_eq!(ids(&there), expected, "an override that was added and removed is no difference");
    let back = admin.get("/v1/versions/1?from=5").await.expect(200).body;
    assert_eq!(ids(&back), expected.map(|(id, before, after)| (id, after, before)));
    for path in [
        "/v1/versions/6",
        "/v1/versions/0",
        "/v1/versions/18446744073709551615",
        "/v1/versions/5?from=6",
        "/v1/versions/x",
    ] {
        admin.get(path).await.expect(404);
    }
}

/// Regression: one request without any precondition removed all rules. Found by an external test.
#[tokio::test]
async fn removing_all_rules_requires_confirmation() {
    let admin = AdminFixture::with_rules("rules: [{ id: a, limit: 5/h }]").await;
    admin.apply("rules: [{ id: b, limit: 5/h }]").await;
    let before = admin.state().await;
    for (line, body) in [
        ("POST /v1/versions/0/rollback", ""),
        ("DELETE /v1/rules/b", ""),
        ("PUT /v1/document", "rules: []"),
    ] {
        let reply = admin.send(line, &[], body).await.expect(428);
        assert_eq!(reply.body["field"], Json::Null, "{line} needs a precondition first");
        admin.send(line, &[IF_MATCH_ANY], body).await.expect_problem(428, "x-tidegate-confirm");
        let wrong = [IF_MATCH_ANY, ("x-tidegate-confirm", "yes")];
        admin.send(line, &wrong, body).await.expect_problem(400, "x-tidegate-confirm");
        assert_eq!(admin.state().await, before, "{line} changed nothing");
    }
    admin.send("POST /v1/versions/1/rollback", &[IF_MATCH_ANY], "").await.expect(200);
    let confirmed = [IF_MATCH_ANY, ("x-tidegate-confirm", "empty")];
    admin.send("POST /v1/versions/0/rollback", &confirmed, "").await.expect(200);
    assert_eq!(admin.state().await.2, [""; 0]);
    // With no rules left, no confirmation is needed.
    admin
        .send("PUT /v1/document", &[IF_MATCH_ANY], "endpoints: [GET /a]\nrules: []")
        .await
        .expect(200);
}

#[tokio::test]
async fn rule_switch_requires_a_precondition() {
    let admin = AdminFixture::with_rules("rules: [{ id: a, limit: 5/h }]").await;
    for word in ["enable", "disable"] {
        let line = format!("POST /v1/rules/a/{word}");
        admin.send(&line, &[], "").await.expect(428);
        admin.send(&line, &[("if-match", "\"9\"")], "").await.expect(412);
    }
    let seen = admin.get("/v1/rules/a").await.etag().to_owned();
    admin.send("POST /v1/rules/a/disable", &[("if-match", &seen)], "").await.expect(200);
    admin.send("POST /v1/rules/a/enable", &[("if-match", &seen)], "").await.expect(412);
}
