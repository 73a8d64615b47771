//! Queries of the violation log.

use std::collections::BTreeMap;

use serde_json::{Value as Json, json};
use tidegate_core::time::Timestamp;
use tidegate_rules::Facts;
use tidegate_web::date::parse_rfc3339;
use tidegate_web::problem::HttpError;

use super::AdminRequest;
use super::query::{AdminQuery, invalid_param};
use super::reply::{AdminReply, database_problem};
use tidegate_telemetry::{RuleViolation, ViolationQuery, ViolationRow};

const FILTERS: [&str; 7] = ["rule", "user_id", "api_key", "ip", "since", "until", "before"];

/// The maximum number of violations that [`AdminRequest::top_violations`] scans.
const MAX_COUNTED: usize = 100_000;

impl AdminRequest<'_> {
    /// Violations, newest first.
    pub(super) async fn violations(&self) -> Result<AdminReply, HttpError> {
        let query = self.violation_query()?;
        let page = self.manager.repository().violations(&query).await.map_err(database_problem)?;
        let list: Vec<Json> = page.rows.iter().map(violation_view).collect();
        Ok(AdminReply::ok(&json!({"violations": list, "next": page.next})))
    }

    /// The clients with the most violations, by rule.
    pub(super) async fn top_violations(&self) -> Result<AdminReply, HttpError> {
        let mut query = self.violation_query()?;
        let limit = query.limit as usize;
        query.limit = 1_000;
        let mut counts: BTreeMap<(String, String), (u64, ViolationRow)> = BTreeMap::new();
        let mut counted = 0;
        loop {
            let page =
                self.manager.repository().violations(&query).await.map_err(database_problem)?;
            counted += page.rows.len();
            for row in page.rows {
                let RuleViolation { rule, bucket_key, .. } = &row.violation;
                let count = counts.entry((rule.clone(), bucket_key.clone()));
                count.or_insert((0, row)).0 += 1;
            }
            query.before = page.next;
            if page.next.is_none() || counted >= MAX_COUNTED {
                break;
            }
        }
        let mut top: Vec<(u64, ViolationRow)> = counts.into_values().collect();
        top.sort_by_key(|(count, row)| (std::cmp::Reverse(*count), row.number));
        let list = top.iter().take(limit).map(|(count, row)| {
            let mut shown = violation_view(row);
            shown["count"] = (*count).into();
            shown
        });
        let list: Vec<Json> = list.collect();
        let view = json!({"top": list, "counted": counted, "complete": query.before.is_none()});
        Ok(AdminReply::ok(&view))
    }

    fn violation_query(&self) -> Result<ViolationQuery, HttpError> {
        let query = AdminQuery::parse(&self.head.uri, &FILTERS)?;
        let at = |name: &str| {
            let parsed = query.text(name).map(|text| {
                let secs = parse_rfc3339(text);
                secs.ok_or_else(|| {
                    invalid_param("must be a time such as 2026-12-31T23:59:59Z", name)
                })
            });
            let micros = |secs: u64| Timestamp::from_micros(secs.saturating_mul(1_000_000));
            parsed.transpose().map(|secs| secs.map(micros))
        };
        // Accept both a plain identity and a hash copied from an earlier response.
        let identity = |name: &str| {
            let (value, identities) = (query.text(name)?, self.manager.identities());
            Some(match name {
                _ if value.starts_with("h:") => value.to_owned(),
                "api_key" => identities.hash_value(name, value),
                "ip" => {
                    let facts: Facts<'_> = [(name, value)].into_iter().collect();
                    identities.mask_ip(&facts, self.rules)?
                }
                _ => identities.mask(name, value),
            })
        };
        Ok(ViolationQuery {
            rule: query.text("rule").map(str::to_owned),
            user_id: identity("user_id").or_else(|| identity("api_key")),
            ip: identity("ip"),
            since: at("since")?,
            until: at("until")?,
            before: query.number("before")?,
            limit: query.limit()?,
        })
    }
}

fn violation_view(row: &ViolationRow) -> Json {
    let mut view = row.violation.view();
    view["number"] = row.number.into();
    view
}
