//! Full load with `wrk`: each connection sends its next request as soon as it has the response to
//! the last one.

#![expect(clippy::expect_used, reason = "a benchmark that cannot run should say why and stop")]

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use super::Latencies;

/// Parsed output of `wrk`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WrkReport {
    /// Requests that received a response.
    pub requests: u64,
    /// Responses with a status other than 2xx or 3xx.
    pub refused: u64,
    /// Requests per second.
    pub per_second: f64,
    /// Median latency in microseconds.
    pub p50: f64,
    /// 99th percentile of the latency in microseconds.
    pub p99: f64,
}

impl WrkReport {
    /// The p50 and p99 latency.
    #[must_use]
    pub const fn latencies(&self) -> Latencies {
        Latencies { p50: self.p50, p99: self.p99 }
    }
}

/// Runs `wrk` with one thread for the given time and number of connections.
///
/// # Panics
/// When `wrk` cannot be run or reports socket errors.
#[must_use]
pub fn run(address: SocketAddr, connections: usize, seconds: u64) -> WrkReport {
    run_with(&format!("http://{address}/api/things"), connections, seconds, None)
}

/// Like [`run`], at any URL and optionally with requests from a Lua script.
///
/// # Panics
/// When `wrk` cannot be run or reports socket errors.
#[must_use]
pub fn run_with(url: &str, connections: usize, seconds: u64, script: Option<&Path>) -> WrkReport {
    let mut command = Command::new("wrk");
    command
        .args(["--threads", "1", "--latency", "--connections", &connections.to_string()])
        .args(["--duration", &format!("{seconds}s")]);
    if let Some(script) = script {
        command.arg("--script").arg(script);
    }
    let output = command.arg(url).output().expect("run wrk");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(!text.contains("Socket errors"), "{url}: {text}");
    parse(&text).unwrap_or_else(|| panic!("unexpected output of wrk: {text}"))
}

fn parse(text: &str) -> Option<WrkReport> {
    let after = |label: &str| {
        let line = text.lines().find_map(|line| line.trim().strip_prefix(label));
        line.map(str::trim)
    };
    let total = text.lines().find(|line| line.contains(" requests in "))?;
    Some(WrkReport {
        requests: total.split_whitespace().next()?.parse().ok()?,
        refused: after("Non-2xx or 3xx responses:").map_or(Some(0), |count| count.parse().ok())?,
        per_second: after("Requests/sec:")?.parse().ok()?,
        p50: parse_micros(after("50%")?)?,
        p99: parse_micros(after("99%")?)?,
    })
}

/// Parses a time such as `1.25ms` into microseconds.
fn parse_micros(text: &str) -> Option<f64> {
    let unit = text.find(|c: char| c.is_ascii_alphabetic())?;
    let scale = match &text[unit..] {
        "us" => 1.0,
        "ms" => 1e3,
        "s" => 1e6,
        _ => return None,
    };
    Some(text[..unit].parse::<f64>().ok()? * scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrk_output_is_parsed() {
        let text = "\
Running 2s test @ http://127.0.0.1:1/
  1 threads and 50 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency   525.24us  345.36us   9.33ms   97.97%
  Latency Distribution
     50%  480.00us
     75%  560.00us
     90%  657.00us
     99%    1.68ms
  200571 requests in 2.10s, 37.49MB read
  Non-2xx or 3xx responses: 200570
Requests/sec:  95514.35
Transfer/sec:     17.85MB
";
        let report = WrkReport {
            requests: 200_571,
            refused: 200_570,
            per_second: 95_514.35,
            p50: 480.0,
            p99: 1_680.0,
        };
        assert_eq!(parse(text), Some(report));
    }
}
