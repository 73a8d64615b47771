//! What regions lend: each node reports to the stores of other regions what it borrowed there, and
//! reads from its own store what the nodes of other regions reported.
//!
//! These numbers are for people. They cost no decision and no batch anything: they have calls of
//! their own, a few seconds apart.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tidegate_limiter::BorrowStats;
use tidegate_redis::RegionLoan;
use tidegate_rules::RuleSet;

use super::borrowing::borrow_shares;
use super::{RegionLinks, SharedLimiter};

/// How often nodes report and read.
const LOAN_INTERVAL: Duration = Duration::from_secs(2);

/// The most loans in one call.
const MAX_LOANS: usize = 64;

/// Units that one region lent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LentUnits {
    /// Units that the store granted.
    pub(crate) granted: u64,
    /// Units that the borrowers returned.
    pub(crate) returned: u64,
}

/// What this node's region lent of each rule, by rule ID and borrowing region.
pub(crate) type RegionLoans = BTreeMap<String, BTreeMap<String, LentUnits>>;

/// What a node reported of each rule to the store of one region.
#[derive(Debug, Default)]
pub(super) struct ReportedLoans(BTreeMap<String, LentUnits>);

impl ReportedLoans {
    /// What is new in the node's statistics since the last call. A report is not repeated, as it
    /// may have arrived.
    fn take_new(&mut self, lender: &str, borrower: &str, stats: &BorrowStats) -> Vec<RegionLoan> {
        let mut loans = Vec::new();
        for (rule, borrowing) in &stats.rules {
            let Some(units) = borrowing.lenders.get(lender) else { continue };
            let now = LentUnits { granted: units.granted, returned: units.returned };
            let before = self.0.insert(rule.clone(), now).unwrap_or_default();
            let granted = now.granted.saturating_sub(before.granted);
            let returned = now.returned.saturating_sub(before.returned);
            if granted > 0 || returned > 0 {
                loans.push(RegionLoan { granted, returned, ..RegionLoan::none(rule, borrower) });
            }
        }
        loans
    }
}

/// Reports what this node borrows, and reads what its region lent.
pub(super) async fn exchange_loans(limiter: SharedLimiter, links: Arc<RegionLinks>) {
    loop {
        tokio::time::sleep(LOAN_INTERVAL).await;
        links.report_loans(&limiter).await;
        links.read_loans(&limiter).await;
    }
}

impl RegionLinks {
    /// Reports what this node borrowed since its last report.
    pub(super) async fn report_loans(&self, limiter: &SharedLimiter) {
        let Some(own) = &self.own_marker else { return };
        let Some(stats) = limiter.borrow_stats() else { return };
        for link in self.iter().filter(|link| self.may_borrow_from(link)) {
            let loans = link.reported.lock().take_new(&link.region, &own.region, &stats);
            for call in loans.chunks(MAX_LOANS) {
                // The connection logs an error.
                _ = link.store.add_region_loans(call).await;
            }
        }
    }

    /// Reads what this node's region lent. Keeps what is known if the store does not answer.
    async fn read_loans(&self, limiter: &SharedLimiter) {
        if self.is_own_store_taken() {
            return;
        }
        let mut lent = RegionLoans::new();
        for call in possible_loans(&limiter.rules()).chunks(MAX_LOANS) {
            let Ok(totals) = limiter.store().add_region_loans(call).await else { return };
            for RegionLoan { rule, borrower, granted, returned } in totals {
                let units = LentUnits { granted, returned };
                lent.entry(rule).or_default().insert(borrower, units);
            }
        }
        *self.lent.lock() = lent;
    }

    /// What this node's region lent, as of the last answer of its store.
    pub(crate) fn lent_units(&self) -> RegionLoans {
        self.lent.lock().clone()
    }
}

/// All loans that the own region can give, without their units.
fn possible_loans(rules: &RuleSet) -> Vec<RegionLoan> {
    let mut loans = Vec::new();
    for rule in rules.rules().iter().filter(|rule| rule.is_active()) {
        let Some(regional) = borrow_shares(rule) else { continue };
        let regions = regional.shares().iter().map(|(region, _)| region);
        let others = regions.filter(|region| *region != regional.region());
        loans.extend(others.map(|region| RegionLoan::none(rule.id(), region)));
    }
    loans
}

#[cfg(test)]
mod tests {
    use tidegate_core::key::Secret;
    use tidegate_limiter::{BorrowedUnits, RuleBorrowing};
    use tidegate_rules::Document;

    use super::*;

    fn stats(rule: &str, lender: &str, granted: u64, returned: u64) -> BorrowStats {
        let units = BorrowedUnits { granted, returned, ..BorrowedUnits::default() };
        let lenders = BTreeMap::from([(lender.to_owned(), units)]);
        let borrowing = RuleBorrowing { lenders, ..RuleBorrowing::default() };
        BorrowStats { rules: BTreeMap::from([(rule.to_owned(), borrowing)]), ..Default::default() }
    }

    #[test]
    fn each_unit_is_reported_once_to_its_lender() {
        let mut reported = ReportedLoans::default();
        let mut take = |stats| {
            let loans = reported.take_new("us", "eu", &stats);
            assert!(loans.iter().all(|loan| loan.borrower == "eu"), "{loans:?}");
            let loans = loans.into_iter().map(|loan| (loan.rule, loan.granted, loan.returned));
            loans.collect::<Vec<_>>()
        };
        assert_eq!(take(stats("r", "ap", 9, 9)), []);
        assert_eq!(take(stats("r", "us", 5, 0)), [("r".to_owned(), 5, 0)]);
        assert_eq!(take(stats("r", "us", 5, 0)), []);
        assert_eq!(take(stats("r", "us", 7, 1)), [("r".to_owned(), 2, 1)]);
        assert_eq!(take(stats("other", "us", 1, 0)), [("other".to_owned(), 1, 0)]);
    }

    #[test]
    fn only_rules_that_borrow_can_have_loans() {
        let text = "rules:
  - { id: fixed, limit: 10/s, regions: { shares: { eu: 50%, us: 50% } } }
  - { id: undivided, limit: 10/s }
  - id: lent
    limit: 1000/s burst 2000
    consistency: leased
    regions: { shares: { eu: 50%, us: 30%, ap: 20% }, borrow: {} }
  - id: disabled
    limit: 1000/s burst 2000
    is_active: false
    consistency: leased
    regions: { shares: { eu: 50%, us: 50% }, borrow: {} }
";
        let mut document = Document::parse("t", text).unwrap();
        document.set_region(Some("eu"));
        let rules = RuleSet::compile(&document, Secret::UNSET).unwrap();
        let expected = [RegionLoan::none("lent", "us"), RegionLoan::none("lent", "ap")];
        assert_eq!(possible_loans(&rules), expected);
    }
}
