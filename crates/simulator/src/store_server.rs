//! A store's machine: core's batches on a table of states, with a separate clock.
//!
//! It also keeps a ledger of what it charged and refunded for each node, against which the checks
//! compare what the nodes say.

use std::collections::BTreeMap;

use tidegate_core::decision::Reading;
use tidegate_core::decision::Verdict;
use tidegate_core::key::{Fingerprint, Key};
use tidegate_core::store::{Charge, Op, QueueMode};
use tidegate_core::time::{Clock, Timestamp};
use tidegate_testkit::state_table::StateTable;

use crate::clock::MachineClock;
use crate::link::{Call, SentCharge, StoreMessage};
use crate::regions::StoreMarker;
use crate::world::World;

/// A store.
pub(crate) struct StoreServer {
    id: usize,
    pub(crate) clock: MachineClock,
    table: StateTable,
    /// A copy that lags, for a fail-over.
    replica: StateTable,
    pub(crate) ledger: StoreLedger,
    /// To which region it belongs, as that region's nodes wrote it.
    pub(crate) marker: Option<StoreMarker>,
    /// Whether it grants units without charging them, which is a bug.
    pub(crate) forgets_grants: bool,
}

/// What the store did, by node and counter.
#[derive(Default)]
pub(crate) struct StoreLedger {
    /// When the store charged, in true time, by node and by the store's clock.
    pub(crate) charge_times: BTreeMap<(usize, u64), u64>,
    /// Units charged and refunded, by node, counter and the date of the charge.
    pub(crate) dated: BTreeMap<(usize, Fingerprint, u64), DatedUnits>,
    /// Grants that the checks have not read yet.
    pub(crate) new_grants: Vec<GrantRecord>,
    /// Charges less refunds, without grants.
    pub(crate) exact_net: BTreeMap<Fingerprint, i128>,
    /// A refund that no charge pays for.
    pub(crate) wrong_refund: Option<String>,
    /// Rules that are asynchronous in some version. Nodes date what they admit on them by their
    /// view of the store's clock, not by a charge.
    async_rules: Vec<&'static str>,
}

/// Units that were charged and refunded at one date.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DatedUnits {
    charged: u64,
    refunded: u64,
}

/// A grant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GrantRecord {
    pub(crate) node: usize,
    pub(crate) fingerprint: Fingerprint,
    pub(crate) units: u64,
    pub(crate) true_at: u64,
}

/// An answer on its way to a node.
#[derive(Clone)]
pub(crate) struct StoreAnswer {
    pub(crate) node: usize,
    pub(crate) store: usize,
    pub(crate) connection: u64,
    pub(crate) call: Call,
    pub(crate) answer: (Vec<Reading>, Timestamp),
}

impl StoreServer {
    pub(crate) fn new(id: usize, clock: MachineClock, async_rules: Vec<&'static str>) -> Self {
        let (table, replica) = (StateTable::default(), StateTable::default());
        let ledger = StoreLedger { async_rules, ..StoreLedger::default() };
        Self { id, clock, table, replica, ledger, marker: None, forgets_grants: false }
    }

    /// Runs a request.
    pub(crate) fn process(&mut self, message: StoreMessage, world: &World) -> StoreAnswer {
        let now = self.clock.now();
        let StoreMessage { node, store, connection, op, ref charges, .. } = message;
        message.call.mark_run();
        let readings = match op {
            Some(op) => self.apply((node, message.is_repeated), op, charges, now, world),
            None => Vec::new(),
        };
        StoreAnswer { node, store, connection, call: message.call, answer: (readings, now) }
    }

    /// Loses all counters.
    pub(crate) fn lose_state(&mut self) {
        self.marker = None;
        self.table = StateTable::default();
        self.replica = StateTable::default();
    }

    /// Copies the counters to the replica.
    pub(crate) fn replicate(&mut self) {
        self.replica = self.table.clone();
    }

