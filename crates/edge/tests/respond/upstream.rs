//! Headers on the answer of an upstream, which may have some of its own.

use http::header::{
    ACCESS_CONTROL_EXPOSE_HEADERS, CACHE_CONTROL, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER,
};
use tidegate_edge::respond;
use tidegate_engine::Decision;

use crate::house::{House, ONE, client, settings};

const RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// What an upstream says, twice over.
fn upstream() -> HeaderMap {
    let mut headers = HeaderMap::new();
    for name in ["x-ratelimit-limit", "x-ratelimit-reset", "ratelimit", "retry-after"] {
        let name = HeaderName::from_static(name);
        headers.append(name.clone(), HeaderValue::from_static("77"));
        headers.append(name, HeaderValue::from_static("78"));
    }
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("max-age=60"));
    headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("etag"));
    headers
}

fn all(headers: &HeaderMap, name: &str) -> Vec<String> {
    headers.get_all(name).iter().map(|value| value.to_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn our_numbers_count_and_an_allowed_answer_keeps_the_rest() {
    let decision = House::new(ONE).decide(&client("192.0.2.1"), 1).await;
    let mut headers = upstream();
    respond::headers(&decision, &settings("expose"), 0, &mut headers);
    assert_eq!(all(&headers, "x-ratelimit-limit"), ["1"]);
    assert_eq!(all(&headers, "ratelimit"), [r#""one";r=0;t=3600"#]);
    assert_eq!(all(&headers, "retry-after"), ["77", "78"]);
    assert_eq!(headers[CACHE_CONTROL], "max-age=60");
    let ours = "x-ratelimit-limit, x-ratelimit-remaining, x-ratelimit-reset, ratelimit-policy, \
                ratelimit";
    assert_eq!(all(&headers, "access-control-expose-headers"), ["etag", ours]);
}

#[tokio::test]
async fn a_refusal_has_its_own_wait_and_is_not_stored() {
    let decision = House::new(ONE).refuse(&client("192.0.2.1")).await;
    let mut headers = upstream();
    respond::headers(&decision, &settings("style=none expose"), 0, &mut headers);
    assert_eq!(all(&headers, "retry-after"), ["3600"]);
    assert_eq!(all(&headers, "cache-control"), ["no-store"]);
    assert_eq!(all(&headers, "x-ratelimit-limit"), ["77", "78"], "not ours in this style");
    let ours = "retry-after, retry-after-ms";
    assert_eq!(all(&headers, "access-control-expose-headers"), ["etag", ours]);
}

#[tokio::test]
async fn what_on_fail_answers_replaces_the_reset_of_the_upstream_too() {
    let house = House::new(ONE);
    house.lose_store();
    let decision = house.decide(&client("192.0.2.1"), 1).await;
    let mut headers = upstream();
    respond::headers(&decision, &settings("expose"), 0, &mut headers);
    assert_eq!(all(&headers, "x-ratelimit-limit"), ["1"]);
    assert_eq!(all(&headers, RESET.as_str()), ["1700000000"], "now");
    assert!(all(&headers, "access-control-expose-headers")[1].contains(RESET.as_str()));
}

#[tokio::test]
async fn where_no_rule_decides_nothing_is_added() {
    let house = House::new("rules: [{ id: one, match: { path: /x }, limit: 1/h }]");
    let decision = house.decide(&client("192.0.2.1"), 1).await;
    let mut headers = upstream();
    respond::headers(&decision, &settings("expose"), 0, &mut headers);
    assert_eq!(headers, upstream());
    assert!(headers.contains_key(RETRY_AFTER));
}

#[tokio::test]
async fn a_policy_is_told_as_it_is_whatever_was_told_before() {
    // Alike but for the window, in two rule sets; two rules in one; and limits that requests bring.
    let told = |decision: &Decision| {
        let mut headers = HeaderMap::new();
        respond::headers(decision, &settings(""), 0, &mut headers);
        all(&headers, "ratelimit-policy").concat()
    };
    let house = |window| House::new(&format!("rules: [{{ id: one, limit: 9/{window} }}]"));
    let (minute, hour) = (house("min"), house("h"));
    let two = House::new(
        "rules: [{ id: one, limit: 9/d, match: { ip: 192.0.2.1 } }, { id: two, limit: 9/d, match: { ip: 192.0.2.2 } }]",
    );
    let (one, other) = (client("192.0.2.1"), client("192.0.2.2"));
    for _ in 0..2 {
        assert_eq!(told(&minute.decide(&one, 1).await), r#""one";q=9;w=60"#);
        assert_eq!(told(&hour.decide(&one, 1).await), r#""one";q=9;w=3600"#);
        assert_eq!(told(&two.decide(&one, 1).await), r#""one";q=9;w=86400"#);
        assert_eq!(told(&two.decide(&other, 1).await), r#""two";q=9;w=86400"#);
        assert_eq!(told(&minute.decide_brought(&one, 9, 1).await), r#""override";q=9;w=1"#);
        assert_eq!(told(&minute.decide_brought(&one, 9, 60).await), r#""override";q=9;w=60"#);
        assert_eq!(told(&minute.decide(&one, 1).await), r#""one";q=9;w=60"#);
    }
}
