//! Violations: written in large batches, queried, and pruned by age and count.

use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_core::time::Timestamp;
use tidegate_rulestore::Repository;
use tidegate_telemetry::{RuleViolation, ViolationBatch, ViolationQuery, ViolationRow};

use crate::common::{NOON, RepositoryFixture, random_text, test_on_both_databases};

test_on_both_databases!(
    violations_round_trip_unchanged,
    repeated_batch_is_written_once,
    violations_are_paged_newest_first,
    violations_filter_by_identity_and_time,
    violations_are_pruned_by_age_and_count,
    hostile_names_do_not_fail_batch,
);

fn noon_plus(micros: u64) -> Timestamp {
    Timestamp::from_micros(NOON.as_micros() + micros)
}

pub(crate) fn violation(number: u64) -> RuleViolation {
    RuleViolation {
        at: noon_plus(number),
        rule: format!("rule {}", number % 3),
        bucket_key: format!("{number:032x}"),
        user_id: (!number.is_multiple_of(2)).then(|| format!("user {}", number % 5)),
        ip: (!number.is_multiple_of(4)).then(|| format!("192.0.2.{}", number % 7)),
        endpoint: Some("GET /api/*".into()),
        remaining: number,
        enforced: !number.is_multiple_of(3),
    }
}

/// The next batch of a single writer.
pub(crate) fn batch(violations: impl Into<Vec<RuleViolation>>) -> ViolationBatch {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    ViolationBatch { writer: "the test".to_owned(), number, violations: violations.into() }
}

fn query_with_limit(most: u32) -> ViolationQuery {
    ViolationQuery { limit: most, ..ViolationQuery::default() }
}

/// All pages of a query.
async fn fetch_all(repository: &dyn Repository, query: ViolationQuery) -> Vec<ViolationRow> {
    let (mut rows, mut query) = (Vec::new(), query);
    loop {
        let page = repository.violations(&query).await.expect("a page");
        assert!(page.rows.len() <= query.limit as usize);
        rows.extend(page.rows);
        match page.next {
            Some(next) => query.before = Some(next),
            None => return rows,
        }
    }
}

fn offsets_from_noon(rows: &[ViolationRow]) -> Vec<u64> {
    rows.iter().map(|row| row.violation.at.as_micros() - NOON.as_micros()).collect()
}

async fn violations_round_trip_unchanged(fixture: RepositoryFixture) {
    let repository = fixture.open().await;
    let mut written: Vec<RuleViolation> = (0..4).map(violation).collect();
    written.push(RuleViolation {
        remaining: u64::MAX,
        at: Timestamp::from_micros(u64::MAX),
        ..violation(9)
    });
    assert_eq!(repository.record_violations(&batch(written.clone())).await, Ok(()));
    assert_eq!(repository.record_violations(&batch([])).await, Ok(()));
    let last = written.last_mut().expect("one");
    // The largest signed number: 292 000 years after 1970.
    (last.remaining, last.at) = (i64::MAX as u64, Timestamp::from_micros(i64::MAX as u64));
    let read: Vec<RuleViolation> = fetch_all(repository.as_ref(), query_with_limit(100))
        .await
        .into_iter()
        .rev()
        .map(|row| row.violation)
        .collect();
    assert_eq!(read, written);
}

/// If the acknowledgement of a batch is lost, the writer sends it again, perhaps without its oldest
/// violations.
async fn repeated_batch_is_written_once(fixture: RepositoryFixture) {
    let repository = fixture.open().await;
    let of = |writer: &str, number: u64, violations: std::ops::Range<u64>| ViolationBatch {
        writer: writer.to_owned(),
        number,
        violations: violations.map(violation).collect(),
    };
    for again in [of("a", 1, 0..3), of("a", 1, 0..3), of("a", 1, 1..3), of("b", 1, 3..5)] {
        repository.record_violations(&again).await.expect("recorded");
    }
    // Batch numbers may have gaps; a lower number is ignored.
    for later in [of("a", 7, 5..6), of("a", 2, 90..99), of("b", 1, 90..99), of("a", 8, 6..7)] {
        repository.record_violations(&later).await.expect("recorded");
    }
    let expected: Vec<u64> = (0..7).rev().collect();
    assert_eq!(
        offsets_from_noon(&fetch_all(repository.as_ref(), query_with_limit(10)).await),
        expected
    );
    let again = async |number| repository.record_violations(&of("c", number, 7..8)).await;
    let both = tokio::join!(again(4), again(4));
    assert_eq!(both, (Ok(()), Ok(())));
    assert_eq!(
        fetch_all(repository.as_ref(), query_with_limit(10)).await.len(),
        8,
        "also if both arrive concurrently"
    );
    // An inactive writer is removed, but only a day after its violations.
    let day = 86_400_000_000;
    repository.prune(noon_plus(day - 10), u64::MAX).await.expect("pruned");
    assert_eq!(fixture.sql("SELECT count(*) FROM violation_writer"), "3");
    repository.prune(noon_plus(day + 7), u64::MAX).await.expect("pruned");
    assert_eq!(fixture.sql("SELECT writer FROM violation_writer"), "c");
}

