//! Rules, one by one: made, read, replaced, patched, switched, removed; and what is wrong changes nothing.

use serde_json::json;

use crate::fixture::AdminFixture;

const ANN: &[(&str, &str)] = &[("api_key", "ann")];

#[tokio::test]
async fn rule_lifecycle_takes_effect_immediately() {
    let house = AdminFixture::empty().await;
    let rule = json!({"id": "r", "key_by": "api_key", "limit": {"requests": 10, "window": "1h"}});
    let made = house.send("POST /v1/rules", &[], &rule).await.expect(201);
    assert_eq!((made.head["location"].as_bytes(), made.etag()), (&b"/v1/rules/r"[..], "\"1\""));
    assert_eq!(made.body, json!({"id": "r", "version": 1, "position": 0, "rule": rule}));
    assert_eq!(
        house.remaining(ANN).await,
        [("r".to_owned(), Some(10))],
        "in force with the answer"
    );

    let read = house.get("/v1/rules/r").await.expect(200);
    assert_eq!((&read.body, read.etag()), (&made.body, "\"1\""));
    house.send("POST /v1/rules", &[], &rule).await.expect(409);

    let seven = json!({"key_by": "api_key", "limit": "7/h"});
    let put = house.send("PUT /v1/rules/r", &[("if-match", "\"1\"")], &seven).await.expect(200);
    assert_eq!(put.body["rule"], json!({"id": "r", "key_by": "api_key", "limit": "7/h"}));
    assert_eq!(house.remaining(ANN).await, [("r".to_owned(), Some(7))]);

    let patch = json!({"limit": "9/h", "description": "nine"});
    let patched =
        house.send("PATCH /v1/rules/r", &[("if-match", "\"2\"")], patch).await.expect(200);
    assert_eq!(patched.body["rule"]["description"], "nine");
    assert_eq!(house.remaining(ANN).await, [("r".to_owned(), Some(9))]);

    house.send("POST /v1/rules/r/disable", &[("if-match", "\"3\"")], "").await.expect(200);
    assert_eq!(house.remaining(ANN).await, []);
    let on = house.send("POST /v1/rules/r/enable", &[("if-match", "*")], "").await.expect(200);
    assert_eq!((on.etag(), house.remaining(ANN).await.len()), ("\"5\"", 1));

    let last = [("if-match", "\"5\""), ("x-tidegate-confirm", "empty")];
    let gone = house.send("DELETE /v1/rules/r", &last, "").await.expect(200);
    assert_eq!(gone.body, json!({"version": 6, "deleted": "r"}));
    house.get("/v1/rules/r").await.expect(404);
    assert_eq!((house.remaining(ANN).await, house.state().await.1), (vec![], 6));
}

/// A rule that nobody names is named after what it says; when that changes, the name must stay.
#[tokio::test]
async fn derived_rule_id_survives_edits() {
    let house = AdminFixture::empty().await;
    let made = house.send("POST /v1/rules", &[], json!("5/h by api_key")).await.expect(201);
    let id = made.body["id"].as_str().expect("an id").to_owned();
    assert_eq!(made.body["rule"]["id"], id.as_str());
    let (path, seen) = (format!("PATCH /v1/rules/{id}"), [("if-match", made.etag())]);
    house.send(&path, &seen, json!({"limit": "5/d by api_key"})).await.expect(200);
    assert_eq!(house.state().await.2, [id]);
}

#[tokio::test]
async fn rule_id_cannot_be_changed() {
    let house = AdminFixture::with_rules("rules: [{ policy_id: p, limit: 5/h }]").await;
    let before = house.state().await;
    for name in ["id", "policy_id", "rule_id"] {
        let patch = json!({name: "other"});
        house
            .send("PATCH /v1/rules/p", &[("if-match", "*")], patch)
            .await
            .expect_problem(422, name);
    }
    let other = json!({"policy_id": "q", "limit": "5/h"});
    house.send("PUT /v1/rules/p", &[("if-match", "*")], other).await.expect_problem(422, "id");
    assert_eq!(house.state().await, before);
}

#[tokio::test]
async fn invalid_rule_names_field_and_changes_nothing() {
    let house = AdminFixture::with_rules("rules: [{ id: r, key_by: api_key, limit: 5/h }]").await;
    let before = house.state().await;
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
        let answer = house.send(line, seen, &body).await;
        answer.expect_problem(422, field);
        let errors = &answer.body["errors"];
        assert!(errors.is_null() || errors[0]["field"] == field, "{line} {body}: {}", answer.body);
    }
    for body in ["", "{", "{\"id\":", "\u{0}"] {
        house.send("POST /v1/rules", &[], body).await.expect(400);
    }
    for body in ["7", "[]", "null", "true"] {
        house.send("POST /v1/rules", &[], body).await.expect(422);
        house.send("PATCH /v1/rules/r", seen, body).await.expect(422);
    }
    let long = json!({"id": "x".repeat(600), "limit": "5/h"});
    house.send("POST /v1/rules", &[], long).await.expect(422);
    for line in ["GET", "PATCH", "DELETE"].map(|method| format!("{method} /v1/rules/nobody")) {
        house.send(&line, seen, "{}").await.expect(404);
    }
    assert_eq!(house.state().await, before);
}

#[tokio::test]
async fn rules_are_listed_in_order_by_page() {
    let list: String =
        (0..25).rev().map(|at| format!("- {{ id: r{at}, limit: 5/{}h }}\n", at + 1)).collect();
    let house = AdminFixture::with_rules(&format!("rules:\n{list}")).await;
    let (mut found, mut path) = (Vec::new(), "/v1/rules?limit=10".to_owned());
    loop {
        let page = house.get(&path).await.expect(200).body;
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
        house.get(&format!("/v1/rules?{query}")).await.expect_problem(400, field);
    }
}

#[tokio::test]
async fn rule_edit_keeps_used_quota() {
    let house = AdminFixture::with_rules(
        "rules: [{ id: a, key_by: api_key, limit: 10/h }, { id: b, key_by: api_key, limit: 5/h using fixed_window }]",
    )
    .await;
    let facts = ANN.iter().copied().collect();
    assert!(house.limiter.decide(&facts, 4).await.is_allowed());
    let patch = json!({"limit": "20/h"});
    house.send("PATCH /v1/rules/a", &[("if-match", "*")], patch).await.expect(200);
    assert_eq!(house.remaining(ANN).await, [("a".to_owned(), Some(16)), ("b".to_owned(), Some(1))]);
}

/// A rule without an id is compiled alone to find one; the facts of the document count there too.
#[tokio::test]
async fn rule_without_id_uses_declared_facts() {
    let house = AdminFixture::with_rules("facts: [tenant]\nrules: [{ id: a, limit: 9/h }]\n").await;
    let rule = |fact: &str| json!({"key_by": fact, "limit": "5/h"});
    house.send("POST /v1/rules", &[], rule("tenant")).await.expect(201);
    house.send("POST /v1/rules", &[], rule("tenent")).await.expect(422);
}
