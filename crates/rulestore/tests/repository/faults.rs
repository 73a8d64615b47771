//! Databases that go away, and writers that are killed: old or new, never half.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use tidegate_rulestore::{EntryKind, Repository, RepositoryError, RuleEdit, open};
use tidegate_testkit::postgres::{PostgresCluster, TestDatabase};
use tidegate_testkit::process::{ChildProcess, WAIT_TIMEOUT, eventually};
use tidegate_testkit::proxy::{ConnectionEnd, FaultProxy};
use tokio::time::{Instant, timeout};

use crate::change_notifications::{wait_for_listeners, wait_for_notification, wait_for_quiet};
use crate::common::{RepositoryFixture, edit, put};
use crate::violations::{batch, violation};

/// How many entries each version changes: halves would show.
const ENTRIES: u64 = 20;

/// An edit that changes all entries.
fn edit_all_entries(number: u64) -> RuleEdit {
    edit((0..ENTRIES).map(|id| put(EntryKind::Rule, &format!("{id}"), &number.to_string())))
}

/// Waits until it answers again, and tells its latest version.
async fn wait_until_available(office: &dyn Repository) -> u64 {
    let well = async {
        loop {
            match office.head().await {
                Ok(head) => return head,
                Err(RepositoryError::Unavailable(_)) => {}
                Err(refused) => panic!("{refused}"),
            }
        }
    };
    timeout(WAIT_TIMEOUT, well).await.expect("it is well again")
}

/// Every version is there with all its changes, and the book is the sum of them.
async fn assert_consistent(office: &dyn Repository) {
    let (book, head) =
        (office.load_config().await.expect("a book"), office.head().await.expect("the latest"));
    assert_eq!(book.version(), head);
    let mut counts = BTreeMap::new();
    for change in office.changes(0, u64::MAX).await.expect("changes") {
        *counts.entry(change.version).or_insert(0) += 1;
        assert_eq!(change.after, Some(change.version.to_string()));
    }
    assert_eq!(counts, (1..=head).map(|version| (version, ENTRIES)).collect());
    assert!(
        book.entries(EntryKind::Rule, None).all(|(_, kept)| kept.value == head.to_string()),
        "{book:?}"
    );
    assert_eq!(office.history(u64::MAX, u32::MAX).await.expect("history").len() as u64, head);
}

