//! How those who wait for new versions come to know of them.

use std::time::Duration;

use tidegate_control::{Kind, Repository, Signal};
use tidegate_testkit::process::{PATIENCE, eventually};
use tokio::time::timeout;

use crate::common::{Place, edit, on_both, put};

on_both!(another_handle_comes_to_know, nothing_is_missed_between_two_waits, all_who_wait_are_woken);

/// Waits until somebody says that there is a new version.
pub(crate) async fn told(office: &dyn Repository) {
    let told = async { while office.stirred().await != Signal::Told {} };
    timeout(PATIENCE, told).await.expect("a new version is told");
}

/// Waits until nothing is left to be told.
pub(crate) async fn quiet(office: &dyn Repository) {
    let quiet = async { while office.stirred().await != Signal::Look {} };
    timeout(PATIENCE, quiet).await.expect("silence");
}

/// Waits until so many listen to PostgreSQL.
pub(crate) fn listening(place: &Place, many: usize) {
    let sql = "SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND query LIKE 'LISTEN%'";
    let listen = || tokio::task::block_in_place(|| place.sql(sql) == many.to_string());
    eventually("they listen", listen);
}

async fn another_handle_comes_to_know(place: Place) {
    let (here, there) = (place.open().await, place.open().await);
    for version in 1..=3 {
        let wanted = edit([put(Kind::Setting, "a", &version.to_string())]);
        here.commit(version - 1, &wanted).await.expect("a version");
        let seen = async {
            while there.head().await.expect("the latest") < version {
                there.stirred().await;
            }
        };
        timeout(PATIENCE, seen).await.expect("the other sees it");
    }
}

async fn nothing_is_missed_between_two_waits(place: Place) {
    let office = place.open().await;
    quiet(office.as_ref()).await;
    // One who waits and goes away must not take the news along.
    assert!(timeout(Duration::from_millis(1), office.stirred()).await.is_err());
    office.commit(0, &edit([put(Kind::Setting, "a", "1")])).await.expect("a version");
    assert_eq!(office.stirred().await, Signal::Told);
}

async fn all_who_wait_are_woken(place: Place) {
    let office = place.open().await;
    quiet(office.as_ref()).await;
    let (one, two, commit) = tokio::join!(biased;
        told(office.as_ref()),
        told(office.as_ref()),
        async { office.commit(0, &edit([put(Kind::Setting, "a", "1")])).await },
    );
    assert_eq!((one, two, commit), ((), (), Ok(1)));
}

/// The notification of PostgreSQL, not the look every half second.
#[tokio::test(flavor = "multi_thread")]
async fn another_handle_is_told_by_postgres() {
    let place = Place::postgres();
    let (here, there) = (place.open().await, place.open().await);
    listening(&place, 2);
    for version in 1..=3 {
        let wanted = edit([put(Kind::Setting, "a", &version.to_string())]);
        here.commit(version - 1, &wanted).await.expect("a version");
        told(there.as_ref()).await;
        quiet(there.as_ref()).await;
    }
    // Nothing new, nothing told.
    here.commit(3, &edit([put(Kind::Setting, "a", "3")])).await.expect("no version");
    quiet(there.as_ref()).await;
}
