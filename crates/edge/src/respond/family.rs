//! The families of headers that tell a limit and what is left of it, and which of them a style has.

use http::header::HeaderName;
use tidegate_core::time::Timestamp;

use super::lines::{Lines, Same};
use super::told::Counted;
use super::{HeaderStyle, ResetStyle, ietf};

const X: Trio = Trio {
    limit: HeaderName::from_static("x-ratelimit-limit"),
    remaining: HeaderName::from_static("x-ratelimit-remaining"),
    reset: HeaderName::from_static("x-ratelimit-reset"),
};
const LEGACY: Trio = Trio {
    limit: HeaderName::from_static("ratelimit-limit"),
    remaining: HeaderName::from_static("ratelimit-remaining"),
    reset: HeaderName::from_static("ratelimit-reset"),
};

/// Headers that belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    X,
    Ietf,
    Legacy,
}

struct Trio {
    limit: HeaderName,
    remaining: HeaderName,
    reset: HeaderName,
}

impl HeaderStyle {
    pub(super) const fn families(self) -> &'static [Family] {
        match self {
            Self::All => &[Family::X, Family::Ietf],
            Self::X => &[Family::X],
            Self::Ietf => &[Family::Ietf],
            Self::Legacy => &[Family::X, Family::Legacy],
            Self::None => &[],
        }
    }
}

impl Family {
    pub(super) fn write(self, counted: &Counted<'_>, style: ResetStyle, lines: &mut Lines<'_>) {
        match self {
            Self::X => X.write(counted, reset(counted, style), lines),
            Self::Ietf => ietf::write(counted, lines),
            Self::Legacy => LEGACY.write(counted, Some(legacy_reset(counted)), lines),
        }
    }
}

impl Trio {
    fn write(self, counted: &Counted<'_>, reset: Option<u64>, lines: &mut Lines<'_>) {
        lines.put_number_again(self.limit, Same::Limit, counted.numbers.limit);
        lines.put_number(self.remaining, counted.numbers.remaining);
        match reset {
            Some(reset) => lines.put_number_again(self.reset, Same::Reset, reset),
            None => lines.leave_out(&self.reset),
        }
    }
}

fn reset(counted: &Counted<'_>, style: ResetStyle) -> Option<u64> {
    match style {
        ResetStyle::Delta => Some(counted.numbers.reset_after.as_secs_ceil()),
        ResetStyle::Epoch => counted.reset_at().map(|at| at.since(Timestamp::EPOCH).as_secs_ceil()),
    }
}

/// A wait in these drafts, and `Retry-After` should not point earlier than its end.
fn legacy_reset(counted: &Counted<'_>) -> u64 {
    counted.effective_secs().unwrap_or(counted.numbers.reset_after.as_secs_ceil())
}
