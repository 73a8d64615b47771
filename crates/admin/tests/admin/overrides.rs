//! Overrides: a different limit for one key of a rule, permanent or temporary, up to 100 000 of
//! them.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value as Json, json};
use tidegate_core::time::Micros;
use tidegate_testkit::process::WAIT_TIMEOUT;

use crate::fixture::AdminFixture;

const RULES: &str = "rules:
  - { id: r, key_by: user_id, limit: { requests: 10, window: 1h } }
  - { id: s, key_by: [user_id, ip], limit: 100/h }";

fn override_for(user: &str, requests: impl Into<Json>) -> Json {
    json!({"rule": "r", "key": {"user_id": user}, "requests": requests.into()})
}

async fn remaining(admin: &AdminFixture, user: &str) -> Option<u64> {
    admin.remaining(&[("user_id", user), ("ip", "203.0.113.7")]).await[0].1
}

/// Waits until the client's remaining quota is `wanted`; panics after a timeout.
async fn wait_for_remaining(admin: &AdminFixture, wanted: u64) {
    let seen = async {
        while remaining(admin, "acme").await != Some(wanted) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(WAIT_TIMEOUT, seen).await.expect("the override runs out");
}

#[tokio::test]
async fn override_applies_until_deleted() {
    let admin = AdminFixture::with_rules(RULES).await;
    let set = admin.send("POST /v1/overrides", &[], override_for("acme", 500)).await.expect(201);
    assert_eq!(
        (remaining(&admin, "acme").await, remaining(&admin, "other").await),
        (Some(500), Some(10))
    );
    let path = set.head["location"].to_str().expect("a path").to_owned();
    let kept = admin.get(&path).await.expect(200);
    assert_eq!(
        (&kept.body["key"], &kept.body["requests"]),
        (&json!({"user_id": "acme"}), &json!(500))
    );
    admin
        .send("POST /v1/overrides", &[("if-match", kept.etag())], override_for("acme", "deny"))
        .await
        .expect(201);
    assert!(
        !admin.limiter.decide(&[("user_id", "acme")].into_iter().collect(), 1).await.is_allowed()
    );
    admin.send(&format!("DELETE {path}"), &[("if-match", "*")], "").await.expect(200);
    assert_eq!(remaining(&admin, "acme").await, Some(10));
}

#[tokio::test]
async fn override_list_is_one_atomic_version() {
    let admin = AdminFixture::with_rules(RULES).await;
    let before = admin.state().await;
    for (at, wrong, field) in [
        (1, json!({"rule": "r", "key": {"user_id": "b"}, "requests": -1}), "[1].requests"),
        (1, json!({"rule": "nobody", "key": {"user_id": "b"}, "requests": 1}), "[1].rule"),
        (1, json!({"rule": "r", "key": {"user": "b"}, "requests": 1}), "[1].key"),
        (1, json!({"rule": "r", "key": {"user_id": "b", "ip": "::1"}, "requests": 1}), "[1].key"),
        (
            1,
            json!({"rule": "r", "key": {"user_id": "b"}, "requests": 1, "until": "soon"}),
            "[1].until",
        ),
        (1, json!({"rule": "r", "key": {"user_id": "b"}, "requests": 1, "x": 1}), "[1].x"),
    ] {
        let list = json!([override_for("a", 1), wrong]);
        assert_eq!(list[at], wrong);
        admin.send("POST /v1/overrides", &[], list).await.expect_problem(422, field);
    }
    admin.send("POST /v1/overrides", &[], json!([])).await.expect(422);
    let many: Vec<Json> = (0..10_001).map(|at| override_for(&format!("u{at}"), 1)).collect();
    admin.send("POST /v1/overrides", &[], json!(many)).await.expect(422);
    assert_eq!(admin.state().await, before);
    let twice = json!([override_for("a", 1), override_for("b", 2), override_for("a", 3)]);
    admin.send("POST /v1/overrides", &[], twice).await.expect(201);
    assert_eq!(
        (remaining(&admin, "a").await, admin.state().await.1),
        (Some(3), 2),
        "the last duplicate applies"
    );
}

/// The override expires when the manual clock reaches its time, without a new version.
#[tokio::test(flavor = "multi_thread")]
async fn override_expires_at_its_instant() {
    let admin = Arc::new(AdminFixture::with_rules(RULES).await);
    let mut over = override_for("acme", 500);
    over["until"] = json!("2026-10-26T08:53:21Z");
    admin.send("POST /v1/overrides", &[], over).await.expect(201);
    let manager = Arc::clone(&admin.manager);
    let sync_task = tokio::spawn(async move { manager.run().await });
    // One microsecond before its end, the override still applies, even after another change.
    admin.clock.advance(Micros::new(99_999));
    admin.send("POST /v1/rules/s/disable", &[("if-match", "*")], "").await.expect(200);
    assert_eq!(remaining(&admin, "acme").await, Some(500));
    admin.clock.advance(Micros::new(1));
    wait_for_remaining(&admin, 10).await;
    assert_eq!(admin.state().await.1, 3, "no version was made");
    sync_task.abort();
    // The expired override is still stored and listed.
    let list = admin.get("/v1/overrides").await.expect(200).body;
    assert_eq!(list["overrides"][0]["until"], "2026-10-26T08:53:21Z");
}

/// The override expires after the rules were compiled and before the sync task starts.
#[tokio::test(flavor = "multi_thread")]
async fn override_expired_before_sync_is_removed() {
    let admin = AdminFixture::with_rules(RULES).await;
    let mut over = override_for("acme", 500);
    over["until"] = json!("2026-10-26T08:53:21Z");
    admin.send("POST /v1/overrides", &[], over).await.expect(201);
    admin.clock.advance(Micros::from_secs(5));
    assert_eq!(remaining(&admin, "acme").await, Some(500), "the sync task has not run yet");
    let manager = Arc::clone(&admin.manager);
    let sync_task = tokio::spawn(async move { manager.run().await });
    wait_for_remaining(&admin, 10).await;
    sync_task.abort();
}

#[tokio::test]
async fn changed_key_by_conflicts_with_overrides() {
    let admin = AdminFixture::with_rules(RULES).await;
    admin.send("POST /v1/overrides", &[], override_for("acme", 500)).await.expect(201);
    let before = admin.state().await;
    let patch = json!({"key_by": "ip"});
    let reply = admin.send("PATCH /v1/rules/r", &[("if-match", "*")], patch).await.expect(422);
    assert_eq!(reply.body["errors"][0]["kind"], "override");
    assert_eq!(admin.state().await, before);
}

#[tokio::test]
async fn hundred_thousand_overrides_are_paged_completely() {
    let admin = AdminFixture::with_rules(RULES).await;
    for thousand in 0..10 {
        let list: Vec<Json> = (0..10_000)
            .map(|at| override_for(&format!("u{}", thousand * 10_000 + at), 11 + at))
            .collect();
        admin.send("POST /v1/overrides", &[], json!(list)).await.expect(201);
    }
    let (mut found, mut path) = (0, "/v1/overrides?rule=r&limit=1000".to_owned());
    let mut last = String::new();
    loop {
        let page = admin.get(&path).await.expect(200).body;
        for over in page["overrides"].as_array().expect("a list") {
            let id = over["id"].as_str().expect("an id");
            assert!(id > last.as_str(), "no duplicates");
            last = id.to_owned();
            found += 1;
        }
        let Some(next) = page["next"].as_str() else { break };
        path = format!("/v1/overrides?rule=r&limit=1000&after={next}");
    }
    assert_eq!((found, admin.state().await.1), (100_000, 11));
    for user in [0, 1, 9_999, 54_321, 99_999] {
        assert_eq!(remaining(&admin, &format!("u{user}")).await, Some(11 + user % 10_000));
    }
    assert_eq!(remaining(&admin, "u100000").await, Some(10));
    assert_eq!(admin.get("/v1/overrides?rule=s").await.body["overrides"], json!([]));
}
