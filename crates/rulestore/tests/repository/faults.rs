//! Databases that fail and writers that are killed: a commit is complete or absent, never partial.

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

/// The number of entries that each version changes; several, so that a partial commit would show.
const ENTRIES: u64 = 20;

/// An edit that changes all entries.
fn edit_all_entries(number: u64) -> RuleEdit {
    edit((0..ENTRIES).map(|id| put(EntryKind::Rule, &format!("{id}"), &number.to_string())))
}

/// Waits until the database answers again, and returns its latest version.
async fn wait_until_available(repository: &dyn Repository) -> u64 {
    let available = async {
        loop {
            match repository.head().await {
                Ok(head) => return head,
                Err(RepositoryError::Unavailable(_)) => {}
                Err(refused) => panic!("{refused}"),
            }
        }
    };
    timeout(WAIT_TIMEOUT, available).await.expect("it is available again")
}

/// Asserts that every version has all its changes, and that the configuration is their sum.
async fn assert_consistent(repository: &dyn Repository) {
    let (config, head) = (
        repository.load_config().await.expect("a config"),
        repository.head().await.expect("the latest"),
    );
    assert_eq!(config.version(), head);
    let mut counts = BTreeMap::new();
    for change in repository.changes(0, u64::MAX).await.expect("changes") {
        *counts.entry(change.version).or_insert(0) += 1;
        assert_eq!(change.after, Some(change.version.to_string()));
    }
    assert_eq!(counts, (1..=head).map(|version| (version, ENTRIES)).collect());
    assert!(
        config.entries(EntryKind::Rule, None).all(|(_, kept)| kept.value == head.to_string()),
        "{config:?}"
    );
    assert_eq!(repository.history(u64::MAX, u32::MAX).await.expect("history").len() as u64, head);
}

