//! Concurrent editors: an editor cannot overwrite a change that it has not seen.

use std::sync::Arc;

use serde_json::json;
use tidegate_rulestore::{Repository, RepositoryError, RuleSource};

use crate::conflicting_repository::ConflictingRepository;
use crate::fixture::AdminFixture;

const RULES: &str =
    "rules: [{ id: r, key_by: api_key, limit: 5/h }, { id: s, key_by: ip, limit: 5/h }]";

#[tokio::test]
async fn stale_edit_is_refused_without_loss() {
    let admin = AdminFixture::with_rules(RULES).await;
    let seen = admin.get("/v1/rules/r").await.etag().to_owned();
    let edit = |limit: &str| json!({"key_by": "api_key", "limit": limit});
    admin.send("PUT /v1/rules/r", &[("if-match", &seen)], edit("6/h")).await.expect(200);
    let before = admin.state().await;
    for (line, body) in [
        ("PUT /v1/rules/r", edit("7/h")),
        ("PATCH /v1/rules/r", json!({"limit": "7/h"})),
        ("DELETE /v1/rules/r", json!("")),
        ("PUT /v1/document", json!({"rules": []})),
    ] {
        let reply = admin.send(line, &[("if-match", &seen)], body).await.expect(412);
        let detail = reply.body["detail"].as_str().expect("a detail");
        assert!(detail.contains("version 2"), "{detail}");
    }
    assert_eq!(admin.state().await, before);
    // Another rule is unaffected.
    admin
        .send("PUT /v1/rules/s", &[("if-match", &seen)], json!({"limit": "9/h"}))
        .await
        .expect(200);
}

#[tokio::test]
async fn existing_entry_requires_a_precondition() {
    let admin = AdminFixture::with_rules(RULES).await;
    let (subject, over) = (
        json!({"user_id": "u", "tier": "paid"}),
        json!({"rule": "s", "key": {"ip": "203.0.113.7"}, "requests": 9}),
    );
    admin.send("POST /v1/subjects", &[], &subject).await.expect(201);
    admin.send("POST /v1/overrides", &[], &over).await.expect(201);
    let before = admin.state().await;
    let rule = json!({"limit": "9/h"});
    for (line, body) in [
        ("PUT /v1/rules/r", &rule),
        ("PATCH /v1/rules/r", &rule),
        ("DELETE /v1/rules/r", &rule),
        ("PUT /v1/document", &json!({"rules": []})),
        ("POST /v1/subjects", &json!({"user_id": "u", "tier": "free"})),
        ("POST /v1/overrides", &json!({"rule": "s", "key": {"ip": "203.0.113.7"}, "requests": 1})),
    ] {
        admin.send(line, &[], body).await.expect(428);
        admin.send(line, &[("if-match", "3")], body).await.expect_problem(400, "if-match");
        admin.send(line, &[("if-none-match", "\"1\"")], body).await.expect_problem(400, "if-match");
        let both = [("if-match", "*"), ("if-none-match", "*")];
        admin.send(line, &both, body).await.expect_problem(400, "if-match");
        admin.send(line, &[("if-none-match", "*")], body).await.expect(412);
    }
    assert_eq!(admin.state().await, before);
}

#[tokio::test]
async fn create_and_update_preconditions_are_enforced() {
    let admin = AdminFixture::with_rules(RULES).await;
    let rule = json!({"key_by": "host", "limit": "9/h"});
    admin.send("PUT /v1/rules/t", &[("if-match", "*")], &rule).await.expect(412);
    admin.send("PUT /v1/rules/t", &[("if-match", "\"1\"")], &rule).await.expect(412);
    let made = admin.send("PUT /v1/rules/t", &[("if-none-match", "*")], &rule).await.expect(200);
    assert_eq!(made.etag(), "\"2\"");
}

/// Creating a rule needs no precondition. Of many concurrent creations, none is lost.
#[tokio::test(flavor = "multi_thread")]
async fn concurrent_edits_are_all_kept() {
    let admin = AdminFixture::with_rules(RULES).await;
    let edits = (0..8).map(|at| {
        let rule =
            json!({"id": format!("e{at}"), "key_by": "host", "limit": format!("5/{}h", at + 1)});
        let admin = &admin;
        async move { admin.send("POST /v1/rules", &[], rule).await.expect(201) }
    });
    futures_util::future::join_all(edits).await;
    let (config, version, mut ids) = admin.state().await;
    ids.sort();
    assert_eq!((config.version(), version), (9, 9), "one version each");
    assert_eq!(ids, ["e0", "e1", "e2", "e3", "e4", "e5", "e6", "e7", "r", "s"]);
}

/// These errors come from the database, after the rules were validated.
#[tokio::test]
async fn repository_error_maps_to_problem_status() {
    let folder = tempfile::tempdir().expect("a folder");
    let conflicting = ConflictingRepository::with_sqlite(&folder.path().join("rules.db")).await;
    let admin =
        AdminFixture::with_repository(Arc::clone(&conflicting) as Arc<dyn Repository>).await;
    admin.apply(RULES).await;
    let before = admin.state().await;
    let why = || "as the test wants it".to_owned();
    for (refused, status, words) in [
        (RepositoryError::Invalid(why()), 422, "as the test wants it"),
        (
            RepositoryError::ReadOnly { source: RuleSource::File, name: "rules.yaml".to_owned() },
            409,
            "they come from rules.yaml",
        ),
        (RepositoryError::VersionConflict { head: 7 }, 409, "the latest version is 7"),
        (RepositoryError::Unavailable(why()), 503, "is unavailable: as the test wants it"),
        (RepositoryError::Incompatible(why()), 503, "is incompatible: as the test wants it"),
    ] {
        *conflicting.commit_error.lock() = Some(refused);
        for line in ["POST /v1/rules/r/disable", "POST /v1/versions/0/rollback"] {
            let headers = [("if-match", "*"), ("x-tidegate-confirm", "empty")];
            let reply = admin.send(line, &headers, "").await.expect(status);
            assert_eq!(reply.head["content-type"], "application/problem+json");
            let detail = reply.body["detail"].as_str().expect("a detail");
            assert!(detail.contains(words), "{detail}");
        }
    }
    assert_eq!(admin.state().await, before);
}

#[tokio::test]
async fn author_and_reason_are_recorded_and_validated() {
    let admin = AdminFixture::with_rules(RULES).await;
    let seen = ("if-match", "*");
    let headers = [seen, ("x-tidegate-author", "ann"), ("x-tidegate-reason", "too much noise")];
    admin.send("POST /v1/rules/r/disable", &headers, "").await.expect(200);
    let version = admin.get("/v1/versions/2").await.expect(200).body;
    assert_eq!((&version["author"], &version["reason"]), (&json!("ann"), &json!("too much noise")));
    assert_eq!(version["at"], "2026-10-26T08:53:20Z");
    let long = "x".repeat(501);
    for (name, value) in [("x-tidegate-author", long.as_str()), ("x-tidegate-reason", "a\tb")] {
        admin
            .send("POST /v1/rules/r/enable", &[seen, (name, value)], "")
            .await
            .expect_problem(400, name);
    }
    assert_eq!(admin.state().await.1, 2);
}
