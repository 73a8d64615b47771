//! The currently busiest and most refused clients, and bursts. No token is needed, but only callers
//! with read access see identities; others see hashes, which distinguish clients but do not name
//! them.

use serde_json::json;
use tidegate_web::problem::HttpError;

use super::AdminRequest;
use super::query::{AdminQuery, invalid_param};
use super::reply::AdminReply;
use tidegate_telemetry::{TopKind, TopQuery};

impl AdminRequest<'_> {
    /// The most refused keys, the busiest keys, or both.
    pub(super) fn top(&self) -> Result<AdminReply, HttpError> {
        let query = AdminQuery::parse(&self.head.uri, &["kind", "rule"])?;
        let kind = query.text("kind").map(|name| {
            TopKind::from_name(name)
                .ok_or_else(|| invalid_param("must be `refused` or `busiest`", "kind"))
        });
        let top_query = TopQuery {
            kind: kind.transpose()?,
            rule: query.text("rule"),
            limit: query.limit()? as usize,
            visibility: self.visibility,
        };
        Ok(AdminReply::ok(&json!({"top": self.top.query(&top_query)})))
    }

    /// Keys whose request rate rose sharply, oldest first. `after` skips bursts up to that number.
    pub(super) fn bursts(&self) -> Result<AdminReply, HttpError> {
        let query = AdminQuery::parse(&self.head.uri, &["after"])?;
        let (after, limit) = (query.number("after")?.unwrap_or(0), query.limit()? as usize);
        let mut bursts = self.top.bursts(after, self.visibility);
        // Keep the latest ones.
        bursts.drain(..bursts.len().saturating_sub(limit));
        Ok(AdminReply::ok(&json!({"bursts": bursts})))
    }
}
