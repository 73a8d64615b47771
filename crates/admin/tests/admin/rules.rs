//! Single rules: create, read, replace, patch, switch and delete. Invalid requests change nothing.

use serde_json::{Value, json};

use crate::fixture::AdminFixture;

const ANN: &[(&str, &str)] = &[("api_key", "ann")];

#[tokio::test]
async fn rule_lifecycle_takes_effect_immediately() {
    let admin = AdminFixture::empty().await;
    let rule = json!({"id": "r", "key_by": "api_key", "limit": {"requests": 10, "window": "1h"}});
    let made = admin.send("POST /v1/rules", &[], &rule).await.expect(201);
    assert_eq!((made.head["location"].as_bytes(), made.etag()), (&b"/v1/rules/r"[..], "\"1\""));
    let consistency = json!({
        "mode": "exact",
        "description": "exact: one process",
        "bound": "at most 20 in any 1h",
        "max_in_window": 20,
        "node": null,
        "regions": null,
    });
    let body = json!({
        "id": "r",
        "version": 1,
        "position": 0,
        "rule": rule,
        "consistency": consistency,
    });
    assert_eq!(made.body, body);
    assert_eq!(
        admin.remaining(ANN).await,
        [("r".to_owned(), Some(10))],
        "active when the response arrives"
    );

    let read = admin.get("/v1/rules/r").await.expect(200);
    assert_eq!((&read.body, read.etag()), (&made.body, "\"1\""));
    admin.send("POST /v1/rules", &[], &rule).await.expect(409);

    let seven = json!({"key_by": "api_key", "limit": "7/h"});
    let put = admin.send("PUT /v1/rules/r", &[("if-match", "\"1\"")], &seven).await.expect(200);
    assert_eq!(put.body["rule"], json!({"id": "r", "key_by": "api_key", "limit": "7/h"}));
    assert_eq!(admin.remaining(ANN).await, [("r".to_owned(), Some(7))]);

    let patch = json!({"limit": "9/h", "description": "nine"});
    let patched =
        admin.send("PATCH /v1/rules/r", &[("if-match", "\"2\"")], patch).await.expect(200);
    assert_eq!(patched.body["rule"]["description"], "nine");
    assert_eq!(admin.remaining(ANN).await, [("r".to_owned(), Some(9))]);

    admin.send("POST /v1/rules/r/disable", &[("if-match", "\"3\"")], "").await.expect(200);
    assert_eq!(admin.remaining(ANN).await, []);
    let on = admin.send("POST /v1/rules/r/enable", &[("if-match", "*")], "").await.expect(200);
    assert_eq!((on.etag(), admin.remaining(ANN).await.len()), ("\"5\"", 1));

    let last = [("if-match", "\"5\""), ("x-tidegate-confirm", "empty")];
    let gone = admin.send("DELETE /v1/rules/r", &last, "").await.expect(200);
    assert_eq!(gone.body, json!({"version": 6, "deleted": "r"}));
    admin.get("/v1/rules/r").await.expect(404);
    assert_eq!((admin.remaining(ANN).await, admin.state().await.1), (vec![], 6));
}

/// The ID of an unnamed rule is derived from its content, and must not change with it.
#[tokio::test]
async fn derived_rule_id_survives_edits() {
    let admin = AdminFixture::empty().await;
    let made = admin.send("POST /v1/rules", &[], json!("5/h by api_key")).await.expect(201);
    let id = made.body["id"].as_str().expect("an id").to_owned();
    assert_eq!(made.body["rule"]["id"], id.as_str());
    let (path, seen) = (format!("PATCH /v1/rules/{id}"), [("if-match", made.etag())]);
    admin.send(&path, &seen, json!({"limit": "5/d by api_key"})).await.expect(200);
    assert_eq!(admin.state().await.2, [id]);
}

#[tokio::test]
async fn rule_id_cannot_be_changed() {
    let admin = AdminFixture::with_rules("rules: [{ policy_id: p, limit: 5/h }]").await;
    let before = admin.state().await;
    for name in ["id", "policy_id", "rule_id"] {
        let patch = json!({name: "other"});
        admin
            .send("PATCH /v1/rules/p", &[("if-match", "*")], patch)
            .await
            .expect_problem(422, name);
    }
    let other = json!({"policy_id": "q", "limit": "5/h"});
    admin.send("PUT /v1/rules/p", &[("if-match", "*")], other).await.expect_problem(422, "id");
    assert_eq!(admin.state().await, before);
}

