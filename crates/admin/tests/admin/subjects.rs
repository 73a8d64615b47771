//! Subjects: attributes of API keys and users. API keys are stored only as hashes.

use serde_json::json;
use tidegate_rules::Facts;

use crate::fixture::AdminFixture;

const RULES: &str = "
identity: { api_key: { header: x-api-key }, tier: { subject: api_key, default: free } }
rules:
  - { id: free, match: { tier: free }, key_by: api_key, limit: 5/h }
  - { id: paid, match: { tier: paid }, key_by: api_key, limit: 50/h }
";

/// Distinctive enough that it does not occur in a file by chance.
const KEY: &str = "sk-live-Zq7PmX2vT9";

async fn matching_rules(admin: &AdminFixture, key: &str) -> Vec<String> {
    admin.remaining(&[("api_key", key)]).await.into_iter().map(|(rule, _)| rule).collect()
}

/// Whether any file of the database contains this text.
fn files_contain(admin: &AdminFixture, text: &str) -> bool {
    admin.files().iter().any(|file| {
        let bytes = std::fs::read(file).expect("a file");
        bytes.windows(text.len()).any(|window| window == text.as_bytes())
    })
}

#[tokio::test]
async fn subject_tier_applies_until_removed() {
    let admin = AdminFixture::with_rules(RULES).await;
    assert_eq!(matching_rules(&admin, KEY).await, ["free"]);
    let subject = json!({"api_key": KEY, "plan": "paid"});
    let set = admin.send("POST /v1/subjects", &[], subject).await.expect(201);
    assert_eq!(matching_rules(&admin, KEY).await, ["paid"]);
    assert_eq!(matching_rules(&admin, "another").await, ["free"]);
    let path = set.head["location"].to_str().expect("a path").to_owned();
    let kept = admin.get(&path).await.expect(200);
    assert_eq!(kept.body["facts"], json!({"tier": "paid"}));
    assert_eq!((&kept.body["fact"], &kept.body["value"]), (&json!("api_key"), &json!(null)));
    let changed = json!({"api_key": KEY, "tier": "free"});
    admin.send("POST /v1/subjects", &[("if-match", kept.etag())], changed).await.expect(201);
    assert_eq!(matching_rules(&admin, KEY).await, ["free"]);
    admin.send(&format!("DELETE {path}"), &[("if-match", "\"3\"")], "").await.expect(200);
    admin.get(&path).await.expect(404);
}

#[tokio::test]
async fn api_key_is_never_stored_or_shown() {
    let admin = AdminFixture::with_rules(RULES).await;
    admin.send("POST /v1/subjects", &[], json!({"api_key": KEY, "tier": "paid"})).await.expect(201);
    let over = json!({"rule": "paid", "key": {"api_key": KEY}, "requests": 2, "note": "a note"});
    admin.send("POST /v1/overrides", &[], over).await.expect(201);
    let document = format!("{RULES}\nsubjects: [{{ api_key: {KEY}, tier: free }}]");
    admin.apply(&document).await;
    let facts: Facts<'_> = [("api_key", KEY)].into_iter().collect();
    let refused = admin.limiter.decide(&facts, 100).await;
    assert!(!refused.is_allowed());
    admin.log.stop();
    admin.log.run(admin.manager.repository(), crate::violation_log::KEEP_ALL).await;
    assert_eq!(admin.log.counts().written, 1);
    assert!(files_contain(&admin, "a note"), "the search finds text that is stored");
    assert!(!files_contain(&admin, KEY));
    for path in ["subjects", "overrides", "document", "versions/2", "versions/3", "violations"] {
        let reply = admin.get(&format!("/v1/{path}")).await.expect(200).body.to_string();
        assert!(!reply.contains(KEY), "{path}: {reply}");
    }
}

#[tokio::test]
async fn invalid_subject_is_refused_without_change() {
    let admin = AdminFixture::with_rules(RULES).await;
    let before = admin.state().await;
    for (body, field) in [
        (json!({"tier": "paid"}), "api_key"),
        (json!({"api_key": KEY}), "api_key"),
        (json!([1]), "api_key"),
        (json!({"api_key": {"x": 1}, "tier": "paid"}), "api_key"),
        // The error does not name the field: an API key may be typed in its place.
        (json!({"api_key": KEY, "tier": "paid", "team": ["a"]}), ""),
    ] {
        admin.send("POST /v1/subjects", &[], &body).await.expect_problem(422, field);
    }
    assert_eq!(admin.state().await, before);
}
