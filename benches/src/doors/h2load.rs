//! Load by `h2load`: as many calls as come back over HTTP/2, one at a time on each connection.
//!
//! It knows the status of HTTP but not that of gRPC, which comes after the message. A call that failed has no
//! message, so that what was sent in messages tells whether all went well.

#![expect(clippy::expect_used, reason = "a benchmark that cannot run should say why and stop")]

use std::path::Path;
use std::process::Command;

use super::{CONNECTIONS, SECONDS};
use crate::gateway::Latencies;

/// What it tells.
#[derive(Clone, Copy, Debug)]
pub struct Told {
    /// Calls that were answered with 200.
    pub calls: usize,
    /// Calls a second.
    pub per_second: f64,
    /// How long they took.
    pub latencies: Latencies,
    /// Bytes of all messages that came back.
    pub message_bytes: usize,
}

/// Sends the body in a file again and again.
///
/// # Panics
/// When a call is lost, or answered with anything but 200.
#[must_use]
pub fn run(url: &str, body: &Path, log: &Path) -> Told {
    let output = Command::new("h2load")
        .args(["-t", "1", "-m", "1", "-c", &CONNECTIONS.to_string(), "-D", &SECONDS.to_string()])
        .args(["-H", "content-type: application/grpc", "-H", "te: trailers"])
        .arg("-d")
        .arg(body)
        .arg(format!("--log-file={}", log.display()))
        .arg(url)
        .output()
        .expect("h2load");
    let text = String::from_utf8_lossy(&output.stdout);
    let lines = std::fs::read_to_string(log).expect("a line for each call");
    let _ = std::fs::remove_file(log);
    let told = parse(&text, &lines);
    told.unwrap_or_else(|why| panic!("{url}: {why}: h2load says {text}"))
}

fn parse(text: &str, lines: &str) -> Result<Told, String> {
    let mut took = Vec::<u32>::with_capacity(lines.len() / 24);
    for line in lines.lines() {
        // When it began, its status, how long it took in microseconds.
        let mut fields = line.split('\t').skip(1);
        let (status, micros) = (fields.next(), fields.next().and_then(|us| us.parse().ok()));
        match (status, micros) {
            (Some("200"), Some(micros)) => took.push(micros),
            _ => return Err(format!("a call was answered with {status:?}")),
        }
    }
    took.sort_unstable();
    let at = |percent: usize| took.get(took.len() * percent / 100).copied().ok_or("no call");
    let per_second = field(text, "finished in", "req/s").ok_or("no rate")?;
    // In the last moment of a timed run some are under way, which is no fault.
    let failed = ["failed", "errored"].map(|what| field(text, "requests:", what));
    if failed.iter().any(|count| *count != Some(0.0)) {
        return Err("calls failed".to_owned());
    }
    let data = text.lines().find(|line| line.starts_with("traffic:")).and_then(|line| {
        line.split(" data").next()?.rsplit_once('(')?.1.trim_end_matches(')').parse().ok()
    });
    Ok(Told {
        calls: took.len(),
        per_second,
        latencies: Latencies { p50: f64::from(at(50)?), p99: f64::from(at(99)?) },
        message_bytes: data.ok_or("no traffic")?,
    })
}

/// The number before a word, in the line that begins with another.
fn field(text: &str, begins: &str, word: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.starts_with(begins))?;
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
    fn what_h2load_prints_is_read() {
        let lines: String = (1..=100).map(|us| format!("1700000000000000\t200\t{us}\n")).collect();
        let told = parse(TEXT, &lines).unwrap();
        let Latencies { p50, p99 } = told.latencies;
        assert_eq!((told.calls, told.per_second, p50, p99), (100, 91_234.0, 51.0, 100.0));
        assert_eq!(told.message_bytes, 2_726_297);
    }

    #[test]
    fn what_is_no_answer_is_not_counted_as_one() {
        assert!(parse(TEXT, "1700000000000000\t503\t7\n").is_err());
        assert!(parse(&TEXT.replace("0 failed", "1 failed"), "1\t200\t7\n").is_err());
        assert!(parse(TEXT, "").is_err());
    }
}
