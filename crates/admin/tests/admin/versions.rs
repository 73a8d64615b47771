//! Versions: who changed what, and going back.

use std::sync::Arc;

use serde_json::{Value as Json, json};
use tidegate_rulestore::{EntryKind, EntryUpdate, Repository, RuleEdit};

use crate::conflicting_repository::ConflictingRepository;
use crate::fixture::{AdminFixture, START};

/// The editor saw the rules, whatever they say.
const IF_MATCH_ANY: (&str, &str) = ("if-match", "*");

/// Everything that the book says, without what it is numbered.
fn config_entries(house: &AdminFixture) -> Vec<(EntryKind, String, String)> {
    let book = house.manager.config();
    let all = EntryKind::ALL.into_iter().flat_map(|kind| {
        let entries = book.entries(kind, None);
        entries.map(|(id, kept)| (kind, id.to_owned(), kept.value.clone())).collect::<Vec<_>>()
    });
    all.collect()
}

/// A house with five versions, and what each of them said.
async fn fixture_with_history() -> (AdminFixture, Vec<Vec<(EntryKind, String, String)>>) {
    let house = AdminFixture::empty().await;
    let mut past = vec![config_entries(&house)];
    house.apply("endpoints: [GET /a]\nrules: [{ id: a, limit: 5/h, key_by: user_id }]").await;
    past.push(config_entries(&house));
    let over = json!({"rule": "a", "key": {"user_id": "u"}, "requests": 9});
    house.send("POST /v1/overrides", &[], over).await.expect(201);
    past.push(config_entries(&house));
    house.send("POST /v1/subjects", &[], json!({"user_id": "u", "tier": "x"})).await.expect(201);
    past.push(config_entries(&house));
    let id = house.get("/v1/overrides").await.body["overrides"][0]["id"].clone();
    let line = format!("DELETE /v1/overrides/{}", id.as_str().expect("an id"));
    house.send(&line, &[("if-match", "*")], "").await.expect(200);
    past.push(config_entries(&house));
    house.apply("rules: [{ id: b, limit: 6/h }]").await;
    past.push(config_entries(&house));
    (house, past)
}

#[tokio::test]
async fn rollback_to_any_version_makes_new_version() {
    let (house, past) = fixture_with_history().await;
    // To and fro: deletes come back, what was made goes, and 0 is before the first.
    for (at, number) in [4_usize, 2, 5, 0, 3, 1].into_iter().enumerate() {
        let line = format!("POST /v1/versions/{number}/rollback");
        let done = house.send(&line, &[IF_MATCH_ANY, ("x-tidegate-confirm", "empty")], "").await;
        let done = done.expect(200);
        assert_eq!(done.body["version"], 6 + at, "{}", done.body);
        assert_eq!(config_entries(&house), past[number], "version {number}");
        house.state().await;
        let version = house.get(&format!("/v1/versions/{}", 6 + at)).await.expect(200).body;
        assert_eq!(version["reason"], format!("went back to version {number}"));
    }
    house.send("POST /v1/versions/99/rollback", &[IF_MATCH_ANY], "").await.expect(404);
}

#[tokio::test]
async fn rollback_to_current_makes_no_version() {
    let (house, _) = fixture_with_history().await;
    let before = house.state().await;
    house.send("POST /v1/versions/5/rollback", &[IF_MATCH_ANY], "").await.expect(200);
    assert_eq!(house.state().await, before);
}

#[tokio::test]
async fn stale_rollback_is_refused() {
    let (house, past) = fixture_with_history().await;
    let seen = house.get("/v1/document").await.etag().to_owned();
    house.apply("rules: [{ id: b, limit: 7/h }]").await;
    let before = house.state().await;
    let told = house.send("POST /v1/versions/1/rollback", &[("if-match", &seen)], "").await;
    let told = told.expect(412);
    let detail = told.body["detail"].as_str().expect("a detail");
    assert!(detail.contains("somebody changed this meanwhile, in version 6"), "{detail}");
    assert_eq!(house.state().await, before, "nothing was gone back to");
    let seen = house.get("/v1/document").await.etag().to_owned();
    house.send("POST /v1/versions/1/rollback", &[("if-match", &seen)], "").await.expect(200);
    assert_eq!(config_entries(&house), past[1]);
}

/// Somebody else's change comes while it is worked out what to undo; it would be undone with the rest.
#[tokio::test]
async fn rollback_refuses_concurrent_unseen_change() {
    let folder = tempfile::tempdir().expect("a folder");
    let meddler = ConflictingRepository::with_sqlite(&folder.path().join("rules.db")).await;
    let house = AdminFixture::with_repository(Arc::clone(&meddler) as Arc<dyn Repository>).await;
    house.apply("rules: [{ id: a, limit: 5/h }]").await;
    house.apply("rules: [{ id: a, limit: 6/h }]").await;
    let value = json!({"id": "a", "limit": "9/h"}).to_string();
    let theirs =
        EntryUpdate { kind: EntryKind::Rule, id: "a".to_owned(), value: Some(value.clone()) };
    let (author, reason) = ("bob".to_owned(), "quick".to_owned());
    let edit = RuleEdit { author, reason, at: START, entries: vec![theirs] };
    *meddler.conflicting_edit.lock() = Some(edit);
    let told = house.send("POST /v1/versions/1/rollback", &[IF_MATCH_ANY], "").await.expect(412);
    let detail = told.body["detail"].as_str().expect("a detail");
    assert!(detail.contains("in version 3"), "{detail}");
    let book = meddler.load_config().await.expect("a book");
    let kept = book.get(EntryKind::Rule, "a").map(|kept| kept.value.clone());
    assert_eq!((book.version(), kept), (3, Some(value)), "theirs is on record, and nothing else");
    // Whoever has seen it goes back all the same.
    house.send("POST /v1/versions/1/rollback", &[IF_MATCH_ANY], "").await.expect(200);
    assert_eq!(house.get("/v1/rules/a").await.body["rule"]["limit"], "5/h");
}

