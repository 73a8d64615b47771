//! The violations log over a database that is well, slow, or gone: nothing is lost uncounted, and no decision
//! waits. tokio's clock is the test's here: nothing in these tests waits for anything else.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tidegate_control::{QUEUE, Repository, Retention, Tally, ViolationQuery};
use tidegate_core::time::Micros;
use tidegate_rules::{Entry, Facts};
use tokio::task::JoinHandle;

use crate::faulty::{Faulty, Mood};
use crate::house::{House, Plan};
use crate::meddler::Meddler;

/// The most that are written at once.
const BATCH: usize = QUEUE / 4;

/// Nothing is dropped for its age.
pub(crate) const FOREVER: Retention = Retention { age: Micros::new(u64::MAX), rows: u64::MAX };

/// A house over a faulty database, whose rule refuses everybody, and the task that writes.
async fn over(mood: Mood) -> (Arc<House>, Arc<Faulty>, JoinHandle<()>) {
    let faulty = Arc::new(Faulty::default());
    let repository = Some(Arc::clone(&faulty) as Arc<dyn tidegate_control::Repository>);
    let house = Arc::new(House::built(Plan { repository, ..Plan::default() }).await);
    install(&house, "rules: [{ id: shut, key_by: user_id, limit: { requests: deny } }]").await;
    faulty.be(mood);
    let (log, into) = (Arc::clone(&house.log), Arc::clone(&faulty));
    let writer = tokio::spawn(async move { log.keep(&*into, FOREVER).await });
    (house, faulty, writer)
}

async fn install(house: &House, rules: &str) {
    let document = tidegate_rules::Document::parse("rules", rules);
    let rules = tidegate_rules::RuleSet::compile(&document.expect("rules"), crate::house::SECRET);
    house.limiter.install(rules.expect("rules")).await.expect("in force");
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
    const MANY: usize = 40_000;
    let (house, faulty, writer) = over(Mood::Well).await;
    refuse(&house, 0, MANY).await;
    assert_eq!(house.log.tally(), tally(MANY, 0, 0, MANY), "no decision has waited for it");
    until(|| house.log.tally().written == MANY as u64).await;
    let sizes: Vec<usize> = faulty.batches.lock().iter().map(Vec::len).collect();
    assert_eq!(sizes, [BATCH, BATCH, MANY - 2 * BATCH]);
    assert_eq!(users(&faulty), hashes(&house, 0..MANY));
    house.log.stop();
    writer.await.expect("it ends by itself");
}

#[tokio::test(start_paused = true)]
async fn few_are_written_soon_and_many_are_gathered_for_longer() {
    let (house, faulty, writer) = over(Mood::Well).await;
    let mut from = 0;
    for (count, millis) in [(1, 100), (255, 100), (256, 1_100), (BATCH - 1, 1_100), (BATCH, 100)] {
        let begun = tokio::time::Instant::now();
        refuse(&house, from, count).await;
        from += count;
        until(|| house.log.tally().written == from as u64).await;
        let took = begun.elapsed().as_millis();
        assert!((millis..millis + 50).contains(&took), "{count} in {took} ms");
        assert_eq!(faulty.batches.lock().last().map(Vec::len), Some(count));
    }
    writer.abort();
}

#[tokio::test(start_paused = true)]
async fn what_comes_while_others_are_written_is_gathered_too() {
    let (house, faulty, writer) = over(Mood::Hangs).await;
    refuse(&house, 0, 1).await;
    until(|| faulty.asked.load(Ordering::SeqCst) == 1).await;
    refuse(&house, 1, 300).await;
    faulty.be(Mood::Well);
    let begun = tokio::time::Instant::now();
    until(|| house.log.tally().waiting == 0).await;
    let took = begun.elapsed().as_millis();
    assert!((1_100..1_150).contains(&took), "in {took} ms");
    let sizes: Vec<usize> = faulty.batches.lock().iter().map(Vec::len).collect();
    assert_eq!(sizes, [1, 300]);
    writer.abort();
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

/// A real file of SQLite here, and so a real clock.
#[tokio::test]
async fn what_was_written_and_nobody_heard_of_is_on_record_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let meddler = Meddler::before(&folder.path().join("rules.db")).await;
    let house = Arc::new(House::on(Arc::clone(&meddler) as Arc<dyn Repository>).await);
    install(&house, "rules: [{ id: shut, key_by: user_id, limit: { requests: deny } }]").await;
    let (log, into) = (Arc::clone(&house.log), Arc::clone(&meddler));
    let writer = tokio::spawn(async move { log.keep(&*into, FOREVER).await });
    meddler.is_deaf.store(true, Ordering::SeqCst);
    refuse(&house, 0, 3).await;
    until(|| !meddler.is_deaf.load(Ordering::SeqCst)).await;
    // They come while the first are to be written again, and are not taken for some of those.
    refuse(&house, 3, 4).await;
    until(|| house.log.tally().waiting == 0).await;
    assert_eq!(house.log.tally(), tally(7, 7, 0, 0));
    let query = ViolationQuery { most: 100, ..ViolationQuery::default() };
    let rows = meddler.violations(&query).await.expect("a page").rows;
    let users: Vec<_> = rows.into_iter().rev().map(|row| row.violation.user_id).collect();
    assert_eq!(users, hashes(&house, 0..7));
    house.log.stop();
    writer.await.expect("it ends by itself");
}

