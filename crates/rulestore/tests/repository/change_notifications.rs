//! How those who wait for new versions come to know of them.

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

/// Waits until somebody says that there is a new version.
pub(crate) async fn wait_for_notification(office: &dyn Repository) {
    let told = async { while office.wait_for_change().await != WakeReason::Notified {} };
    timeout(WAIT_TIMEOUT, told).await.expect("a new version is told");
}

/// Waits until nothing is left to be told.
pub(crate) async fn wait_for_quiet(office: &dyn Repository) {
    let quiet = async { while office.wait_for_change().await != WakeReason::PollDue {} };
    timeout(WAIT_TIMEOUT, quiet).await.expect("silence");
}

/// Waits until so many listen to PostgreSQL.
pub(crate) fn wait_for_listeners(place: &RepositoryFixture, many: usize) {
    let sql = "SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND query LIKE 'LISTEN%'";
    let listen = || tokio::task::block_in_place(|| place.sql(sql) == many.to_string());
    eventually("they listen", listen);
}

async fn other_handle_sees_new_version(place: RepositoryFixture) {
    let (here, there) = (place.open().await, place.open().await);
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

async fn no_change_is_missed_between_waits(place: RepositoryFixture) {
    let office = place.open().await;
    wait_for_quiet(office.as_ref()).await;
    // One who waits and goes away must not take the news along.
    assert!(timeout(Duration::from_millis(1), office.wait_for_change()).await.is_err());
    office.commit(0, &edit([put(EntryKind::Setting, "a", "1")])).await.expect("a version");
    assert_eq!(office.wait_for_change().await, WakeReason::Notified);
}

async fn all_waiters_are_woken(place: RepositoryFixture) {
    let office = place.open().await;
    wait_for_quiet(office.as_ref()).await;
    let (one, two, commit) = tokio::join!(biased;
        wait_for_notification(office.as_ref()),
        wait_for_notification(office.as_ref()),
        async { office.commit(0, &edit([put(EntryKind::Setting, "a", "1")])).await },
    );
    assert_eq!((one, two, commit), ((), (), Ok(1)));
}

/// The notification of PostgreSQL, not the look every half second.
#[tokio::test(flavor = "multi_thread")]
async fn postgres_notifies_other_handle() {
    let place = RepositoryFixture::postgres();
    let (here, there) = (place.open().await, place.open().await);
    wait_for_listeners(&place, 2);
    for version in 1..=3 {
        let wanted = edit([put(EntryKind::Setting, "a", &version.to_string())]);
        here.commit(version - 1, &wanted).await.expect("a version");
        wait_for_notification(there.as_ref()).await;
        wait_for_quiet(there.as_ref()).await;
    }
    // Nothing new, nothing told.
    here.commit(3, &edit([put(EntryKind::Setting, "a", "3")])).await.expect("no version");
    wait_for_quiet(there.as_ref()).await;
}
