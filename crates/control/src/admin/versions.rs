//! Versions: who changed what, when and why, and going back.

use http::StatusCode;
use serde_json::{Value as Json, json};
use tidegate_edge::date::rfc3339;
use tidegate_edge::problem::Problem;

use super::Asked;
use super::document::views;
use super::precondition::Seen;
use super::query::Query;
use super::reply::{self, Reply};
use crate::diff;
use crate::edit::{Change, Entry, Signed};
use crate::office::Fault;
use crate::repository::Refused;

impl Asked<'_> {
    /// Versions, newest first.
    pub(super) async fn versions(&self) -> Result<Reply, Problem> {
        let query = Query::of(&self.head.uri, &["before"])?;
        let (before, limit) = (query.number("before")?, query.limit()?);
        let history = self.office.repository().history(before.unwrap_or(i64::MAX as u64), limit);
        let history = history.await?;
        let next = history.last().map(|last| last.version).filter(|last| *last > 1);
        let next = next.filter(|_| history.len() == limit as usize);
        let list: Vec<Json> = history.iter().map(signed).collect();
        Ok(Reply::ok(&json!({"versions": list, "next": next})))
    }

    /// A version and what it changed, or what changed since another (`from`).
    pub(super) async fn version(&self, number: u64) -> Result<Reply, Problem> {
        let query = Query::of(&self.head.uri, &["from"])?;
        let from = query.number("from")?.unwrap_or(number.saturating_sub(1));
        let made = self.signed(number).await?;
        if from > number {
            self.signed(from).await?;
        }
        let changes = self.difference(from, number).await?;
        let mut told = signed(&made);
        told["from"] = from.into();
        told["diff"] = views(&changes).into();
        Ok(Reply::ok(&told))
    }

    /// Makes everything what it was at a version, as a new one. `If-Match` has the latest version, so
    /// that nothing is undone that came later.
    pub(super) async fn rollback(&self, number: u64) -> Result<Reply, Problem> {
        if number > 0 {
            self.signed(number).await?;
        }
        let head = self.office.latest().await?.version();
        if let Err(fault) = Seen::of(&self.head.headers)?.check_version(head) {
            return reply::fault(&fault);
        }
        let undone = self.difference(head, number).await?;
        let entries: Vec<Entry> = undone
            .iter()
            .map(|change| Entry {
                kind: change.kind,
                id: change.id.clone(),
                value: change.after.clone(),
            })
            .collect();
        let why = format!("went back to version {number}");
        let done = self
            .change(&why, |book| match book.version() == head {
                true => Ok(entries.clone()),
                // Somebody's change would be undone that nobody has looked at.
                false => Err(Fault::Outdated { version: Some(book.version()) }),
            })
            .await?;
        done.or_told(|done| {
            let told = json!({"version": done.version, "changes": views(&undone)});
            Ok(Reply::ok(&told).tagged(done.version))
        })
    }

    async fn signed(&self, number: u64) -> Result<Signed, Problem> {
        let after = number.saturating_add(1).min(i64::MAX as u64);
        let found = self.office.repository().history(after, 1).await?;
        let found = found.into_iter().find(|signed| signed.version == number);
        found.ok_or_else(|| {
            Problem::new(StatusCode::NOT_FOUND, format!("there is no version {number}"))
        })
    }

    /// What differs between two versions, whichever is older.
    async fn difference(&self, from: u64, to: u64) -> Result<Vec<Change>, Refused> {
        let changes = self.office.repository().changes(from.min(to), from.max(to)).await?;
        let mut net = diff::net(changes);
        if from > to {
            for change in &mut net {
                std::mem::swap(&mut change.before, &mut change.after);
            }
        }
        Ok(net)
    }
}

fn signed(signed: &Signed) -> Json {
    json!({
        "version": signed.version,
        "author": signed.author,
        "reason": signed.reason,
        "at": rfc3339(signed.at.as_micros() / 1_000_000),
        "changes": signed.changes,
    })
}
