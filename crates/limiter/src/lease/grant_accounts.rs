//! What stores granted to a node under test, and what became of it. For the tests of leases.

use std::collections::BTreeMap;
use std::fmt::Debug;

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

/// The grants of a node, by what identifies them.
#[derive(Debug)]
pub(super) struct GrantAccounts<K> {
    /// How long after the question units may be spent.
    ttl: u64,
    accounts: BTreeMap<K, GrantAccount>,
    /// The requests that may still be refunded.
    spent: Vec<(u64, K)>,
}

#[derive(Clone, Copy, Debug, Default)]
struct GrantAccount {
    asked_at: u64,
    granted: u64,
    spent: u64,
    returned: u64,
}

impl<K: Copy + Debug + Ord> GrantAccounts<K> {
    pub(super) const fn new(ttl: u64) -> Self {
        Self { ttl, accounts: BTreeMap::new(), spent: Vec::new() }
    }

    /// The number of grants.
    pub(super) fn count(&self) -> u64 {
        self.accounts.len() as u64
    }

    /// A store grants units.
    pub(super) fn grant(&mut self, grant: K, asked_at: u64, granted: u64) {
        let account = GrantAccount { asked_at, granted, ..GrantAccount::default() };
        self.accounts.insert(grant, account);
    }

    /// A request spends units: not too many, and not too late.
    pub(super) fn spend(&mut self, grant: K, cost: u64, now: u64) -> Result<(), TestCaseError> {
        let account = self.accounts.entry(grant).or_default();
        account.spent += cost;
        prop_assert!(now < account.asked_at + self.ttl, "spent too late: {account:?} at {now}");
        prop_assert!(account.spent + account.returned <= account.granted, "{account:?}");
        self.spent.push((cost, grant));
        Ok(())
    }

    /// Chooses a request to refund, if there is one.
    pub(super) fn pick_spent(&mut self, index: usize) -> Option<(u64, K)> {
        let count = self.spent.len();
        (count > 0).then(|| self.spent.swap_remove(index % count))
    }

    /// Spent units are back in their lease.
    pub(super) fn give_back(&mut self, grant: K, cost: u64) {
        self.accounts.entry(grant).or_default().spent -= cost;
    }

    /// The node returns units.
    pub(super) fn return_units(&mut self, grant: K, units: u64) -> Result<(), TestCaseError> {
        let account = self.accounts.entry(grant).or_default();
        account.returned += units;
        prop_assert!(account.spent + account.returned <= account.granted, "{account:?}");
        Ok(())
    }

    /// The units spent of all grants.
    pub(super) fn total_spent(&self) -> u64 {
        self.accounts.values().map(|account| account.spent).sum()
    }
}
