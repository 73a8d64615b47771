//! Databases that go away, and writers that are killed: old or new, never half.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use tidegate_control::{Edit, Kind, Refused, Repository, open};
use tidegate_testkit::postgres::{Cluster, Database};
use tidegate_testkit::process::{PATIENCE, Process, eventually};
use tidegate_testkit::proxy::{Ending, Proxy};
use tokio::time::{Instant, timeout};

use crate::common::{Place, edit, put};
use crate::stirred::{listening, quiet, told};
use crate::violations::{batch, violation};

/// How many entries each version changes: halves would show.
const ENTRIES: u64 = 20;

/// An edit that changes all entries.
fn all_of(number: u64) -> Edit {
    edit((0..ENTRIES).map(|id| put(Kind::Rule, &format!("{id}"), &number.to_string())))
}

/// Waits until it answers again, and tells its latest version.
async fn well_again(office: &dyn Repository) -> u64 {
    let well = async {
        loop {
            match office.head().await {
                Ok(head) => return head,
                Err(Refused::Gone(_)) => {}
                Err(refused) => panic!("{refused}"),
            }
        }
    };
    timeout(PATIENCE, well).await.expect("it is well again")
}

/// Every version is there with all its changes, and the book is the sum of them.
async fn is_whole(office: &dyn Repository) {
    let (book, head) =
        (office.book().await.expect("a book"), office.head().await.expect("the latest"));
    assert_eq!(book.version(), head);
    let mut counts = BTreeMap::new();
    for change in office.changes(0, u64::MAX).await.expect("changes") {
        *counts.entry(change.version).or_insert(0) += 1;
        assert_eq!(change.after, Some(change.version.to_string()));
    }
    assert_eq!(counts, (1..=head).map(|version| (version, ENTRIES)).collect());
    assert!(book.all(Kind::Rule, None).all(|(_, kept)| kept.value == head.to_string()), "{book:?}");
    assert_eq!(office.history(u64::MAX, u32::MAX).await.expect("history").len() as u64, head);
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_is_killed_and_comes_back() {
    let cluster = Arc::new(Cluster::start_durable());
    let place = Place::Postgres(Database::within(Arc::clone(&cluster)));
    let (office, other) = (place.open().await, place.open().await);
    listening(&place, 2);
    assert_eq!(office.commit(0, &all_of(1)).await, Ok(1));
    told(other.as_ref()).await;

    cluster.kill();
    for _ in 0..2 {
        assert!(matches!(office.head().await, Err(Refused::Gone(_))));
    }
    assert!(matches!(office.commit(1, &all_of(2)).await, Err(Refused::Gone(_))));
    assert!(matches!(office.record(&batch([violation(1)])).await, Err(Refused::Gone(_))));
    let refused = office.book().await.expect_err("nobody is there").to_string();
    assert!(refused.contains("is it running"), "{refused}");
    quiet(other.as_ref()).await;
    let before = Instant::now();
    for _ in 0..3 {
        other.stirred().await;
    }
    assert!(before.elapsed() >= Duration::from_secs(1), "nobody runs in circles");

    cluster.restart();
    assert_eq!(well_again(office.as_ref()).await, 1, "what was said is kept");
    listening(&place, 2);
    quiet(other.as_ref()).await;
    assert_eq!(office.commit(1, &all_of(2)).await, Ok(2));
    told(other.as_ref()).await;
    is_whole(other.as_ref()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_that_swallows_everything() {
    let database = Database::fresh();
    let proxy = Proxy::before(database.cluster().address());
    let url = through(&proxy, &database);
    let office = open(&url).await.expect("a repository");
    assert_eq!(office.commit(0, &all_of(1)).await, Ok(1));
    proxy.blackhole();
    let refused = timeout(PATIENCE, office.head()).await.expect("an answer in time");
    assert!(matches!(refused, Err(Refused::Gone(_))), "{refused:?}");
    proxy.pass();
    assert_eq!(well_again(office.as_ref()).await, 1);
    assert_eq!(office.commit(1, &all_of(2)).await, Ok(2));
    is_whole(office.as_ref()).await;
}

/// A statement that cannot go on: the server ends it, and where no server is heard of, we give it up.
#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_takes_too_long() {
    let database = Database::fresh();
    let proxy = Proxy::before(database.cluster().address());
    let (near, far) = (open(&database.url()).await, open(&through(&proxy, &database)).await);
    let (near, far) = (near.expect("a repository"), far.expect("a repository"));
    let folder = tempfile::tempdir().expect("a folder");
    let mut lock = Command::new("psql");
    lock.args(["-Xq", "-d", &database.url(), "-c"]);
    lock.arg("BEGIN; LOCK TABLE rule_version IN EXCLUSIVE MODE; SELECT pg_sleep(600)");
    let lock = Process::start(&lock, &folder.path().join("log"));
    let waiting = |many: usize| {
        let sql = "SELECT count(*) FROM pg_locks WHERE relation = 'rule_version'::regclass AND ";
        eventually("the lock", || database.sql(&format!("{sql} NOT granted")) == many.to_string());
        eventually("the lock", || database.sql(&format!("{sql} mode = 'ExclusiveLock'")) == "1");
    };
    waiting(0);
    let commits = [&near, &far]
        .map(Arc::clone)
        .map(|office| tokio::spawn(async move { office.commit(0, &all_of(1)).await }));
    tokio::task::block_in_place(|| waiting(2));
    proxy.blackhole();
    let [ended, given_up] = commits;
    let answers = async { (ended.await.expect("a task"), given_up.await.expect("a task")) };
    let (ended, given_up) = timeout(PATIENCE, answers).await.expect("answers in time");
    assert!(
        matches!(&ended, Err(Refused::Gone(why)) if why.contains("took too long")),
        "{ended:?}"
    );
    let why = |why: &str| why.contains("no answer in time");
    assert!(matches!(&given_up, Err(Refused::Gone(said)) if why(said)), "{given_up:?}");
    assert_eq!(near.head().await, Ok(0));
    drop(lock);
    let sleeper = "FROM pg_stat_activity WHERE query LIKE 'BEGIN; LOCK%'";
    database.sql(&format!("SELECT pg_terminate_backend(pid) {sleeper}"));
    assert_eq!(near.commit(0, &all_of(1)).await, Ok(1), "and it is as good as before");
}

/// The address of a database through a proxy.
fn through(proxy: &Proxy, database: &Database) -> String {
    let server = database.cluster().address().to_string();
    database.url().replace(&server, &proxy.address().to_string())
}

/// The connection is cut at every point of a commit, also between its end and our hearing of it.
#[tokio::test(flavor = "multi_thread")]
async fn a_line_that_is_cut_in_the_middle_of_a_commit() {
    let database = Database::fresh();
    let proxy = Proxy::before(database.cluster().address());
    let direct = open(&database.url()).await.expect("a repository");
    let url = through(&proxy, &database);
    let (mut made, mut not_made, mut unsure) = (0, 0, 0);
    for bytes in (0..2_000).step_by(50) {
        let office = open(&url).await.expect("a repository");
        let head = well_again(office.as_ref()).await;
        proxy.cut_after(bytes, Ending::Reset);
        let outcome = office.commit(head, &all_of(head + 1)).await;
        proxy.pass();
        drop(office);
        let now = direct.head().await.expect("the latest");
        match outcome {
            Ok(version) => assert_eq!((version, now), (head + 1, head + 1)),
            Err(Refused::Gone(why)) if now == head + 1 => {
                assert!(why.contains("not known"), "{why}");
                unsure += 1;
            }
            Err(Refused::Gone(_)) => assert_eq!(now, head),
            Err(refused) => panic!("{refused}"),
        }
        (made, not_made) = if now > head { (made + 1, not_made) } else { (made, not_made + 1) };
    }
    is_whole(direct.as_ref()).await;
    assert!(made > 0 && not_made > 0, "{made} made, {not_made} not, {unsure} unsure");
}

/// This test runs itself once more, as one who commits without end and is killed.
#[tokio::test(flavor = "multi_thread")]
async fn a_writer_of_a_file_is_killed() {
    const NAME: &str = "faults::a_writer_of_a_file_is_killed";
    const URL: &str = "TIDEGATE_TEST_RULES_DB";
    if let Ok(url) = std::env::var(URL) {
        let office = open(&url).await.expect("a repository");
        loop {
            let head = office.head().await.expect("the latest");
            office.commit(head, &all_of(head + 1)).await.expect("a version");
        }
    }
    let place = Place::sqlite();
    let log: PathBuf = place.file().with_extension("log");
    for round in 1..=8 {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args(["--exact", NAME]).env(URL, place.url());
        let writer = Process::start(&command, &log);
        let office = place.open().await;
        let before = office.head().await.expect("the latest");
        // Not at the same point each time.
        let target = before + 1 + round;
        let reached = async {
            while office.head().await.expect("the latest") < target {
                assert!(writer.is_running(), "{}", writer.log());
            }
        };
        timeout(PATIENCE, reached).await.expect("versions are made");
        writer.kill();
        let office = place.open().await;
        assert!(office.head().await.expect("the latest") >= target);
        is_whole(office.as_ref()).await;
    }
    eventually("the file is sound", || place.sql("PRAGMA integrity_check") == "ok");
}
