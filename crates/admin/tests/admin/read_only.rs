//! Rules from a file or an external table can be read, but no call changes them.

use std::sync::Arc;

use serde_json::json;
use tidegate_rulestore::{ReadOnlyRules, RuleConfig, RuleSource};

use crate::fixture::AdminFixture;

const CHANGES: [&str; 12] = [
    "POST /v1/rules",
    "PUT /v1/rules/r",
    "PATCH /v1/rules/r",
    "DELETE /v1/rules/r",
    "POST /v1/rules/r/enable",
    "POST /v1/rules/r/disable",
    "PUT /v1/document",
    "POST /v1/subjects",
    "DELETE /v1/subjects/s",
    "POST /v1/overrides",
    "DELETE /v1/overrides/o",
    "POST /v1/versions/1/rollback",
];

#[tokio::test]
async fn read_only_rules_refuse_every_change() {
    for (source, advice) in [
        (RuleSource::File, "start tidegate with --rules-db"),
        (RuleSource::Table, "change the rows of that table"),
    ] {
        let rules = ReadOnlyRules::new(source, "the-source", RuleConfig::default());
        let admin = AdminFixture::with_repository(Arc::new(rules)).await;
        for line in CHANGES {
            // The body is invalid: the refusal does not depend on it.
            let reply = admin.send(line, &[("if-match", "*")], "{").await.expect(409);
            assert_eq!(reply.head["content-type"], "application/problem+json");
            assert_eq!(reply.body["code"], "rules_read_only", "{line}");
            let detail = reply.body["detail"].as_str().expect("a detail");
            assert!(detail.contains("the-source") && detail.contains(advice), "{detail}");
        }
        let status = admin.get("/v1/status").await.expect(200).body["rules"].clone();
        assert_eq!(
            (&status["source"], &status["editable"], &status["name"]),
            (&json!(source), &json!(false), &json!("the-source"))
        );
        assert!(status["read_only_reason"].as_str().expect("a reason").contains(advice));
        admin.get("/v1/rules").await.expect(200);
        admin.send("POST /v1/validate", &[], "rules: []").await.expect(200);
        admin.send("POST /v1/reset", &[], json!({"facts": {"ip": "192.0.2.1"}})).await.expect(200);
    }
}

#[tokio::test]
async fn database_rules_are_editable() {
    let admin = AdminFixture::empty().await;
    let status = admin.get("/v1/status").await.expect(200).body["rules"].clone();
    assert_eq!(
        (&status["source"], &status["editable"], &status["read_only_reason"]),
        (&json!("database"), &json!(true), &json!(null))
    );
}
