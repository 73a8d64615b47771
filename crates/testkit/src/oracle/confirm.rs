//! Answers confirmed rather than searched for: an instant is the first one when what it promises
//! holds there and not a microsecond before, because what is used never grows by itself.
//!
//! A probe costs two looks where a search costs a hundred; the properties probe every step and search
//! now and then.

use tidegate_core::algorithm::{Fit, Gauge};
use tidegate_core::time::{Micros, Timestamp};

use super::{ExactRatio, Oracle, SLOT_RETRY_HINT};

impl Oracle {
    /// Says what is wrong with an answer about a cost, if anything is.
    ///
    /// # Errors
    /// When the answer is not what the definition says.
    pub fn confirm_fit(&self, told: Fit, cost: u64, now: Timestamp) -> Result<(), String> {
        let at = i128::from(now.as_micros());
        let wrong = |why: &str| Err(format!("{told:?} for {cost} at {at}, but {why}"));
        let fits = self.fits(cost, at);
        match told {
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
                    wrong("nobody can know when")
                }
            }
            Fit::After(wait) => {
                let wait = i128::from(wait.get());
                if !self.fits(cost, at + wait) {
                    return wrong("it does not fit then either");
                }
                if self.fits(cost, at + wait - 1) { wrong("it fits sooner") } else { Ok(()) }
            }
        }
    }

    /// Says what is wrong with what is said to be left, if anything is.
    ///
    /// # Errors
    /// When the answer is not what the definition says.
    pub fn confirm_gauge(&self, told: Gauge, now: Timestamp) -> Result<(), String> {
        let at = i128::from(now.as_micros());
        let room = ExactRatio::from_integer(self.limit) - self.used(at);
        let remaining = i128::from(told.remaining);
        let least = remaining == 0 || ExactRatio::from_integer(remaining) <= room;
        if !least || room >= ExactRatio::from_integer(remaining + 1) {
            return Err(format!("{told:?} at {at}, but there is room for {room}"));
        }
        self.confirm_unused("is untouched", told.reset_after, at)?;
        let next = self.time_until_more(told.remaining, at);
        match told.next_after == next {
            true => Ok(()),
            false => Err(format!("{told:?} at {at}, but one more may pass after {next}")),
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
