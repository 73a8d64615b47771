//! The violations log over a database that is well, slow, or gone: nothing is lost uncounted, and no decision
//! waits. tokio's clock is the test's here: nothing in these tests waits for anything else.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tidegate_core::time::Micros;
use tidegate_rules::{DescriptorPair, Facts};
use tidegate_rulestore::Repository;
use tidegate_telemetry::{QUEUE_CAPACITY, RetentionPolicy, ViolationCounts, ViolationQuery};
use tokio::task::JoinHandle;

use crate::conflicting_repository::ConflictingRepository;
use crate::faulty_repository::{FaultyRepository, RepositoryMode};
use crate::fixture::{AdminFixture, AdminFixtureOptions};

/// The most that are written at once.
const MAX_BATCH: usize = QUEUE_CAPACITY / 4;

/// Nothing is dropped for its age.
pub(crate) const KEEP_ALL: RetentionPolicy =
    RetentionPolicy { age: Micros::new(u64::MAX), rows: u64::MAX };

/// A house over a faulty database, whose rule refuses everybody, and the task that writes.
async fn start_fixture(
    mood: RepositoryMode,
) -> (Arc<AdminFixture>, Arc<FaultyRepository>, JoinHandle<()>) {
    let faulty = Arc::new(FaultyRepository::default());
    let repository = Some(Arc::clone(&faulty) as Arc<dyn tidegate_rulestore::Repository>);
    let house = Arc::new(
        AdminFixture::build(AdminFixtureOptions { repository, ..AdminFixtureOptions::default() })
            .await,
    );
    install(&house, "rules: [{ id: shut, key_by: user_id, limit: { requests: deny } }]").await;
    faulty.set_mode(mood);
    let (log, into) = (Arc::clone(&house.log), Arc::clone(&faulty));
    let writer = tokio::spawn(async move { log.run(&*into, KEEP_ALL).await });
    (house, faulty, writer)
}

async fn install(house: &AdminFixture, rules: &str) {
    let document = tidegate_rules::Document::parse("rules", rules);
    let rules = tidegate_rules::RuleSet::compile(&document.expect("rules"), crate::fixture::SECRET);
    house.limiter.install(rules.expect("rules")).await.expect("in force");
}

/// So many refusals, of users who are numbered from a number on.
async fn refuse(house: &AdminFixture, from: usize, count: usize) {
    for user in from..from + count {
        let user = user.to_string();
        let facts: Facts<'_> = [("user_id", user.as_str())].into_iter().collect();
        assert!(!house.limiter.decide(&facts, 1).await.is_allowed());
    }
}

/// What is on record, by what only the order of refusals can explain.
fn user_hashes(house: &AdminFixture, users: std::ops::Range<usize>) -> Vec<Option<String>> {
    let hash = |user: usize| house.manager.identities().hash_value("user_id", &user.to_string());
    users.map(|user| Some(hash(user))).collect()
}

fn written_users(faulty: &FaultyRepository) -> Vec<Option<String>> {
    faulty.written().into_iter().map(|violation| violation.user_id).collect()
}

fn counts(heard: usize, written: usize, dropped: usize, waiting: usize) -> ViolationCounts {
    let [heard, written, dropped, waiting] = [heard, written, dropped, waiting].map(|n| n as u64);
    ViolationCounts { heard, written, dropped, waiting }
}

