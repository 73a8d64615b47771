//! The violations on record: written by the thousand, read by pages, dropped when they are old.

use sqlx::{AssertSqlSafe, SqlSafeStr as _, SqlStr};
use tidegate_core::time::{Micros, Timestamp};

use super::Refused;
use super::database::{Database, Value, stored, told};
use super::sheet::Sheets;
use crate::violation::{Batch, Page, Violation, ViolationQuery, ViolationRow};

/// How many are dropped at a time, so that nobody waits long for their turn.
const STEP: i64 = 5_000;

/// The longest text that is kept: more than this an index cannot hold, and one stranger's long name
/// must not cost us the whole batch.
const LONGEST: usize = 512;

/// How much longer than violations it is kept which batch of a writer was the last: one that is sent again after longer
/// than this is written again.
const REMEMBERED: Micros = Micros::from_secs(86_400);

/// Writes violations, all or none, unless they are there.
pub(super) async fn record(database: &Database, batch: &Batch) -> Result<(), Refused> {
    let Batch { writer, number, violations } = batch;
    let Some(newest) = violations.iter().map(|violation| violation.at).max() else {
        return Ok(());
    };
    let rows = violations.iter().map(|violation| {
        let Violation { at, rule, bucket_key, user_id, ip, endpoint, remaining, enforced } =
            violation;
        let texts = (
            user_id.as_deref().map(fitting),
            ip.as_deref().map(fitting),
            endpoint.as_deref().map(fitting),
        );
        let (rule, bucket) = (fitting(rule), fitting(bucket_key));
        (
            stored(at.as_micros()),
            rule,
            bucket,
            texts.0,
            texts.1,
            texts.2,
            stored(*remaining),
            enforced,
        )
    });
    let mut session = database.transaction().await?;
    let (number, newest) = (stored(*number), stored(newest.as_micros()));
    let taken = [Value::Text(writer), Value::Number(number), Value::Number(newest)];
    if session.run(include_str!("../../sql/take_batch.sql"), &taken).await? == 0 {
        // It was written, and only that was not heard.
        return session.forget().await;
    }
    let insert = session.over(include_str!("../../sql/record.sql"));
    for sheet in Sheets::of(rows) {
        session.run(insert.clone(), &[Value::Text(&sheet?)]).await?;
    }
    session.commit().await
}

type Row = (i64, i64, String, String, Option<String>, Option<String>, Option<String>, i64, bool);

/// A page of violations.
pub(super) async fn violations(
    database: &Database,
    query: &ViolationQuery,
) -> Result<Page, Refused> {
    let ViolationQuery { rule, user_id, ip, since, until, before, most } = query;
    let text = |text: &Option<String>| text.as_deref().map(fitting);
    let (rule, user_id, ip) = (text(rule), text(user_id), text(ip));
    let when = |at: &Option<Timestamp>| at.map(|at| Value::Number(stored(at.as_micros())));
    let (sql, values) = asked(
        [
            ("rule_id =", rule.as_deref().map(Value::Text)),
            ("user_id =", user_id.as_deref().map(Value::Text)),
            ("ip_address =", ip.as_deref().map(Value::Text)),
            ("requested_at >=", when(since)),
            ("requested_at <", when(until)),
            ("violation_id <", before.map(|before| Value::Number(stored(before)))),
        ],
        // One more than asked for tells whether there is another page.
        i64::from(*most) + 1,
    );
    let mut rows: Vec<Row> = database.reader().await?.rows(sql, &values).await?;
    let more = rows.len() > *most as usize;
    rows.truncate(*most as usize);
    let rows: Vec<ViolationRow> = rows.into_iter().map(read).collect();
    let next = rows.last().filter(|_| more).map(|row| row.number);
    Ok(Page { rows, next })
}

/// The statement for those conditions that have a value: one for all of them could use no index.
fn asked<'a, const N: usize>(
    conditions: [(&'static str, Option<Value<'a>>); N],
    most: i64,
) -> (SqlStr, Vec<Value<'a>>) {
    let mut sql = include_str!("../../sql/violations.sql").to_owned();
    let mut values = Vec::with_capacity(N + 1);
    for (condition, value) in conditions.into_iter().filter_map(|(c, value)| Some((c, value?))) {
        values.push(value);
        let word = if values.len() == 1 { "WHERE" } else { "AND" };
        sql.push_str(&format!("{word} {condition} ${}\n", values.len()));
    }
    values.push(Value::Number(most));
    sql.push_str(&format!("ORDER BY violation_id DESC LIMIT ${}", values.len()));
    // Made of constants only.
    (AssertSqlSafe(sql).into_sql_str(), values)
}

fn read(row: Row) -> ViolationRow {
    let (number, at, rule, bucket_key, user_id, ip, endpoint, remaining, enforced) = row;
    let (at, remaining) = (Timestamp::from_micros(told(at)), told(remaining));
    let violation = Violation { at, rule, bucket_key, user_id, ip, endpoint, remaining, enforced };
    ViolationRow { number: told(number), violation }
}

/// Drops the old ones, and the oldest of too many.
pub(super) async fn prune(
    database: &Database,
    before: Timestamp,
    most: u64,
) -> Result<u64, Refused> {
    let last = "SELECT violation_id FROM rate_limit_violation
        ORDER BY violation_id DESC LIMIT 1 OFFSET $1";
    let old = include_str!("../../sql/prune_old.sql");
    let mut dropped = drop_all(database, old, stored(before.as_micros())).await?;
    let gone = "DELETE FROM violation_writer WHERE seen_at < $1";
    let long_ago = Value::Number(stored(before.minus(REMEMBERED).as_micros()));
    database.writer().await?.run(gone, &[long_ago]).await?;
    let last: Vec<(i64,)> =
        database.reader().await?.rows(last, &[Value::Number(stored(most))]).await?;
    if let Some((last,)) = last.first() {
        dropped += drop_all(database, include_str!("../../sql/prune_surplus.sql"), *last).await?;
    }
    Ok(dropped)
}

async fn drop_all(database: &Database, sql: &'static str, bound: i64) -> Result<u64, Refused> {
    let mut dropped = 0;
    loop {
        // Let go of after each step: others write in between.
        let mut session = database.writer().await?;
        let step = session.run(sql, &[Value::Number(bound), Value::Number(STEP)]).await?;
        dropped += step;
        if step < told(STEP) {
            return Ok(dropped);
        }
    }
}

/// A text as both databases can keep it.
fn fitting(text: &str) -> String {
    let mut end = text.len().min(LONGEST);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    // PostgreSQL has no NUL in texts.
    text[..end].replace('\0', "\u{FFFD}")
}