async fn violations_are_paged_newest_first(fixture: RepositoryFixture) {
    let repository = fixture.open().await;
    let written: Vec<RuleViolation> = (0..25_000).map(violation).collect();
    assert_eq!(repository.record_violations(&batch(written.clone())).await, Ok(()));
    let first = repository.violations(&query_with_limit(10)).await.expect("a page");
    assert_eq!(offsets_from_noon(&first.rows), (24_990..25_000).rev().collect::<Vec<_>>());
    let rows = fetch_all(repository.as_ref(), query_with_limit(999)).await;
    assert_eq!(offsets_from_noon(&rows), (0..25_000).rev().collect::<Vec<_>>(), "each once");
    assert!(rows.windows(2).all(|pair| pair[0].number > pair[1].number));
    let exact = repository.violations(&query_with_limit(25_000)).await.expect("a page");
    assert_eq!((exact.rows.len(), exact.next), (25_000, None), "no empty page follows");
    let none = repository.violations(&query_with_limit(0)).await.expect("a page");
    assert_eq!(none.rows, []);
}

async fn violations_filter_by_identity_and_time(fixture: RepositoryFixture) {
    let repository = fixture.open().await;
    let written: Vec<RuleViolation> = (0..200).map(violation).collect();
    repository.record_violations(&batch(written.clone())).await.expect("recorded");
    let queries = [
        ViolationQuery { rule: Some("rule 1".into()), ..query_with_limit(7) },
        ViolationQuery { user_id: Some("user 3".into()), ..query_with_limit(7) },
        ViolationQuery { ip: Some("192.0.2.5".into()), ..query_with_limit(7) },
        ViolationQuery {
            since: Some(noon_plus(50)),
            until: Some(noon_plus(60)),
            ..query_with_limit(7)
        },
        ViolationQuery {
            rule: Some("rule 2".into()),
            user_id: Some("user 1".into()),
            ip: Some("192.0.2.3".into()),
            since: Some(noon_plus(10)),
            until: Some(noon_plus(190)),
            ..query_with_limit(7)
        },
        ViolationQuery { user_id: Some("nobody".into()), ..query_with_limit(7) },
    ];
    for query in queries {
        let fits = |violation: &&RuleViolation| {
            query.rule.as_ref().is_none_or(|rule| *rule == violation.rule)
                && (query.user_id.is_none() || query.user_id == violation.user_id)
                && (query.ip.is_none() || query.ip == violation.ip)
                && query.since.is_none_or(|since| violation.at >= since)
                && query.until.is_none_or(|until| violation.at < until)
        };
        let expected: Vec<RuleViolation> = written.iter().rev().filter(fits).cloned().collect();
        let rows = fetch_all(repository.as_ref(), query.clone()).await;
        let found: Vec<RuleViolation> = rows.into_iter().map(|row| row.violation).collect();
        assert_eq!(found, expected, "{query:?}");
    }
}

async fn violations_are_pruned_by_age_and_count(fixture: RepositoryFixture) {
    let repository = fixture.open().await;
    let written: Vec<RuleViolation> = (0..12_000).map(violation).collect();
    repository.record_violations(&batch(written.clone())).await.expect("recorded");
    assert_eq!(repository.prune(noon_plus(0), 12_000).await, Ok(0));
    assert_eq!(repository.prune(noon_plus(11_000), u64::MAX).await, Ok(11_000), "in several steps");
    assert_eq!(
        offsets_from_noon(&fetch_all(repository.as_ref(), query_with_limit(500)).await),
        (11_000..12_000).rev().collect::<Vec<_>>()
    );
    assert_eq!(repository.prune(noon_plus(0), 10).await, Ok(990));
    assert_eq!(
        offsets_from_noon(&fetch_all(repository.as_ref(), query_with_limit(500)).await),
        (11_990..12_000).rev().collect::<Vec<_>>()
    );
    let last = repository.violations(&query_with_limit(1)).await.expect("a page").rows[0].number;
    assert_eq!(repository.prune(noon_plus(u64::from(u32::MAX)), 0).await, Ok(10));
    repository.record_violations(&batch([violation(1)])).await.expect("recorded");
    let next = repository.violations(&query_with_limit(1)).await.expect("a page").rows[0].number;
    assert!(next > last, "numbers grow even over an empty table: {last}, {next}");
}

/// Names come from requests. A hostile one must not fail the rest of its batch.
async fn hostile_names_do_not_fail_batch(fixture: RepositoryFixture) {
    let repository = fixture.open().await;
    let long = random_text(10_000);
    let names =
        ["'; DROP TABLE subject; --", "a\0b", &long, "\u{1F980}\u{202E}\"\\\n", "", "{rows} $1 ?"];
    let named = |name: &str| RuleViolation {
        user_id: Some(name.into()),
        ip: Some(name.into()),
        rule: name.into(),
        ..violation(1)
    };
    repository.record_violations(&batch(names.map(named))).await.expect("recorded");
    for name in names {
        let query = ViolationQuery {
            user_id: Some(name.into()),
            ip: Some(name.into()),
            ..query_with_limit(10)
        };
        let rows = fetch_all(repository.as_ref(), query).await;
        assert_eq!(rows.len(), 1, "{name:?}");
    }
    let kept = fetch_all(
        repository.as_ref(),
        ViolationQuery { user_id: Some(long.clone()), ..query_with_limit(1) },
    )
    .await;
    let kept = kept[0].violation.user_id.clone().expect("a user");
    assert!(long.starts_with(&kept) && kept.len() > 500, "{} bytes are kept", kept.len());
}
