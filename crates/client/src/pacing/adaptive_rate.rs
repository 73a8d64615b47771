//! Finds the rate that a server accepts if it reports no numbers: cuts it at a refusal, and then
//! grows it along a cubic curve, which is flat near the rate of the last refusal (as in RFC 9438).

use std::time::Duration;

/// The rate that remains after a refusal.
const CUT: f64 = 0.8;

/// The rate that remains after a refusal soon after the last one: the rate was far too high.
const DEEP_CUT: f64 = 0.5;

/// The time from a cut until the rate of the refusal is reached again.
const MIN_PLATEAU_SECS: f64 = 15.0;

/// That time, if the last refusals were at about the same rate.
const MAX_PLATEAU_SECS: f64 = 60.0;

/// At least one call in ten seconds, so that a recovery is noticed.
const MIN_RATE: f64 = 0.1;

/// The rate assumed at the first refusal, if hardly anything was accepted before it.
const FIRST_PEAK: f64 = 1.0;

/// The time constant of the rate measurement.
const METER_SECS: f64 = 0.5;

/// The rate of the first second, if the server reports no numbers. It doubles every second.
const START_RATE: f64 = 50.0;

/// After this time the first rate limits nothing any more.
const START_SECS: f64 = 10.0;

/// The rate that a server accepts.
#[derive(Clone, Debug, Default)]
pub(super) struct AdaptiveRate {
    accepted: RateMeter,
    started_at: Option<Duration>,
    cut: Option<RateCut>,
}

/// The last cut of the rate.
#[derive(Clone, Copy, Debug)]
struct RateCut {
    at: Duration,
    /// The accepted rate when the server refused.
    peak: f64,
    factor: f64,
    plateau_secs: f64,
}

/// Measures events per second, weighting the recent past most.
#[derive(Clone, Debug, Default)]
struct RateMeter {
    weight: f64,
    updated_at: Duration,
}

impl AdaptiveRate {
    /// Learns from a response without numbers to start slowly, so that a refusal finds few calls in
    /// flight.
    pub(super) fn start(&mut self, now: Duration) {
        self.started_at.get_or_insert(now);
    }

    pub(super) fn record_accepted(&mut self, now: Duration) {
        self.accepted.record_event(now);
        if let Some(cut) = self.cut {
            // The server accepts more than the callers send: there is nothing to pace.
            let is_idle = cut.rate(now) > 4.0 * self.accepted.rate(now);
            if is_idle && cut.age_secs(now) > 3.0 * cut.plateau_secs {
                self.cut = None;
            }
        }
    }

    /// Cuts the rate, once for all calls that were sent at the old rate.
    pub(super) fn record_refused(&mut self, sent_at: Duration, now: Duration) {
        let accepted = self.accepted.rate(now);
        let Some(last) = self.cut else {
            let peak = accepted.max(FIRST_PEAK);
            self.cut = Some(RateCut::new(now, peak, CUT, MIN_PLATEAU_SECS));
            return;
        };
        if sent_at < last.at {
            return;
        }
        let peak = accepted.min(last.rate(now));
        let is_soon = last.age_secs(now) < MIN_PLATEAU_SECS / 2.0;
        let is_stable = (peak / last.peak - 1.0).abs() < 1.0 - CUT;
        let plateau_secs = match is_stable {
            true => (last.plateau_secs * 2.0).min(MAX_PLATEAU_SECS),
            false => MIN_PLATEAU_SECS,
        };
        let factor = if is_soon { DEEP_CUT } else { CUT };
        self.cut = Some(RateCut::new(now, peak, factor, plateau_secs));
    }

    /// The gap between calls; zero without a limit.
    pub(super) fn gap(&self, now: Duration) -> Duration {
        let rate = self.cut.map(|cut| cut.rate(now)).or_else(|| self.start_rate(now));
        rate.map(f64::recip)
            .map_or(Duration::ZERO, |secs| Duration::try_from_secs_f64(secs).unwrap_or_default())
    }

    fn start_rate(&self, now: Duration) -> Option<f64> {
        let age = now.saturating_sub(self.started_at?).as_secs_f64();
        (age < START_SECS).then(|| START_RATE * age.exp2())
    }
}

impl RateCut {
    fn new(at: Duration, peak: f64, factor: f64, plateau_secs: f64) -> Self {
        Self { at, peak: peak.max(MIN_RATE), factor, plateau_secs }
    }

    fn age_secs(&self, now: Duration) -> f64 {
        now.saturating_sub(self.at).as_secs_f64()
    }

    /// `factor` of the peak at first, the peak after `plateau_secs`, and faster and faster growth
    /// after twice that.
    fn rate(&self, now: Duration) -> f64 {
        let distance = self.age_secs(now) / self.plateau_secs - 1.0;
        (self.peak * (1.0 + (1.0 - self.factor) * distance.powi(3))).max(MIN_RATE)
    }
}

impl RateMeter {
    fn record_event(&mut self, now: Duration) {
        self.weight = self.weight_at(now) + 1.0;
        self.updated_at = now;
    }

    fn weight_at(&self, now: Duration) -> f64 {
        let age = now.saturating_sub(self.updated_at).as_secs_f64();
        self.weight * (-age / METER_SECS).exp()
    }

    fn rate(&self, now: Duration) -> f64 {
        self.weight_at(now) / METER_SECS
    }
}
