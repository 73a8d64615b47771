//! Who asks most and who is refused most at present, and whose requests have jumped.

use serde_json::json;
use tidegate_edge::problem::Problem;

use super::Asked;
use super::query::{Query, wrong};
use super::reply::Reply;
use crate::top::{Sight, TopKind, TopQuery};

impl Asked<'_> {
    /// The keys that occur most. Who they are is told to whoever brought a token; others see hashes.
    pub(super) fn top(&self) -> Result<Reply, Problem> {
        let query = Query::of(&self.head.uri, &["kind", "rule"])?;
        let kind = match query.text("kind") {
            None => None,
            Some("refused") => Some(TopKind::Refused),
            Some("busiest") => Some(TopKind::Busiest),
            Some(_) => return Err(wrong("this is refused or busiest", "kind")),
        };
        let sight = if self.has_token { Sight::Clear } else { Sight::Hashed };
        let (rule, limit) = (query.text("rule"), query.limit()? as usize);
        let keys = self.top.told(&TopQuery { kind, rule, limit, sight });
        let bursts = self.top.bursts(0, sight);
        Ok(Reply::ok(&json!({"keys": keys, "bursts": bursts})))
    }
}
