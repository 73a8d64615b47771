//! Compares what the nodes do with what the rules allow.

use std::collections::BTreeMap;

use tidegate_core::decision::AnsweredBy;
use tidegate_core::key::Fingerprint;

use crate::admission_ledger::AdmissionLedger;
use crate::bound::{BoundConditions, RuleBound, true_ttl};
use crate::clock::MachineClock;
use crate::lease_ledger::LeaseLedger;
use crate::node::{Charged, Request};
use crate::rule_spec::RuleSpec;
use crate::scenario::{HOT_CLIENT, Scenario};
use crate::sim_store::store_of;
use crate::store_server::StoreServer;

/// Admissions are checked once this old: the store may have charged them earlier than they are
/// known.
const HOLD_BACK: u64 = 150_000;

/// The clock of a store, and how fast it is.
pub(crate) struct StoreSpec {
    pub(crate) clock: MachineClock,
    pub(crate) ppm: i64,
}

/// When a node received and decided a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestSpan {
    pub(crate) received_at: u64,
    pub(crate) decided_at: u64,
}

/// The checks of a run.
pub(crate) struct Checker {
    /// By rule and store.
    pub(crate) bounds: BTreeMap<(&'static str, usize), RuleBound>,
    ledgers: BTreeMap<(String, Fingerprint), AdmissionLedger>,
    leases: LeaseLedger,
    /// The admitted requests that may still be refunded, with the node that decided them.
    admitted: BTreeMap<u64, (usize, Vec<Charged>)>,
    /// Admitted less refunded on counters that are not leased, by store charges.
    exact_net: BTreeMap<Fingerprint, i128>,
    longest_lease: u64,
    /// How long a request that an asynchronous rule admits may be held up by others, to be checked.
    longest_hold: u64,
    /// The clock of each store.
    clocks: Vec<MachineClock>,
    /// The hot counter of the first rule.
    main: Option<Fingerprint>,
}

impl Checker {
    pub(crate) fn new(scenario: &Scenario, stores: &[StoreSpec]) -> Self {
        let mut bounds = BTreeMap::new();
        let longest_hold = scenario.longest_hold();
        for (store, StoreSpec { ppm, .. }) in stores.iter().enumerate() {
            let longest_refund = scenario.longest_refund();
            let conditions = BoundConditions { store_ppm: *ppm, longest_hold, longest_refund };
            let here = scenario.rules.iter().map(|rule| {
                let bound = RuleBound::new(*rule, conditions);
                ((rule.id, store), bound)
            });
            bounds.extend(here);
        }
        let mut checker = Self {
            bounds,
            ledgers: BTreeMap::new(),
            leases: LeaseLedger::default(),
            admitted: BTreeMap::new(),
            exact_net: BTreeMap::new(),
            longest_lease: 0,
            longest_hold,
            clocks: stores.iter().map(|store| store.clock.clone()).collect(),
            main: None,
        };
        checker.consider_leases(&scenario.rules);
        checker
    }

    /// The bounds of all rules on a store.
    pub(crate) fn bounds_at(&mut self, store: usize) -> impl Iterator<Item = &mut RuleBound> {
        let here = self.bounds.iter_mut().filter(move |(key, _)| key.1 == store);
        here.map(|(_, bound)| bound)
    }

    /// The bounds of a rule on all stores.
    pub(crate) fn bounds_of(&mut self, rule: &str) -> impl Iterator<Item = &mut RuleBound> {
        let of_rule = self.bounds.iter_mut().filter(move |(key, _)| key.0 == rule);
        of_rule.map(|(_, bound)| bound)
    }

    /// Leases live as long as the longest of all versions.
    pub(crate) fn consider_leases(&mut self, rules: &[RuleSpec]) {
        let longest = rules.iter().map(RuleSpec::ttl_micros).max().unwrap_or(0);
        self.longest_lease = self.longest_lease.max(true_ttl(longest));
    }

    /// Checks a decision that admitted a request.
    ///
    /// # Errors
    /// If a lease did not cover it.
    pub(crate) fn admit(
        &mut self,
        node: usize,
        span: RequestSpan,
        request: &Request,
        charges: Vec<Charged>,
        stores: &mut [StoreServer],
    ) -> Result<(), String> {
        for grant in stores.iter_mut().flat_map(|it| std::mem::take(&mut it.ledger.new_grants)) {
            self.leases.grant(&grant);
        }
        let now = span.decided_at;
        for charge in &charges {
            let store = store_of(charge.fingerprint, stores.len());
            let at = match charge.counted_by {
                AnsweredBy::Store => {
                    let times = &stores[store].ledger.charge_times;
                    let time = times.get(&(node, charge.charged_at));
                    time.copied().unwrap_or(now)
                }
                AnsweredBy::Lease => {
                    let key = (node, charge.fingerprint);
                    self.leases.spend(
                        key,
                        (now, request.number, charge.cost),
                        self.longest_lease,
                    )?;
                    now
                }
                _ => now,
            };
            *self.exact_net.entry(charge.fingerprint).or_default() += net_cost(charge);
            if charge.rule == "main" && request.client == HOT_CLIENT {
                self.main = Some(charge.fingerprint);
            }
            let is_alone = !request.is_for_all_rules || self.longest_hold == 0;
            if is_alone || self.is_dated(charge, span, store) {
                self.ledger(charge).admit(at, request.number, charge.cost);
            }
        }
        self.admitted.insert(request.number, (node, charges));
        Ok(())
    }

