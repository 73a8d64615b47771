//! The families of headers that tell a limit and what is left of it, and which of them a style has.

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

/// Headers that belong together.
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
        counted: &ReportedCounter<'_>,
        style: ResetStyle,
        lines: &mut HeaderWriter<'_>,
    ) {
        match self {
            Self::X => X_RATELIMIT.write(counted, reset_secs(counted, style), lines),
            Self::Ietf => ietf::write(counted, lines),
            Self::Legacy => LEGACY.write(counted, Some(legacy_reset_secs(counted)), lines),
        }
    }
}

impl LimitHeaderNames {
    fn write(
        self,
        counted: &ReportedCounter<'_>,
        reset: Option<u64>,
        lines: &mut HeaderWriter<'_>,
    ) {
        lines.put_number_cached(self.limit, CachedNumber::Limit, counted.numbers.limit);
        lines.put_number(self.remaining, counted.numbers.remaining);
        match reset {
            Some(reset) => lines.put_number_cached(self.reset, CachedNumber::Reset, reset),
            None => lines.remove(&self.reset),
        }
    }
}

fn reset_secs(counted: &ReportedCounter<'_>, style: ResetStyle) -> Option<u64> {
    match style {
        ResetStyle::Delta => Some(counted.numbers.reset_after.as_secs_ceil()),
        ResetStyle::Epoch => counted.reset_at().map(|at| at.since(Timestamp::EPOCH).as_secs_ceil()),
    }
}

/// A wait in these drafts, and `Retry-After` should not point earlier than its end.
fn legacy_reset_secs(counted: &ReportedCounter<'_>) -> u64 {
    counted.effective_secs().unwrap_or(counted.numbers.reset_after.as_secs_ceil())
}
