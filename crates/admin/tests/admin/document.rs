//! All rules as one document: applied or only validated.

use serde_json::json;

use crate::fixture::AdminFixture;

const OLD: &str = "
endpoints: [GET /a]
rules:
  - { id: a, key_by: user_id, limit: 5/h }   # a comment
  - 7/h by ip
";

#[tokio::test]
async fn document_round_trips_in_both_formats() {
    let admin = AdminFixture::with_rules(OLD).await;
    for format in ["json", "yaml"] {
        let reply = admin.get(&format!("/v1/document?format={format}")).await.expect(200);
        let text = reply.body.as_str().map_or_else(|| reply.body.to_string(), str::to_owned);
        assert_eq!(reply.head["content-type"], format!("application/{format}").as_str());
        let again =
            admin.send("PUT /v1/document", &[("if-match", reply.etag())], text).await.expect(200);
        assert_eq!(again.body, json!({"version": 1, "changes": []}), "{format}");
    }
    admin.get("/v1/document?format=toml").await.expect_problem(400, "format");
}

#[tokio::test]
async fn invalid_document_reports_all_errors_with_positions() {
    let admin = AdminFixture::with_rules(OLD).await;
    let before = admin.state().await;
    let wrong = "rules:\n  - { id: a, limit: often }\n  - { id: a, limt: 5/h }\n";
    let reply = admin.send("PUT /v1/document", &[("if-match", "*")], wrong).await.expect(422);
    let errors = reply.body["errors"].as_array().expect("errors");
    let fields: Vec<&str> = errors.iter().filter_map(|error| error["field"].as_str()).collect();
    assert!(fields.iter().any(|field| field.starts_with("rules[0].limit (line 2")), "{fields:?}");
    assert!(fields.iter().any(|field| field.starts_with("rules[1].limt (line 3")), "{fields:?}");
    let tried = admin.send("POST /v1/validate", &[], wrong).await.expect(200).body;
    assert_eq!((&tried["valid"], &tried["errors"]), (&json!(false), &reply.body["errors"]));
    for body in ["", " \n", "rules: [", "7", "[]"] {
        let status = admin.send("PUT /v1/document", &[("if-match", "*")], body).await.status;
        assert!(matches!(status, 400 | 422), "{body}: {status}");
    }
    assert_eq!(admin.state().await, before);
}

#[tokio::test]
async fn validation_previews_changes_without_applying_them() {
    let admin = AdminFixture::with_rules(OLD).await;
    let over = |user: &str| json!({"rule": "a", "key": {"user_id": user}, "requests": 9});
    admin.send("POST /v1/overrides", &[], json!([over("u"), over("v")])).await.expect(201);
    let before = admin.state().await;
    let new = "endpoints: [GET /a]\nrules:\n  - { id: a, key_by: user_id, limit: 6/h }\n  - { id: c, key_by: host, limit: 1/s }\n";
    let tried = admin.send("POST /v1/validate", &[], new).await.expect(200).body;
    let kinds = tried["changes"].as_array().expect("changes").len();
    assert_eq!((&tried["valid"], &tried["version"], kinds), (&json!(true), &json!(2), 3));
    let affects = &tried["affects"];
    assert_eq!(
        (&affects["overrides"], affects["rules"].as_array().map(Vec::len)),
        (&json!(2), Some(3))
    );
    assert_eq!(affects["first_overrides"].as_array().map(Vec::len), Some(2));
    assert_eq!(admin.state().await, before);
    // Changing `key_by` of a rule with overrides is a validation error too.
    let moved = "rules: [{ id: a, key_by: ip, limit: 6/h }]";
    let tried = admin.send("POST /v1/validate", &[], moved).await.expect(200).body;
    assert_eq!((&tried["valid"], &tried["errors"][0]["kind"]), (&json!(false), &json!("override")));
}

#[tokio::test]
async fn document_keeps_unlisted_subjects_and_overrides() {
    let admin = AdminFixture::with_rules(OLD).await;
    admin.send("POST /v1/subjects", &[], json!({"user_id": "u", "tier": "x"})).await.expect(201);
    let over = json!({"rule": "a", "key": {"user_id": "u"}, "requests": 9});
    admin.send("POST /v1/overrides", &[], over).await.expect(201);
    admin.apply("rules: [{ id: a, key_by: user_id, limit: 6/h }]").await;
    assert_eq!(admin.remaining(&[("user_id", "u")]).await, [("a".to_owned(), Some(9))]);
    assert_eq!(admin.get("/v1/subjects").await.body["subjects"].as_array().map(Vec::len), Some(1));
}