#[tokio::test(flavor = "multi_thread")]
async fn repository_recovers_after_postgres_restart() {
    let cluster = Arc::new(PostgresCluster::start_durable());
    let place = RepositoryFixture::Postgres(TestDatabase::create_in(Arc::clone(&cluster)));
    let (office, other) = (place.open().await, place.open().await);
    wait_for_listeners(&place, 2);
    assert_eq!(office.commit(0, &edit_all_entries(1)).await, Ok(1));
    wait_for_notification(other.as_ref()).await;

    cluster.kill();
    for _ in 0..2 {
        assert!(matches!(office.head().await, Err(RepositoryError::Unavailable(_))));
    }
    assert!(matches!(
        office.commit(1, &edit_all_entries(2)).await,
        Err(RepositoryError::Unavailable(_))
    ));
    assert!(matches!(
        office.record_violations(&batch([violation(1)])).await,
        Err(RepositoryError::Unavailable(_))
    ));
    let refused = office.load_config().await.expect_err("nobody is there").to_string();
    assert!(refused.contains("is it running"), "{refused}");
    wait_for_quiet(other.as_ref()).await;
    let before = Instant::now();
    for _ in 0..3 {
        other.wait_for_change().await;
    }
    assert!(before.elapsed() >= Duration::from_secs(1), "nobody runs in circles");

    cluster.restart();
    assert_eq!(wait_until_available(office.as_ref()).await, 1, "what was said is kept");
    wait_for_listeners(&place, 2);
    wait_for_quiet(other.as_ref()).await;
    assert_eq!(office.commit(1, &edit_all_entries(2)).await, Ok(2));
    wait_for_notification(other.as_ref()).await;
    assert_consistent(other.as_ref()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn blackholed_connection_times_out_and_recovers() {
    let database = TestDatabase::create();
    let proxy = FaultProxy::start(database.cluster().address());
    let url = proxied_url(&proxy, &database);
    let office = open(&url).await.expect("a repository");
    assert_eq!(office.commit(0, &edit_all_entries(1)).await, Ok(1));
    proxy.blackhole();
    let refused = timeout(WAIT_TIMEOUT, office.head()).await.expect("an answer in time");
    assert!(matches!(refused, Err(RepositoryError::Unavailable(_))), "{refused:?}");
    proxy.pass();
    assert_eq!(wait_until_available(office.as_ref()).await, 1);
    assert_eq!(office.commit(1, &edit_all_entries(2)).await, Ok(2));
    assert_consistent(office.as_ref()).await;
}

/// A statement that cannot go on: the server ends it, and where no server is heard of, we give it up.
#[tokio::test(flavor = "multi_thread")]
async fn blocked_statement_times_out() {
    let database = TestDatabase::create();
    let proxy = FaultProxy::start(database.cluster().address());
    let (near, far) = (open(&database.url()).await, open(&proxied_url(&proxy, &database)).await);
    let (near, far) = (near.expect("a repository"), far.expect("a repository"));
    let folder = tempfile::tempdir().expect("a folder");
    let mut lock = Command::new("psql");
    lock.args(["-Xq", "-d", &database.url(), "-c"]);
    lock.arg("BEGIN; LOCK TABLE rule_version IN EXCLUSIVE MODE; SELECT pg_sleep(600)");
    let lock = ChildProcess::start(&lock, &folder.path().join("log"));
    let waiting = |many: usize| {
        let sql = "SELECT count(*) FROM pg_locks WHERE relation = 'rule_version'::regclass AND ";
        eventually("the lock", || database.sql(&format!("{sql} NOT granted")) == many.to_string());
        eventually("the lock", || database.sql(&format!("{sql} mode = 'ExclusiveLock'")) == "1");
    };
    waiting(0);
    let commits = [&near, &far]
        .map(Arc::clone)
        .map(|office| tokio::spawn(async move { office.commit(0, &edit_all_entries(1)).await }));
    tokio::task::block_in_place(|| waiting(2));
    proxy.blackhole();
    let [ended, given_up] = commits;
    let answers = async { (ended.await.expect("a task"), given_up.await.expect("a task")) };
    let (ended, given_up) = timeout(WAIT_TIMEOUT, answers).await.expect("answers in time");
    assert!(
        matches!(&ended, Err(RepositoryError::Unavailable(why)) if why.contains("took too long")),
        "{ended:?}"
    );
    let why = |why: &str| why.contains("no answer in time");
    assert!(
        matches!(&given_up, Err(RepositoryError::Unavailable(said)) if why(said)),
        "{given_up:?}"
    );
    assert_eq!(near.head().await, Ok(0));
    drop(lock);
    let sleeper = "FROM pg_stat_activity WHERE query LIKE 'BEGIN; LOCK%'";
    database.sql(&format!("SELECT pg_terminate_backend(pid) {sleeper}"));
    assert_eq!(near.commit(0, &edit_all_entries(1)).await, Ok(1), "and it is as good as before");
}

/// The address of a database through a proxy.
fn proxied_url(proxy: &FaultProxy, database: &TestDatabase) -> String {
    let server = database.cluster().address().to_string();
    database.url().replace(&server, &proxy.address().to_string())
}

/// The connection is cut at every point of a commit, also between its end and our hearing of it.
#[tokio::test(flavor = "multi_thread")]
async fn commit_is_atomic_when_connection_breaks() {
    let database = TestDatabase::create();
    let proxy = FaultProxy::start(database.cluster().address());
    let direct = open(&database.url()).await.expect("a repository");
    let url = proxied_url(&proxy, &database);
    let (mut made, mut not_made, mut unsure) = (0, 0, 0);
    for bytes in (0..2_000).step_by(50) {
        let office = open(&url).await.expect("a repository");
        let head = wait_until_available(office.as_ref()).await;
        proxy.cut_after(bytes, ConnectionEnd::Reset);
        let outcome = office.commit(head, &edit_all_entries(head + 1)).await;
        proxy.pass();
        drop(office);
        let now = direct.head().await.expect("the latest");
        match outcome {
            Ok(version) => assert_eq!((version, now), (head + 1, head + 1)),
            Err(RepositoryError::Unavailable(why)) if now == head + 1 => {
                assert!(why.contains("not known"), "{why}");
                unsure += 1;
            }
            Err(RepositoryError::Unavailable(_)) => assert_eq!(now, head),
            Err(refused) => panic!("{refused}"),
        }
        (made, not_made) = if now > head { (made + 1, not_made) } else { (made, not_made + 1) };
    }
    assert_consistent(direct.as_ref()).await;
    assert!(made > 0 && not_made > 0, "{made} made, {not_made} not, {unsure} unsure");
}

/// This test runs itself once more, as one who commits without end and is killed.
#[tokio::test(flavor = "multi_thread")]
async fn killed_sqlite_writer_leaves_whole_versions() {
    const NAME: &str = "faults::killed_sqlite_writer_leaves_whole_versions";
    const URL: &str = "TIDEGATE_TEST_RULES_DB";
    if let Ok(url) = std::env::var(URL) {
        let office = open(&url).await.expect("a repository");
        loop {
            let head = office.head().await.expect("the latest");
            office.commit(head, &edit_all_entries(head + 1)).await.expect("a version");
        }
    }
    let place = RepositoryFixture::sqlite();
    let log: PathBuf = place.file().with_extension("log");
    for round in 1..=8 {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args(["--exact", NAME]).env(URL, place.url());
        let writer = ChildProcess::start(&command, &log);
        let office = place.open().await;
        let before = office.head().await.expect("the latest");
        // Not at the same point each time.
        let target = before + 1 + round;
        let reached = async {
            while office.head().await.expect("the latest") < target {
                assert!(writer.is_running(), "{}", writer.log());
            }
        };
        timeout(WAIT_TIMEOUT, reached).await.expect("versions are made");
        writer.kill();
        let office = place.open().await;
        assert!(office.head().await.expect("the latest") >= target);
        assert_consistent(office.as_ref()).await;
    }
    eventually("the file is sound", || place.sql("PRAGMA integrity_check") == "ok");
}
