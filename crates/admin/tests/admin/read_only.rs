//! Rules that are kept elsewhere: read as others are, changed by no call.

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
        let house = AdminFixture::with_repository(Arc::new(rules)).await;
        for line in CHANGES {
            // Whatever the body: no other would help.
            let told = house.send(line, &[("if-match", "*")], "{").await.expect(409);
            assert_eq!(told.head["content-type"], "application/problem+json");
            assert_eq!(told.body["code"], "rules_read_only", "{line}");
            let detail = told.body["detail"].as_str().expect("a detail");
            assert!(detail.contains("the-source") && detail.contains(advice), "{detail}");
        }
        let status = house.get("/v1/status").await.expect(200).body["rules"].clone();
        assert_eq!(
            (&status["source"], &status["editable"], &status["name"]),
            (&json!(source), &json!(false), &json!("the-source"))
        );
        assert!(status["read_only_reason"].as_str().expect("a reason").contains(advice));
        house.get("/v1/rules").await.expect(200);
        house.send("POST /v1/validate", &[], "rules: []").await.expect(200);
        house.send("POST /v1/reset", &[], json!({"facts": {"ip": "192.0.2.1"}})).await.expect(200);
    }
}

#[tokio::test]
async fn database_rules_are_editable() {
    let house = AdminFixture::empty().await;
    let status = house.get("/v1/status").await.expect(200).body["rules"].clone();
    assert_eq!(
        (&status["source"], &status["editable"], &status["read_only_reason"]),
        (&json!("database"), &json!(true), &json!(null))
    );
}
