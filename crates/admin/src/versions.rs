//! The version history (who changed what, when and why) and rollback.

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
    /// A page of versions, newest first.
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

    /// A version and its changes since the previous version or since `from`.
    pub(super) async fn version(&self, number: u64) -> Result<AdminReply, HttpError> {
        let query = AdminQuery::parse(&self.head.uri, &["from"])?;
        let from = query.number("from")?.unwrap_or(number.saturating_sub(1));
        let info = self.version_info(number).await?;
        if from > number {
            self.version_info(from).await?;
        }
        let changes = self.net_changes(from, number).await.map_err(database_problem)?;
        let mut view = version_view(&info);
        view["from"] = from.into();
        view["diff"] = change_views(&changes).into();
        Ok(AdminReply::ok(&view))
    }

    /// Restores the configuration of a version, as a new version. `If-Match` must name the latest
    /// version, so that the rollback does not undo a change that the client has not seen.
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
        let why = format!("rolled back to version {number}");
        let done = self
            .commit_change(&why, |config| match config.version() == head {
                true => Ok(entries.clone()),
                // Another change came in between; the rollback would undo it unseen.
                false => Err(EditError::PreconditionFailed { version: Some(config.version()) }),
            })
            .await?;
        done.or_rejected(|done| {
            let view = json!({"version": done.version, "changes": change_views(&undone)});
            Ok(AdminReply::ok(&view).with_etag(done.version))
        })
    }

    async fn version_info(&self, number: u64) -> Result<VersionInfo, HttpError> {
        let after = number.saturating_add(1).min(i64::MAX as u64);
        let found = self.manager.repository().history(after, 1).await.map_err(database_problem)?;
        let found = found.into_iter().find(|info| info.version == number);
        found.ok_or_else(|| {
            HttpError::new(StatusCode::NOT_FOUND, format!("there is no version {number}"))
        })
    }

    /// The net changes that lead from one version to another, forward or backward.
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

fn version_view(info: &VersionInfo) -> Json {
    json!({
        "version": info.version,
        "author": info.author,
        "reason": info.reason,
        "at": format_rfc3339(info.at.as_micros() / 1_000_000),
        "changes": info.changes,
    })
}
