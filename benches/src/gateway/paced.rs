//! Open-loop load: sends requests at a fixed rate, whether or not earlier ones were answered.
//!
//! Each connection has a thread with its own schedule. `wrk` sends the next request only after a
//! response, so a stalling server receives fewer requests (coordinated omission). Here, requests
//! that became due during a stall count their latency from their due time.

#![expect(clippy::expect_used, reason = "a benchmark that cannot run should say why and stop")]

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use super::Latencies;
use super::http::BenchConnection;

/// How much load to generate.
#[derive(Clone, Copy, Debug)]
pub struct LoadPace {
    /// Number of connections.
    pub connections: u32,
    /// Requests per second over all connections.
    pub per_second: u32,
    /// Length of the run.
    pub duration: Duration,
}

/// Sends requests at a fixed rate; returns the number of responses and their latencies.
///
/// # Panics
/// When the status of a response is not `status`.
#[must_use]
pub fn run(address: SocketAddr, status: u16, pace: LoadPace) -> (usize, Latencies) {
    let interval = Duration::from_secs(1) * pace.connections / pace.per_second;
    // Leaves time to open all connections before the first request is due.
    let begin = now() + Duration::from_millis(100);
    let all: Vec<Duration> = thread::scope(|scope| {
        let threads: Vec<_> = (0..pace.connections)
            .map(|at| {
                // Staggered, so that the requests of all connections spread over the interval.
                let first = begin + interval * at / pace.connections;
                scope.spawn(move || run_schedule(address, status, first, interval, pace.duration))
            })
            .collect();
        let latencies =
            threads.into_iter().flat_map(|thread| thread.join().expect("no thread panics"));
        latencies.collect()
    });
    (all.len(), percentiles(all))
}

/// Sends the requests of one connection on schedule and returns their latencies.
fn run_schedule(
    address: SocketAddr,
    status: u16,
    first: Instant,
    interval: Duration,
    duration: Duration,
) -> Vec<Duration> {
    let mut connection = BenchConnection::open(address).expect("connect to the server");
    let mut latencies = Vec::new();
    let mut due = first;
    while due < first + duration {
        // If the connection was still busy at the due time, the request waited for the server, and
        // its latency counts from then. If the connection was free, a late wake-up is the fault of
        // the scheduler and does not count.
        let begun = match due.checked_duration_since(now()) {
            Some(early) => {
                thread::sleep(early);
                now()
            }
            None => due,
        };
        assert_eq!(connection.send_request().expect("receive a response"), status);
        latencies.push(begun.elapsed());
        due += interval;
    }
    latencies
}

fn percentiles(mut latencies: Vec<Duration>) -> Latencies {
    latencies.sort_unstable();
    let at = |percent: usize| {
        let latency = latencies.get(latencies.len() * percent / 100);
        latency.map_or(f64::NAN, |latency| latency.as_secs_f64() * 1e6)
    };
    Latencies { p50: at(50), p99: at(99) }
}

#[expect(clippy::disallowed_methods, reason = "a benchmark measures time")]
fn now() -> Instant {
    Instant::now()
}
