//! Turns a decision into HTTP: the rate-limit headers of every response, and the complete
//! [`refusal_response`] to a refused request. An admitted request waits in a [`DelayQueue`] if a
//! rule says so, and [`RequestCompletion`] settles its charges when its response has ended.
//!
//! The headers describe only the tightest rule, and never a rule in shadow mode. All numbers come
//! from the store, so every node sends a client the same ones. This crate reads no clock and draws
//! no random numbers.

mod accept;
mod completion;
mod delay_queue;
mod forwarded_bytes;
mod header_family;
mod header_writer;
mod ietf;
mod pacing_queue;
mod pending_headers;
mod refusal;
mod retry_after;
mod summary;

use http::header::{CACHE_CONTROL, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use tidegate_core::time::Micros;
use tidegate_limiter::Decision;
use tidegate_rules::Facts;

pub use completion::RequestCompletion;
pub use delay_queue::DelayQueue;
pub use forwarded_bytes::{ForwardedBytes, ForwardingClosedError};
use header_writer::HeaderWriter;
pub use pending_headers::PendingHeaders;
pub use refusal::grpc::percent_encode;
pub use refusal::refusal_response;
use summary::LimitSummary;

const WARNING: HeaderName = HeaderName::from_static("x-ratelimit-warning");
/// Not a standard header, but the SDKs of AI providers prefer it to `Retry-After`, which is rounded
/// up to whole seconds. Other clients ignore it.
const RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// How the headers are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeaderSettings {
    /// Which headers report the limit and the remaining quota.
    pub style: HeaderStyle,
    /// The format of `X-RateLimit-Reset`.
    pub reset: ResetStyle,
    /// Maximum time added to the wait of a refused client. Each client gets a different part of it,
    /// so that clients waiting for the same window do not all retry at the same instant.
    pub retry_jitter: Option<Micros>,
    /// Whether scripts from other origins may read the headers in a browser
    /// (`Access-Control-Expose-Headers`).
    pub expose: bool,
}

/// Which headers report the limit and the remaining quota. `Retry-After` is sent in every style.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HeaderStyle {
    /// `X-RateLimit-Limit`, `-Remaining`, `-Reset` and the IETF pair.
    #[default]
    All,
    /// `X-RateLimit-Limit`, `-Remaining`, `-Reset`.
    X,
    /// `RateLimit-Policy` and `RateLimit`, as in the latest IETF draft.
    Ietf,
    /// `X-RateLimit-…`, and `RateLimit-Limit`, `-Remaining`, `-Reset` as in the drafts up to 06.
    Legacy,
    /// No such headers.
    None,
}

/// The format of `X-RateLimit-Reset`. Existing clients expect one or the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ResetStyle {
    /// Seconds since the Unix epoch, as GitHub sends it.
    #[default]
    Epoch,
    /// Seconds from now, as Envoy sends it.
    Delta,
}

impl HeaderSettings {
    /// The `random` argument of [`write_headers`], which selects a client's share of the jitter.
    /// Every node returns the same number as long as the client waits for the same instant, and
    /// another one for its next wait. Returns 0 if no jitter applies.
    #[must_use]
    pub fn jitter_seed(&self, decision: &Decision, facts: &Facts<'_>) -> u64 {
        match self.retry_jitter {
            Some(_) if !decision.is_allowed() => retry_after::jitter_seed(decision, facts),
            _ => 0,
        }
    }
}

/// Adds the headers of a decision, replacing existing headers of the same names. Adds no limit
/// headers if no rule applied, or if the tightest rule is in shadow mode.
///
/// `random` selects the jitter; see [`HeaderSettings::jitter_seed`].
pub fn write_headers(
    decision: &Decision,
    settings: &HeaderSettings,
    random: u64,
    headers: &mut HeaderMap,
) {
    let mut writer = HeaderWriter::new(headers, settings.expose);
    write_decision(
        decision,
        LimitSummary::from_decision(decision, settings, random).as_ref(),
        settings,
        &mut writer,
    );
    writer.finish();
}

fn write_decision(
    decision: &Decision,
    summary: Option<&LimitSummary<'_>>,
    settings: &HeaderSettings,
    writer: &mut HeaderWriter<'_>,
) {
    if let Some(summary) = summary {
        write_summary(summary, settings, writer);
    }
    if !decision.is_allowed() {
        // Not exposed: `Cache-Control` is a CORS-safelisted header, readable by any script.
        writer.put_unexposed(CACHE_CONTROL, NO_STORE);
    }
    if settings.style != HeaderStyle::None
        && let Some(warnings) = warning_header(decision)
    {
        writer.put(WARNING, warnings);
    }
}

fn write_summary(
    summary: &LimitSummary<'_>,
    settings: &HeaderSettings,
    writer: &mut HeaderWriter<'_>,
) {
    if let Some(counter) = summary.counter() {
        for family in settings.style.families() {
            family.write(&counter, settings.reset, writer);
        }
    }
    if let Some(wait) = summary.wait {
        writer.put_number(RETRY_AFTER, wait.secs());
        writer.put_number(RETRY_AFTER_MS, wait.millis());
    }
}

/// The comma-separated IDs of the rules that warn; `None` if no rule does. IDs are printable ASCII.
fn warning_header(decision: &Decision) -> Option<HeaderValue> {
    let mut warnings = decision.warnings();
    let mut ids = warnings.next()?.id().to_owned();
    for rule in warnings {
        ids.push_str(", ");
        ids.push_str(rule.id());
    }
    HeaderValue::try_from(ids).ok()
}
