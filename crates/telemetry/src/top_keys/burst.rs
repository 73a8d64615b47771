//! Bursts: keys whose requests came much faster than before, the latest of them.

use std::collections::VecDeque;
use std::sync::Arc;

use serde::Serialize;
use tidegate_core::key::Fingerprint;
use tidegate_core::time::Timestamp;

use super::heavy_hitters::DetectedBurst;
use super::identity::{IdentityMask, KeyIdentity, Visibility};
use super::request_rate::RateSpike;

/// How many are kept.
const MAX_BURSTS: usize = 256;

/// A key whose requests came at least ten times as fast as before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BurstEvent {
    /// Its number, which grows.
    pub number: u64,
    /// When, in microseconds.
    pub at_us: u64,
    /// By which rule they are governed.
    pub rule: String,
    /// The key's fingerprint, or a hash of it where that must not be seen.
    pub key: String,
    /// Who it is.
    pub who: Option<String>,
    /// Requests in the second in which it was noticed, until then.
    pub rate: u64,
    /// Requests a second before.
    pub mean: u64,
}

/// The latest of them.
#[derive(Default)]
pub(super) struct BurstLog {
    ring: VecDeque<BurstRecord>,
    number: u64,
}

struct BurstRecord {
    number: u64,
    at: Timestamp,
    rule: String,
    key: Fingerprint,
    identity: Option<Arc<KeyIdentity>>,
    spike: RateSpike,
}

impl BurstLog {
    pub(super) fn push(&mut self, rule: &str, bursting: DetectedBurst) {
        self.number += 1;
        let DetectedBurst { at, key, identity: who, spike: jump } = bursting;
        self.ring.truncate(MAX_BURSTS - 1);
        self.ring.push_front(BurstRecord {
            number: self.number,
            at,
            rule: rule.to_owned(),
            key,
            identity: who,
            spike: jump,
        });
    }

    /// Those after the one of a number, oldest first.
    pub(super) fn list_after(
        &self,
        after: u64,
        masks: &IdentityMask,
        sight: Visibility,
    ) -> Vec<BurstEvent> {
        let later = self.ring.iter().rev().filter(|kept| kept.number > after);
        let told = later.map(|kept| BurstEvent {
            number: kept.number,
            at_us: kept.at.as_micros(),
            rule: kept.rule.clone(),
            key: masks.render_key(kept.key, kept.identity.as_deref(), sight),
            who: kept.identity.as_deref().map(|who| who.render(sight)),
            rate: kept.spike.rate,
            mean: kept.spike.mean,
        });
        told.collect()
    }
}
