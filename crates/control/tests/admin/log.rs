//! The violations log over a database that is well, slow, or gone: nothing is lost uncounted, and no decision
//! waits. tokio's clock is the test's here: nothing in these tests waits for anything else.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tidegate_control::{QUEUE, Retention, Tally};
use tidegate_core::time::Micros;
use tidegate_rules::Facts;
use tokio::task::JoinHandle;

use crate::faulty::{Faulty, Mood};
use crate::house::{House, Plan};

/// Nothing is dropped for its age.
pub(crate) const FOREVER: Retention = Retention { age: Micros::new(u64::MAX), rows: u64::MAX };

/// A house over a faulty database, whose rule refuses everybody, and the task that writes.
async fn over(mood: Mood) -> (Arc<House>, Arc<Faulty>, JoinHandle<()>) {
    let faulty = Arc::new(Faulty::default());
    let repository = Some(Arc::clone(&faulty) as Arc<dyn tidegate_control::Repository>);
    let house = Arc::new(House::built(Plan { repository, ..Plan::default() }).await);
    let document = tidegate_rules::Document::parse(
        "rules",
        "rules: [{ id: shut, key_by: user_id, limit: { requests: deny } }]",
    );
    let rules = tidegate_rules::RuleSet::compile(&document.expect("rules"), crate::house::SECRET);
    house.limiter.install(rules.expect("rules")).await.expect("in force");
    faulty.be(mood);
    let (log, into) = (Arc::clone(&house.log), Arc::clone(&faulty));
    let writer = tokio::spawn(async move { log.keep(&*into, FOREVER).await });
    (house, faulty, writer)
}

/// So many refusals, of users who are numbered from a number on.
async fn refuse(house: &House, from: usize, count: usize) {
    for user in from..from + count {
        let user = user.to_string();
        let facts: Facts<'_> = [("user_id", user.as_str())].into_iter().collect();
        assert!(!house.limiter.decide(&facts, 1).await.is_allowed());
    }
}

/// What is on record, by what only the order of refusals can explain.
fn hashes(house: &House, users: std::ops::Range<usize>) -> Vec<Option<String>> {
    let hash = |user: usize| house.office.identities().hashed("user_id", &user.to_string());
    users.map(|user| Some(hash(user))).collect()
}

fn users(faulty: &Faulty) -> Vec<Option<String>> {
    faulty.written().into_iter().map(|violation| violation.user_id).collect()
}

fn tally(heard: usize, written: usize, dropped: usize, waiting: usize) -> Tally {
    let [heard, written, dropped, waiting] = [heard, written, dropped, waiting].map(|n| n as u64);
    Tally { heard, written, dropped, waiting }
}

/// Lets the writer run until it waits.
async fn until(mut seen: impl FnMut() -> bool) {
    while !seen() {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn refusals_are_written_in_batches_and_in_order() {
    let (house, faulty, writer) = over(Mood::Well).await;
    refuse(&house, 0, 12_000).await;
    assert_eq!(house.log.tally(), tally(12_000, 0, 0, 12_000), "no decision has waited for it");
    until(|| house.log.tally().written == 12_000).await;
    let sizes: Vec<usize> = faulty.batches.lock().iter().map(Vec::len).collect();
    assert_eq!(sizes, [5_000, 5_000, 2_000]);
    assert_eq!(users(&faulty), hashes(&house, 0..12_000));
    house.log.stop();
    writer.await.expect("it ends by itself");
}

#[tokio::test(start_paused = true)]
async fn while_the_database_hangs_the_oldest_are_dropped_and_counted() {
    let (house, faulty, writer) = over(Mood::Hangs).await;
    refuse(&house, 0, 10).await;
    until(|| faulty.asked.load(Ordering::SeqCst) == 1).await;
    assert_eq!(house.log.tally(), tally(10, 0, 0, 10), "what is being written waits");
    refuse(&house, 10, QUEUE + 1_000).await;
    assert_eq!(house.log.tally(), tally(QUEUE + 1_010, 0, 1_000, QUEUE + 10));
    faulty.be(Mood::Well);
    until(|| house.log.tally().waiting == 0).await;
    assert_eq!(house.log.tally(), tally(QUEUE + 1_010, QUEUE + 10, 1_000, 0));
    let mut kept = hashes(&house, 0..10);
    kept.extend(hashes(&house, 1_010..QUEUE + 1_010));
    assert!(users(&faulty) == kept, "the first were under way, and of the others the oldest went");
    writer.abort();
}

#[tokio::test(start_paused = true)]
async fn what_the_database_refuses_is_kept_and_written_later_in_order() {
    let (house, faulty, writer) = over(Mood::Fails).await;
    refuse(&house, 0, 7_000).await;
    until(|| faulty.asked.load(Ordering::SeqCst) >= 3).await;
    assert_eq!(house.log.tally(), tally(7_000, 0, 0, 7_000));
    // What was refused goes back before the others, and has no room any more when they are many.
    refuse(&house, 7_000, QUEUE).await;
    until(|| faulty.asked.load(Ordering::SeqCst) >= 5).await;
    let told = house.log.tally();
    assert_eq!(told.heard, told.written + told.dropped + told.waiting);
    assert_eq!(told, tally(QUEUE + 7_000, 0, 7_000, QUEUE));
    faulty.be(Mood::Well);
    until(|| house.log.tally().waiting == 0).await;
    assert!(users(&faulty) == hashes(&house, 7_000..QUEUE + 7_000));
    writer.abort();
}

#[tokio::test(start_paused = true)]
async fn at_the_end_what_is_left_is_written_once_or_counted_as_lost() {
    let (house, faulty, writer) = over(Mood::Hangs).await;
    refuse(&house, 0, 10).await;
    until(|| faulty.asked.load(Ordering::SeqCst) == 1).await;
    refuse(&house, 10, 10).await;
    house.log.stop();
    // It is in the middle of a write, which it does not break off.
    faulty.be(Mood::Well);
    writer.await.expect("it ends by itself");
    assert_eq!((house.log.tally(), users(&faulty)), (tally(20, 20, 0, 0), hashes(&house, 0..20)));

    let (house, faulty, writer) = over(Mood::Fails).await;
    refuse(&house, 0, 10).await;
    until(|| faulty.asked.load(Ordering::SeqCst) >= 1).await;
    house.log.stop();
    writer.await.expect("it ends by itself");
    assert_eq!(house.log.tally(), tally(10, 0, 10, 0));
}
