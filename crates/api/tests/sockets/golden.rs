//! Compares responses byte for byte with the files in `tests/golden`. Each file contains rules,
//! requests and the expected responses.
//!
//! - `> POST /v1/check {…}` sends a request. `> 20x …` sends it 20 times and shows the last
//!   response.
//! - `@ 500ms` advances the clock.
//! - `? reset=delta` selects a setting of the API.
//! - `! drain` changes the status of the process.
//!
//! `UPDATE_GOLDEN=1` rewrites the responses.

use std::fmt::Write as _;
use std::path::Path;

use tidegate_api::http::Settings;
use tidegate_core::time::Micros;
use tidegate_response::{HeaderSettings, ResetStyle};

use tidegate_fixtures::golden::{assert_golden, golden_files};
use tidegate_fixtures::server::TestServer;

#[tokio::test]
async fn responses_match_golden_files() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    for file in golden_files(&folder, 15) {
        let script = std::fs::read_to_string(&file).unwrap();
        assert_golden(&file, run_script(&script).await);
    }
}

async fn run_script(script: &str) -> String {
    let (rules, steps) = script.split_once("---\n").unwrap();
    let reset = match steps.starts_with("? reset=delta\n") {
        true => ResetStyle::Delta,
        false => ResetStyle::Epoch,
    };
    let settings = Settings {
        headers: HeaderSettings { reset, ..HeaderSettings::default() },
        ..Settings::default()
    };
    let server = TestServer::start_with(rules, settings).await;
    let mut caller = server.connect().await;
    let mut seen = format!("{rules}---\n");
    for line in steps.lines() {
        let Some((sign @ (">" | "@" | "?" | "#" | "!"), rest)) = line.split_once(' ') else {
            continue;
        };
        writeln!(seen, "{line}").unwrap();
        match sign {
            "@" => {
                let millis = rest.strip_suffix("ms").unwrap().parse().unwrap();
                server.clock.advance(Micros::from_millis(millis));
            }
            "!" => set_status(&server, rest),
            ">" => {
                let (times, request) = match rest.split_once("x ") {
                    Some((times, request)) if times.parse::<u32>().is_ok() => (times, request),
                    _ => ("1", rest),
                };
                let mut words = request.splitn(3, ' ');
                let (method, path) = (words.next().unwrap(), words.next().unwrap());
                let body = words.next().unwrap_or_default();
                for time in (0..times.parse::<u32>().unwrap()).rev() {
                    let answer = caller.request(method, path, body.as_bytes()).await;
                    if time == 0 {
                        seen.push_str(&answer.to_golden_text());
                        seen.push('\n');
                    }
                    if answer.header("connection") == Some("close") {
                        caller = server.connect().await;
                    }
                }
            }
            _ => {}
        }
    }
    seen
}

fn set_status(server: &TestServer, change: &str) {
    match change {
        "reload fails" => server.status.record_reload_failure("rules.yaml:3:5: unknown field"),
        "reload works" => server.status.mark_rules_active(0x1234),
        "store lost" => server.status.set_store_error("no answer within 5ms"),
        "store back" => server.status.clear_store_error(),
        "drain" => server.status.start_drain(),
        _ => panic!("unknown status change {change:?}"),
    }
}
