//! The violation log with a healthy, slow or unavailable database: every violation is written or
//! counted as dropped, and no decision waits. The tests use tokio's paused clock.

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

/// The maximum size of a batch.
const MAX_BATCH: usize = QUEUE_CAPACITY / 4;

/// Keeps every violation.
pub(crate) const KEEP_ALL: RetentionPolicy =
    RetentionPolicy { age: Micros::new(u64::MAX), rows: u64::MAX };

/// An admin API over a faulty database, whose rule refuses every request, and the writer task.
async fn start_fixture(
    mode: RepositoryMode,
) -> (Arc<AdminFixture>, Arc<FaultyRepository>, JoinHandle<()>) {
    let faulty = Arc::new(FaultyRepository::default());
    let repository = Some(Arc::clone(&faulty) as Arc<dyn tidegate_rulestore::Repository>);
    let admin = Arc::new(
        AdminFixture::build(AdminFixtureOptions { repository, ..AdminFixtureOptions::default() })
            .await,
    );
    install(&admin, "rules: [{ id: shut, key_by: user_id, limit: { requests: deny } }]").await;
    faulty.set_mode(mode);
    let (log, into) = (Arc::clone(&admin.log), Arc::clone(&faulty));
    let writer = tokio::spawn(async move { log.run(&*into, KEEP_ALL).await });
    (admin, faulty, writer)
}

async fn install(admin: &AdminFixture, rules: &str) {
    let document = tidegate_rules::Document::parse("rules", rules);
    let rules = tidegate_rules::RuleSet::compile(&document.expect("rules"), crate::fixture::SECRET);
    admin.limiter.install(rules.expect("rules")).await.expect("in force");
}

/// Refuses one request of each user `from..from + count`.
async fn refuse(admin: &AdminFixture, from: usize, count: usize) {
    for user in from..from + count {
        let user = user.to_string();
        let facts: Facts<'_> = [("user_id", user.as_str())].into_iter().collect();
        assert!(!admin.limiter.decide(&facts, 1).await.is_allowed());
    }
}

/// The hashes of these users, in order.
fn user_hashes(admin: &AdminFixture, users: std::ops::Range<usize>) -> Vec<Option<String>> {
    let hash = |user: usize| admin.manager.identities().hash_value("user_id", &user.to_string());
    users.map(|user| Some(hash(user))).collect()
}

fn written_users(faulty: &FaultyRepository) -> Vec<Option<String>> {
    faulty.written().into_iter().map(|violation| violation.user_id).collect()
}

fn counts(received: usize, written: usize, dropped: usize, waiting: usize) -> ViolationCounts {
    let [received, written, dropped, waiting] =
        [received, written, dropped, waiting].map(|n| n as u64);
    ViolationCounts { received, written, dropped, waiting }
}

