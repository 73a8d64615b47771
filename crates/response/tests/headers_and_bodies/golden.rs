//! Golden tests of complete responses. Each file in `tests/golden/refusal` holds rules, requests
//! and the expected responses.
//!
//! - `> {"ip":"…"} 3` sends a request with a cost of 3; `> 20x …` sends it 20 times.
//! - `@ 500ms` advances the clock.
//! - `? …` changes the header settings.
//! - `! …` makes the store fail.
//! - `# …` is a comment.
//! - `< accept: text/html` shows the response to the last request, sent with that header.
//!
//! `UPDATE_GOLDEN=1` rewrites the responses.

use std::fmt::Write as _;
use std::path::Path;

use bytes::Bytes;
use http::Response;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http_body_util::{BodyExt, Full};
use tidegate_api::json;
use tidegate_core::time::Micros;
use tidegate_fixtures::golden::{assert_golden, golden_files};
use tidegate_limiter::Decision;
use tidegate_response as respond;
use tidegate_response::HeaderSettings;
use tidegate_rules::Facts;

use crate::fixture::{ResponseFixture, parse_settings};

#[tokio::test]
async fn responses_match_golden_files() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/refusal");
    for file in golden_files(&folder, 9) {
        let script = std::fs::read_to_string(&file).unwrap();
        assert_golden(&file, run_script(&script).await);
    }
}

async fn run_script(script: &str) -> String {
    let (rules, steps) = script.split_once("---\n").unwrap();
    let fixture = ResponseFixture::new(rules);
    let mut headers = HeaderSettings::default();
    let mut last = None;
    let mut actual = format!("{rules}---\n");
    for line in steps.lines() {
        let (sign, rest) = line.split_once(' ').unwrap_or((line, ""));
        if !matches!(sign, ">" | "<" | "@" | "?" | "#" | "!") {
            continue;
        }
        writeln!(actual, "{line}").unwrap();
        match sign {
            "?" => headers = parse_settings(rest),
            "@" => {
                let millis = rest.strip_suffix("ms").unwrap().parse().unwrap();
                fixture.clock.advance(Micros::from_millis(millis));
            }
            "!" => fixture.fail_store(),
            ">" => last = Some(decide_repeatedly(&fixture, rest).await),
            "<" => {
                let (decision, random_facts) = last.as_ref().unwrap();
                let random = headers.jitter_seed(decision, random_facts);
                actual.push_str(&render_response(decision, rest, &headers, random).await);
            }
            _ => {}
        }
    }
    actual
}

async fn decide_repeatedly<'f>(
    fixture: &ResponseFixture,
    request: &'f str,
) -> (Decision, Facts<'f>) {
    let (times, request) = match request.split_once("x ") {
        Some((times, rest)) if times.parse::<u32>().is_ok() => (times.parse().unwrap(), rest),
        _ => (1, request),
    };
    let (facts, cost) = request.rsplit_once(' ').unwrap_or((request, "1"));
    let facts = json::parse_facts(facts).unwrap();
    for _ in 1..times {
        fixture.decide(&facts, cost.parse().unwrap()).await;
    }
    (fixture.decide(&facts, cost.parse().unwrap()).await, facts)
}

async fn render_response(
    decision: &Decision,
    request: &str,
    settings: &HeaderSettings,
    random: u64,
) -> String {
    let mut request_headers = HeaderMap::new();
    if let Some((name, value)) = request.split_once(": ") {
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        request_headers.insert(name, HeaderValue::from_str(value).unwrap());
    }
    let response = match decision.is_allowed() {
        true => {
            let mut response = Response::new(Full::new(Bytes::new()));
            respond::write_headers(decision, settings, random, response.headers_mut());
            response
        }
        false => respond::refusal_response(decision, &request_headers, settings, random),
    };
    let (head, body) = response.into_parts();
    let mut text = format!("{}\n", head.status.as_u16());
    for (name, value) in &head.headers {
        writeln!(text, "{name}: {}", value.to_str().unwrap()).unwrap();
    }
    let body = body.collect().await.unwrap().to_bytes();
    writeln!(text, "{}", std::str::from_utf8(&body).unwrap().trim_end()).unwrap();
    if !body.is_empty() {
        text.push('\n');
    }
    text
}
