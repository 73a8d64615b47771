//! Verifies answers instead of searching for them. Usage never grows without a charge, so an
//! instant is the earliest one if its claim holds then and not a microsecond before.
//!
//! Verifying takes two evaluations where a search takes about a hundred. The property tests verify
//! every step and search occasionally.

use tidegate_core::algorithm::{Fit, Gauge};
use tidegate_core::time::{Micros, Timestamp};

use super::{ExactRatio, Oracle, SLOT_RETRY_HINT};

impl Oracle {
    /// Verifies whether and when a cost fits.
    ///
    /// # Errors
    /// If `claimed` is not what the definition says.
    pub fn confirm_fit(&self, claimed: Fit, cost: u64, now: Timestamp) -> Result<(), String> {
        let at = i128::from(now.as_micros());
        let wrong = |why: &str| Err(format!("{claimed:?} for {cost} at {at}, but {why}"));
        let fits = self.fits(cost, at);
        match claimed {
            Fit::Never if i128::from(cost) > self.limit => Ok(()),
            Fit::Never => wrong("it is within the limit"),
            _ if i128::from(cost) > self.limit => wrong("it is more than the limit"),
            Fit::Now { .. } if !fits => wrong("it does not fit"),
            Fit::Now { delay } if self.queue => self.confirm_unused("leaves its turn", delay, at),
            Fit::Now { delay: Micros::ZERO } => Ok(()),
            Fit::Now { .. } => wrong("there is no queue"),
            Fit::After(_) if fits => wrong("it fits at once"),
            Fit::After(wait) if self.uses_retry_hint() => {
                if wait == SLOT_RETRY_HINT {
                    Ok(())
                } else {
                    wrong("the wait is unknowable, so it must be the hint")
                }
            }
            Fit::After(wait) => {
                let wait = i128::from(wait.get());
                if !self.fits(cost, at + wait) {
                    return wrong("it does not fit then");
                }
                if self.fits(cost, at + wait - 1) { wrong("it fits sooner") } else { Ok(()) }
            }
        }
    }

    /// Verifies the remaining amount and the times of a gauge.
    ///
    /// # Errors
    /// If `claimed` is not what the definition says.
    pub fn confirm_gauge(&self, claimed: Gauge, now: Timestamp) -> Result<(), String> {
        let at = i128::from(now.as_micros());
        let room = ExactRatio::from_integer(self.limit) - self.used(at);
        let remaining = i128::from(claimed.remaining);
        let least = remaining == 0 || ExactRatio::from_integer(remaining) <= room;
        if !least || room >= ExactRatio::from_integer(remaining + 1) {
            return Err(format!("{claimed:?} at {at}, but there is room for {room}"));
        }
        self.confirm_unused("is unused", claimed.reset_after, at)?;
        let next = self.time_until_more(claimed.remaining, at);
        match claimed.next_after == next {
            true => Ok(()),
            false => Err(format!("{claimed:?} at {at}, but one more may pass after {next}")),
        }
    }

    fn confirm_unused(&self, what: &str, after: Micros, at: i128) -> Result<(), String> {
        let (then, zero) = (at + i128::from(after.get()), ExactRatio::from_integer(0));
        let late = after > Micros::ZERO && self.used(then - 1) == zero;
        if late || self.used(then) != zero {
            return Err(format!("{what} after {after} from {at}: used then {}", self.used(then)));
        }
        Ok(())
    }
}