/// Lets the writer run until it waits.
async fn wait_until(mut seen: impl FnMut() -> bool) {
    while !seen() {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn violations_are_batched_in_order() {
    const MANY: usize = 40_000;
    let (house, faulty, writer) = start_fixture(RepositoryMode::Healthy).await;
    refuse(&house, 0, MANY).await;
    assert_eq!(house.log.counts(), counts(MANY, 0, 0, MANY), "no decision has waited for it");
    wait_until(|| house.log.counts().written == MANY as u64).await;
    let sizes: Vec<usize> = faulty.batches.lock().iter().map(Vec::len).collect();
    assert_eq!(sizes, [MAX_BATCH, MAX_BATCH, MANY - 2 * MAX_BATCH]);
    assert_eq!(written_users(&faulty), user_hashes(&house, 0..MANY));
    house.log.stop();
    writer.await.expect("it ends by itself");
}

#[tokio::test(start_paused = true)]
async fn large_batches_gather_longer_than_small() {
    let (house, faulty, writer) = start_fixture(RepositoryMode::Healthy).await;
    let mut from = 0;
    for (count, millis) in
        [(1, 100), (255, 100), (256, 1_100), (MAX_BATCH - 1, 1_100), (MAX_BATCH, 100)]
    {
        let begun = tokio::time::Instant::now();
        refuse(&house, from, count).await;
        from += count;
        wait_until(|| house.log.counts().written == from as u64).await;
        let took = begun.elapsed().as_millis();
        assert!((millis..millis + 50).contains(&took), "{count} in {took} ms");
        assert_eq!(faulty.batches.lock().last().map(Vec::len), Some(count));
    }
    writer.abort();
}

#[tokio::test(start_paused = true)]
async fn violations_during_write_are_gathered() {
    let (house, faulty, writer) = start_fixture(RepositoryMode::Hanging).await;
    refuse(&house, 0, 1).await;
    wait_until(|| faulty.record_calls.load(Ordering::SeqCst) == 1).await;
    refuse(&house, 1, 300).await;
    faulty.set_mode(RepositoryMode::Healthy);
    let begun = tokio::time::Instant::now();
    wait_until(|| house.log.counts().waiting == 0).await;
    let took = begun.elapsed().as_millis();
    assert!((1_100..1_150).contains(&took), "in {took} ms");
    let sizes: Vec<usize> = faulty.batches.lock().iter().map(Vec::len).collect();
    assert_eq!(sizes, [1, 300]);
    writer.abort();
}

#[tokio::test(start_paused = true)]
async fn hanging_database_drops_oldest_and_counts() {
    let (house, faulty, writer) = start_fixture(RepositoryMode::Hanging).await;
    refuse(&house, 0, 10).await;
    wait_until(|| faulty.record_calls.load(Ordering::SeqCst) == 1).await;
    assert_eq!(house.log.counts(), counts(10, 0, 0, 10), "what is being written waits");
    refuse(&house, 10, QUEUE_CAPACITY + 1_000).await;
    assert_eq!(house.log.counts(), counts(QUEUE_CAPACITY + 1_010, 0, 1_000, QUEUE_CAPACITY + 10));
    faulty.set_mode(RepositoryMode::Healthy);
    wait_until(|| house.log.counts().waiting == 0).await;
    assert_eq!(house.log.counts(), counts(QUEUE_CAPACITY + 1_010, QUEUE_CAPACITY + 10, 1_000, 0));
    let mut kept = user_hashes(&house, 0..10);
    kept.extend(user_hashes(&house, 1_010..QUEUE_CAPACITY + 1_010));
    assert!(
        written_users(&faulty) == kept,
        "the first were under way, and of the others the oldest went"
    );
    writer.abort();
}

#[tokio::test(start_paused = true)]
async fn failed_batch_is_retried_in_order() {
    let (house, faulty, writer) = start_fixture(RepositoryMode::Failing).await;
    refuse(&house, 0, 7_000).await;
    wait_until(|| faulty.record_calls.load(Ordering::SeqCst) >= 3).await;
    assert_eq!(house.log.counts(), counts(7_000, 0, 0, 7_000));
    // What was refused goes back before the others, and has no room any more when they are many.
    refuse(&house, 7_000, QUEUE_CAPACITY).await;
    wait_until(|| faulty.record_calls.load(Ordering::SeqCst) >= 5).await;
    let told = house.log.counts();
    assert_eq!(told.heard, told.written + told.dropped + told.waiting);
    assert_eq!(told, counts(QUEUE_CAPACITY + 7_000, 0, 7_000, QUEUE_CAPACITY));
    faulty.set_mode(RepositoryMode::Healthy);
    wait_until(|| house.log.counts().waiting == 0).await;
    assert!(written_users(&faulty) == user_hashes(&house, 7_000..QUEUE_CAPACITY + 7_000));
    writer.abort();
}

#[tokio::test(start_paused = true)]
async fn stop_flushes_once_or_counts_drops() {
    let (house, faulty, writer) = start_fixture(RepositoryMode::Hanging).await;
    refuse(&house, 0, 10).await;
    wait_until(|| faulty.record_calls.load(Ordering::SeqCst) == 1).await;
    refuse(&house, 10, 10).await;
    house.log.stop();
    // It is in the middle of a write, which it does not break off.
    faulty.set_mode(RepositoryMode::Healthy);
    writer.await.expect("it ends by itself");
    assert_eq!(
        (house.log.counts(), written_users(&faulty)),
        (counts(20, 20, 0, 0), user_hashes(&house, 0..20))
    );

    let (house, faulty, writer) = start_fixture(RepositoryMode::Failing).await;
    refuse(&house, 0, 10).await;
    wait_until(|| faulty.record_calls.load(Ordering::SeqCst) >= 1).await;
    house.log.stop();
    writer.await.expect("it ends by itself");
    assert_eq!(house.log.counts(), counts(10, 0, 10, 0));
}

/// A real file of SQLite here, and so a real clock.
#[tokio::test]
async fn batch_with_lost_ack_is_recorded_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let meddler = ConflictingRepository::with_sqlite(&folder.path().join("rules.db")).await;
    let house =
        Arc::new(AdminFixture::with_repository(Arc::clone(&meddler) as Arc<dyn Repository>).await);
    install(&house, "rules: [{ id: shut, key_by: user_id, limit: { requests: deny } }]").await;
    let (log, into) = (Arc::clone(&house.log), Arc::clone(&meddler));
    let writer = tokio::spawn(async move { log.run(&*into, KEEP_ALL).await });
    meddler.lose_next_ack.store(true, Ordering::SeqCst);
    refuse(&house, 0, 3).await;
    wait_until(|| !meddler.lose_next_ack.load(Ordering::SeqCst)).await;
    // They come while the first are to be written again, and are not taken for some of those.
    refuse(&house, 3, 4).await;
    wait_until(|| house.log.counts().waiting == 0).await;
    assert_eq!(house.log.counts(), counts(7, 7, 0, 0));
    let query = ViolationQuery { limit: 100, ..ViolationQuery::default() };
    let rows = meddler.violations(&query).await.expect("a page").rows;
    let users: Vec<_> = rows.into_iter().rev().map(|row| row.violation.user_id).collect();
    assert_eq!(users, user_hashes(&house, 0..7));
    house.log.stop();
    writer.await.expect("it ends by itself");
}

#[tokio::test(start_paused = true)]
async fn long_facts_stay_in_bounded_memory() {
    const LONG: usize = 10_000;
    let (house, faulty, writer) = start_fixture(RepositoryMode::Hanging).await;
    refuse(&house, 0, 1).await;
    wait_until(|| faulty.record_calls.load(Ordering::SeqCst) == 1).await;
    let padding = "x".repeat(LONG);
    for user in 1..=10_000 {
        let user = user.to_string();
        let facts = [("user_id", user.as_str()), ("header:x-padding", &padding)];
        assert!(!house.limiter.decide(&facts.into_iter().collect(), 1).await.is_allowed());
    }
    let told = house.log.counts();
    assert_eq!(told.heard, told.dropped + told.waiting);
    // A page of them is dropped one by one, and its memory is free when all of them are.
    let kept = (32 << 20) / LONG as u64;
    assert!(told.waiting <= kept && told.waiting + 5_000 >= kept, "{told:?}");
    faulty.set_mode(RepositoryMode::Healthy);
    wait_until(|| house.log.counts().waiting == 0).await;
    let newest = 10_001 - usize::try_from(told.waiting - 1).unwrap();
    assert!(
        written_users(&faulty)[1..] == user_hashes(&house, newest..10_001),
        "the oldest were dropped"
    );
    writer.abort();
}

#[tokio::test(start_paused = true)]
async fn queued_violation_keeps_its_rule_set() {
    let (house, faulty, writer) = start_fixture(RepositoryMode::Healthy).await;
    refuse(&house, 0, 2).await;
    install(&house, "rules: [{ id: other, key_by: user_id, limit: { requests: deny } }]").await;
    refuse(&house, 2, 2).await;
    wait_until(|| house.log.counts().written == 4).await;
    let rules: Vec<String> = faulty.written().into_iter().map(|row| row.rule).collect();
    assert_eq!(rules, ["shut", "shut", "other", "other"]);
    assert_eq!(written_users(&faulty), user_hashes(&house, 0..4));
    writer.abort();
}

#[tokio::test(start_paused = true)]
async fn violation_records_original_facts_and_descriptors() {
    let (house, faulty, writer) = start_fixture(RepositoryMode::Healthy).await;
    let rules = "rules: [{ id: shut, match: { domain: d, descriptor: [user] }, key_by: descriptor, \
                 limit: 1/h }]";
    install(&house, rules).await;
    let mut shown = Vec::new();
    for user in ["", "Zoë \u{202e}\n", "a"] {
        let entries = [DescriptorPair { key: "user".into(), value: user.into() }];
        let mut facts: Facts<'_> = [("domain", "d"), ("user_id", user)].into_iter().collect();
        facts.set_descriptor(&entries);
        assert!(house.limiter.decide(&facts, 1).await.is_allowed());
        assert!(!house.limiter.decide(&facts, 1).await.is_allowed());
        let rules = house.limiter.rules();
        let key =
            rules.rules()[0].public_fingerprint(&facts, &rules).expect("a key that may be seen");
        let user = house.manager.identities().hash_value("user_id", user);
        shown.push((format!("{:016x}{:016x}", key.hi, key.lo), Some(user)));
    }
    wait_until(|| house.log.counts().written == 3).await;
    let told = faulty.written().into_iter().map(|row| (row.bucket_key, row.user_id));
    assert_eq!(told.collect::<Vec<_>>(), shown);
    writer.abort();
}