#[tokio::test(start_paused = true)]
async fn requests_with_long_facts_wait_in_bounded_memory() {
    const LONG: usize = 10_000;
    let (house, faulty, writer) = over(Mood::Hangs).await;
    refuse(&house, 0, 1).await;
    until(|| faulty.asked.load(Ordering::SeqCst) == 1).await;
    let padding = "x".repeat(LONG);
    for user in 1..=10_000 {
        let user = user.to_string();
        let facts = [("user_id", user.as_str()), ("header:x-padding", &padding)];
        assert!(!house.limiter.decide(&facts.into_iter().collect(), 1).await.is_allowed());
    }
    let told = house.log.tally();
    assert_eq!(told.heard, told.dropped + told.waiting);
    // A page of them is dropped one by one, and its memory is free when all of them are.
    let kept = (32 << 20) / LONG as u64;
    assert!(told.waiting <= kept && told.waiting + 5_000 >= kept, "{told:?}");
    faulty.be(Mood::Well);
    until(|| house.log.tally().waiting == 0).await;
    let newest = 10_001 - usize::try_from(told.waiting - 1).unwrap();
    assert!(users(&faulty)[1..] == hashes(&house, newest..10_001), "the oldest were dropped");
    writer.abort();
}

#[tokio::test(start_paused = true)]
async fn what_waits_is_told_by_the_rules_that_refused_it() {
    let (house, faulty, writer) = over(Mood::Well).await;
    refuse(&house, 0, 2).await;
    install(&house, "rules: [{ id: other, key_by: user_id, limit: { requests: deny } }]").await;
    refuse(&house, 2, 2).await;
    until(|| house.log.tally().written == 4).await;
    let rules: Vec<String> = faulty.written().into_iter().map(|row| row.rule).collect();
    assert_eq!(rules, ["shut", "shut", "other", "other"]);
    assert_eq!(users(&faulty), hashes(&house, 0..4));
    writer.abort();
}

#[tokio::test(start_paused = true)]
async fn facts_and_descriptors_are_on_record_as_they_were_told() {
    let (house, faulty, writer) = over(Mood::Well).await;
    let rules = "rules: [{ id: shut, match: { domain: d, descriptor: [user] }, key_by: descriptor, \
                 limit: 1/h }]";
    install(&house, rules).await;
    let mut shown = Vec::new();
    for user in ["", "Zoë \u{202e}\n", "a"] {
        let entries = [Entry { key: "user".into(), value: user.into() }];
        let mut facts: Facts<'_> = [("domain", "d"), ("user_id", user)].into_iter().collect();
        facts.set_descriptor(&entries);
        assert!(house.limiter.decide(&facts, 1).await.is_allowed());
        assert!(!house.limiter.decide(&facts, 1).await.is_allowed());
        let rules = house.limiter.rules();
        let key =
            rules.rules()[0].shown_fingerprint(&facts, &rules).expect("a key that may be seen");
        let user = house.office.identities().hashed("user_id", user);
        shown.push((format!("{:016x}{:016x}", key.hi, key.lo), Some(user)));
    }
    until(|| house.log.tally().written == 3).await;
    let told = faulty.written().into_iter().map(|row| (row.bucket_key, row.user_id));
    assert_eq!(told.collect::<Vec<_>>(), shown);
    writer.abort();
}
