//! Versions: who changed what, when and why, and going back.

use http::StatusCode;
use serde_json::{Value as Json, json};
use tidegate_web::date::format_rfc3339;
use tidegate_web::problem::HttpError;

use super::AdminRequest;
use super::document::change_views;
use super::precondition::Precondition;
use super::query::AdminQuery;
use super::reply::{self, AdminReply, database_problem};
use tidegate_rulestore::EditError;
use tidegate_rulestore::RepositoryError;
use tidegate_rulestore::diff;
use tidegate_rulestore::{EntryUpdate, VersionChange, VersionInfo};

impl AdminRequest<'_> {
    /// Versions, newest first.
    pub(super) async fn versions(&self) -> Result<AdminReply, HttpError> {
        let query = AdminQuery::parse(&self.head.uri, &["before"])?;
        let (before, limit) = (query.number("before")?, query.limit()?);
        let history = self.manager.repository().history(before.unwrap_or(i64::MAX as u64), limit);
        let history = history.await.map_err(database_problem)?;
        let next = history.last().map(|last| last.version).filter(|last| *last > 1);
        let next = next.filter(|_| history.len() == limit as usize);
        let list: Vec<Json> = history.iter().map(version_view).collect();
        Ok(AdminReply::ok(&json!({"versions": list, "next": next})))
    }

    /// A version and what it changed, or what changed since another (`from`).
    pub(super) async fn version(&self, number: u64) -> Result<AdminReply, HttpError> {
        let query = AdminQuery::parse(&self.head.uri, &["from"])?;
        let from = query.number("from")?.unwrap_or(number.saturating_sub(1));
        let made = self.version_info(number).await?;
        if from > number {
            self.version_info(from).await?;
        }
        let changes = self.net_changes(from, number).await.map_err(database_problem)?;
        let mut told = version_view(&made);
        told["from"] = from.into();
        told["diff"] = change_views(&changes).into();
        Ok(AdminReply::ok(&told))
    }

    /// Makes everything what it was at a version, as a new one. `If-Match` has the latest version, so
    /// that nothing is undone that came later.
    pub(super) async fn rollback(&self, number: u64) -> Result<AdminReply, HttpError> {
        if number > 0 {
            self.version_info(number).await?;
        }
        let head = self.manager.latest_config().await.map_err(database_problem)?.version();
        if let Err(fault) = Precondition::from_headers(&self.head.headers)?.check_version(head) {
            return reply::from_edit_error(&fault);
        }
        let undone = self.net_changes(head, number).await.map_err(database_problem)?;
        let entries: Vec<EntryUpdate> = undone
            .iter()
            .map(|change| EntryUpdate {
                kind: change.kind,
                id: change.id.clone(),
                value: change.after.clone(),
            })
            .collect();
        let why = format!("went back to version {number}");
        let done = self
            .commit_change(&why, |book| match book.version() == head {
                true => Ok(entries.clone()),
                // Somebody's change would be undone that nobody has looked at.
                false => Err(EditError::PreconditionFailed { version: Some(book.version()) }),
            })
            .await?;
        done.or_rejected(|done| {
            let told = json!({"version": done.version, "changes": change_views(&undone)});
            Ok(AdminReply::ok(&told).with_etag(done.version))
        })
    }

    async fn version_info(&self, number: u64) -> Result<VersionInfo, HttpError> {
        let after = number.saturating_add(1).min(i64::MAX as u64);
        let found = self.manager.repository().history(after, 1).await.map_err(database_problem)?;
        let found = found.into_iter().find(|signed| signed.version == number);
        found.ok_or_else(|| {
            HttpError::new(StatusCode::NOT_FOUND, format!("there is no version {number}"))
        })
    }

    /// What differs between two versions, whichever is older.
    async fn net_changes(&self, from: u64, to: u64) -> Result<Vec<VersionChange>, RepositoryError> {
        let changes = self.manager.repository().changes(from.min(to), from.max(to)).await?;
        let mut net = diff::net_changes(changes);
        if from > to {
            for change in &mut net {
                std::mem::swap(&mut change.before, &mut change.after);
            }
        }
        Ok(net)
    }
}

fn version_view(signed: &VersionInfo) -> Json {
    json!({
        "version": signed.version,
        "author": signed.author,
        "reason": signed.reason,
        "at": format_rfc3339(signed.at.as_micros() / 1_000_000),
        "changes": signed.changes,
    })
}