    /// Whether it is known well enough when a charge was admitted. An asynchronous rule may have
    /// admitted a request any time before others did.
    fn is_dated(&self, charge: &Charged, span: RequestSpan, store: usize) -> bool {
        let RequestSpan { received_at, decided_at } = span;
        if charge.counted_by != AnsweredBy::Async || received_at == decided_at {
            return true;
        }
        let bound = self.bounds.iter().find(|(key, _)| key.0 == charge.rule && key.1 == store);
        let Some((_, bound)) = bound else { return true };
        let window = bound.spec.window_ms * 1_000;
        let visit = |at| {
            let (local, segment) = self.clocks[store].at(at);
            (local.as_micros() / window, segment)
        };
        let is_one_visit = !bound.has_visits() || visit(received_at) == visit(decided_at);
        is_one_visit && decided_at - received_at <= self.longest_hold
    }

    /// A node begins to refund a request.
    pub(crate) fn refund(&mut self, now: u64, request: u64) {
        let Some((node, charges)) = self.admitted.remove(&request) else { return };
        for charge in &charges {
            *self.exact_net.entry(charge.fingerprint).or_default() -= net_cost(charge);
            if charge.counted_by == AnsweredBy::Lease {
                self.leases.refund((node, charge.fingerprint), request, self.longest_lease);
            }
            self.ledger(charge).refund(now, request);
        }
    }

    /// Checks the bounds of everything old enough.
    ///
    /// # Errors
    /// If an interval exceeds a bound.
    pub(crate) fn check_bounds(&mut self, now: u64, is_end: bool) -> Result<(), String> {
        let until = if is_end { u64::MAX } else { now.saturating_sub(HOLD_BACK) };
        for (store, clock) in self.clocks.iter().enumerate() {
            for ((rule, fingerprint), ledger) in &mut self.ledgers {
                let is_here = store_of(*fingerprint, self.clocks.len()) == store;
                let bound = self.bounds.iter().find(|(key, _)| **key == (rule.as_str(), store));
                if let Some((_, bound)) = bound.filter(|_| is_here) {
                    ledger.check(bound, clock, until)?;
                }
            }
        }
        Ok(())
    }

    /// All or none, for counters that are not leased: the stores hold the charges of admitted
    /// requests, and no others than those whose outcome a node never learned.
    ///
    /// # Errors
    /// If charges of a refused request stayed.
    pub(crate) fn check_all_or_none(
        &self,
        stores: &[StoreServer],
        unknown: &BTreeMap<Fingerprint, u64>,
        rules: &[&'static str],
    ) -> Result<(), String> {
        let checked = |rule: &String| rules.contains(&rule.as_str());
        for ((rule, fingerprint), _) in self.ledgers.iter().filter(|one| checked(&one.0.0)) {
            let ledger = &stores[store_of(*fingerprint, stores.len())].ledger;
            let charged = ledger.exact_net.get(fingerprint).copied().unwrap_or(0);
            let admitted = self.exact_net.get(fingerprint).copied().unwrap_or(0);
            let unknown = unknown.get(fingerprint).copied().unwrap_or(0).into();
            if (charged - admitted).abs() > unknown {
                return Err(format!(
                    "rule {rule}: the store holds {charged} units, the admitted requests cost \
                     {admitted}, and {unknown} units are of unknown outcome"
                ));
            }
        }
        Ok(())
    }

    /// What the first rule's hot counter admitted between two instants.
    pub(crate) fn main_admitted(&self, from: u64, to: u64) -> u64 {
        let Some(main) = self.main else { return 0 };
        let ledger = self.ledgers.get(&("main".to_owned(), main));
        ledger.map_or(0, |ledger| ledger.admitted_between(from, to))
    }

    fn ledger(&mut self, charge: &Charged) -> &mut AdmissionLedger {
        self.ledgers.entry((charge.rule.clone(), charge.fingerprint)).or_default()
    }
}

/// What a charge adds to the counter's balance at the store, now or with the next flush.
fn net_cost(charge: &Charged) -> i128 {
    match charge.counted_by {
        AnsweredBy::Store | AnsweredBy::Async => charge.cost.into(),
        _ => 0,
    }
}