#[tokio::test]
async fn invalid_rule_names_field_and_changes_nothing() {
    let admin = AdminFixture::with_rules("rules: [{ id: r, key_by: api_key, limit: 5/h }]").await;
    let before = admin.state().await;
    let seen = &[("if-match", "\"1\"")][..];
    let wrong = [
        (
            "POST /v1/rules",
            json!({"id": "x", "limit": {"requests": 0, "window": "1h"}}),
            "limit.requests",
        ),
        ("POST /v1/rules", json!({"id": "x", "limit": "5/h", "limits": 1}), "limits"),
        ("POST /v1/rules", json!({"limit": {"requests": 5}}), "limit"),
        ("PUT /v1/rules/r", json!({"id": "r", "limit": "often"}), "limit"),
        ("PATCH /v1/rules/r", json!({"mode": "loud"}), "mode"),
        ("PATCH /v1/rules/r", json!({"limit": null}), ""),
    ];
    for (line, body, field) in wrong {
        let reply = admin.send(line, seen, &body).await;
        reply.expect_problem(422, field);
        let errors = &reply.body["errors"];
        assert!(errors.is_null() || errors[0]["field"] == field, "{line} {body}: {}", reply.body);
    }
    for body in ["", "{", "{\"id\":", "\u{0}"] {
        admin.send("POST /v1/rules", &[], body).await.expect(400);
    }
    for body in ["7", "[]", "null", "true"] {
        admin.send("POST /v1/rules", &[], body).await.expect(422);
        admin.send("PATCH /v1/rules/r", seen, body).await.expect(422);
    }
    let long = json!({"id": "x".repeat(600), "limit": "5/h"});
    admin.send("POST /v1/rules", &[], long).await.expect(422);
    for line in ["GET", "PATCH", "DELETE"].map(|method| format!("{method} /v1/rules/nobody")) {
        admin.send(&line, seen, "{}").await.expect(404);
    }
    assert_eq!(admin.state().await, before);
}

#[tokio::test]
async fn rules_are_listed_in_order_by_page() {
    let list: String =
        (0..25).rev().map(|at| format!("- {{ id: r{at}, limit: 5/{}h }}\n", at + 1)).collect();
    let admin = AdminFixture::with_rules(&format!("rules:\n{list}")).await;
    let (mut found, mut path) = (Vec::new(), "/v1/rules?limit=10".to_owned());
    loop {
        let page = admin.get(&path).await.expect(200).body;
        assert_eq!((&page["total"], &page["version"]), (&json!(25), &json!(1)));
        let ids = page["rules"].as_array().expect("a list").iter();
        found.extend(ids.map(|rule| rule["id"].as_str().expect("an id").to_owned()));
        let Some(next) = page["next"].as_str() else { break };
        path = format!("/v1/rules?limit=10&after={next}");
    }
    assert_eq!(found, (0..25).rev().map(|at| format!("r{at}")).collect::<Vec<_>>());
    for (query, field) in
        [("limit=0", "limit"), ("limit=1001", "limit"), ("x=1", "query"), ("limit=%ff", "query")]
    {
        admin.get(&format!("/v1/rules?{query}")).await.expect_problem(400, field);
    }
}

#[tokio::test]
async fn rule_edit_keeps_used_quota() {
    let admin = AdminFixture::with_rules(
        "rules: [{ id: a, key_by: api_key, limit: 10/h }, { id: b, key_by: api_key, limit: 5/h using fixed_window }]",
    )
    .await;
    let facts = ANN.iter().copied().collect();
    assert!(admin.limiter.decide(&facts, 4).await.is_allowed());
    let patch = json!({"limit": "20/h"});
    admin.send("PATCH /v1/rules/a", &[("if-match", "*")], patch).await.expect(200);
    assert_eq!(admin.remaining(ANN).await, [("a".to_owned(), Some(16)), ("b".to_owned(), Some(1))]);
}

/// A rule without an ID is compiled alone to derive one, with the document's declared facts.
#[tokio::test]
async fn rule_without_id_uses_declared_facts() {
    let admin = AdminFixture::with_rules("facts: [tenant]\nrules: [{ id: a, limit: 9/h }]\n").await;
    let rule = |fact: &str| json!({"key_by": fact, "limit": "5/h"});
    admin.send("POST /v1/rules", &[], rule("tenant")).await.expect(201);
    admin.send("POST /v1/rules", &[], rule("tenent")).await.expect(422);
}

#[tokio::test]
async fn consistency_is_exact_on_store_of_one_process() {
    let rules = "rules:
      - { id: lent, key_by: ip, limit: 1000/s burst 2000, consistency: leased }
      - { id: free, key_by: ip, limit: { requests: unlimited } }";
    let admin = AdminFixture::with_rules(rules).await;
    let list = admin.get("/v1/rules").await.expect(200).body["rules"].clone();
    let consistency = |at: usize| &list[at]["consistency"];
    assert_eq!(consistency(0)["mode"], "exact");
    let text = "exact: one process; leased (ttl 100ms, bound exact) on a shared store";
    assert_eq!(consistency(0)["description"], text);
    assert_eq!((&consistency(0)["node"], consistency(1)), (&Value::Null, &Value::Null));
    assert_eq!(admin.get("/v1/status").await.expect(200).body["holdings"], Value::Null);
}
