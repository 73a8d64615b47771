//! Stored violations: inserted in batches, read in pages, pruned by age and number.

use sqlx::{AssertSqlSafe, SqlSafeStr as _, SqlStr};
use tidegate_core::time::{Micros, Timestamp};

use super::RepositoryError;
use super::database::{SqlDatabase, SqlParam, from_stored, to_stored};
use super::json_chunks::JsonChunks;
use tidegate_telemetry::{
    RuleViolation, ViolationBatch, ViolationPage, ViolationQuery, ViolationRow,
};

/// Rows deleted per statement, so that other writers do not wait long.
const PRUNE_CHUNK: i64 = 5_000;

/// Maximum text length: an index cannot hold more, and one client's overlong name must not fail the
/// whole batch.
const MAX_TEXT_BYTES: usize = 512;

/// How much longer than violations the last batch number of a writer is kept. A batch retried after
/// more than this time is written twice.
const WRITER_RETENTION: Micros = Micros::from_secs(86_400);

/// Writes a batch atomically, unless it has been written before.
pub(super) async fn record_batch(
    database: &SqlDatabase,
    batch: &ViolationBatch,
) -> Result<(), RepositoryError> {
    let ViolationBatch { writer, number, violations } = batch;
    let Some(newest) = violations.iter().map(|violation| violation.at).max() else {
        return Ok(());
    };
    let rows = violations.iter().map(|violation| {
        let RuleViolation { at, rule, bucket_key, user_id, ip, endpoint, remaining, enforced } =
            violation;
        let texts = (
            user_id.as_deref().map(fit_text),
            ip.as_deref().map(fit_text),
            endpoint.as_deref().map(fit_text),
        );
        let (rule, bucket) = (fit_text(rule), fit_text(bucket_key));
        (
            to_stored(at.as_micros()),
            rule,
            bucket,
            texts.0,
            texts.1,
            texts.2,
            to_stored(*remaining),
            enforced,
        )
    });
    let mut session = database.begin_transaction().await?;
    let (number, newest) = (to_stored(*number), to_stored(newest.as_micros()));
    let taken = [SqlParam::Text(writer), SqlParam::Number(number), SqlParam::Number(newest)];
    if session.execute(include_str!("../../sql/claim_batch.sql"), &taken).await? == 0 {
        // The batch was already written; only the acknowledgement was lost.
        return session.rollback().await;
    }
    let insert = session.expand_rows(include_str!("../../sql/insert_violations.sql"));
    for chunk in JsonChunks::new(rows) {
        session.execute(insert.clone(), &[SqlParam::Text(&chunk?)]).await?;
    }
    session.commit().await
}

type ViolationSqlRow =
    (i64, i64, String, String, Option<String>, Option<String>, Option<String>, i64, bool);

/// A page of violations.
pub(super) async fn fetch_page(
    database: &SqlDatabase,
    query: &ViolationQuery,
) -> Result<ViolationPage, RepositoryError> {
    let ViolationQuery { rule, user_id, ip, since, until, before, limit } = query;
    let text = |text: &Option<String>| text.as_deref().map(fit_text);
    let (rule, user_id, ip) = (text(rule), text(user_id), text(ip));
    let when = |at: &Option<Timestamp>| at.map(|at| SqlParam::Number(to_stored(at.as_micros())));
    let (sql, values) = build_query(
        [
            ("rule_id =", rule.as_deref().map(SqlParam::Text)),
            ("user_id =", user_id.as_deref().map(SqlParam::Text)),
            ("ip_address =", ip.as_deref().map(SqlParam::Text)),
            ("requested_at >=", when(since)),
            ("requested_at <", when(until)),
            ("violation_id <", before.map(|before| SqlParam::Number(to_stored(before)))),
        ],
        // Fetch one more row to learn whether there is another page.
        i64::from(*limit) + 1,
    );
    let mut rows: Vec<ViolationSqlRow> = database.reader().await?.fetch_rows(sql, &values).await?;
    let more = rows.len() > *limit as usize;
    rows.truncate(*limit as usize);
    let rows: Vec<ViolationRow> = rows.into_iter().map(parse_row).collect();
    let next = rows.last().filter(|_| more).map(|row| row.number);
    Ok(ViolationPage { rows, next })
}

