//! Overrides: other numbers for one key of a rule, for good or until a date, and very many of them.

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

async fn remaining(house: &AdminFixture, user: &str) -> Option<u64> {
    house.remaining(&[("user_id", user), ("ip", "203.0.113.7")]).await[0].1
}

/// Waits until the customer has so many left; that it does not come is a failure.
async fn wait_for_remaining(house: &AdminFixture, wanted: u64) {
    let seen = async {
        while remaining(house, "acme").await != Some(wanted) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(WAIT_TIMEOUT, seen).await.expect("the override runs out");
}

#[tokio::test]
async fn override_applies_until_deleted() {
    let house = AdminFixture::with_rules(RULES).await;
    let set = house.send("POST /v1/overrides", &[], override_for("acme", 500)).await.expect(201);
    assert_eq!(
        (remaining(&house, "acme").await, remaining(&house, "other").await),
        (Some(500), Some(10))
    );
    let path = set.head["location"].to_str().expect("a path").to_owned();
    let kept = house.get(&path).await.expect(200);
    assert_eq!(
        (&kept.body["key"], &kept.body["requests"]),
        (&json!({"user_id": "acme"}), &json!(500))
    );
    house
        .send("POST /v1/overrides", &[("if-match", kept.etag())], override_for("acme", "deny"))
        .await
        .expect(201);
    assert!(
        !house.limiter.decide(&[("user_id", "acme")].into_iter().collect(), 1).await.is_allowed()
    );
    house.send(&format!("DELETE {path}"), &[("if-match", "*")], "").await.expect(200);
    assert_eq!(remaining(&house, "acme").await, Some(10));
}

#[tokio::test]
async fn override_list_is_one_atomic_version() {
    let house = AdminFixture::with_rules(RULES).await;
    let before = house.state().await;
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
        house.send("POST /v1/overrides", &[], list).await.expect_problem(422, field);
    }
    house.send("POST /v1/overrides", &[], json!([])).await.expect(422);
    let many: Vec<Json> = (0..10_001).map(|at| override_for(&format!("u{at}"), 1)).collect();
    house.send("POST /v1/overrides", &[], json!(many)).await.expect(422);
    assert_eq!(house.state().await, before);
    let twice = json!([override_for("a", 1), override_for("b", 2), override_for("a", 3)]);
    house.send("POST /v1/overrides", &[], twice).await.expect(201);
    assert_eq!(
        (remaining(&house, "a").await, house.state().await.1),
        (Some(3), 2),
        "the last is meant"
    );
}

/// The clock is the test's; nothing happens until it is moved, and then it does without a change.
#[tokio::test(flavor = "multi_thread")]
async fn override_expires_at_its_instant() {
    let house = Arc::new(AdminFixture::with_rules(RULES).await);
    let mut over = override_for("acme", 500);
    over["until"] = json!("2026-10-26T08:53:21Z");
    house.send("POST /v1/overrides", &[], over).await.expect(201);
    let office = Arc::clone(&house.manager);
    let keeper = tokio::spawn(async move { office.run().await });
    // One tick before, it counts, however often somebody looks.
    house.clock.advance(Micros::new(99_999));
    house.send("POST /v1/rules/s/disable", &[("if-match", "*")], "").await.expect(200);
    assert_eq!(remaining(&house, "acme").await, Some(500));
    house.clock.advance(Micros::new(1));
    wait_for_remaining(&house, 10).await;
    assert_eq!(house.state().await.1, 3, "no version was made");
    keeper.abort();
    // It is still on record, and whoever wants it back says so.
    let list = house.get("/v1/overrides").await.expect(200).body;
    assert_eq!(list["overrides"][0]["until"], "2026-10-26T08:53:21Z");
}

/// It runs out between the compiling of a change and the next look: nobody may miss it.
#[tokio::test(flavor = "multi_thread")]
async fn override_expired_before_sync_is_removed() {
    let house = AdminFixture::with_rules(RULES).await;
    let mut over = override_for("acme", 500);
    over["until"] = json!("2026-10-26T08:53:21Z");
    house.send("POST /v1/overrides", &[], over).await.expect(201);
    house.clock.advance(Micros::from_secs(5));
    assert_eq!(remaining(&house, "acme").await, Some(500), "nobody has looked");
    let office = Arc::clone(&house.manager);
    let keeper = tokio::spawn(async move { office.run().await });
    wait_for_remaining(&house, 10).await;
    keeper.abort();
}

#[tokio::test]
async fn changed_key_by_conflicts_with_overrides() {
    let house = AdminFixture::with_rules(RULES).await;
    house.send("POST /v1/overrides", &[], override_for("acme", 500)).await.expect(201);
    let before = house.state().await;
    let patch = json!({"key_by": "ip"});
    let told = house.send("PATCH /v1/rules/r", &[("if-match", "*")], patch).await.expect(422);
    assert_eq!(told.body["errors"][0]["kind"], "override");
    assert_eq!(house.state().await, before);
}

#[tokio::test]
async fn hundred_thousand_overrides_are_paged_completely() {
    let house = AdminFixture::with_rules(RULES).await;
    for thousand in 0..10 {
        let list: Vec<Json> = (0..10_000)
            .map(|at| override_for(&format!("u{}", thousand * 10_000 + at), 11 + at))
            .collect();
        house.send("POST /v1/overrides", &[], json!(list)).await.expect(201);
    }
    let (mut found, mut path) = (0, "/v1/overrides?rule=r&limit=1000".to_owned());
    let mut last = String::new();
    loop {
        let page = house.get(&path).await.expect(200).body;
        for over in page["overrides"].as_array().expect("a list") {
            let id = over["id"].as_str().expect("an id");
            assert!(id > last.as_str(), "each once");
            last = id.to_owned();
            found += 1;
        }
        let Some(next) = page["next"].as_str() else { break };
        path = format!("/v1/overrides?rule=r&limit=1000&after={next}");
    }
    assert_eq!((found, house.state().await.1), (100_000, 11));
    for user in [0, 1, 9_999, 54_321, 99_999] {
        assert_eq!(remaining(&house, &format!("u{user}")).await, Some(11 + user % 10_000));
    }
    assert_eq!(remaining(&house, "u100000").await, Some(10));
    assert_eq!(house.get("/v1/overrides?rule=s").await.body["overrides"], json!([]));
}
