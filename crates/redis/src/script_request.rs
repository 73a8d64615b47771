//! A request to the script. It owns its data because it may outlive the caller.

use std::sync::atomic::{AtomicU8, Ordering};

use smallvec::SmallVec;
use tidegate_core::batch::StateKind;
use tidegate_core::key::Fingerprint;
use tidegate_core::penalty::BanPolicy;
use tidegate_core::policy::Policy;
use tidegate_core::store::{Charge, Op, QueueMode, Role};

use crate::key_name::RecordLocation;

/// Charges that are applied all or none.
#[derive(Debug)]
pub(crate) struct ScriptRequest {
    pub(crate) op: Op,
    pub(crate) items: SmallVec<[ScriptCharge; 2]>,
    stage: AtomicU8,
}

/// Stages of a request: queued, taken by a call, or cancelled by its caller before it was taken.
const STAGE_QUEUED: u8 = 0;
const STAGE_TAKEN: u8 = 1;
const STAGE_CANCELLED: u8 = 2;

impl ScriptRequest {
    pub(crate) fn new(op: Op, items: SmallVec<[ScriptCharge; 2]>) -> Self {
        Self { op, items, stage: AtomicU8::new(STAGE_QUEUED) }
    }

    /// Marks it as queued. A retry queues it again after a server rejected it without running it.
    pub(crate) fn mark_queued(&self) {
        self.stage.store(STAGE_QUEUED, Ordering::Relaxed);
    }

    /// Takes it for sending. Returns `false` if its caller has cancelled it.
    pub(crate) fn mark_taken(&self) -> bool {
        self.transition_to(STAGE_TAKEN)
    }

    /// Cancels it. Returns `true` if it was still queued and therefore will never be sent.
    pub(crate) fn cancel(&self) -> bool {
        self.transition_to(STAGE_CANCELLED)
    }

    fn transition_to(&self, to: u8) -> bool {
        self.stage.compare_exchange(STAGE_QUEUED, to, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

/// A charge with the location of its records.
#[derive(Clone, Debug)]
pub(crate) struct ScriptCharge {
    pub(crate) fingerprint: Fingerprint,
    pub(crate) location: RecordLocation,
    pub(crate) policy: Policy,
    pub(crate) cost: u64,
    pub(crate) role: Role,
    pub(crate) grace: Option<(RecordLocation, Policy)>,
    pub(crate) ban: Option<(RecordLocation, BanPolicy)>,
    pub(crate) queue: QueueMode,
}

impl ScriptCharge {
    pub(crate) fn new(prefix: &str, charge: &Charge<'_>) -> Self {
        let key = &charge.key;
        let location = |part, policy: &Policy| match policy.max_log_entries() {
            Some(_) => RecordLocation::in_log(prefix, key, part),
            None => RecordLocation::on_page(prefix, key, part),
        };
        Self {
            fingerprint: key.fingerprint,
            location: location(StateKind::Main, charge.policy),
            policy: *charge.policy,
            cost: charge.cost,
            role: charge.role,
            grace: charge.grace.map(|policy| (location(StateKind::Grace, policy), *policy)),
            ban: charge
                .ban
                .map(|policy| (RecordLocation::on_page(prefix, key, StateKind::Ban), *policy)),
            queue: charge.queue,
        }
    }
}
