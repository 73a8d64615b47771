//! The latest bursts: keys whose request rate rose sharply.

use std::collections::VecDeque;
use std::sync::Arc;

use serde::Serialize;
use tidegate_core::key::Fingerprint;
use tidegate_core::time::Timestamp;

use super::heavy_hitters::DetectedBurst;
use super::identity::{IdentityMask, KeyIdentity, Visibility};
use super::request_rate::RateSpike;

/// Maximum number of bursts kept.
const MAX_BURSTS: usize = 256;

/// A key whose request rate rose at least tenfold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BurstEvent {
    /// Sequence number, ascending.
    pub number: u64,
    /// When it was detected, in microseconds since the Unix epoch.
    pub at_us: u64,
    /// The ID of the rule that matches the requests.
    pub rule: String,
    /// The key's fingerprint, or a hash of it if the caller may not see the fingerprint.
    pub key: String,
    /// The client, such as `ip=192.0.2.7`.
    pub client: Option<String>,
    /// Requests so far in the second in which the burst was detected.
    pub rate: u64,
    /// Mean requests per second before.
    pub mean: u64,
}

/// Ring buffer of the latest bursts, newest first.
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
    pub(super) fn push(&mut self, rule: &str, burst: DetectedBurst) {
        self.number += 1;
        let DetectedBurst { at, key, identity, spike } = burst;
        self.ring.truncate(MAX_BURSTS - 1);
        self.ring.push_front(BurstRecord {
            number: self.number,
            at,
            rule: rule.to_owned(),
            key,
            identity,
            spike,
        });
    }

    /// The bursts with numbers above `after`, oldest first.
    pub(super) fn list_after(
        &self,
        after: u64,
        masks: &IdentityMask,
        visibility: Visibility,
    ) -> Vec<BurstEvent> {
        let later = self.ring.iter().rev().filter(|burst| burst.number > after);
        let events = later.map(|burst| BurstEvent {
            number: burst.number,
            at_us: burst.at.as_micros(),
            rule: burst.rule.clone(),
            key: masks.render_key(burst.key, burst.identity.as_deref(), visibility),
            client: burst.identity.as_deref().map(|identity| identity.render(visibility)),
            rate: burst.spike.rate,
            mean: burst.spike.mean,
        });
        events.collect()
    }
}
