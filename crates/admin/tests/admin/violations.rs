//! The violation log in the API: identities are hashed unless plain identities are configured; API
//! keys are always hashed.

use serde_json::{Value as Json, json};
use tidegate_core::time::Micros;
use tidegate_rules::Facts;

use crate::fixture::{AdminFixture, AdminFixtureOptions};
use crate::violation_log::KEEP_ALL;

const RULES: &str = "
endpoints: [GET /api/*]
rules:
  - { id: shut, match: { path: /shut }, key_by: ip, limit: { requests: deny } }
  - { id: watched, match: { path: /api/** }, key_by: ip, limit: { requests: deny }, mode: shadow }
";

async fn fixture(plain: bool) -> AdminFixture {
    let admin =
        AdminFixture::build(AdminFixtureOptions { plain, ..AdminFixtureOptions::default() }).await;
    admin.apply(RULES).await;
    admin
}

async fn decide(admin: &AdminFixture, facts: &[(&str, &str)]) {
    let facts: Facts<'_> = facts.iter().copied().collect();
    let _ = admin.limiter.decide(&facts, 1).await;
}

/// Writes all queued violations.
async fn flush_log(admin: &AdminFixture) {
    admin.log.stop();
    admin.log.run(admin.manager.repository(), KEEP_ALL).await;
    assert_eq!(admin.log.counts().waiting, 0);
}

async fn list_violations(admin: &AdminFixture, query: &str) -> Vec<Json> {
    let reply = admin.get(&format!("/v1/violations{query}")).await.expect(200);
    reply.body["violations"].as_array().expect("a list").clone()
}

#[tokio::test]
async fn hashed_identities_are_found_by_plaintext() {
    let admin = fixture(false).await;
    decide(&admin, &[("path", "/shut"), ("user_id", "ann"), ("ip", "203.0.113.7")]).await;
    decide(&admin, &[("path", "/shut"), ("api_key", "sk-1"), ("ip", "203.0.113.8")]).await;
    flush_log(&admin).await;
    let all = list_violations(&admin, "").await;
    let text = json!(all).to_string();
    assert!(
        all.len() == 2
            && !text.contains("ann")
            && !text.contains("203.0.113")
            && !text.contains("sk-1")
    );
    for (query, rows) in [
        ("?user_id=ann", 1),
        ("?api_key=sk-1", 1),
        ("?ip=203.0.113.7", 1),
        ("?user_id=bob", 0),
        ("?user_id=ann&ip=203.0.113.8", 0),
        ("?rule=shut", 2),
        ("?rule=watched", 0),
    ] {
        assert_eq!(list_violations(&admin, query).await.len(), rows, "{query}");
    }
    let hash = all[0]["user_id"].as_str().expect("a hash");
    assert_eq!(list_violations(&admin, &format!("?user_id={hash}")).await, [all[0].clone()]);
    assert_eq!(
        list_violations(&admin, &format!("?api_key={hash}")).await,
        [all[0].clone()],
        "found by the hash of an earlier response"
    );
}

#[tokio::test]
async fn plain_mode_still_hashes_api_keys() {
    let admin = fixture(true).await;
    decide(&admin, &[("path", "/shut"), ("user_id", "ann"), ("ip", "203.0.113.7")]).await;
    decide(&admin, &[("path", "/shut"), ("api_key", "sk-1"), ("ip", "203.0.113.8")]).await;
    flush_log(&admin).await;
    let all = list_violations(&admin, "").await;
    assert_eq!((&all[1]["user_id"], &all[1]["ip"]), (&json!("ann"), &json!("203.0.113.7")));
    assert!(all[0]["user_id"].as_str().is_some_and(|hash| hash.starts_with("h:")), "{}", all[0]);
    assert_eq!(list_violations(&admin, "?api_key=sk-1").await.len(), 1);
    assert_eq!(list_violations(&admin, "?ip=203.0.113.8").await.len(), 1);
}

#[tokio::test]
async fn violations_show_rule_endpoint_and_time() {
    let admin = fixture(true).await;
    decide(&admin, &[("path", "/shut"), ("ip", "203.0.113.7")]).await;
    admin.clock.advance(Micros::from_secs(60));
    let watched = [("method", "GET"), ("path", "/api/x"), ("ip", "203.0.113.7")];
    for _ in 0..3 {
        decide(&admin, &watched).await;
    }
    flush_log(&admin).await;
    let newest = &list_violations(&admin, "?limit=1").await[0];
    let fields = ["rule", "endpoint", "enforced", "at"].map(|name| newest[name].clone());
    let expected =
        [json!("watched"), json!("GET /api/*"), json!(false), json!("2026-10-26T08:54:20Z")];
    assert_eq!(fields, expected);
    assert_eq!(list_violations(&admin, "?since=2026-10-26T08:54:00Z").await.len(), 3);
    assert_eq!(list_violations(&admin, "?until=2026-10-26T08:54:00Z").await.len(), 1);
    admin.get("/v1/violations?since=yesterday").await.expect_problem(400, "since");
    let top = admin.get("/v1/violations/top").await.expect(200).body;
    let counts: Vec<(&Json, &Json)> = top["top"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|row| (&row["rule"], &row["count"]))
        .collect();
    assert_eq!(counts, [(&json!("watched"), &json!(3)), (&json!("shut"), &json!(1))]);
    assert_eq!((&top["counted"], &top["complete"]), (&json!(4), &json!(true)));
    let status = admin.get("/v1/status").await.expect(200).body;
    assert_eq!(
        status["violations"],
        json!({"received": 4, "written": 4, "dropped": 0, "waiting": 0})
    );
}

#[tokio::test]
async fn violation_pages_have_no_duplicates() {
    let admin = fixture(true).await;
    for at in 0..25 {
        decide(&admin, &[("path", "/shut"), ("ip", "203.0.113.7"), ("user_id", &at.to_string())])
            .await;
    }
    flush_log(&admin).await;
    let (mut found, mut path) = (Vec::new(), "/v1/violations?limit=10".to_owned());
    loop {
        let page = admin.get(&path).await.expect(200).body;
        let list = page["violations"].as_array().expect("a list").iter();
        found.extend(list.map(|row| row["user_id"].as_str().expect("a user").to_owned()));
        let Some(next) = page["next"].as_u64() else { break };
        path = format!("/v1/violations?limit=10&before={next}");
    }
    assert_eq!(found, (0..25).rev().map(|at| at.to_string()).collect::<Vec<_>>());
}
