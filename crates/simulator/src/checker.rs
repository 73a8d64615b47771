//! Compares what the nodes do with what the rules allow.

use std::collections::BTreeMap;

use tidegate_core::decision::AnsweredBy;
use tidegate_core::key::Fingerprint;

use crate::admission_ledger::AdmissionLedger;
use crate::bound::{RuleBound, true_ttl};
use crate::clock::MachineClock;
use crate::lease_ledger::LeaseLedger;
use crate::node::{Charged, Request};
use crate::rule_spec::RuleSpec;
use crate::scenario::HOT_CLIENT;
use crate::store_server::StoreLedger;

/// Admissions are checked once this old: the store may have charged them earlier than they are
/// known.
const HOLD_BACK: u64 = 150_000;

/// The checks of a run.
pub(crate) struct Checker {
    pub(crate) bounds: BTreeMap<&'static str, RuleBound>,
    ledgers: BTreeMap<(String, Fingerprint), AdmissionLedger>,
    leases: LeaseLedger,
    /// The admitted requests that may still be refunded, with the node that decided them.
    admitted: BTreeMap<u64, (usize, Vec<Charged>)>,
    /// Admitted less refunded on counters that are not leased, by store charges.
    exact_net: BTreeMap<Fingerprint, i128>,
    longest_lease: u64,
    clock: MachineClock,
    /// The hot counter of the first rule.
    main: Option<Fingerprint>,
}

impl Checker {
    pub(crate) fn new(rules: &[RuleSpec], store_ppm: i64, clock: &MachineClock) -> Self {
        let bounds = rules.iter().map(|rule| (rule.id, RuleBound::new(*rule, store_ppm)));
        let mut checker = Self {
            bounds: bounds.collect(),
            ledgers: BTreeMap::new(),
            leases: LeaseLedger::default(),
            admitted: BTreeMap::new(),
            exact_net: BTreeMap::new(),
            longest_lease: 0,
            clock: clock.clone(),
            main: None,
        };
        checker.consider_leases(rules);
        checker
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
        now: u64,
        request: &Request,
        charges: Vec<Charged>,
        store: &mut StoreLedger,
    ) -> Result<(), String> {
        for grant in std::mem::take(&mut store.new_grants) {
            self.leases.grant(&grant);
        }
        for charge in &charges {
            let at = match charge.counted_by {
                AnsweredBy::Store => {
                    let time = store.charge_times.get(&(node, charge.charged_at));
                    *self.exact_net.entry(charge.fingerprint).or_default() +=
                        i128::from(charge.cost);
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
            if charge.rule == "main" && request.client == HOT_CLIENT {
                self.main = Some(charge.fingerprint);
            }
            self.ledger(charge).admit(at, request.number, charge.cost);
        }
        self.admitted.insert(request.number, (node, charges));
        Ok(())
    }

    /// A node begins to refund a request.
    pub(crate) fn refund(&mut self, now: u64, request: u64) {
        let Some((node, charges)) = self.admitted.remove(&request) else { return };
        for charge in &charges {
            match charge.counted_by {
                AnsweredBy::Store => {
                    *self.exact_net.entry(charge.fingerprint).or_default() -=
                        i128::from(charge.cost);
                }
                AnsweredBy::Lease => {
                    self.leases.refund((node, charge.fingerprint), request, self.longest_lease);
                }
                _ => {}
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
        for ((rule, _), ledger) in &mut self.ledgers {
            if let Some(bound) = self.bounds.get(rule.as_str()) {
                ledger.check(bound, &self.clock, until)?;
            }
        }
        Ok(())
    }

    /// All or none, for counters that are not leased: the store holds the charges of admitted
    /// requests, and no others than those whose outcome a node never learned.
    ///
    /// # Errors
    /// If charges of a refused request stayed.
    pub(crate) fn check_all_or_none(
        &self,
        store: &StoreLedger,
        unknown: &BTreeMap<Fingerprint, u64>,
        exact: &[String],
    ) -> Result<(), String> {
        for ((rule, fingerprint), _) in self.ledgers.iter().filter(|one| exact.contains(&one.0.0)) {
            let charged = store.exact_net.get(fingerprint).copied().unwrap_or(0);
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
