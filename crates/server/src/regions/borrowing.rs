//! Background tasks that borrow units from the stores of other regions.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::time::Micros;
use tidegate_limiter::{BorrowBatch, BorrowReport};
use tidegate_rules::{RegionalLimit, Rule, RuleSet};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use super::link::RegionLink;
use super::{RegionLinks, SharedLimiter};
use crate::clock;

/// How often to look whether a rule borrows by now.
const IDLE_INTERVAL: Duration = Duration::from_millis(500);

/// Asks the store of one region for what the node needs, as often as the rules say. A batch does
/// not wait for the one before, unless the region has as many questions as it answers in time.
pub(super) async fn borrow_from(
    limiter: SharedLimiter,
    links: Arc<RegionLinks>,
    link: Arc<RegionLink>,
) {
    let mut batches = JoinSet::new();
    let mut period = IDLE_INTERVAL;
    let mut ticks = tokio::time::interval(period);
    loop {
        ticks.tick().await;
        let wanted = limiter.borrow_interval().map_or(IDLE_INTERVAL, Duration::from);
        if wanted != period {
            period = wanted;
            ticks = tokio::time::interval_at(tokio::time::Instant::now() + period, period);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        }
        while batches.try_join_next().is_some() {}
        let usable = links.may_borrow_from(&link);
        limiter.set_lender_usable(&link.region, usable);
        if usable {
            spawn_batches(&limiter, &links, &link, &mut batches);
        }
    }
}

/// Returns what is left of borrowed units, and reports all of them. The caller has retired the
/// leases and limits the time.
pub(crate) async fn return_borrowed(limiter: &SharedLimiter, links: &RegionLinks) {
    let mut batches = JoinSet::new();
    for link in links.iter().filter(|link| links.may_borrow_from(link)) {
        while let Some(batch) = limiter.pop_borrow_batch(&link.region) {
            let (limiter, link) = (Arc::clone(limiter), Arc::clone(link));
            batches.spawn(async move { run_batch(&limiter, &link, batch).await });
        }
    }
    batches.join_all().await;
    links.report_loans(limiter).await;
}

/// Sends what is due. A batch is followed by the questions that had to wait for it.
fn spawn_batches(
    limiter: &SharedLimiter,
    links: &Arc<RegionLinks>,
    link: &Arc<RegionLink>,
    batches: &mut JoinSet<()>,
) {
    while let Some(batch) = limiter.pop_borrow_batch(&link.region) {
        let (limiter, links, link) = (Arc::clone(limiter), Arc::clone(links), Arc::clone(link));
        batches.spawn(async move {
            let mut next = Some(batch);
            while let Some(batch) = next {
                run_batch(&limiter, &link, batch).await;
                let may_continue = links.may_borrow_from(&link);
                next = may_continue.then(|| limiter.pop_full_borrow_batch(&link.region)).flatten();
            }
        });
    }
}

async fn run_batch(limiter: &SharedLimiter, link: &RegionLink, batch: BorrowBatch) {
    let started = clock::now();
    let report = limiter.run_borrow_batch(batch, &link.store).await;
    if report != BorrowReport::default() {
        link.exchanges.record(&link.region, &report, started.elapsed());
    }
}

/// How long a call to another region may take: half of the time that its units live. Later they
/// would be of little use.
pub(super) fn call_deadline(rules: &RuleSet) -> Option<Duration> {
    let ttl = |rule: &Rule| Some(borrow_shares(rule)?.shares().borrow_terms()?.ttl);
    let active = rules.rules().iter().filter(|rule| rule.is_active());
    active.filter_map(ttl).max().map(|ttl| Duration::from(Micros::new(ttl.get() / 2)))
}

/// The division of a rule's limit, if regions borrow from each other.
pub(super) fn borrow_shares(rule: &Rule) -> Option<&RegionalLimit> {
    rule.regional().filter(|regional| regional.shares().borrow_terms().is_some())
}
