//! Several writers at once.

use std::sync::Arc;
use std::time::Duration;

use tidegate_rulestore::{EntryKind, Repository, RepositoryError};

use crate::common::{RepositoryFixture, edit, put, test_on_both_databases};

test_on_both_databases!(
    one_concurrent_commit_wins,
    concurrent_writers_lose_no_update,
    cancelled_commit_is_atomic,
);

/// A commit on the same version by each of several, on handles of their own.
async fn one_concurrent_commit_wins(place: RepositoryFixture) {
    let offices = [place.open().await, place.open().await, place.open().await];
    for round in 0..10_u64 {
        let writers = offices.iter().enumerate().map(|(number, office)| {
            let office = Arc::clone(office);
            // Several entries, so that halves would show.
            let entries = (0..5)
                .map(|id| put(EntryKind::Rule, &format!("{id}"), &format!("[{round}, {number}]")));
            let wanted = edit(entries);
            tokio::spawn(async move { office.commit(round, &wanted).await })
        });
        let (mut winners, mut losers) = (Vec::new(), 0);
        for (number, writer) in writers.collect::<Vec<_>>().into_iter().enumerate() {
            match writer.await.expect("a writer") {
                Ok(version) if version == round + 1 => winners.push(number),
                Err(RepositoryError::VersionConflict { head }) if head == round + 1 => losers += 1,
                other => panic!("writer {number} of round {round}: {other:?}"),
            }
        }
        assert_eq!((winners.len(), losers), (1, 2), "round {round}");
        let expected = format!("[{round}, {}]", winners[0]);
        let book = offices[0].load_config().await.expect("a book");
        assert!(
            book.entries(EntryKind::Rule, None).all(|(_, kept)| kept.value == expected),
            "{book:?}"
        );
    }
}

/// Everybody counts up one number, each time from what they have read.
async fn concurrent_writers_lose_no_update(place: RepositoryFixture) {
    const WRITERS: u64 = 4;
    const TIMES: u64 = 10;
    let mut writers = Vec::new();
    for number in 0..WRITERS {
        let office = place.open().await;
        writers.push(tokio::spawn(async move {
            for _ in 0..TIMES {
                increment_counter(office.as_ref(), number).await;
            }
        }));
    }
    for writer in writers {
        writer.await.expect("a writer");
    }
    let office = place.open().await;
    let book = office.load_config().await.expect("a book");
    assert_eq!(book.version(), WRITERS * TIMES);
    let count = book.get(EntryKind::Setting, "count").map(|kept| kept.value.clone());
    assert_eq!(count, Some((WRITERS * TIMES).to_string()));
    let changes = office.changes(0, u64::MAX).await.expect("changes");
    let versions: Vec<u64> = changes.iter().map(|change| change.version).collect();
    let expected: Vec<u64> = (1..=WRITERS * TIMES).flat_map(|version| [version, version]).collect();
    assert_eq!(versions, expected, "every version is there, with both its changes");
}

async fn increment_counter(office: &dyn Repository, writer: u64) {
    loop {
        let book = office.load_config().await.expect("a book");
        let count = book
            .get(EntryKind::Setting, "count")
            .map_or(0, |kept| kept.value.parse().expect("a number"));
        let next = u64::to_string(&(count + 1));
        let wanted = edit([
            put(EntryKind::Setting, "count", &next),
            put(EntryKind::Setting, "who", &format!("[{writer}, {next}]")),
        ]);
        match office.commit(book.version(), &wanted).await {
            Ok(_) => return,
            Err(RepositoryError::VersionConflict { head }) => assert!(head > book.version()),
            Err(refused) => panic!("{refused}"),
        }
    }
}

/// A commit that is given up at any point: it was made or it was not (perhaps a moment later, when
/// its end was already on the way), and the handle is as good as before.
async fn cancelled_commit_is_atomic(place: RepositoryFixture) {
    const ENTRIES: u64 = 3_000;
    let office = place.open().await;
    let (mut made, mut given_up) = (0_u64, 0);
    // Later each time, until some are through.
    for micros in (0..).map(|step: u64| step * step * 500) {
        if made == 3 {
            break;
        }
        let head = office.head().await.expect("the handle is as good as before");
        let number = head.to_string();
        let entries =
            (0..ENTRIES).map(|id| put(EntryKind::Override, &format!("a:{id:x}"), &number));
        let wanted = edit(entries);
        let commit = office.commit(head, &wanted);
        match tokio::time::timeout(Duration::from_micros(micros), commit).await {
            Err(_) => given_up += 1,
            Ok(Ok(version)) => {
                assert_eq!(version, head + 1);
                made += 1;
            }
            Ok(Err(RepositoryError::VersionConflict { head: newer })) => {
                assert_eq!(newer, head + 1);
            }
            Ok(Err(refused)) => panic!("{refused}"),
        }
    }
    assert!(given_up > 3, "{given_up} were given up");
    let head = office.head().await.expect("the latest");
    for version in 1..=head {
        let changes = office.changes(version - 1, version).await.expect("changes");
        assert_eq!(changes.len() as u64, ENTRIES, "version {version}");
    }
    assert_eq!(office.load_config().await.expect("a book").version(), head);
}
