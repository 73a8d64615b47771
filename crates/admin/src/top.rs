//! Who asks most and who is refused most at present, and bursts. Everybody may ask; who they are is told to those who
//! may read everything, and to others only that one is not another.

use serde_json::json;
use tidegate_web::problem::HttpError;

use super::AdminRequest;
use super::query::{AdminQuery, invalid_param};
use super::reply::AdminReply;
use tidegate_telemetry::{TopKind, TopQuery};

impl AdminRequest<'_> {
    /// The keys that are refused most often, and the busiest.
    pub(super) fn top(&self) -> Result<AdminReply, HttpError> {
        let query = AdminQuery::parse(&self.head.uri, &["kind", "rule"])?;
        let kind = query.text("kind").map(|name| {
            TopKind::from_name(name)
                .ok_or_else(|| invalid_param("this is `refused` or `busiest`", "kind"))
        });
        let asked = TopQuery {
            kind: kind.transpose()?,
            rule: query.text("rule"),
            limit: query.limit()? as usize,
            visibility: self.visibility,
        };
        Ok(AdminReply::ok(&json!({"top": self.top.query(&asked)})))
    }

    /// Keys whose requests came much faster than before, after the one of a number, oldest first.
    pub(super) fn bursts(&self) -> Result<AdminReply, HttpError> {
        let query = AdminQuery::parse(&self.head.uri, &["after"])?;
        let (after, limit) = (query.number("after")?.unwrap_or(0), query.limit()? as usize);
        let mut bursts = self.top.bursts(after, self.visibility);
        // The latest of them.
        bursts.drain(..bursts.len().saturating_sub(limit));
        Ok(AdminReply::ok(&json!({"bursts": bursts})))
    }
}