    /// Goes on with the replica: the writes since the last copy are lost.
    pub(crate) fn fail_over(&mut self) {
        self.table = self.replica.clone();
    }

    fn apply(
        &mut self,
        (node, is_repeated): (usize, bool),
        op: Op,
        sent: &[SentCharge],
        now: Timestamp,
        world: &World,
    ) -> Vec<Reading> {
        let charges: Vec<Charge<'_>> = sent.iter().map(SentCharge::as_charge).collect();
        let before =
            (self.forgets_grants && matches!(op, Op::Grant(_))).then(|| self.table.clone());
        let readings = self.table.apply(op, &charges, now);
        if let Some(before) = before {
            self.table = before;
        }
        let admitted = !readings.iter().any(|reading| reading.verdict.refuses());
        for (charge, reading) in charges.iter().zip(&readings) {
            world.trace.record(reading.remaining ^ charge.cost << 32, || {
                let Reading { remaining, granted, verdict, .. } = reading;
                let (rule, cost, at) = (charge.key.rule, charge.cost, now.as_micros());
                let batch = if admitted { "batch admitted" } else { "batch refused" };
                let copy = if is_repeated { ", repeated by the network" } else { "" };
                let id = self.id;
                format!(
                    "store {id}: node {node} {op:?} {rule} cost {cost} at {at}: {verdict:?}, \
                     {batch}, granted {granted}, {remaining} left{copy}"
                )
            });
        }
        // The node knows nothing of a request that the network repeated.
        for (charge, reading) in charges.iter().zip(&readings).filter(|_| !is_repeated) {
            self.ledger.record(node, op, charge, reading, admitted, world.now());
        }
        readings
    }
}

impl StoreLedger {
    fn record(
        &mut self,
        node: usize,
        op: Op,
        charge: &Charge<'_>,
        reading: &Reading,
        admitted: bool,
        true_at: u64,
    ) {
        let (fingerprint, at) = (charge.key.fingerprint, reading.now.as_micros());
        let units = match op {
            Op::Charge if admitted && reading.verdict == Verdict::Allow => charge.cost,
            Op::Force => charge.cost,
            Op::Grant(_) => u64::from(reading.granted),
            Op::Refund { charged_at } => {
                self.refund(node, charge, charged_at);
                0
            }
            _ => 0,
        };
        if units == 0 {
            return;
        }
        self.charge_times.insert((node, at), true_at);
        self.dated.entry((node, fingerprint, at)).or_default().charged += units;
        if matches!(op, Op::Grant(_)) {
            self.new_grants.push(GrantRecord { node, fingerprint, units, true_at });
        } else {
            *self.exact_net.entry(fingerprint).or_default() += i128::from(units);
        }
    }

    /// A refund names a charge that the store made for this node, and never exceeds it.
    fn refund(&mut self, node: usize, charge: &Charge<'_>, charged_at: Timestamp) {
        let (fingerprint, date) = (charge.key.fingerprint, charged_at.as_micros());
        *self.exact_net.entry(fingerprint).or_default() -= i128::from(charge.cost);
        if self.async_rules.contains(&charge.key.rule) {
            return;
        }
        let dated = self.dated.entry((node, fingerprint, date)).or_default();
        dated.refunded += charge.cost;
        if dated.refunded > dated.charged {
            let DatedUnits { charged, refunded } = *dated;
            let rule = charge.key.rule;
            self.wrong_refund.get_or_insert(format!(
                "node {node} refunds {refunded} units of rule {rule} charged at {date}, where the \
                 store charged {charged}"
            ));
        }
    }
}

impl SentCharge {
    fn as_charge(&self) -> Charge<'_> {
        let key = Key::without_namespace(&self.rule, self.fingerprint);
        let (policy, role) = (&self.policy, self.role);
        let plain = Charge::plain(key, policy, self.cost);
        Charge { role, lent: self.lent, queue: QueueMode::Refuse, ..plain }
    }
}
