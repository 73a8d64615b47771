//! What a caller is told of a decision in HTTP: the rate-limit headers of every answer, and the
//! whole [`refusal`](fn@refusal) of a request.
//!
//! They tell of the tightest rule only, and never of a rule in shadow. Numbers are the store's, so
//! that all nodes tell a caller the same; no clock is read and nothing is rolled here.

mod accept;
mod family;
mod ietf;
mod lines;
mod notice;
mod refusal;
mod told;
mod wait;

use http::header::{CACHE_CONTROL, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use tidegate_core::time::Micros;
use tidegate_engine::Decision;
use tidegate_rules::Facts;

use lines::Lines;
pub(crate) use notice::Notice;
pub(crate) use refusal::grpc::percent_encoded;
pub use refusal::refusal;
use told::Told;

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
    /// What `X-RateLimit-Reset` means.
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
    /// `X-RateLimit-Limit`, `-Remaining`, `-Reset` and the IETF pair.
    #[default]
    All,
    /// `X-RateLimit-Limit`, `-Remaining`, `-Reset`.
    X,
    /// `RateLimit-Policy` and `RateLimit`, in the form of the newest draft.
    Ietf,
    /// `X-RateLimit-…` and `RateLimit-Limit`, `-Remaining`, `-Reset` of the drafts up to 06.
    Legacy,
    /// None.
    None,
}

/// What `X-RateLimit-Reset` means; clients in the field expect the one or the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ResetStyle {
    /// Seconds since the Unix epoch, as GitHub has it.
    #[default]
    Epoch,
    /// Seconds from now, as Envoy has it.
    Delta,
}

impl HeaderSettings {
    /// The number that says where in the jitter a caller comes to lie, for [`headers`]. It is the same
    /// on every node and for as long as the caller has to wait for the same instant; the next time
    /// it is another. Zero where nothing is jittered.
    #[must_use]
    pub fn draw(&self, decision: &Decision, facts: &Facts<'_>) -> u64 {
        match self.retry_jitter {
            Some(_) if !decision.is_allowed() => wait::draw(decision, facts),
            _ => 0,
        }
    }
}

/// Adds the headers of a decision; of those that are there already, ours count. Where no rule that
/// counts decided, there are none. `random` is for the jitter; see [`HeaderSettings::draw`].
pub fn headers(
    decision: &Decision,
    settings: &HeaderSettings,
    random: u64,
    headers: &mut HeaderMap,
) {
    let mut lines = Lines::new(headers, settings.expose);
    write(decision, Told::of(decision, settings, random).as_ref(), settings, &mut lines);
    lines.finish();
}

fn write(
    decision: &Decision,
    told: Option<&Told<'_>>,
    settings: &HeaderSettings,
    lines: &mut Lines<'_>,
) {
    if let Some(told) = told {
        write_told(told, settings, lines);
    }
    if !decision.is_allowed() {
        // Scripts may read it anyhow, so it is not among the exposed ones.
        lines.put_unexposed(CACHE_CONTROL, NO_STORE);
    }
    if settings.style != HeaderStyle::None
        && let Some(warnings) = warnings(decision)
    {
        lines.put(WARNING, warnings);
    }
}

fn write_told(told: &Told<'_>, settings: &HeaderSettings, lines: &mut Lines<'_>) {
    if let Some(counted) = told.counted() {
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
fn warnings(decision: &Decision) -> Option<HeaderValue> {
    let mut warnings = decision.warnings();
    let mut ids = warnings.next()?.id().to_owned();
    for rule in warnings {
        ids.push_str(", ");
        ids.push_str(rule.id());
    }
    HeaderValue::try_from(ids).ok()
}
