//! Rate-limit headers on the response of an upstream that already has some.

use http::header::{
    ACCESS_CONTROL_EXPOSE_HEADERS, CACHE_CONTROL, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER,
};
use tidegate_limiter::Decision;
use tidegate_response as respond;

use crate::fixture::{ONE_PER_HOUR, ResponseFixture, facts_for_ip, parse_settings};

const RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// Headers of an upstream, each limit header twice.
fn sample_upstream_headers() -> HeaderMap {
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

fn header_values(headers: &HeaderMap, name: &str) -> Vec<String> {
    headers.get_all(name).iter().map(|value| value.to_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn allowed_response_replaces_only_limit_headers() {
    let decision = ResponseFixture::new(ONE_PER_HOUR).decide(&facts_for_ip("192.0.2.1"), 1).await;
    let mut headers = sample_upstream_headers();
    respond::write_headers(&decision, &parse_settings("expose"), 0, &mut headers);
    assert_eq!(header_values(&headers, "x-ratelimit-limit"), ["1"]);
    assert_eq!(header_values(&headers, "ratelimit"), [r#""one";r=0;t=3600"#]);
    assert_eq!(header_values(&headers, "retry-after"), ["77", "78"]);
    assert_eq!(headers[CACHE_CONTROL], "max-age=60");
    let ours = "x-ratelimit-limit, x-ratelimit-remaining, x-ratelimit-reset, ratelimit-policy, \
                ratelimit";
    assert_eq!(header_values(&headers, "access-control-expose-headers"), ["etag", ours]);
}

#[tokio::test]
async fn refusal_replaces_retry_after_and_cache_control() {
    let decision =
        ResponseFixture::new(ONE_PER_HOUR).exhaust_limit(&facts_for_ip("192.0.2.1")).await;
    let mut headers = sample_upstream_headers();
    respond::write_headers(&decision, &parse_settings("style=none expose"), 0, &mut headers);
    assert_eq!(header_values(&headers, "retry-after"), ["3600"]);
    assert_eq!(header_values(&headers, "cache-control"), ["no-store"]);
    assert_eq!(
        header_values(&headers, "x-ratelimit-limit"),
        ["77", "78"],
        "style `none` leaves the upstream's header"
    );
    let ours = "retry-after, retry-after-ms";
    assert_eq!(header_values(&headers, "access-control-expose-headers"), ["etag", ours]);
}

#[tokio::test]
async fn on_fail_decision_replaces_upstream_reset() {
    let fixture = ResponseFixture::new(ONE_PER_HOUR);
    fixture.fail_store();
    let decision = fixture.decide(&facts_for_ip("192.0.2.1"), 1).await;
    let mut headers = sample_upstream_headers();
    respond::write_headers(&decision, &parse_settings("expose"), 0, &mut headers);
    assert_eq!(header_values(&headers, "x-ratelimit-limit"), ["1"]);
    assert_eq!(header_values(&headers, RESET.as_str()), ["1700000000"], "now");
    assert!(header_values(&headers, "access-control-expose-headers")[1].contains(RESET.as_str()));
}

#[tokio::test]
async fn unmatched_request_adds_no_headers() {
    let fixture = ResponseFixture::new("rules: [{ id: one, match: { path: /x }, limit: 1/h }]");
    let decision = fixture.decide(&facts_for_ip("192.0.2.1"), 1).await;
    let mut headers = sample_upstream_headers();
    respond::write_headers(&decision, &parse_settings("expose"), 0, &mut headers);
    assert_eq!(headers, sample_upstream_headers());
    assert!(headers.contains_key(RETRY_AFTER));
}

#[tokio::test]
async fn cached_policy_header_never_goes_stale() {
    // Rules that differ only in the window, in two rule sets; two rules in one set; inline limits.
    let policy_header = |decision: &Decision| {
        let mut headers = HeaderMap::new();
        respond::write_headers(decision, &parse_settings(""), 0, &mut headers);
        header_values(&headers, "ratelimit-policy").concat()
    };
    let with_window =
        |window| ResponseFixture::new(&format!("rules: [{{ id: one, limit: 9/{window} }}]"));
    let (minute, hour) = (with_window("min"), with_window("h"));
    let two = ResponseFixture::new(
        "rules: [{ id: one, limit: 9/d, match: { ip: 192.0.2.1 } }, { id: two, limit: 9/d, match: { ip: 192.0.2.2 } }]",
    );
    let (one, other) = (facts_for_ip("192.0.2.1"), facts_for_ip("192.0.2.2"));
    for _ in 0..2 {
        assert_eq!(policy_header(&minute.decide(&one, 1).await), r#""one";q=9;w=60"#);
        assert_eq!(policy_header(&hour.decide(&one, 1).await), r#""one";q=9;w=3600"#);
        assert_eq!(policy_header(&two.decide(&one, 1).await), r#""one";q=9;w=86400"#);
        assert_eq!(policy_header(&two.decide(&other, 1).await), r#""two";q=9;w=86400"#);
        assert_eq!(policy_header(&minute.decide_inline(&one, 9, 1).await), r#""override";q=9;w=1"#);
        assert_eq!(
            policy_header(&minute.decide_inline(&one, 9, 60).await),
            r#""override";q=9;w=60"#
        );
        assert_eq!(policy_header(&minute.decide(&one, 1).await), r#""one";q=9;w=60"#);
    }
}
