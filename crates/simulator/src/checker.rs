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
    /// What each store counted.
    ledgers: BTreeMap<LedgerKey, AdmissionLedger>,
    /// What all regions counted of each rule and client.
    sums: BTreeMap<(String, &'static str), AdmissionLedger>,
    leases: LeaseLedger,
    /// The admitted requests that may still be refunded, with the node that decided them.
    admitted: BTreeMap<u64, AdmittedRequest>,
    /// Admitted less refunded on counters that are not leased, by rule, counter and store.
    exact_net: BTreeMap<(String, Fingerprint, usize), i128>,
    /// How long a leased unit of each rule lives in true time, and how long a borrowed one.
    longest: BTreeMap<&'static str, (u64, u64)>,
    /// How long a request that an asynchronous rule admits may be held up by others, to be checked.
    longest_hold: u64,
    /// The clock of each store.
    clocks: Vec<MachineClock>,
    /// The rules that are divided among regions.
    divided: Vec<&'static str>,
}

/// What a ledger is about: the rule, the client whose requests it governs, and the store. A client
/// has one counter of a rule, under whatever key a region hashes it to.
type LedgerKey = (String, &'static str, usize);

/// A rule with one counter for all clients.
const ALL_CLIENTS: &str = "all clients";

/// A request that was admitted.
struct AdmittedRequest {
    node: usize,
    client: &'static str,
    charges: Vec<Charged>,
}

impl Checker {
    pub(crate) fn new(scenario: &Scenario, stores: &[StoreSpec]) -> Self {
        let mut bounds = BTreeMap::new();
        let longest_hold = scenario.longest_hold();
        for (store, StoreSpec { ppm, .. }) in stores.iter().enumerate() {
            let longest_refund = scenario.longest_refund();
            let conditions = BoundConditions { store_ppm: *ppm, longest_hold, longest_refund };
            let here = scenario.rules.iter().map(|rule| {
                let bound = RuleBound::new(rule.in_region(store), conditions);
                ((rule.id, store), bound)
            });
            bounds.extend(here);
        }
        let mut checker = Self {
            bounds,
            ledgers: BTreeMap::new(),
            sums: BTreeMap::new(),
            leases: LeaseLedger::default(),
            admitted: BTreeMap::new(),
            exact_net: BTreeMap::new(),
            longest: BTreeMap::new(),
            longest_hold,
            clocks: stores.iter().map(|store| store.clock.clone()).collect(),
            divided: scenario.rule_ids(|rule| rule.regions.is_some()),
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

    /// Leases live as long as the longest of all versions, and so do loans.
    pub(crate) fn consider_leases(&mut self, rules: &[RuleSpec]) {
        for rule in rules {
            let (lease, loan) = self.longest.entry(rule.id).or_default();
            *lease = true_ttl(rule.ttl_micros()).max(*lease);
            *loan = true_ttl(rule.borrow_micros()).max(*loan);
        }
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
        for (store, server) in stores.iter_mut().enumerate() {
            for grant in std::mem::take(&mut server.ledger.new_grants) {
                self.leases.grant(store, &grant);
            }
        }
        let now = span.decided_at;
        for charge in &charges {
            let at = match charge.counted_by {
                AnsweredBy::Store => {
                    let times = &stores[charge.store].ledger.charge_times;
                    let time = times.get(&(node, charge.charged_at));
                    time.copied().unwrap_or(now)
                }
                _ => now,
            };
            if let Some(longest) = self.longest_of(charge) {
                let key = (node, charge.fingerprint, charge.store);
                self.leases.spend(key, (now, request.number, charge.cost), longest)?;
            }
            *self.exact_net(charge) += net_cost(charge);
            let is_alone = !request.is_for_all_rules || self.longest_hold == 0;
            if is_alone || self.is_dated(charge, span) {
                for ledger in self.ledgers(charge, request.client) {
                    ledger.admit(at, request.number, charge.cost);
                }
            }
        }
        let admitted = AdmittedRequest { node, client: request.client, charges };
        self.admitted.insert(request.number, admitted);
        Ok(())
    }

    /// Whether it is known well enough when a charge was admitted. An asynchronous rule may have
    /// admitted a request any time before others did.
    fn is_dated(&self, charge: &Charged, span: RequestSpan) -> bool {
        let RequestSpan { received_at, decided_at } = span;
        if charge.counted_by != AnsweredBy::Async || received_at == decided_at {
            return true;
        }
        let Some(bound) = self.bound(&charge.rule, charge.store) else { return true };
        let window = bound.spec.window_ms * 1_000;
        let visit = |at| {
            let (local, segment) = self.clocks[charge.store].at(at);
            (local.as_micros() / window, segment)
        };
        let is_one_visit = !bound.has_visits() || visit(received_at) == visit(decided_at);
        is_one_visit && decided_at - received_at <= self.longest_hold
    }

    /// A node begins to refund a request.
    pub(crate) fn refund(&mut self, now: u64, request: u64) {
        let Some(admitted) = self.admitted.remove(&request) else { return };
        for charge in &admitted.charges {
            *self.exact_net(charge) -= net_cost(charge);
            if let Some(longest) = self.longest_of(charge) {
                let key = (admitted.node, charge.fingerprint, charge.store);
                self.leases.refund(key, request, longest);
            }
            for ledger in self.ledgers(charge, admitted.client) {
                ledger.refund(now, request);
            }
        }
    }

    /// Checks the bounds of everything old enough.
    ///
    /// # Errors
    /// If an interval exceeds a bound.
    pub(crate) fn check_bounds(&mut self, now: u64, is_end: bool) -> Result<(), String> {
        let until = if is_end { u64::MAX } else { now.saturating_sub(HOLD_BACK) };
        for ((rule, _, store), ledger) in &mut self.ledgers {
            let bound = self.bounds.iter().find(|(key, _)| **key == (rule.as_str(), *store));
            if let Some((_, bound)) = bound {
                let clock = &self.clocks[*store..=*store];
                ledger.check(bound, clock, until)?;
            }
        }
        for rule in &self.divided {
            let of_rule = self.bounds.iter().filter(|(key, _)| key.0 == *rule);
            let regions: Vec<&RuleBound> = of_rule.map(|(_, bound)| bound).collect();
            let Some(sum) = RuleBound::sum_of(&regions) else { continue };
            for (_, ledger) in self.sums.iter_mut().filter(|(key, _)| key.0 == *rule) {
                let checked = ledger.check(&sum, &self.clocks, until);
                checked.map_err(|error| format!("all regions: {error}"))?;
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
        unknown: &BTreeMap<(Fingerprint, usize), u64>,
        rules: &[&'static str],
    ) -> Result<(), String> {
        let checked = |rule: &String| rules.contains(&rule.as_str());
        for ((rule, fingerprint, store), admitted) in &self.exact_net {
            if !checked(rule) {
                continue;
            }
            let charged = stores[*store].ledger.exact_net.get(fingerprint).copied().unwrap_or(0);
            let unknown = unknown.get(&(*fingerprint, *store)).copied().unwrap_or(0).into();
            if (charged - admitted).abs() > unknown {
                return Err(format!(
                    "rule {rule}: store {store} holds {charged} units, the admitted requests cost \
                     {admitted}, and {unknown} units are of unknown outcome"
                ));
            }
        }
        Ok(())
    }

    /// What the first rule admitted for the hot client between two instants, counted by a store.
    pub(crate) fn main_admitted_at(&self, store: usize, from: u64, to: u64) -> u64 {
        let is_main = |(rule, client, at): &LedgerKey| {
            rule == "main" && [HOT_CLIENT, ALL_CLIENTS].contains(client) && *at == store
        };
        let main = self.ledgers.iter().filter(|(key, _)| is_main(key));
        main.map(|(_, ledger)| ledger.admitted_between(from, to)).sum()
    }

    /// How long the units of a charge live, if they were granted in advance.
    fn longest_of(&self, charge: &Charged) -> Option<u64> {
        let (lease, loan) = self.longest.get(charge.rule.as_str()).copied()?;
        match charge.counted_by {
            AnsweredBy::Lease => Some(lease),
            AnsweredBy::Borrowed => Some(loan),
            _ => None,
        }
    }

    fn bound(&self, rule: &str, store: usize) -> Option<&RuleBound> {
        let bound = self.bounds.iter().find(|(key, _)| **key == (rule, store));
        bound.map(|(_, bound)| bound)
    }

    fn exact_net(&mut self, charge: &Charged) -> &mut i128 {
        let key = (charge.rule.clone(), charge.fingerprint, charge.store);
        self.exact_net.entry(key).or_default()
    }

    /// The ledgers that contain a charge for a client.
    fn ledgers(
        &mut self,
        charge: &Charged,
        client: &'static str,
    ) -> impl Iterator<Item = &mut AdmissionLedger> {
        let is_global = self.bound(&charge.rule, charge.store).is_some_and(|it| it.spec.is_global);
        let (rule, client) = (charge.rule.clone(), if is_global { ALL_CLIENTS } else { client });
        let is_divided = self.divided.contains(&rule.as_str());
        let sum = is_divided.then(|| self.sums.entry((rule.clone(), client)).or_default());
        let own = self.ledgers.entry((rule, client, charge.store)).or_default();
        sum.into_iter().chain([own])
    }
}

/// What a charge adds to the counter's balance at the store, now or with the next flush.
fn net_cost(charge: &Charged) -> i128 {
    match charge.counted_by {
        AnsweredBy::Store | AnsweredBy::Async => charge.cost.into(),
        _ => 0,
    }
}
