//! Full load over HTTP/2 with `h2load`: one call at a time on each connection.
//!
//! `h2load` checks the HTTP status but not `grpc-status`, which arrives in the trailers. A failed
//! call has no message, so the total size of all messages shows whether every call succeeded.

#![expect(clippy::expect_used, reason = "a benchmark that cannot run should say why and stop")]

use std::path::Path;
use std::process::Command;

use super::{CONNECTIONS, SECONDS};
use crate::gateway::Latencies;

/// Parsed output of `h2load`.
#[derive(Clone, Copy, Debug)]
pub struct H2loadReport {
    /// Calls answered with 200.
    pub calls: usize,
    /// Calls per second.
    pub per_second: f64,
    /// Response times.
    pub latencies: Latencies,
    /// Total bytes of all response messages.
    pub message_bytes: usize,
}

/// Sends the body from a file repeatedly for one turn.
///
/// # Panics
/// When a call fails or its status is not 200.
#[must_use]
pub fn run(url: &str, body: &Path, log: &Path) -> H2loadReport {
    let output = Command::new("h2load")
        .args(["-t", "1", "-m", "1", "-c", &CONNECTIONS.to_string(), "-D", &SECONDS.to_string()])
        .args(["-H", "content-type: application/grpc", "-H", "te: trailers"])
        .arg("-d")
        .arg(body)
        .arg(format!("--log-file={}", log.display()))
        .arg(url)
        .output()
        .expect("run h2load");
    let text = String::from_utf8_lossy(&output.stdout);
    let lines = std::fs::read_to_string(log).expect("read the log of h2load");
    let _ = std::fs::remove_file(log);
    let report = parse(&text, &lines);
    report.unwrap_or_else(|error| panic!("{url}: {error}; output of h2load: {text}"))
}

fn parse(text: &str, lines: &str) -> Result<H2loadReport, String> {
    let mut latencies = Vec::<u32>::with_capacity(lines.len() / 24);
    for line in lines.lines() {
        // Fields: start time, status, response time in microseconds.
        let mut fields = line.split('\t').skip(1);
        let (status, micros) = (fields.next(), fields.next().and_then(|us| us.parse().ok()));
        match (status, micros) {
            (Some("200"), Some(micros)) => latencies.push(micros),
            _ => return Err(format!("a call returned status {status:?}")),
        }
    }
    latencies.sort_unstable();
    let at = |percent: usize| {
        latencies.get(latencies.len() * percent / 100).copied().ok_or("no calls in the log")
    };
    let per_second = field(text, "finished in", "req/s").ok_or("no request rate")?;
    // Calls still in flight when a timed run ends are counted as neither failed nor errored.
    let failed = ["failed", "errored"].map(|what| field(text, "requests:", what));
    if failed.iter().any(|count| *count != Some(0.0)) {
        return Err("calls failed".to_owned());
    }
    let data = text.lines().find(|line| line.starts_with("traffic:")).and_then(|line| {
        line.split(" data").next()?.rsplit_once('(')?.1.trim_end_matches(')').parse().ok()
    });
    Ok(H2loadReport {
        calls: latencies.len(),
        per_second,
        latencies: Latencies { p50: f64::from(at(50)?), p99: f64::from(at(99)?) },
        message_bytes: data.ok_or("no traffic line")?,
    })
}

/// The number before `word` in the line that begins with `prefix`.
fn field(text: &str, prefix: &str, word: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.starts_with(prefix))?;
    line.split([',', ':']).find_map(|part| part.trim().strip_suffix(word)?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
finished in 1.00s, 91234.00 req/s, 5.10MB/s
requests: 91234 total, 91284 started, 91234 done, 91234 succeeded, 0 failed, 0 errored, 0 timeout
status codes: 91234 2xx, 0 3xx, 0 4xx, 0 5xx
traffic: 5.10MB (5347720) total, 1.20MB (1258291) headers (space savings 90.00%), 2.60MB (2726297) data
";

    #[test]
    fn h2load_output_is_parsed() {
        let lines: String = (1..=100).map(|us| format!("1700000000000000\t200\t{us}\n")).collect();
        let report = parse(TEXT, &lines).unwrap();
        let Latencies { p50, p99 } = report.latencies;
        assert_eq!((report.calls, report.per_second, p50, p99), (100, 91_234.0, 51.0, 100.0));
        assert_eq!(report.message_bytes, 2_726_297);
    }

    #[test]
    fn failed_calls_are_rejected() {
        assert!(parse(TEXT, "1700000000000000\t503\t7\n").is_err());
        assert!(parse(&TEXT.replace("0 failed", "1 failed"), "1\t200\t7\n").is_err());
        assert!(parse(TEXT, "").is_err());
    }
}
