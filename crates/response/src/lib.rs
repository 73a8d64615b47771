//! What a caller is told of a decision in HTTP: the rate-limit headers of every answer, and the
//! whole [`refusal_response`](fn@refusal) of a request.
//!
//! They tell of the tightest rule only, and never of a rule in shadow. Numbers are the store's, so
//! that all nodes tell a caller the same; no clock is read and nothing is rolled here.

mod accept;
mod header_family;
mod header_writer;
mod ietf;
mod pending_headers;
mod refusal;
mod retry_delay;
mod summary;

use http::header::{CACHE_CONTROL, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use tidegate_core::time::Micros;
use tidegate_limiter::Decision;
use tidegate_rules::Facts;

use header_writer::HeaderWriter;
pub use pending_headers::PendingHeaders;
pub use refusal::grpc::percent_encode;
pub use refusal::refusal_response;
use summary::LimitSummary;

const WARNING: HeaderName = HeaderName::from_static("x-ratelimit-warning");
/// Not of any standard, but the SDKs of AI providers read it before `Retry-After`: it spares their
/// users the rounding up to whole seconds. Others do not know it.
const RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// How the headers are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeaderSettings {
    /// Which headers tell the limit and what is left of it.
    pub style: HeaderStyle,
    /// What `X-RateLimit-ResetStyleArg` means.
    pub reset: ResetStyle,
    /// Refused callers are told to wait up to this much longer, each another while, so that those who
    /// wait for the same window do not come back at the same instant.
    pub retry_jitter: Option<Micros>,
    /// Whether scripts of other origins may read the headers in a browser.
    pub expose: bool,
}

/// Which headers tell the limit and what is left of it. `Retry-After` is no matter of style.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HeaderStyle {
    /// `X-RateLimit-Limit`, `-Remaining`, `-ResetStyleArg` and the IETF pair.
    #[default]
    All,
    /// `X-RateLimit-Limit`, `-Remaining`, `-ResetStyleArg`.
    X,
    /// `RateLimit-Policy` and `RateLimit`, in the form of the newest draft.
    Ietf,
    /// `X-RateLimit-…` and `RateLimit-Limit`, `-Remaining`, `-ResetStyleArg` of the drafts up to 06.
    Legacy,
    /// None.
    None,
}

/// What `X-RateLimit-ResetStyleArg` means; clients in the field expect the one or the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ResetStyle {
    /// Seconds since the Unix epoch, as GitHub has it.
    #[default]
    Epoch,
    /// Seconds from now, as Envoy has it.
    Delta,
}

impl HeaderSettings {
    /// The number that says where in the jitter a caller comes to lie, for [`write_headers`]. It is the same
    /// on every node and for as long as the caller has to wait for the same instant; the next time
    /// it is another. Zero where nothing is jittered.
    #[must_use]
    pub fn jitter_seed(&self, decision: &Decision, facts: &Facts<'_>) -> u64 {
        match self.retry_jitter {
            Some(_) if !decision.is_allowed() => retry_delay::jitter_seed(decision, facts),
            _ => 0,
        }
    }
}

/// Adds the headers of a decision; of those that are there already, ours count. Where no rule that
/// counts decided, there are none. `random` is for the jitter; see [`HeaderSettings::jitter_seed`].
pub fn write_headers(
    decision: &Decision,
    settings: &HeaderSettings,
    random: u64,
    headers: &mut HeaderMap,
) {
    let mut lines = HeaderWriter::new(headers, settings.expose);
    write_decision(
        decision,
        LimitSummary::from_decision(decision, settings, random).as_ref(),
        settings,
        &mut lines,
    );
    lines.finish();
}

fn write_decision(
    decision: &Decision,
    told: Option<&LimitSummary<'_>>,
    settings: &HeaderSettings,
    lines: &mut HeaderWriter<'_>,
) {
    if let Some(told) = told {
        write_summary(told, settings, lines);
    }
    if !decision.is_allowed() {
        // Scripts may read it anyhow, so it is not among the exposed ones.
        lines.put_unexposed(CACHE_CONTROL, NO_STORE);
    }
    if settings.style != HeaderStyle::None
        && let Some(warnings) = warning_header(decision)
    {
        lines.put(WARNING, warnings);
    }
}

fn write_summary(told: &LimitSummary<'_>, settings: &HeaderSettings, lines: &mut HeaderWriter<'_>) {
    if let Some(counted) = told.counter() {
        for family in settings.style.families() {
            family.write(&counted, settings.reset, lines);
        }
    }
    if let Some(wait) = told.wait {
        lines.put_number(RETRY_AFTER, wait.secs());
        lines.put_number(RETRY_AFTER_MS, wait.millis());
    }
}

/// The ids of the rules that warn, which are printable ASCII; none if none does.
fn warning_header(decision: &Decision) -> Option<HeaderValue> {
    let mut warnings = decision.warnings();
    let mut ids = warnings.next()?.id().to_owned();
    for rule in warnings {
        ids.push_str(", ");
        ids.push_str(rule.id());
    }
    HeaderValue::try_from(ids).ok()
}
