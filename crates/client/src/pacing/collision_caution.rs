//! How careful a client is because other clients spend the same quota: each refusal in spite of
//! pacing doubles the reserve that it leaves, and a quiet minute halves it.

use std::time::Duration;

/// The reserve grows up to 32 times its size.
const MAX_LEVEL: u32 = 5;

const QUIET_TIME: Duration = Duration::from_secs(60);

/// How careful a client is.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CollisionCaution {
    level: u32,
    raised_at: Duration,
}

impl CollisionCaution {
    /// Doubles the reserve, once for all calls that were sent with the old one.
    pub(super) fn raise(&mut self, sent_at: Duration, now: Duration) {
        let level = self.level_at(now);
        if level == 0 || sent_at >= self.raised_at {
            *self = Self { level: (level + 1).min(MAX_LEVEL), raised_at: now };
        }
    }

    /// By how much the reserve is enlarged.
    pub(super) fn factor(self, now: Duration) -> u32 {
        1 << self.level_at(now)
    }

    fn level_at(self, now: Duration) -> u32 {
        let quiet = now.saturating_sub(self.raised_at).as_secs() / QUIET_TIME.as_secs();
        self.level.saturating_sub(u32::try_from(quiet).unwrap_or(u32::MAX))
    }
}
