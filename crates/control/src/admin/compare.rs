//! The algorithms deciding the same traffic, so that one can choose.

use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value as Json, json};
use tidegate_core::algorithm::Fit;
use tidegate_core::policy::{Algorithm, Leak};
use tidegate_core::quota::Quota;
use tidegate_core::time::Micros;
use tidegate_edge::problem::Problem;

use super::reply::Reply;
use super::{Asked, body};
use crate::compare::{Lane, MOST_ARRIVALS, MOST_REQUESTS, MOST_WINDOWS, Traffic, WINDOWS, lanes};

/// The traffic as it is typed.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Typed {
    requests: u64,
    window_s: u64,
    burst: Option<u64>,
    arrivals_ms: Vec<u64>,
}

impl Asked<'_> {
    /// What each algorithm makes of arrivals. Nothing is charged or kept.
    pub(super) fn compare(&self) -> Result<Reply, Problem> {
        let traffic = checked(body::parse(self.body)?)?;
        let lanes = lanes(&traffic).map_err(|why| wrong("requests", why.to_string()))?;
        let span_ms = traffic.span.get() / 1_000;
        let lanes: Vec<Json> = lanes.iter().map(view).collect();
        Ok(Reply::ok(&json!({"span_ms": span_ms, "lanes": lanes})))
    }
}

fn checked(typed: Typed) -> Result<Traffic, Problem> {
    let Typed { requests, window_s, burst, mut arrivals_ms } = typed;
    let range = 1..=MOST_REQUESTS;
    if !range.contains(&requests) {
        return Err(wrong("requests", format!("this is from 1 to {MOST_REQUESTS}")));
    }
    if burst.is_some_and(|burst| !range.contains(&burst)) {
        return Err(wrong("burst", format!("this is from 1 to {MOST_REQUESTS}, or null")));
    }
    if !WINDOWS.contains(&window_s) {
        return Err(wrong("window_s", format!("this is one of {WINDOWS:?}")));
    }
    if arrivals_ms.len() > MOST_ARRIVALS {
        return Err(wrong("arrivals_ms", format!("these are at most {MOST_ARRIVALS}")));
    }
    let most_ms = MOST_WINDOWS * window_s * 1_000;
    if arrivals_ms.iter().any(|at| *at > most_ms) {
        return Err(wrong("arrivals_ms", format!("these are at most {most_ms}: ten windows")));
    }
    arrivals_ms.sort_unstable();
    let window = Micros::from_secs(window_s);
    // Long enough to see what becomes of the last one.
    let last = Micros::from_millis(arrivals_ms.last().copied().unwrap_or(0));
    let span = Micros::new((last.get() / window.get() + 2) * window.get());
    let quota = Quota { burst, ..Quota::new(requests, window) };
    let arrivals = arrivals_ms.into_iter().map(Micros::from_millis).collect();
    Ok(Traffic { quota, arrivals, span })
}

fn wrong(field: &str, why: String) -> Problem {
    Problem::new(StatusCode::UNPROCESSABLE_ENTITY, why).with_field(field)
}

fn view(lane: &Lane) -> Json {
    let decisions: Vec<Json> = lane.fits.iter().map(decision).collect();
    let admitted = lane.fits.iter().filter(|fit| fit.is_now()).count();
    json!({
        "algorithm": lane.algorithm.name(),
        "queue": lane.algorithm == Algorithm::LeakyBucket(Leak::Queue),
        "limit": lane.limit,
        "admitted": admitted,
        "refused": lane.fits.len() - admitted,
        "busiest_window": lane.busiest,
        "decisions": decisions,
        "left": lane.left,
    })
}

fn decision(fit: &Fit) -> Json {
    match fit {
        Fit::Now { delay } => json!({"allowed": true, "delay_ms": delay.as_millis_ceil()}),
        Fit::After(wait) => json!({"allowed": false, "retry_after_ms": wait.as_millis_ceil()}),
        Fit::Never => json!({"allowed": false, "retry_after_ms": null}),
    }
}
