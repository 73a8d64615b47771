//! The most refused and busiest clients in the API: callers with read access see identities, others
//! see hashes.

use std::net::Ipv4Addr;

use serde_json::Value as Json;
use tidegate_admin::AdminGuard;
use tidegate_core::time::Micros;
use tidegate_rules::Facts;
use tidegate_web::{BearerToken, Peer};

use crate::fixture::{AdminFixture, AdminFixtureOptions};

const RULES: &str = "rules: [{ id: r, key_by: ip, limit: 2/h using fixed_window }]";
const REMOTE: Peer = Peer::Ip(std::net::IpAddr::V4(Ipv4Addr::new(192, 0, 2, 99)));

/// An admin API with one refused client, and optionally with a read token.
async fn fixture(token: Option<&str>) -> AdminFixture {
    let guard = AdminGuard {
        write: None,
        read: token.map(|text| BearerToken::new(text).expect("a token")),
    };
    let admin =
        AdminFixture::build(AdminFixtureOptions { guard, ..AdminFixtureOptions::default() }).await;
    admin.apply(RULES).await;
    let facts: Facts<'_> = [("ip", "203.0.113.7")].into_iter().collect();
    for _ in 0..3 {
        admin.limiter.decide(&facts, 1).await;
    }
    admin
}

/// The key and the client of the only entry.
fn only_entry(reply: &Json) -> (&str, &str) {
    let [entry] = &reply["top"].as_array().expect("a list")[..] else { panic!("{reply}") };
    (entry["key"].as_str().expect("a key"), entry["client"].as_str().expect("a name"))
}

#[tokio::test]
async fn top_keys_filter_by_kind_and_rule() {
    let admin = fixture(None).await;
    let reply = admin.get("/v1/top").await.expect(200).body;
    let counts: Vec<_> = reply["top"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|key| (&key["kind"], &key["count"]))
        .collect();
    assert_eq!(counts, [(&"refused".into(), &1.into()), (&"busiest".into(), &3.into())]);
    let reply = admin.get("/v1/top?kind=busiest&rule=r&limit=5").await.expect(200).body;
    assert_eq!(only_entry(&reply).1, "ip=203.0.113.7");
    assert_eq!(
        admin.get("/v1/top?rule=other").await.expect(200).body["top"],
        serde_json::json!([])
    );
    admin.get("/v1/top?kind=loudest").await.expect_problem(400, "kind");
    admin.get("/v1/top?limit=0").await.expect_problem(400, "limit");
    admin.get("/v1/top?since=1h").await.expect_problem(400, "query");
}

#[tokio::test]
async fn identities_are_hashed_without_token() {
    let admin = fixture(Some("secret")).await;
    let line = "GET /v1/top?kind=refused";
    let with = [("host", "rules.example"), ("authorization", "Bearer secret")];
    let clear = admin.send_from(REMOTE, line, &with, "").await.expect(200).body;
    assert_eq!(only_entry(&clear).1, "ip=203.0.113.7");
    for (peer, headers) in [(REMOTE, &[("host", "rules.example")][..]), (REMOTE, &[])] {
        let hashed = admin.send_from(peer, line, headers, "").await.expect(200).body;
        let (key, who) = only_entry(&hashed);
        assert!(who.starts_with("ip=h:") && key.starts_with("h:"), "{hashed}");
        assert!(!hashed.to_string().contains(only_entry(&clear).0), "{hashed}");
    }
    let here = admin.get("/v1/top?kind=refused").await.expect(200).body;
    assert!(only_entry(&here).1.starts_with("ip=h:"), "local callers need the token too: {here}");
    let wrong = [("host", "rules.example"), ("authorization", "Bearer wrong")];
    admin.send_from(REMOTE, line, &wrong, "").await.expect(401);
}

#[tokio::test]
async fn dns_rebinding_page_sees_only_hashes() {
    let admin = fixture(None).await;
    let rebound = [("host", "evil.example:8084")];
    let local = Peer::Ip(Ipv4Addr::LOCALHOST.into());
    let reply =
        admin.send_from(local, "GET /v1/top?kind=refused", &rebound, "").await.expect(200).body;
    assert!(only_entry(&reply).1.starts_with("ip=h:"), "{reply}");
}

#[tokio::test]
async fn bursts_are_listed_after_a_number() {
    let admin = fixture(None).await;
    let send_requests = async |times: usize| {
        let facts: Facts<'_> = [("ip", "203.0.113.8")].into_iter().collect();
        for _ in 0..times {
            admin.limiter.decide(&facts, 1).await;
        }
        admin.clock.advance(Micros::from_secs(1));
    };
    for _ in 0..15 {
        send_requests(2).await;
    }
    send_requests(120).await;
    let reply = admin.get("/v1/bursts").await.expect(200).body;
    let [burst] = &reply["bursts"].as_array().expect("a list")[..] else { panic!("{reply}") };
    assert_eq!((&burst["rule"], &burst["client"]), (&"r".into(), &"ip=203.0.113.8".into()));
    assert_eq!((&burst["rate"], &burst["mean"]), (&100.into(), &2.into()));
    let after = admin.get("/v1/bursts?after=1").await.expect(200).body;
    assert_eq!(after["bursts"], serde_json::json!([]));
    admin.get("/v1/bursts?after=x").await.expect_problem(400, "after");
}
