//! Two editors: what one has not seen they do not overwrite.

use std::sync::Arc;

use serde_json::json;
use tidegate_rulestore::{Repository, RepositoryError, RuleSource};

use crate::conflicting_repository::ConflictingRepository;
use crate::fixture::AdminFixture;

const RULES: &str =
    "rules: [{ id: r, key_by: api_key, limit: 5/h }, { id: s, key_by: ip, limit: 5/h }]";

#[tokio::test]
async fn stale_edit_is_refused_without_loss() {
    let house = AdminFixture::with_rules(RULES).await;
    let seen = house.get("/v1/rules/r").await.etag().to_owned();
    let edit = |limit: &str| json!({"key_by": "api_key", "limit": limit});
    house.send("PUT /v1/rules/r", &[("if-match", &seen)], edit("6/h")).await.expect(200);
    let before = house.state().await;
    for (line, body) in [
        ("PUT /v1/rules/r", edit("7/h")),
        ("PATCH /v1/rules/r", json!({"limit": "7/h"})),
        ("DELETE /v1/rules/r", json!("")),
        ("PUT /v1/document", json!({"rules": []})),
    ] {
        let told = house.send(line, &[("if-match", &seen)], body).await.expect(412);
        let detail = told.body["detail"].as_str().expect("a detail");
        assert!(detail.contains("version 2"), "{detail}");
    }
    assert_eq!(house.state().await, before);
    // Another rule is another matter.
    house
        .send("PUT /v1/rules/s", &[("if-match", &seen)], json!({"limit": "9/h"}))
        .await
        .expect(200);
}

#[tokio::test]
async fn existing_entry_requires_a_precondition() {
    let house = AdminFixture::with_rules(RULES).await;
    let (subject, over) = (
        json!({"user_id": "u", "tier": "paid"}),
        json!({"rule": "s", "key": {"ip": "203.0.113.7"}, "requests": 9}),
    );
    house.send("POST /v1/subjects", &[], &subject).await.expect(201);
    house.send("POST /v1/overrides", &[], &over).await.expect(201);
    let before = house.state().await;
    let rule = json!({"limit": "9/h"});
    for (line, body) in [
        ("PUT /v1/rules/r", &rule),
        ("PATCH /v1/rules/r", &rule),
        ("DELETE /v1/rules/r", &rule),
        ("PUT /v1/document", &json!({"rules": []})),
        ("POST /v1/subjects", &json!({"user_id": "u", "tier": "free"})),
        ("POST /v1/overrides", &json!({"rule": "s", "key": {"ip": "203.0.113.7"}, "requests": 1})),
    ] {
        house.send(line, &[], body).await.expect(428);
        house.send(line, &[("if-match", "3")], body).await.expect_problem(400, "if-match");
        house.send(line, &[("if-none-match", "\"1\"")], body).await.expect_problem(400, "if-match");
        let both = [("if-match", "*"), ("if-none-match", "*")];
        house.send(line, &both, body).await.expect_problem(400, "if-match");
        house.send(line, &[("if-none-match", "*")], body).await.expect(412);
    }
    assert_eq!(house.state().await, before);
}

#[tokio::test]
async fn create_and_update_preconditions_are_enforced() {
    let house = AdminFixture::with_rules(RULES).await;
    let rule = json!({"key_by": "host", "limit": "9/h"});
    house.send("PUT /v1/rules/t", &[("if-match", "*")], &rule).await.expect(412);
    house.send("PUT /v1/rules/t", &[("if-match", "\"1\"")], &rule).await.expect(412);
    let made = house.send("PUT /v1/rules/t", &[("if-none-match", "*")], &rule).await.expect(200);
    assert_eq!(made.etag(), "\"2\"");
}

/// Whoever does not care how a rule is now patches it as it is then: of many at once, none is lost.
#[tokio::test(flavor = "multi_thread")]
async fn concurrent_edits_are_all_kept() {
    let house = AdminFixture::with_rules(RULES).await;
    let edits = (0..8).map(|at| {
        let rule =
            json!({"id": format!("e{at}"), "key_by": "host", "limit": format!("5/{}h", at + 1)});
        let house = &house;
        async move { house.send("POST /v1/rules", &[], rule).await.expect(201) }
    });
    futures_util::future::join_all(edits).await;
    let (book, version, mut ids) = house.state().await;
    ids.sort();
    assert_eq!((book.version(), version), (9, 9), "one version each");
    assert_eq!(ids, ["e0", "e1", "e2", "e3", "e4", "e5", "e6", "e7", "r", "s"]);
}

/// What the rules say is checked before; what is told here only the database knows.
#[tokio::test]
async fn repository_error_maps_to_problem_status() {
    let folder = tempfile::tempdir().expect("a folder");
    let meddler = ConflictingRepository::with_sqlite(&folder.path().join("rules.db")).await;
    let house = AdminFixture::with_repository(Arc::clone(&meddler) as Arc<dyn Repository>).await;
    house.apply(RULES).await;
    let before = house.state().await;
    let why = || "as the test wants it".to_owned();
    for (refused, status, words) in [
        (RepositoryError::Invalid(why()), 422, "as the test wants it"),
        (
            RepositoryError::ReadOnly { source: RuleSource::File, name: "rules.yaml".to_owned() },
            409,
            "they come from rules.yaml",
        ),
        (RepositoryError::VersionConflict { head: 7 }, 409, "they are at version 7"),
        (RepositoryError::Unavailable(why()), 503, "does not answer: as the test wants it"),
        (RepositoryError::Incompatible(why()), 503, "not one of ours: as the test wants it"),
    ] {
        *meddler.commit_error.lock() = Some(refused);
        for line in ["POST /v1/rules/r/disable", "POST /v1/versions/0/rollback"] {
            let said = [("if-match", "*"), ("x-tidegate-confirm", "empty")];
            let told = house.send(line, &said, "").await.expect(status);
            assert_eq!(told.head["content-type"], "application/problem+json");
            let detail = told.body["detail"].as_str().expect("a detail");
            assert!(detail.contains(words), "{detail}");
        }
    }
    assert_eq!(house.state().await, before);
}

#[tokio::test]
async fn author_and_reason_are_recorded_and_validated() {
    let house = AdminFixture::with_rules(RULES).await;
    let seen = ("if-match", "*");
    let said = [seen, ("x-tidegate-author", "ann"), ("x-tidegate-reason", "too much noise")];
    house.send("POST /v1/rules/r/disable", &said, "").await.expect(200);
    let version = house.get("/v1/versions/2").await.expect(200).body;
    assert_eq!((&version["author"], &version["reason"]), (&json!("ann"), &json!("too much noise")));
    assert_eq!(version["at"], "2026-10-26T08:53:20Z");
    let long = "x".repeat(501);
    for (name, value) in [("x-tidegate-author", long.as_str()), ("x-tidegate-reason", "a\tb")] {
        house
            .send("POST /v1/rules/r/enable", &[seen, (name, value)], "")
            .await
            .expect_problem(400, name);
    }
    assert_eq!(house.state().await.1, 2);
}
