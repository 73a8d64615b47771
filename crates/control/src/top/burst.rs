//! Bursts: keys whose requests came much faster than before, the latest of them.

use std::collections::VecDeque;
use std::sync::Arc;

use serde::Serialize;
use tidegate_core::key::Fingerprint;
use tidegate_core::time::Timestamp;

use super::pace::Jump;
use super::watch::Bursting;
use super::who::{Sight, Veil, Who};

/// How many are kept.
const KEPT: usize = 256;

/// A key whose requests came at least ten times as fast as before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Burst {
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
pub(super) struct Bursts {
    ring: VecDeque<Kept>,
    number: u64,
}

struct Kept {
    number: u64,
    at: Timestamp,
    rule: String,
    key: Fingerprint,
    who: Option<Arc<Who>>,
    jump: Jump,
}

impl Bursts {
    pub(super) fn put(&mut self, rule: &str, bursting: Bursting) {
        self.number += 1;
        let Bursting { at, key, who, jump } = bursting;
        self.ring.truncate(KEPT - 1);
        self.ring.push_front(Kept {
            number: self.number,
            at,
            rule: rule.to_owned(),
            key,
            who,
            jump,
        });
    }

    /// Those after the one of a number, oldest first.
    pub(super) fn told(&self, after: u64, veil: Veil, sight: Sight) -> Vec<Burst> {
        let later = self.ring.iter().rev().filter(|kept| kept.number > after);
        let told = later.map(|kept| Burst {
            number: kept.number,
            at_us: kept.at.as_micros(),
            rule: kept.rule.clone(),
            key: veil.key(kept.key, kept.who.as_deref(), sight),
            who: kept.who.as_deref().map(|who| veil.who(who, sight)),
            rate: kept.jump.rate,
            mean: kept.jump.mean,
        });
        told.collect()
    }
}
