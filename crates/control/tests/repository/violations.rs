//! Violations: written by the thousand, found again, dropped when they are old.

use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_control::{Batch, Repository, Violation, ViolationQuery, ViolationRow};
use tidegate_core::time::Timestamp;

use crate::common::{NOON, Place, noise, on_both};

on_both!(
    found_again_as_they_were,
    written_once,
    by_pages_newest_first,
    by_whom_and_when,
    dropped_by_age_and_by_number,
    whatever_a_stranger_is_called,
);

fn at(micros: u64) -> Timestamp {
    Timestamp::from_micros(NOON.as_micros() + micros)
}

pub(crate) fn violation(number: u64) -> Violation {
    Violation {
        at: at(number),
        rule: format!("rule {}", number % 3),
        bucket_key: format!("{number:032x}"),
        user_id: (!number.is_multiple_of(2)).then(|| format!("user {}", number % 5)),
        ip: (!number.is_multiple_of(4)).then(|| format!("192.0.2.{}", number % 7)),
        endpoint: Some("GET /api/*".into()),
        remaining: number,
        enforced: !number.is_multiple_of(3),
    }
}

/// The next of one writer's batches.
pub(crate) fn batch(violations: impl Into<Vec<Violation>>) -> Batch {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    Batch { writer: "the test".to_owned(), number, violations: violations.into() }
}

fn most(most: u32) -> ViolationQuery {
    ViolationQuery { most, ..ViolationQuery::default() }
}

/// All pages of a query.
async fn all(office: &dyn Repository, query: ViolationQuery) -> Vec<ViolationRow> {
    let (mut rows, mut query) = (Vec::new(), query);
    loop {
        let page = office.violations(&query).await.expect("a page");
        assert!(page.rows.len() <= query.most as usize);
        rows.extend(page.rows);
        match page.next {
            Some(next) => query.before = Some(next),
            None => return rows,
        }
    }
}

fn told(rows: &[ViolationRow]) -> Vec<u64> {
    rows.iter().map(|row| row.violation.at.as_micros() - NOON.as_micros()).collect()
}

async fn found_again_as_they_were(place: Place) {
    let office = place.open().await;
    let mut written: Vec<Violation> = (0..4).map(violation).collect();
    written.push(Violation {
        remaining: u64::MAX,
        at: Timestamp::from_micros(u64::MAX),
        ..violation(9)
    });
    assert_eq!(office.record(&batch(written.clone())).await, Ok(()));
    assert_eq!(office.record(&batch([])).await, Ok(()));
    let last = written.last_mut().expect("one");
    // The end of time of a signed number, 292 000 years from now.
    (last.remaining, last.at) = (i64::MAX as u64, Timestamp::from_micros(i64::MAX as u64));
    let read: Vec<Violation> =
        all(office.as_ref(), most(100)).await.into_iter().rev().map(|row| row.violation).collect();
    assert_eq!(read, written);
}

/// What became of a batch is not always heard; it comes again then, perhaps without the oldest of it.
async fn written_once(place: Place) {
    let office = place.open().await;
    let of = |writer: &str, number: u64, violations: std::ops::Range<u64>| Batch {
        writer: writer.to_owned(),
        number,
        violations: violations.map(violation).collect(),
    };
    for again in [of("a", 1, 0..3), of("a", 1, 0..3), of("a", 1, 1..3), of("b", 1, 3..5)] {
        office.record(&again).await.expect("recorded");
    }
    // Numbers may be left out, and do not go back.
    for later in [of("a", 7, 5..6), of("a", 2, 90..99), of("b", 1, 90..99), of("a", 8, 6..7)] {
        office.record(&later).await.expect("recorded");
    }
    let expected: Vec<u64> = (0..7).rev().collect();
    assert_eq!(told(&all(office.as_ref(), most(10)).await), expected);
    let again = async |number| office.record(&of("c", number, 7..8)).await;
    let both = tokio::join!(again(4), again(4));
    assert_eq!(both, (Ok(()), Ok(())));
    assert_eq!(all(office.as_ref(), most(10)).await.len(), 8, "also when it comes twice at once");
    // A writer that is not heard of any more is forgotten, and not as soon as its violations are.
    let day = 86_400_000_000;
    office.prune(at(day - 10), u64::MAX).await.expect("pruned");
    assert_eq!(place.sql("SELECT count(*) FROM violation_writer"), "3");
    office.prune(at(day + 7), u64::MAX).await.expect("pruned");
    assert_eq!(place.sql("SELECT writer FROM violation_writer"), "c");
}

