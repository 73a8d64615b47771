//! The endpoint that compares algorithms: each decides the same simulated traffic.

use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value as Json, json};
use tidegate_core::algorithm::Fit;
use tidegate_core::policy::{Algorithm, LeakMode};
use tidegate_core::quota::Quota;
use tidegate_core::time::Micros;
use tidegate_web::problem::HttpError;

use super::reply::AdminReply;
use super::{AdminRequest, body};
use crate::algorithm_simulation::{
    AlgorithmRun, MAX_ARRIVALS, MAX_REQUESTS, MAX_WINDOWS, SimulatedTraffic, WINDOWS,
    run_algorithms,
};

/// The body of a comparison request.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CompareRequest {
    requests: u64,
    window_s: u64,
    burst: Option<u64>,
    arrivals_ms: Vec<u64>,
}

impl AdminRequest<'_> {
    /// Simulates each algorithm on the given arrivals. No counter is charged and nothing is stored.
    pub(super) fn compare(&self) -> Result<AdminReply, HttpError> {
        let traffic = validate_traffic(body::parse_json(self.body)?)?;
        let lanes =
            run_algorithms(&traffic).map_err(|why| invalid_field("requests", why.to_string()))?;
        let span_ms = traffic.span.get() / 1_000;
        let lanes: Vec<Json> = lanes.iter().map(run_view).collect();
        Ok(AdminReply::ok(&json!({"span_ms": span_ms, "lanes": lanes})))
    }
}

fn validate_traffic(request: CompareRequest) -> Result<SimulatedTraffic, HttpError> {
    let CompareRequest { requests, window_s, burst, mut arrivals_ms } = request;
    let range = 1..=MAX_REQUESTS;
    if !range.contains(&requests) {
        return Err(invalid_field("requests", format!("must be from 1 to {MAX_REQUESTS}")));
    }
    if burst.is_some_and(|burst| !range.contains(&burst)) {
        return Err(invalid_field("burst", format!("must be from 1 to {MAX_REQUESTS}, or null")));
    }
    if !WINDOWS.contains(&window_s) {
        return Err(invalid_field("window_s", format!("must be one of {WINDOWS:?}")));
    }
    if arrivals_ms.len() > MAX_ARRIVALS {
        return Err(invalid_field("arrivals_ms", format!("at most {MAX_ARRIVALS} arrivals")));
    }
    let most_ms = MAX_WINDOWS * window_s * 1_000;
    if arrivals_ms.iter().any(|at| *at > most_ms) {
        return Err(invalid_field(
            "arrivals_ms",
            format!("each must be at most {most_ms} ({MAX_WINDOWS} windows)"),
        ));
    }
    arrivals_ms.sort_unstable();
    let window = Micros::from_secs(window_s);
    // Ends one to two windows after the last arrival, to show how the counters recover.
    let last = Micros::from_millis(arrivals_ms.last().copied().unwrap_or(0));
    let span = Micros::new((last.get() / window.get() + 2) * window.get());
    let quota = Quota { burst, ..Quota::new(requests, window) };
    let arrivals = arrivals_ms.into_iter().map(Micros::from_millis).collect();
    Ok(SimulatedTraffic { quota, arrivals, span })
}

fn invalid_field(field: &str, why: String) -> HttpError {
    HttpError::new(StatusCode::UNPROCESSABLE_ENTITY, why).with_field(field)
}

fn run_view(lane: &AlgorithmRun) -> Json {
    let decisions: Vec<Json> = lane.fits.iter().map(decision_view).collect();
    let admitted = lane.fits.iter().filter(|fit| fit.is_now()).count();
    json!({
        "algorithm": lane.algorithm.name(),
        "queue": lane.algorithm == Algorithm::LeakyBucket(LeakMode::Queue),
        "limit": lane.limit,
        "admitted": admitted,
        "refused": lane.fits.len() - admitted,
        "busiest_window": lane.busiest_window,
        "decisions": decisions,
        "left": lane.remaining,
    })
}

fn decision_view(fit: &Fit) -> Json {
    match fit {
        Fit::Now { delay } => json!({"allowed": true, "delay_ms": delay.as_millis_ceil()}),
        Fit::After(wait) => json!({"allowed": false, "retry_after_ms": wait.as_millis_ceil()}),
        Fit::Never => json!({"allowed": false, "retry_after_ms": null}),
    }
}
