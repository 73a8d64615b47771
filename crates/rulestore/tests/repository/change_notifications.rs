//! Notification of new versions.

use std::time::Duration;

use tidegate_rulestore::{EntryKind, Repository, WakeReason};
use tidegate_testkit::process::{WAIT_TIMEOUT, eventually};
use tokio::time::timeout;

use crate::common::{RepositoryFixture, edit, put, test_on_both_databases};

test_on_both_databases!(
    other_handle_sees_new_version,
    no_change_is_missed_between_waits,
    all_waiters_are_woken
);

/// Waits for the notification of a new version.
pub(crate) async fn wait_for_notification(repository: &dyn Repository) {
    let notified = async { while repository.wait_for_change().await != WakeReason::Notified {} };
    timeout(WAIT_TIMEOUT, notified).await.expect("a notification in time");
}

/// Waits until no notification is pending.
pub(crate) async fn wait_for_quiet(repository: &dyn Repository) {
    let quiet = async { while repository.wait_for_change().await != WakeReason::PollDue {} };
    timeout(WAIT_TIMEOUT, quiet).await.expect("silence");
}

/// Waits until `count` connections listen for notifications of PostgreSQL.
pub(crate) fn wait_for_listeners(fixture: &RepositoryFixture, count: usize) {
    let sql = "SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND query LIKE 'LISTEN%'";
    let listen = || tokio::task::block_in_place(|| fixture.sql(sql) == count.to_string());
    eventually("all connections listen", listen);
}

async fn other_handle_sees_new_version(fixture: RepositoryFixture) {
    let (here, there) = (fixture.open().await, fixture.open().await);
    for version in 1..=3 {
        let wanted = edit([put(EntryKind::Setting, "a", &version.to_string())]);
        here.commit(version - 1, &wanted).await.expect("a version");
        let seen = async {
            while there.head().await.expect("the latest") < version {
                there.wait_for_change().await;
            }
        };
        timeout(WAIT_TIMEOUT, seen).await.expect("the other sees it");
    }
}

async fn no_change_is_missed_between_waits(fixture: RepositoryFixture) {
    let repository = fixture.open().await;
    wait_for_quiet(repository.as_ref()).await;
    // A cancelled wait must not consume the notification.
    assert!(timeout(Duration::from_millis(1), repository.wait_for_change()).await.is_err());
    repository.commit(0, &edit([put(EntryKind::Setting, "a", "1")])).await.expect("a version");
    assert_eq!(repository.wait_for_change().await, WakeReason::Notified);
}

async fn all_waiters_are_woken(fixture: RepositoryFixture) {
    let repository = fixture.open().await;
    wait_for_quiet(repository.as_ref()).await;
    let (one, two, commit) = tokio::join!(biased;
        wait_for_notification(repository.as_ref()),
        wait_for_notification(repository.as_ref()),
        async { repository.commit(0, &edit([put(EntryKind::Setting, "a", "1")])).await },
    );
    assert_eq!((one, two, commit), ((), (), Ok(1)));
}

/// Tests the notification of PostgreSQL, not the poll every half second.
#[tokio::test(flavor = "multi_thread")]
async fn postgres_notifies_other_handle() {
    let fixture = RepositoryFixture::postgres();
    let (here, there) = (fixture.open().await, fixture.open().await);
    wait_for_listeners(&fixture, 2);
    for version in 1..=3 {
        let wanted = edit([put(EntryKind::Setting, "a", &version.to_string())]);
        here.commit(version - 1, &wanted).await.expect("a version");
        wait_for_notification(there.as_ref()).await;
        wait_for_quiet(there.as_ref()).await;
    }
    // Without a new version there is no notification.
    here.commit(3, &edit([put(EntryKind::Setting, "a", "3")])).await.expect("no version");
    wait_for_quiet(there.as_ref()).await;
}
