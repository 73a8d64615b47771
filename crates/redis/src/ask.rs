//! A request on its way to the script: owned, because it may outlive whoever asked.

use smallvec::SmallVec;
use tidegate_core::batch::Part;
use tidegate_core::key::Fingerprint;
use tidegate_core::penalty::BanPolicy;
use tidegate_core::policy::Policy;
use tidegate_core::store::{Charge, Op, Queue, Role};

use crate::name::Home;

/// A batch of charges, all or none.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) op: Op,
    pub(crate) items: SmallVec<[Item; 2]>,
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
