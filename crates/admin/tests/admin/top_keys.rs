//! Who asks most, over HTTP: who they are is told to those who may read everything, and hashed to others.

use std::net::Ipv4Addr;

use serde_json::Value as Json;
use tidegate_admin::AdminGuard;
use tidegate_core::time::Micros;
use tidegate_rules::Facts;
use tidegate_web::{BearerToken, Peer};

use crate::fixture::{AdminFixture, AdminFixtureOptions};

const RULES: &str = "rules: [{ id: r, key_by: ip, limit: 2/h using fixed_window }]";
const REMOTE: Peer = Peer::Ip(std::net::IpAddr::V4(Ipv4Addr::new(192, 0, 2, 99)));

/// A house in which a client was refused once; with a token unless it is for this machine alone.
async fn fixture(token: Option<&str>) -> AdminFixture {
    let guard = AdminGuard {
        write: None,
        read: token.map(|text| BearerToken::new(text).expect("a token")),
    };
    let house =
        AdminFixture::build(AdminFixtureOptions { guard, ..AdminFixtureOptions::default() }).await;
    house.apply(RULES).await;
    let facts: Facts<'_> = [("ip", "203.0.113.7")].into_iter().collect();
    for _ in 0..3 {
        house.limiter.decide(&facts, 1).await;
    }
    house
}

/// The key of the only entry of a list, and who it is.
fn only_entry(told: &Json) -> (&str, &str) {
    let [entry] = &told["top"].as_array().expect("a list")[..] else { panic!("{told}") };
    (entry["key"].as_str().expect("a key"), entry["who"].as_str().expect("a name"))
}

#[tokio::test]
async fn top_keys_filter_by_kind_and_rule() {
    let house = fixture(None).await;
    let told = house.get("/v1/top").await.expect(200).body;
    let counts: Vec<_> = told["top"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|key| (&key["kind"], &key["count"]))
        .collect();
    assert_eq!(counts, [(&"refused".into(), &1.into()), (&"busiest".into(), &3.into())]);
    let told = house.get("/v1/top?kind=busiest&rule=r&limit=5").await.expect(200).body;
    assert_eq!(only_entry(&told).1, "ip=203.0.113.7");
    assert_eq!(
        house.get("/v1/top?rule=other").await.expect(200).body["top"],
        serde_json::json!([])
    );
    house.get("/v1/top?kind=loudest").await.expect_problem(400, "kind");
    house.get("/v1/top?limit=0").await.expect_problem(400, "limit");
    house.get("/v1/top?since=1h").await.expect_problem(400, "query");
}

#[tokio::test]
async fn identities_are_hashed_without_token() {
    let house = fixture(Some("secret")).await;
    let line = "GET /v1/top?kind=refused";
    let with = [("host", "rules.example"), ("authorization", "Bearer secret")];
    let clear = house.send_from(REMOTE, line, &with, "").await.expect(200).body;
    assert_eq!(only_entry(&clear).1, "ip=203.0.113.7");
    for (peer, headers) in [(REMOTE, &[("host", "rules.example")][..]), (REMOTE, &[])] {
        let hashed = house.send_from(peer, line, headers, "").await.expect(200).body;
        let (key, who) = only_entry(&hashed);
        assert!(who.starts_with("ip=h:") && key.starts_with("h:"), "{hashed}");
        assert!(!hashed.to_string().contains(only_entry(&clear).0), "{hashed}");
    }
    let here = house.get("/v1/top?kind=refused").await.expect(200).body;
    assert!(
        only_entry(&here).1.starts_with("ip=h:"),
        "a token is asked of this machine too: {here}"
    );
    let wrong = [("host", "rules.example"), ("authorization", "Bearer wrong")];
    house.send_from(REMOTE, line, &wrong, "").await.expect(401);
}

#[tokio::test]
async fn dns_rebinding_page_sees_only_hashes() {
    let house = fixture(None).await;
    let moved = [("host", "evil.example:8084")];
    let local = Peer::Ip(Ipv4Addr::LOCALHOST.into());
    let told =
        house.send_from(local, "GET /v1/top?kind=refused", &moved, "").await.expect(200).body;
    assert!(only_entry(&told).1.starts_with("ip=h:"), "{told}");
}

#[tokio::test]
async fn bursts_are_listed_after_a_number() {
    let house = fixture(None).await;
    let ask = async |times: usize| {
        let facts: Facts<'_> = [("ip", "203.0.113.8")].into_iter().collect();
        for _ in 0..times {
            house.limiter.decide(&facts, 1).await;
        }
        house.clock.advance(Micros::from_secs(1));
    };
    for _ in 0..15 {
        ask(2).await;
    }
    ask(120).await;
    let told = house.get("/v1/bursts").await.expect(200).body;
    let [burst] = &told["bursts"].as_array().expect("a list")[..] else { panic!("{told}") };
    assert_eq!((&burst["rule"], &burst["who"]), (&"r".into(), &"ip=203.0.113.8".into()));
    assert_eq!((&burst["rate"], &burst["mean"]), (&100.into(), &2.into()));
    let after = house.get("/v1/bursts?after=1").await.expect(200).body;
    assert_eq!(after["bursts"], serde_json::json!([]));
    house.get("/v1/bursts?after=x").await.expect_problem(400, "after");
}
