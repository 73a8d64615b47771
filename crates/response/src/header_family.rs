//! The header families that report a limit and its remaining quota, and which of them each style
//! uses.

use http::header::HeaderName;
use tidegate_core::time::Timestamp;

use super::header_writer::{CachedNumber, HeaderWriter};
use super::summary::ReportedCounter;
use super::{HeaderStyle, ResetStyle, ietf};

const X_RATELIMIT: LimitHeaderNames = LimitHeaderNames {
    limit: HeaderName::from_static("x-ratelimit-limit"),
    remaining: HeaderName::from_static("x-ratelimit-remaining"),
    reset: HeaderName::from_static("x-ratelimit-reset"),
};
const LEGACY: LimitHeaderNames = LimitHeaderNames {
    limit: HeaderName::from_static("ratelimit-limit"),
    remaining: HeaderName::from_static("ratelimit-remaining"),
    reset: HeaderName::from_static("ratelimit-reset"),
};

/// Headers that are sent together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeaderFamily {
    X,
    Ietf,
    Legacy,
}

struct LimitHeaderNames {
    limit: HeaderName,
    remaining: HeaderName,
    reset: HeaderName,
}

impl HeaderStyle {
    pub(super) const fn families(self) -> &'static [HeaderFamily] {
        match self {
            Self::All => &[HeaderFamily::X, HeaderFamily::Ietf],
            Self::X => &[HeaderFamily::X],
            Self::Ietf => &[HeaderFamily::Ietf],
            Self::Legacy => &[HeaderFamily::X, HeaderFamily::Legacy],
            Self::None => &[],
        }
    }
}

impl HeaderFamily {
    pub(super) fn write(
        self,
        counter: &ReportedCounter<'_>,
        style: ResetStyle,
        writer: &mut HeaderWriter<'_>,
    ) {
        match self {
            Self::X => X_RATELIMIT.write(counter, reset_secs(counter, style), writer),
            Self::Ietf => ietf::write(counter, writer),
            Self::Legacy => LEGACY.write(counter, Some(legacy_reset_secs(counter)), writer),
        }
    }
}

impl LimitHeaderNames {
    fn write(
        self,
        counter: &ReportedCounter<'_>,
        reset: Option<u64>,
        writer: &mut HeaderWriter<'_>,
    ) {
        writer.put_number_cached(self.limit, CachedNumber::Limit, counter.numbers.limit);
        writer.put_number(self.remaining, counter.numbers.remaining);
        match reset {
            Some(reset) => writer.put_number_cached(self.reset, CachedNumber::Reset, reset),
            None => writer.remove(&self.reset),
        }
    }
}

fn reset_secs(counter: &ReportedCounter<'_>, style: ResetStyle) -> Option<u64> {
    match style {
        ResetStyle::Delta => Some(counter.numbers.reset_after.as_secs_ceil()),
        ResetStyle::Epoch => counter.reset_at().map(|at| at.since(Timestamp::EPOCH).as_secs_ceil()),
    }
}

/// The drafts up to 06 define the reset as a wait, and say that `Retry-After` should not end before
/// it.
fn legacy_reset_secs(counter: &ReportedCounter<'_>) -> u64 {
    counter.effective_secs().unwrap_or(counter.numbers.reset_after.as_secs_ceil())
}
