//! What callers see, to the byte: every file of `tests/golden/refusal` is rules, requests and what
//! they are told.
//!
//! `> {"ip":"…"} 3` asks with a cost of 3 (`> 20x …` asks so often), `@ 500ms` moves the clock, `? …`
//! sets the headers up, `! store gone` takes the store away, and `< accept: text/html` shows the last
//! answer to a request with that header. `UPDATE_GOLDEN=1` writes the answers anew.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use http::Response;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http_body_util::{BodyExt, Full};
use tidegate_api::json;
use tidegate_core::time::Micros;
use tidegate_limiter::Decision;
use tidegate_response as respond;
use tidegate_response::HeaderSettings;
use tidegate_rules::Facts;

use crate::fixture::{ResponseFixture, parse_settings};

#[tokio::test]
async fn responses_match_golden_files() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/refusal");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = files.collect();
    files.sort();
    assert!(files.len() >= 9, "golden files are missing: {files:?}");
    for file in files {
        let expected = std::fs::read_to_string(&file).unwrap();
        let seen = run_script(&expected).await;
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(&file, &seen).unwrap();
        } else {
            assert_eq!(seen, expected, "{} (UPDATE_GOLDEN=1 rewrites it)", file.display());
        }
    }
}

async fn run_script(script: &str) -> String {
    let (rules, steps) = script.split_once("---\n").unwrap();
    let house = ResponseFixture::new(rules);
    let mut headers = HeaderSettings::default();
    let mut last = None;
    let mut seen = format!("{rules}---\n");
    for line in steps.lines() {
        let (sign, rest) = line.split_once(' ').unwrap_or((line, ""));
        if !matches!(sign, ">" | "<" | "@" | "?" | "#" | "!") {
            continue;
        }
        writeln!(seen, "{line}").unwrap();
        match sign {
            "?" => headers = parse_settings(rest),
            "@" => {
                let millis = rest.strip_suffix("ms").unwrap().parse().unwrap();
                house.clock.advance(Micros::from_millis(millis));
            }
            "!" => house.fail_store(),
            ">" => last = Some(decide_repeatedly(&house, rest).await),
            "<" => {
                let (decision, random_facts) = last.as_ref().unwrap();
                let random = headers.jitter_seed(decision, random_facts);
                seen.push_str(&render_response(decision, rest, &headers, random).await);
            }
            _ => {}
        }
    }
    seen
}

async fn decide_repeatedly<'f>(house: &ResponseFixture, asked: &'f str) -> (Decision, Facts<'f>) {
    let (times, asked) = match asked.split_once("x ") {
        Some((times, rest)) if times.parse::<u32>().is_ok() => (times.parse().unwrap(), rest),
        _ => (1, asked),
    };
    let (facts, cost) = asked.rsplit_once(' ').unwrap_or((asked, "1"));
    let facts = json::parse_facts(facts).unwrap();
    for _ in 1..times {
        house.decide(&facts, cost.parse().unwrap()).await;
    }
    (house.decide(&facts, cost.parse().unwrap()).await, facts)
}

async fn render_response(
    decision: &Decision,
    request: &str,
    settings: &HeaderSettings,
    random: u64,
) -> String {
    let mut asked = HeaderMap::new();
    if let Some((name, value)) = request.split_once(": ") {
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        asked.insert(name, HeaderValue::from_str(value).unwrap());
    }
    let response = match decision.is_allowed() {
        true => {
            let mut response = Response::new(Full::new(Bytes::new()));
            respond::write_headers(decision, settings, random, response.headers_mut());
            response
        }
        false => respond::refusal_response(decision, &asked, settings, random),
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