#[tokio::test]
async fn rollback_restores_overrides_with_their_rules() {
    let house = AdminFixture::with_rules("rules: [{ id: a, limit: 5/h, key_by: user_id }]").await;
    house.apply("rules: [{ id: a, limit: 5/h, key_by: ip }]").await;
    let over = json!({"rule": "a", "key": {"ip": "203.0.113.7"}, "requests": 9});
    house.send("POST /v1/overrides", &[], over).await.expect(201);
    // Of a rule that counts by something else the override would be nobody's; it goes with it.
    house.send("POST /v1/versions/1/rollback", &[IF_MATCH_ANY], "").await.expect(200);
    house.send("POST /v1/versions/3/rollback", &[IF_MATCH_ANY], "").await.expect(200);
    assert_eq!(house.remaining(&[("ip", "203.0.113.7")]).await, [("a".to_owned(), Some(9))]);
}

#[tokio::test]
async fn versions_are_listed_and_diffed_both_ways() {
    let (house, _) = fixture_with_history().await;
    let numbers = |page: &Json| -> Vec<u64> {
        let list = page["versions"].as_array().expect("a list");
        list.iter().filter_map(|version| version["version"].as_u64()).collect()
    };
    let first = house.get("/v1/versions?limit=3").await.expect(200).body;
    assert_eq!((numbers(&first), &first["next"]), (vec![5, 4, 3], &json!(3)));
    let second = house.get("/v1/versions?limit=3&before=3").await.expect(200).body;
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
    let there = house.get("/v1/versions/5?from=1").await.expect(200).body;
    let expected = [
        ("setting endpoints", false, true),
        ("rule a", false, true),
        ("rule b", true, false),
        ("subject user_id", true, false),
    ];
    let expected = expected.map(|(id, before, after)| (id.to_owned(), before, after));
    assert_eq!(ids(&there), expected, "an override that came and went is no difference");
    let back = house.get("/v1/versions/1?from=5").await.expect(200).body;
    assert_eq!(ids(&back), expected.map(|(id, before, after)| (id, after, before)));
    for path in [
        "/v1/versions/6",
        "/v1/versions/0",
        "/v1/versions/18446744073709551615",
        "/v1/versions/5?from=6",
        "/v1/versions/x",
    ] {
        house.get(path).await.expect(404);
    }
}

/// Found from outside: one request without any precondition removed all rules.
#[tokio::test]
async fn removing_all_rules_requires_confirmation() {
    let house = AdminFixture::with_rules("rules: [{ id: a, limit: 5/h }]").await;
    house.apply("rules: [{ id: b, limit: 5/h }]").await;
    let before = house.state().await;
    for (line, body) in [
        ("POST /v1/versions/0/rollback", ""),
        ("DELETE /v1/rules/b", ""),
        ("PUT /v1/document", "rules: []"),
    ] {
        let told = house.send(line, &[], body).await.expect(428);
        assert_eq!(told.body["field"], Json::Null, "{line} says nothing of what was seen");
        house.send(line, &[IF_MATCH_ANY], body).await.expect_problem(428, "x-tidegate-confirm");
        let wrong = [IF_MATCH_ANY, ("x-tidegate-confirm", "yes")];
        house.send(line, &wrong, body).await.expect_problem(400, "x-tidegate-confirm");
        assert_eq!(house.state().await, before, "{line} changed nothing");
    }
    house.send("POST /v1/versions/1/rollback", &[IF_MATCH_ANY], "").await.expect(200);
    let confirmed = [IF_MATCH_ANY, ("x-tidegate-confirm", "empty")];
    house.send("POST /v1/versions/0/rollback", &confirmed, "").await.expect(200);
    assert_eq!(house.state().await.2, [""; 0]);
    // Where there are no rules, none are removed.
    house
        .send("PUT /v1/document", &[IF_MATCH_ANY], "endpoints: [GET /a]\nrules: []")
        .await
        .expect(200);
}

#[tokio::test]
async fn rule_switch_requires_a_precondition() {
    let house = AdminFixture::with_rules("rules: [{ id: a, limit: 5/h }]").await;
    for word in ["enable", "disable"] {
        let line = format!("POST /v1/rules/a/{word}");
        house.send(&line, &[], "").await.expect(428);
        house.send(&line, &[("if-match", "\"9\"")], "").await.expect(412);
    }
    let seen = house.get("/v1/rules/a").await.etag().to_owned();
    house.send("POST /v1/rules/a/disable", &[("if-match", &seen)], "").await.expect(200);
    house.send("POST /v1/rules/a/enable", &[("if-match", &seen)], "").await.expect(412);
}