/// Lets the writer run until the condition holds.
async fn wait_until(mut seen: impl FnMut() -> bool) {
    while !seen() {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn violations_are_batched_in_order() {
    const MANY: usize = 40_000;
    let (admin, faulty, writer) = start_fixture(RepositoryMode::Healthy).await;
    refuse(&admin, 0, MANY).await;
    assert_eq!(admin.log.counts(), counts(MANY, 0, 0, MANY), "no decision waited for the writer");
    wait_until(|| admin.log.counts().written == MANY as u64).await;
    let sizes: Vec<usize> = faulty.batches.lock().iter().map(Vec::len).collect();
    assert_eq!(sizes, [MAX_BATCH, MAX_BATCH, MANY - 2 * MAX_BATCH]);
    assert_eq!(written_users(&faulty), user_hashes(&admin, 0..MANY));
    admin.log.stop();
    writer.await.expect("it ends by itself");
}

#[tokio::test(start_paused = true)]
async fn large_batches_gather_longer_than_small() {
    let (admin, faulty, writer) = start_fixture(RepositoryMode::Healthy).await;
    let mut from = 0;
    for (count, millis) in
        [(1, 100), (255, 100), (256, 1_100), (MAX_BATCH - 1, 1_100), (MAX_BATCH, 100)]
    {
        let begun = tokio::time::Instant::now();
        refuse(&admin, from, count).await;
        from += count;
        wait_until(|| admin.log.counts().written == from as u64).await;
        let took = begun.elapsed().as_millis();
        assert!((millis..millis + 50).contains(&took), "{count} in {took} ms");
        assert_eq!(faulty.batches.lock().last().map(Vec::len), Some(count));
    }
    writer.abort();
}

#[tokio::test(start_paused = true)]
async fn violations_during_write_are_gathered() {
    let (admin, faulty, writer) = start_fixture(RepositoryMode::Hanging).await;
    refuse(&admin, 0, 1).await;
    wait_until(|| faulty.record_calls.load(Ordering::SeqCst) == 1).await;
    refuse(&admin, 1, 300).await;
    faulty.set_mode(RepositoryMode::Healthy);
    let begun = tokio::time::Instant::now();
    wait_until(|| admin.log.counts().waiting == 0).await;
    let took = begun.elapsed().as_millis();
    assert!((1_100..1_150).contains(&took), "in {took} ms");
    let sizes: Vec<usize> = faulty.batches.lock().iter().map(Vec::len).collect();
    assert_eq!(sizes, [1, 300]);
    writer.abort();
}

#[tokio::test(start_paused = true)]
async fn hanging_database_drops_oldest_and_counts() {
    let (admin, faulty, writer) = start_fixture(RepositoryMode::Hanging).await;
    refuse(&admin, 0, 10).await;
    wait_until(|| faulty.record_calls.load(Ordering::SeqCst) == 1).await;
    assert_eq!(
        admin.log.counts(),
        counts(10, 0, 0, 10),
        "a batch that is being written counts as waiting"
    );
    refuse(&admin, 10, QUEUE_CAPACITY + 1_000).await;
    assert_eq!(admin.log.counts(), counts(QUEUE_CAPACITY + 1_010, 0, 1_000, QUEUE_CAPACITY + 10));
    faulty.set_mode(RepositoryMode::Healthy);
    wait_until(|| admin.log.counts().waiting == 0).await;
    assert_eq!(admin.log.counts(), counts(QUEUE_CAPACITY + 1_010, QUEUE_CAPACITY + 10, 1_000, 0));
    let mut kept = user_hashes(&admin, 0..10);
    kept.extend(user_hashes(&admin, 1_010..QUEUE_CAPACITY + 1_010));
    assert!(
        written_users(&faulty) == kept,
        "the first batch was being written; of the others, the oldest were dropped"
    );
    writer.abort();
}

#[tokio::test(start_paused = true)]
async fn failed_batch_is_retried_in_order() {
    let (admin, faulty, writer) = start_fixture(RepositoryMode::Failing).await;
    refuse(&admin, 0, 7_000).await;
    wait_until(|| faulty.record_calls.load(Ordering::SeqCst) >= 3).await;
    assert_eq!(admin.log.counts(), counts(7_000, 0, 0, 7_000));
    // The failed batch returns to the front of the queue, and is dropped first when it overflows.
    refuse(&admin, 7_000, QUEUE_CAPACITY).await;
    wait_until(|| faulty.record_calls.load(Ordering::SeqCst) >= 5).await;
    let totals = admin.log.counts();
    assert_eq!(totals.received, totals.written + totals.dropped + totals.waiting);
    assert_eq!(totals, counts(QUEUE_CAPACITY + 7_000, 0, 7_000, QUEUE_CAPACITY));
    faulty.set_mode(RepositoryMode::Healthy);
    wait_until(|| admin.log.counts().waiting == 0).await;
    assert!(written_users(&faulty) == user_hashes(&admin, 7_000..QUEUE_CAPACITY + 7_000));
    writer.abort();
}

#[tokio::test(start_paused = true)]
async fn stop_flushes_once_or_counts_drops() {
    let (admin, faulty, writer) = start_fixture(RepositoryMode::Hanging).await;
    refuse(&admin, 0, 10).await;
    wait_until(|| faulty.record_calls.load(Ordering::SeqCst) == 1).await;
    refuse(&admin, 10, 10).await;
    admin.log.stop();
    // Stopping does not interrupt a write.
    faulty.set_mode(RepositoryMode::Healthy);
    writer.await.expect("it ends by itself");
    assert_eq!(
        (admin.log.counts(), written_users(&faulty)),
        (counts(20, 20, 0, 0), user_hashes(&admin, 0..20))
    );

    let (admin, faulty, writer) = start_fixture(RepositoryMode::Failing).await;
    refuse(&admin, 0, 10).await;
    wait_until(|| faulty.record_calls.load(Ordering::SeqCst) >= 1).await;
    admin.log.stop();
    writer.await.expect("it ends by itself");
    assert_eq!(admin.log.counts(), counts(10, 0, 10, 0));
}

/// Uses a real SQLite file, and therefore a real clock.
#[tokio::test]
async fn batch_with_lost_ack_is_recorded_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let conflicting = ConflictingRepository::with_sqlite(&folder.path().join("rules.db")).await;
    let admin = Arc::new(
        AdminFixture::with_repository(Arc::clone(&conflicting) as Arc<dyn Repository>).await,
    );
    install(&admin, "rules: [{ id: shut, key_by: user_id, limit: { requests: deny } }]").await;
    let (log, into) = (Arc::clone(&admin.log), Arc::clone(&conflicting));
    let writer = tokio::spawn(async move { log.run(&*into, KEEP_ALL).await });
    conflicting.lose_next_ack.store(true, Ordering::SeqCst);
    refuse(&admin, 0, 3).await;
    wait_until(|| !conflicting.lose_next_ack.load(Ordering::SeqCst)).await;
    // Refused while the first batch awaits its retry; these must not be mistaken for part of it.
    refuse(&admin, 3, 4).await;
    wait_until(|| admin.log.counts().waiting == 0).await;
    assert_eq!(admin.log.counts(), counts(7, 7, 0, 0));
    let query = ViolationQuery { limit: 100, ..ViolationQuery::default() };
    let rows = conflicting.violations(&query).await.expect("a page").rows;
    let users: Vec<_> = rows.into_iter().rev().map(|row| row.violation.user_id).collect();
    assert_eq!(users, user_hashes(&admin, 0..7));
    admin.log.stop();
    writer.await.expect("it ends by itself");
}

#[tokio::test(start_paused = true)]
async fn long_facts_stay_in_bounded_memory() {
    const LONG: usize = 10_000;
    let (admin, faulty, writer) = start_fixture(RepositoryMode::Hanging).await;
    refuse(&admin, 0, 1).await;
    wait_until(|| faulty.record_calls.load(Ordering::SeqCst) == 1).await;
    let padding = "x".repeat(LONG);
    for user in 1..=10_000 {
        let user = user.to_string();
        let facts = [("user_id", user.as_str()), ("header:x-padding", &padding)];
        assert!(!admin.limiter.decide(&facts.into_iter().collect(), 1).await.is_allowed());
    }
    let totals = admin.log.counts();
    assert_eq!(totals.received, totals.dropped + totals.waiting);
    // Memory is freed by page, only after all violations of the page are dropped.
    let kept = (32 << 20) / LONG as u64;
    assert!(totals.waiting <= kept && totals.waiting + 5_000 >= kept, "{totals:?}");
    faulty.set_mode(RepositoryMode::Healthy);
    wait_until(|| admin.log.counts().waiting == 0).await;
    let newest = 10_001 - usize::try_from(totals.waiting - 1).unwrap();
    assert!(
        written_users(&faulty)[1..] == user_hashes(&admin, newest..10_001),
        "the oldest were dropped"
    );
    writer.abort();
}

#[tokio::test(start_paused = true)]
async fn queued_violation_keeps_its_rule_set() {
    let (admin, faulty, writer) = start_fixture(RepositoryMode::Healthy).await;
    refuse(&admin, 0, 2).await;
    install(&admin, "rules: [{ id: other, key_by: user_id, limit: { requests: deny } }]").await;
    refuse(&admin, 2, 2).await;
    wait_until(|| admin.log.counts().written == 4).await;
    let rules: Vec<String> = faulty.written().into_iter().map(|row| row.rule).collect();
    assert_eq!(rules, ["shut", "shut", "other", "other"]);
    assert_eq!(written_users(&faulty), user_hashes(&admin, 0..4));
    writer.abort();
}

#[tokio::test(start_paused = true)]
async fn violation_records_original_facts_and_descriptors() {
    let (admin, faulty, writer) = start_fixture(RepositoryMode::Healthy).await;
    let rules = "rules: [{ id: shut, match: { domain: d, descriptor: [user] }, key_by: descriptor, \
                 limit: 1/h }]";
    install(&admin, rules).await;
    let mut shown = Vec::new();
    for user in ["", "Zoë \u{202e}\n", "a"] {
        let entries = [DescriptorPair { key: "user".into(), value: user.into() }];
        let mut facts: Facts<'_> = [("domain", "d"), ("user_id", user)].into_iter().collect();
        facts.set_descriptor(&entries);
        assert!(admin.limiter.decide(&facts, 1).await.is_allowed());
        assert!(!admin.limiter.decide(&facts, 1).await.is_allowed());
        let rules = admin.limiter.rules();
        let key =
            rules.rules()[0].public_fingerprint(&facts, &rules).expect("a key that may be seen");
        let user = admin.manager.identities().hash_value("user_id", user);
        shown.push((format!("{:016x}{:016x}", key.hi, key.lo), Some(user)));
    }
    wait_until(|| admin.log.counts().written == 3).await;
    let written = faulty.written().into_iter().map(|row| (row.bucket_key, row.user_id));
    assert_eq!(written.collect::<Vec<_>>(), shown);
    writer.abort();
}
