//! A request on its way to the script: owned, because it may outlive whoever asked.

use std::sync::atomic::{AtomicU8, Ordering};

use smallvec::SmallVec;
use tidegate_core::batch::Part;
use tidegate_core::key::Fingerprint;
use tidegate_core::penalty::BanPolicy;
use tidegate_core::policy::Policy;
use tidegate_core::store::{Charge, Op, Queue, Role};

use crate::name::Home;

/// A batch of charges, all or none.
#[derive(Debug)]
pub(crate) struct Ask {
    pub(crate) op: Op,
    pub(crate) items: SmallVec<[Item; 2]>,
    stage: AtomicU8,
}

/// It waits for its turn, was taken to be sent, or its caller stopped waiting before that.
const WAITING: u8 = 0;
const TAKEN: u8 = 1;
const GIVEN_UP: u8 = 2;

impl Ask {
    pub(crate) fn new(op: Op, items: SmallVec<[Item; 2]>) -> Self {
        Self { op, items, stage: AtomicU8::new(WAITING) }
    }

    /// It is put in line, perhaps once more: the server that it was put to before did nothing.
    pub(crate) fn enqueue(&self) {
        self.stage.store(WAITING, Ordering::Relaxed);
    }

    /// Takes it to send it. Returns whether its caller still waits.
    pub(crate) fn take(&self) -> bool {
        self.leave(TAKEN)
    }

    /// Its caller stops waiting. Returns whether it was not taken yet, and so never will be sent.
    pub(crate) fn give_up(&self) -> bool {
        self.leave(GIVEN_UP)
    }

    fn leave(&self, to: u8) -> bool {
        self.stage.compare_exchange(WAITING, to, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

/// One charge.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub(crate) fingerprint: Fingerprint,
    pub(crate) home: Home,
    pub(crate) policy: Policy,
    pub(crate) cost: u64,
    pub(crate) role: Role,
    pub(crate) grace: Option<(Home, Policy)>,
    pub(crate) ban: Option<(Home, BanPolicy)>,
    pub(crate) queue: Queue,
}

impl Item {
    pub(crate) fn new(prefix: &str, charge: &Charge<'_>) -> Self {
        let key = &charge.key;
        let home = |part, policy: &Policy| match policy.log_entries() {
            Some(_) => Home::log(prefix, key, part),
            None => Home::page(prefix, key, part),
        };
        Self {
            fingerprint: key.fingerprint,
            home: home(Part::Main, charge.policy),
            policy: *charge.policy,
            cost: charge.cost,
            role: charge.role,
            grace: charge.grace.map(|policy| (home(Part::Grace, policy), *policy)),
            ban: charge.ban.map(|policy| (Home::page(prefix, key, Part::Ban), *policy)),
            queue: charge.queue,
        }
    }
}
