//! Who asks most and who is refused most at present, and bursts. Everybody may ask; who they are is told to those who
//! may read everything, and to others only that one is not another.

use serde_json::json;
use tidegate_edge::problem::Problem;

use super::Asked;
use super::query::{Query, wrong};
use super::reply::Reply;
use crate::top::{TopKind, TopQuery};

impl Asked<'_> {
    /// The keys that are refused most often, and the busiest.
    pub(super) fn top(&self) -> Result<Reply, Problem> {
        let query = Query::of(&self.head.uri, &["kind", "rule"])?;
        let kind = query.text("kind").map(|name| {
            TopKind::named(name).ok_or_else(|| wrong("this is `refused` or `busiest`", "kind"))
        });
        let asked = TopQuery {
            kind: kind.transpose()?,
            rule: query.text("rule"),
            limit: query.limit()? as usize,
            sight: self.sight,
        };
        Ok(Reply::ok(&json!({"top": self.top.told(&asked)})))
    }

    /// Keys whose requests came much faster than before, after the one of a number, oldest first.
    pub(super) fn bursts(&self) -> Result<Reply, Problem> {
        let query = Query::of(&self.head.uri, &["after"])?;
        let (after, limit) = (query.number("after")?.unwrap_or(0), query.limit()? as usize);
        let mut bursts = self.top.bursts(after, self.sight);
        // The latest of them.
        bursts.drain(..bursts.len().saturating_sub(limit));
        Ok(Reply::ok(&json!({"bursts": bursts})))
    }
}
