//! Load with `redis-benchmark`: a fixed number of commands over a fixed number of connections.

#![expect(clippy::expect_used, reason = "a benchmark that cannot run should say why and stop")]

use std::net::SocketAddr;
use std::process::Command;

use super::{CONNECTIONS, KEYS};
use crate::gateway::Latencies;

/// Parsed output of `redis-benchmark`.
#[derive(Clone, Copy, Debug)]
pub struct RedisBenchmarkReport {
    /// Commands per second.
    pub per_second: f64,
    /// Response times, measured per pipeline of commands.
    pub latencies: Latencies,
}

/// Sends a command `count` times, `pipeline` commands at once on each connection.
///
/// # Panics
/// When any reply is an error: `redis-benchmark` then exits with a failure.
#[must_use]
pub fn run(
    address: SocketAddr,
    pipeline: usize,
    count: usize,
    command: &[&str],
) -> RedisBenchmarkReport {
    let output = Command::new("redis-benchmark")
        .args(["-h", &address.ip().to_string(), "-p", &address.port().to_string(), "--csv"])
        .args(["-c", &CONNECTIONS.to_string(), "-P", &pipeline.to_string()])
        .args(["-n", &count.to_string(), "-r", &KEYS.to_string()])
        .args(command)
        .output()
        .expect("run redis-benchmark");
    let text = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{address}: {text}{stderr}");
    parse(&text).unwrap_or_else(|| panic!("unexpected output of redis-benchmark: {text}{stderr}"))
}

/// Parses a CSV line of `"test","rps","avg","min","p50","p95","p99","max"`, times in milliseconds.
fn parse(text: &str) -> Option<RedisBenchmarkReport> {
    let line = text.lines().nth(1)?;
    // The first field is the command and may contain commas, so count from the end.
    let fields: Vec<&str> = line.rsplit(',').map(|field| field.trim_matches('"')).collect();
    let number = |from_the_end: usize| fields.get(from_the_end)?.parse::<f64>().ok();
    let latencies = Latencies { p50: number(3)? * 1e3, p99: number(1)? * 1e3 };
    Some(RedisBenchmarkReport { per_second: number(6)?, latencies })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redis_benchmark_output_is_parsed() {
        let text = "\"test\",\"rps\",\"avg_latency_ms\",\"min_latency_ms\",\"p50_latency_ms\",\
                    \"p95_latency_ms\",\"p99_latency_ms\",\"max_latency_ms\"\n\
                    \"THROTTLE a,b 1\",\"400000.00\",\"0.184\",\"0.056\",\"0.095\",\"0.279\",\
                    \"2.327\",\"2.343\"\n";
        let report = parse(text).unwrap();
        let Latencies { p50, p99 } = report.latencies;
        assert_eq!((report.per_second, p50, p99), (400_000.0, 95.0, 2_327.0));
    }
}