async fn by_pages_newest_first(place: Place) {
    let office = place.open().await;
    let written: Vec<Violation> = (0..25_000).map(violation).collect();
    assert_eq!(office.record(&batch(written.clone())).await, Ok(()));
    let first = office.violations(&most(10)).await.expect("a page");
    assert_eq!(told(&first.rows), (24_990..25_000).rev().collect::<Vec<_>>());
    let rows = all(office.as_ref(), most(999)).await;
    assert_eq!(told(&rows), (0..25_000).rev().collect::<Vec<_>>(), "each once");
    assert!(rows.windows(2).all(|pair| pair[0].number > pair[1].number));
    let exact = office.violations(&most(25_000)).await.expect("a page");
    assert_eq!((exact.rows.len(), exact.next), (25_000, None), "no empty page behind");
    let none = office.violations(&most(0)).await.expect("a page");
    assert_eq!(none.rows, []);
}

async fn by_whom_and_when(place: Place) {
    let office = place.open().await;
    let written: Vec<Violation> = (0..200).map(violation).collect();
    office.record(&batch(written.clone())).await.expect("recorded");
    let queries = [
        ViolationQuery { rule: Some("rule 1".into()), ..most(7) },
        ViolationQuery { user_id: Some("user 3".into()), ..most(7) },
        ViolationQuery { ip: Some("192.0.2.5".into()), ..most(7) },
        ViolationQuery { since: Some(at(50)), until: Some(at(60)), ..most(7) },
        ViolationQuery {
            rule: Some("rule 2".into()),
            user_id: Some("user 1".into()),
            ip: Some("192.0.2.3".into()),
            since: Some(at(10)),
            until: Some(at(190)),
            ..most(7)
        },
        ViolationQuery { user_id: Some("nobody".into()), ..most(7) },
    ];
    for query in queries {
        let fits = |violation: &&Violation| {
            query.rule.as_ref().is_none_or(|rule| *rule == violation.rule)
                && (query.user_id.is_none() || query.user_id == violation.user_id)
                && (query.ip.is_none() || query.ip == violation.ip)
                && query.since.is_none_or(|since| violation.at >= since)
                && query.until.is_none_or(|until| violation.at < until)
        };
        let expected: Vec<Violation> = written.iter().rev().filter(fits).cloned().collect();
        let rows = all(office.as_ref(), query.clone()).await;
        let found: Vec<Violation> = rows.into_iter().map(|row| row.violation).collect();
        assert_eq!(found, expected, "{query:?}");
    }
}

async fn dropped_by_age_and_by_number(place: Place) {
    let office = place.open().await;
    let written: Vec<Violation> = (0..12_000).map(violation).collect();
    office.record(&batch(written.clone())).await.expect("recorded");
    assert_eq!(office.prune(at(0), 12_000).await, Ok(0));
    assert_eq!(office.prune(at(11_000), u64::MAX).await, Ok(11_000), "in several steps");
    assert_eq!(
        told(&all(office.as_ref(), most(500)).await),
        (11_000..12_000).rev().collect::<Vec<_>>()
    );
    assert_eq!(office.prune(at(0), 10).await, Ok(990));
    assert_eq!(
        told(&all(office.as_ref(), most(500)).await),
        (11_990..12_000).rev().collect::<Vec<_>>()
    );
    let last = office.violations(&most(1)).await.expect("a page").rows[0].number;
    assert_eq!(office.prune(at(u64::from(u32::MAX)), 0).await, Ok(10));
    office.record(&batch([violation(1)])).await.expect("recorded");
    let next = office.violations(&most(1)).await.expect("a page").rows[0].number;
    assert!(next > last, "numbers grow even over an empty table: {last}, {next}");
}

/// Names come from requests. None may cost us the others of its batch.
async fn whatever_a_stranger_is_called(place: Place) {
    let office = place.open().await;
    let long = noise(10_000);
    let names =
        ["'; DROP TABLE subject; --", "a\0b", &long, "\u{1F980}\u{202E}\"\\\n", "", "{rows} $1 ?"];
    let named = |name: &str| Violation {
        user_id: Some(name.into()),
        ip: Some(name.into()),
        rule: name.into(),
        ..violation(1)
    };
    office.record(&batch(names.map(named))).await.expect("recorded");
    for name in names {
        let query =
            ViolationQuery { user_id: Some(name.into()), ip: Some(name.into()), ..most(10) };
        let rows = all(office.as_ref(), query).await;
        assert_eq!(rows.len(), 1, "{name:?}");
    }
    let kept =
        all(office.as_ref(), ViolationQuery { user_id: Some(long.clone()), ..most(1) }).await;
    let kept = kept[0].violation.user_id.clone().expect("a user");
    assert!(long.starts_with(&kept) && kept.len() > 500, "{} bytes are kept", kept.len());
}