#[tokio::test(flavor = "multi_thread")]
async fn repository_recovers_after_postgres_restart() {
    let cluster = Arc::new(PostgresCluster::start_durable());
    let fixture = RepositoryFixture::Postgres(TestDatabase::create_in(Arc::clone(&cluster)));
    let (repository, other) = (fixture.open().await, fixture.open().await);
    wait_for_listeners(&fixture, 2);
    assert_eq!(repository.commit(0, &edit_all_entries(1)).await, Ok(1));
    wait_for_notification(other.as_ref()).await;

    cluster.kill();
    for _ in 0..2 {
        assert!(matches!(repository.head().await, Err(RepositoryError::Unavailable(_))));
    }
    assert!(matches!(
        repository.commit(1, &edit_all_entries(2)).await,
        Err(RepositoryError::Unavailable(_))
    ));
    assert!(matches!(
        repository.record_violations(&batch([violation(1)])).await,
        Err(RepositoryError::Unavailable(_))
    ));
    let refused = repository.load_config().await.expect_err("the server is down").to_string();
    assert!(refused.contains("check that it is running"), "{refused}");
    wait_for_quiet(other.as_ref()).await;
    let before = Instant::now();
    for _ in 0..3 {
        other.wait_for_change().await;
    }
    assert!(before.elapsed() >= Duration::from_secs(1), "waiting does not spin");

    cluster.restart();
    assert_eq!(
        wait_until_available(repository.as_ref()).await,
        1,
        "the committed version survived"
    );
    wait_for_listeners(&fixture, 2);
    wait_for_quiet(other.as_ref()).await;
    assert_eq!(repository.commit(1, &edit_all_entries(2)).await, Ok(2));
    wait_for_notification(other.as_ref()).await;
    assert_consistent(other.as_ref()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn blackholed_connection_times_out_and_recovers() {
    let database = TestDatabase::create();
    let proxy = FaultProxy::start(database.cluster().address());
    let url = proxied_url(&proxy, &database);
    let repository = open(&url).await.expect("a repository");
    assert_eq!(repository.commit(0, &edit_all_entries(1)).await, Ok(1));
    proxy.blackhole();
    let refused = timeout(WAIT_TIMEOUT, repository.head()).await.expect("an answer in time");
    assert!(matches!(refused, Err(RepositoryError::Unavailable(_))), "{refused:?}");
    proxy.pass();
    assert_eq!(wait_until_available(repository.as_ref()).await, 1);
    assert_eq!(repository.commit(1, &edit_all_entries(2)).await, Ok(2));
    assert_consistent(repository.as_ref()).await;
}

/// A blocked statement ends: by the server's timeout, or by ours if the server is unreachable.
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
    let await_lock = |waiters: usize| {
        let sql = "SELECT count(*) FROM pg_locks WHERE relation = 'rule_version'::regclass AND ";
        eventually("the lock", || {
            database.sql(&format!("{sql} NOT granted")) == waiters.to_string()
        });
        eventually("the lock", || database.sql(&format!("{sql} mode = 'ExclusiveLock'")) == "1");
    };
    await_lock(0);
    let commits = [&near, &far].map(Arc::clone).map(|repository| {
        tokio::spawn(async move { repository.commit(0, &edit_all_entries(1)).await })
    });
    tokio::task::block_in_place(|| await_lock(2));
    proxy.blackhole();
    let [ended, given_up] = commits;
    let answers = async { (ended.await.expect("a task"), given_up.await.expect("a task")) };
    let (ended, given_up) = timeout(WAIT_TIMEOUT, answers).await.expect("answers in time");
    assert!(
        matches!(&ended, Err(RepositoryError::Unavailable(why)) if why.contains("exceeded statement_timeout")),
        "{ended:?}"
    );
    assert!(
        matches!(&given_up, Err(RepositoryError::Unavailable(why)) if why.contains("no answer in time")),
        "{given_up:?}"
    );
    assert_eq!(near.head().await, Ok(0));
    drop(lock);
    let sleeper = "FROM pg_stat_activity WHERE query LIKE 'BEGIN; LOCK%'";
    database.sql(&format!("SELECT pg_terminate_backend(pid) {sleeper}"));
    assert_eq!(near.commit(0, &edit_all_entries(1)).await, Ok(1), "the repository works again");
}

/// The URL of a database through a proxy.
fn proxied_url(proxy: &FaultProxy, database: &TestDatabase) -> String {
    let server = database.cluster().address().to_string();
    database.url().replace(&server, &proxy.address().to_string())
}

/// The connection is cut at every point of a commit, including between the commit and its
/// acknowledgement.
#[tokio::test(flavor = "multi_thread")]
async fn commit_is_atomic_when_connection_breaks() {
    let database = TestDatabase::create();
    let proxy = FaultProxy::start(database.cluster().address());
    let direct = open(&database.url()).await.expect("a repository");
    let url = proxied_url(&proxy, &database);
    let (mut made, mut not_made, mut unsure) = (0, 0, 0);
    for bytes in (0..2_000).step_by(50) {
        let repository = open(&url).await.expect("a repository");
        let head = wait_until_available(repository.as_ref()).await;
        proxy.cut_after(bytes, ConnectionEnd::Reset);
        let outcome = repository.commit(head, &edit_all_entries(head + 1)).await;
        proxy.pass();
        drop(repository);
        let now = direct.head().await.expect("the latest");
        match outcome {
            Ok(version) => assert_eq!((version, now), (head + 1, head + 1)),
            Err(RepositoryError::Unavailable(why)) if now == head + 1 => {
                assert!(why.contains("it is unknown whether"), "{why}");
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

/// The test runs itself as a child process, which commits in a loop until it is killed.
#[tokio::test(flavor = "multi_thread")]
async fn killed_sqlite_writer_leaves_whole_versions() {
    const NAME: &str = "faults::killed_sqlite_writer_leaves_whole_versions";
    const URL: &str = "TIDEGATE_TEST_RULES_DB";
    if let Ok(url) = std::env::var(URL) {
        let repository = open(&url).await.expect("a repository");
        loop {
            let head = repository.head().await.expect("the latest");
            repository.commit(head, &edit_all_entries(head + 1)).await.expect("a version");
        }
    }
    let fixture = RepositoryFixture::sqlite();
    let log: PathBuf = fixture.file().with_extension("log");
    for round in 1..=8 {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args(["--exact", NAME]).env(URL, fixture.url());
        let writer = ChildProcess::start(&command, &log);
        let repository = fixture.open().await;
        let before = repository.head().await.expect("the latest");
        // Kill it at a different point each time.
        let target = before + 1 + round;
        let reached = async {
            while repository.head().await.expect("the latest") < target {
                assert!(writer.is_running(), "{}", writer.log());
            }
        };
        timeout(WAIT_TIMEOUT, reached).await.expect("versions are made");
        writer.kill();
        let repository = fixture.open().await;
        assert!(repository.head().await.expect("the latest") >= target);
        assert_consistent(repository.as_ref()).await;
    }
    eventually("the file is intact", || fixture.sql("PRAGMA integrity_check") == "ok");
}
