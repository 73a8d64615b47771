//! Authorization on every path: tokens, hosts and origins.

use std::net::Ipv4Addr;

use serde_json::json;
use tidegate_admin::AdminGuard;
use tidegate_web::{BearerToken, Peer};

use crate::fixture::{AdminFixture, AdminFixtureOptions};

const LOCAL: Peer = Peer::Ip(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST));
const REMOTE: Peer = Peer::Ip(std::net::IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)));

const READS: [&str; 10] = [
    "GET /v1/status",
    "GET /v1/rules",
    "GET /v1/document",
    "GET /v1/subjects",
    "GET /v1/overrides",
    "GET /v1/versions",
    "GET /v1/violations",
    "POST /v1/peek",
    "POST /v1/counters",
    "POST /v1/explain",
];

const WRITES: [&str; 9] = [
    "POST /v1/rules",
    "PUT /v1/rules/x",
    "PATCH /v1/rules/x",
    "DELETE /v1/rules/x",
    "POST /v1/rules/x/disable",
    "PUT /v1/document",
    "POST /v1/subjects",
    "POST /v1/versions/0/rollback",
    "POST /v1/reset",
];

async fn token_fixture() -> AdminFixture {
    let token = |text: &str| Some(BearerToken::new(text).expect("a token"));
    let guard = AdminGuard { write: token("write"), read: token("read") };
    AdminFixture::build(AdminFixtureOptions { guard, ..AdminFixtureOptions::default() }).await
}

/// The status of a response to a body that every path either accepts or refuses without effect.
async fn status(admin: &AdminFixture, peer: Peer, line: &str, headers: &[(&str, &str)]) -> u16 {
    admin.send_from(peer, line, headers, json!({"facts": {}})).await.status
}

#[tokio::test]
async fn token_grants_only_its_access_level() {
    let admin = token_fixture().await;
    let with = |bearer: &'static str| [("host", "rules.example"), ("authorization", bearer)];
    for (line, reads) in
        READS.map(|line| (line, true)).into_iter().chain(WRITES.map(|line| (line, false)))
    {
        for peer in [LOCAL, REMOTE] {
            for wrong in
                ["", "Bearer", "Bearer wrong", "Basic write", "Bearer writ", "Bearer write2"]
            {
                let reply = admin.send_from(peer, line, &with(wrong), "").await.expect(401);
                assert_eq!(reply.head["www-authenticate"], "Bearer");
            }
            let read = status(&admin, peer, line, &with("Bearer read")).await;
            assert_eq!(read == 403, !reads, "{line}: {read}");
            let write = status(&admin, peer, line, &with("bearer write")).await;
            assert!(!matches!(write, 401 | 403 | 421), "{line}: {write}");
        }
    }
    assert_eq!(admin.state().await.0.version(), 0, "nothing was changed");
    for probe in ["GET /livez", "GET /openapi.json"] {
        assert_eq!(status(&admin, REMOTE, probe, &[("host", "x")]).await, 200);
    }
}

#[tokio::test]
async fn untokened_api_serves_only_local_hosts() {
    let admin = AdminFixture::with_rules("rules: []").await;
    for line in READS.into_iter().chain(WRITES) {
        assert_eq!(status(&admin, REMOTE, line, &[]).await, 403, "{line}");
        assert_eq!(
            status(&admin, LOCAL, line, &[("host", "evil.example:8084")]).await,
            421,
            "{line}"
        );
        for origin in ["http://evil.example", "null", "http://127.0.0.1:80"] {
            assert_eq!(status(&admin, LOCAL, line, &[("origin", origin)]).await, 403, "{line}");
        }
        let own = status(&admin, LOCAL, line, &[("origin", "http://127.0.0.1:8084")]).await;
        assert!(!matches!(own, 401 | 403 | 421), "{line}: {own}");
    }
}

#[tokio::test]
async fn responses_forbid_caching_and_sniffing() {
    let admin = AdminFixture::empty().await;
    for line in ["GET /v1/rules", "GET /nowhere", "PUT /v1/rules", "GET /v1/rules/%ff"] {
        let reply = admin.send(line, &[], "").await;
        assert_eq!(reply.head["cache-control"], "no-store", "{line}");
        assert_eq!(reply.head["x-content-type-options"], "nosniff", "{line}");
    }
    let wrong = admin.send("PUT /v1/rules", &[], "").await.expect(405);
    assert_eq!(wrong.head["allow"], "GET, HEAD, POST");
    let long = "x".repeat((4 << 20) + 1);
    admin.send("PUT /v1/document", &[], long).await.expect(413);
}
