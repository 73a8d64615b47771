//! Concurrent writers.

use std::sync::Arc;
use std::time::Duration;

use tidegate_rulestore::{EntryKind, Repository, RepositoryError};

use crate::common::{RepositoryFixture, edit, put, test_on_both_databases};

test_on_both_databases!(
    one_concurrent_commit_wins,
    concurrent_writers_lose_no_update,
    cancelled_commit_is_atomic,
);

/// Several writers, each with a separate handle, commit on the same version.
async fn one_concurrent_commit_wins(fixture: RepositoryFixture) {
    let repositories = [fixture.open().await, fixture.open().await, fixture.open().await];
    for round in 0..10_u64 {
        let writers = repositories.iter().enumerate().map(|(number, repository)| {
            let repository = Arc::clone(repository);
            // Several entries, so that a partial commit would show.
            let entries = (0..5)
                .map(|id| put(EntryKind::Rule, &format!("{id}"), &format!("[{round}, {number}]")));
            let wanted = edit(entries);
            tokio::spawn(async move { repository.commit(round, &wanted).await })
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
        let config = repositories[0].load_config().await.expect("a config");
        assert!(
            config.entries(EntryKind::Rule, None).all(|(_, kept)| kept.value == expected),
            "{config:?}"
        );
    }
}

/// Every writer increments the same number, based on the value that it has read.
async fn concurrent_writers_lose_no_update(fixture: RepositoryFixture) {
    const WRITERS: u64 = 4;
    const TIMES: u64 = 10;
    let mut writers = Vec::new();
    for number in 0..WRITERS {
        let repository = fixture.open().await;
        writers.push(tokio::spawn(async move {
            for _ in 0..TIMES {
                increment_counter(repository.as_ref(), number).await;
            }
        }));
    }
    for writer in writers {
        writer.await.expect("a writer");
    }
    let repository = fixture.open().await;
    let config = repository.load_config().await.expect("a config");
    assert_eq!(config.version(), WRITERS * TIMES);
    let count = config.get(EntryKind::Setting, "count").map(|kept| kept.value.clone());
    assert_eq!(count, Some((WRITERS * TIMES).to_string()));
    let changes = repository.changes(0, u64::MAX).await.expect("changes");
    let versions: Vec<u64> = changes.iter().map(|change| change.version).collect();
    let expected: Vec<u64> = (1..=WRITERS * TIMES).flat_map(|version| [version, version]).collect();
    assert_eq!(versions, expected, "every version exists, with both its changes");
}

async fn increment_counter(repository: &dyn Repository, writer: u64) {
    loop {
        let config = repository.load_config().await.expect("a config");
        let count = config
            .get(EntryKind::Setting, "count")
            .map_or(0, |kept| kept.value.parse().expect("a number"));
        let next = u64::to_string(&(count + 1));
        let wanted = edit([
            put(EntryKind::Setting, "count", &next),
            put(EntryKind::Setting, "who", &format!("[{writer}, {next}]")),
        ]);
        match repository.commit(config.version(), &wanted).await {
            Ok(_) => return,
            Err(RepositoryError::VersionConflict { head }) => assert!(head > config.version()),
            Err(refused) => panic!("{refused}"),
        }
    }
}

/// A commit cancelled at any point is either complete or absent, and the handle stays usable. It
/// may complete a moment later, if its end was already sent.
async fn cancelled_commit_is_atomic(fixture: RepositoryFixture) {
    const ENTRIES: u64 = 3_000;
    let repository = fixture.open().await;
    let (mut made, mut cancelled) = (0_u64, 0);
    // Cancel later each time, until some commits complete.
    for micros in (0..).map(|step: u64| step * step * 500) {
        if made == 3 {
            break;
        }
        let head = repository.head().await.expect("the handle stays usable");
        let number = head.to_string();
        let entries =
            (0..ENTRIES).map(|id| put(EntryKind::Override, &format!("a:{id:x}"), &number));
        let wanted = edit(entries);
        let commit = repository.commit(head, &wanted);
        match tokio::time::timeout(Duration::from_micros(micros), commit).await {
            Err(_) => cancelled += 1,
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
    assert!(cancelled > 3, "{cancelled} were cancelled");
    let head = repository.head().await.expect("the latest");
    for version in 1..=head {
        let changes = repository.changes(version - 1, version).await.expect("changes");
        assert_eq!(changes.len() as u64, ENTRIES, "version {version}");
    }
    assert_eq!(repository.load_config().await.expect("a config").version(), head);
}
