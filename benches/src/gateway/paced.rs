//! Load at a fixed rate, whether or not earlier requests were answered.
//!
//! A thread a connection, each with its own timetable. `wrk` asks as fast as it is answered, so that a
//! server that stalls is asked less; here what was due meanwhile is late, and its latency says so.

#![expect(clippy::expect_used, reason = "a benchmark that cannot run should say why and stop")]

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use super::Latencies;
use super::http::Connection;

/// How much is asked.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Connections.
    pub connections: u32,
    /// Requests a second over all of them.
    pub per_second: u32,
    /// For how long.
    pub lasts: Duration,
}

/// Asks at a pace; how many answers with this status there were, and how long they took.
///
/// # Panics
/// When a request is not answered with it.
#[must_use]
pub fn run(address: SocketAddr, status: u16, pace: Pace) -> (usize, Latencies) {
    let interval = Duration::from_secs(1) * pace.connections / pace.per_second;
    // Everyone is connected before the first is due.
    let begin = now() + Duration::from_millis(100);
    let all: Vec<Duration> = thread::scope(|scope| {
        let threads: Vec<_> = (0..pace.connections)
            .map(|at| {
                // Connections take turns: requests are spread over the interval.
                let first = begin + interval * at / pace.connections;
                scope.spawn(move || timetable(address, status, first, interval, pace.lasts))
            })
            .collect();
        let latencies = threads.into_iter().flat_map(|thread| thread.join().expect("a thread"));
        latencies.collect()
    });
    (all.len(), percentiles(all))
}

/// The latencies of one connection.
fn timetable(
    address: SocketAddr,
    status: u16,
    first: Instant,
    interval: Duration,
    lasts: Duration,
) -> Vec<Duration> {
    let mut connection = Connection::open(address).expect("a connection");
    let mut latencies = Vec::new();
    let mut due = first;
    while due < first + lasts {
        // One that found its connection busy has waited since it was due. One that found it free and
        // was woken late by the system has not waited for the server.
        let begun = match due.checked_duration_since(now()) {
            Some(early) => {
                thread::sleep(early);
                now()
            }
            None => due,
        };
        assert_eq!(connection.ask().expect("an answer"), status);
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
