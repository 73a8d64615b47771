//! Violations on record.

use std::collections::BTreeMap;

use serde_json::{Value as Json, json};
use tidegate_core::time::Timestamp;
use tidegate_edge::date::parse_rfc3339;
use tidegate_edge::problem::Problem;

use super::Asked;
use super::query::{Query, wrong};
use super::reply::Reply;
use crate::violation::{Violation, ViolationQuery, ViolationRow};

const FILTERS: [&str; 7] = ["rule", "user_id", "api_key", "ip", "since", "until", "before"];

/// The most violations that are counted for a list of who has most.
const COUNTED: usize = 100_000;

impl Asked<'_> {
    /// Violations, newest first.
    pub(super) async fn violations(&self) -> Result<Reply, Problem> {
        let query = self.asked_for()?;
        let page = self.office.repository().violations(&query).await?;
        let list: Vec<Json> = page.rows.iter().map(view).collect();
        Ok(Reply::ok(&json!({"violations": list, "next": page.next})))
    }

    /// Who was refused most by which rule.
    pub(super) async fn top_violations(&self) -> Result<Reply, Problem> {
        let mut query = self.asked_for()?;
        let limit = query.most as usize;
        query.most = 1_000;
        let mut counts: BTreeMap<(String, String), (u64, ViolationRow)> = BTreeMap::new();
        let mut counted = 0;
        loop {
            let page = self.office.repository().violations(&query).await?;
            counted += page.rows.len();
            for row in page.rows {
                let Violation { rule, bucket_key, .. } = &row.violation;
                let count = counts.entry((rule.clone(), bucket_key.clone()));
                count.or_insert((0, row)).0 += 1;
            }
            query.before = page.next;
            if page.next.is_none() || counted >= COUNTED {
                break;
            }
        }
        let mut top: Vec<(u64, ViolationRow)> = counts.into_values().collect();
        top.sort_by_key(|(count, row)| (std::cmp::Reverse(*count), row.number));
        let list = top.iter().take(limit).map(|(count, row)| {
            let mut shown = view(row);
            shown["count"] = (*count).into();
            shown
        });
        let list: Vec<Json> = list.collect();
        let told = json!({"top": list, "counted": counted, "complete": query.before.is_none()});
        Ok(Reply::ok(&told))
    }

    fn asked_for(&self) -> Result<ViolationQuery, Problem> {
        let query = Query::of(&self.head.uri, &FILTERS)?;
        let at = |name: &str| {
            let parsed = query.text(name).map(|text| {
                let secs = parse_rfc3339(text);
                secs.ok_or_else(|| wrong("this is an instant such as 2026-12-31T23:59:59Z", name))
            });
            let micros = |secs: u64| Timestamp::from_micros(secs.saturating_mul(1_000_000));
            parsed.transpose().map(|secs| secs.map(micros))
        };
        // People ask for whom they know, or for what they have read here.
        let identity = |name: &str| {
            let (value, identities) = (query.text(name)?, self.office.identities());
            Some(match name {
                _ if value.starts_with("h:") => value.to_owned(),
                "api_key" => identities.hashed(name, value),
                _ => identities.kept(name, value),
            })
        };
        Ok(ViolationQuery {
            rule: query.text("rule").map(str::to_owned),
            user_id: identity("user_id").or_else(|| identity("api_key")),
            ip: identity("ip"),
            since: at("since")?,
            until: at("until")?,
            before: query.number("before")?,
            most: query.limit()?,
        })
    }
}

fn view(row: &ViolationRow) -> Json {
    let mut view = row.violation.view();
    view["number"] = row.number.into();
    view
}