/// Builds the statement with only the conditions that have a value: a single statement for all
/// combinations could not use an index.
fn build_query<'a, const N: usize>(
    conditions: [(&'static str, Option<SqlParam<'a>>); N],
    limit: i64,
) -> (SqlStr, Vec<SqlParam<'a>>) {
    let mut sql = include_str!("../../sql/select_violations.sql").to_owned();
    let mut values = Vec::with_capacity(N + 1);
    for (condition, value) in conditions.into_iter().filter_map(|(c, value)| Some((c, value?))) {
        values.push(value);
        let word = if values.len() == 1 { "WHERE" } else { "AND" };
        sql.push_str(&format!("{word} {condition} ${}\n", values.len()));
    }
    values.push(SqlParam::Number(limit));
    sql.push_str(&format!("ORDER BY violation_id DESC LIMIT ${}", values.len()));
    // Safe: built from constants only.
    (AssertSqlSafe(sql).into_sql_str(), values)
}

fn parse_row(row: ViolationSqlRow) -> ViolationRow {
    let (number, at, rule, bucket_key, user_id, ip, endpoint, remaining, enforced) = row;
    let (at, remaining) = (Timestamp::from_micros(from_stored(at)), from_stored(remaining));
    let violation =
        RuleViolation { at, rule, bucket_key, user_id, ip, endpoint, remaining, enforced };
    ViolationRow { number: from_stored(number), violation }
}

/// Removes violations older than `before`, then the oldest above `max_rows`.
pub(super) async fn prune(
    database: &SqlDatabase,
    before: Timestamp,
    max_rows: u64,
) -> Result<u64, RepositoryError> {
    let newest_surplus = "SELECT violation_id FROM rate_limit_violation
        ORDER BY violation_id DESC LIMIT 1 OFFSET $1";
    let old = include_str!("../../sql/delete_old_violations.sql");
    let mut dropped = delete_in_chunks(database, old, to_stored(before.as_micros())).await?;
    let old_writers = "DELETE FROM violation_writer WHERE seen_at < $1";
    let writers_before = SqlParam::Number(to_stored(before.minus(WRITER_RETENTION).as_micros()));
    database.writer().await?.execute(old_writers, &[writers_before]).await?;
    let newest_surplus: Vec<(i64,)> = database
        .reader()
        .await?
        .fetch_rows(newest_surplus, &[SqlParam::Number(to_stored(max_rows))])
        .await?;
    if let Some((newest_surplus,)) = newest_surplus.first() {
        dropped += delete_in_chunks(
            database,
            include_str!("../../sql/delete_surplus_violations.sql"),
            *newest_surplus,
        )
        .await?;
    }
    Ok(dropped)
}

async fn delete_in_chunks(
    database: &SqlDatabase,
    sql: &'static str,
    bound: i64,
) -> Result<u64, RepositoryError> {
    let mut dropped = 0;
    loop {
        // Acquired for each chunk, so that other writers get their turn in between.
        let mut session = database.writer().await?;
        let deleted =
            session.execute(sql, &[SqlParam::Number(bound), SqlParam::Number(PRUNE_CHUNK)]).await?;
        dropped += deleted;
        if deleted < from_stored(PRUNE_CHUNK) {
            return Ok(dropped);
        }
    }
}

/// A text that both databases can store: truncated, and without NUL.
fn fit_text(text: &str) -> String {
    let mut end = text.len().min(MAX_TEXT_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    // PostgreSQL text cannot contain NUL.
    text[..end].replace('\0', "\u{FFFD}")
}
