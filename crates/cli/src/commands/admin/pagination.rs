//! Fetches lists that the admin API returns in pages.

use std::fmt;

use serde::Deserialize;
use serde_json::Value as Json;
use tidegate_web::percent::percent_encode;

use super::api::AdminClient;
use tidegate_server::error::CommandError;

/// Maximum number of entries per page.
const PAGE_SIZE: u32 = 1_000;

/// A paged list of the API.
#[derive(Clone, Copy, Debug)]
pub(super) struct PagedList {
    pub(super) path: &'static str,
    /// The response field that contains the entries.
    pub(super) field: &'static str,
    /// The query parameter for the next page.
    pub(super) cursor: &'static str,
}

/// Builds a query string.
#[derive(Clone, Debug, Default)]
pub(super) struct QueryString(String);

/// A rule with its position.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct ListedRule {
    pub(super) id: String,
    pub(super) position: u64,
    pub(super) rule: Json,
}

const RULES: PagedList = PagedList { path: "/v1/rules", field: "rules", cursor: "after" };

impl QueryString {
    /// Adds a parameter, unless its value is `None`.
    pub(super) fn with_param(mut self, name: &str, value: Option<impl fmt::Display>) -> Self {
        if let Some(value) = value {
            let mark = if self.0.is_empty() { '?' } else { '&' };
            self.0.push_str(&format!("{mark}{name}={}", percent_encode(&value.to_string())));
        }
        self
    }
}

impl fmt::Display for QueryString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Fetches the first `most` entries of a list, in the form of one response of the API. Its `next`
/// is set if there are more.
///
/// # Errors
/// If a request fails or the API returns an error.
pub(super) async fn fetch_list(
    api: &AdminClient,
    list: PagedList,
    query: &QueryString,
    most: u32,
) -> Result<Json, CommandError> {
    let mut left = most;
    let mut all = Json::Null;
    let mut next: Option<String> = None;
    loop {
        let here = query
            .clone()
            .with_param("limit", Some(left.min(PAGE_SIZE)))
            .with_param(list.cursor, next);
        let mut page = api.get(&format!("{}{here}", list.path)).await?.parse_json()?;
        let entries = take_entries(&mut page, list)?;
        left = left.saturating_sub(u32::try_from(entries.len()).unwrap_or(u32::MAX));
        next = match page.get("next") {
            Some(Json::String(next)) => Some(next.clone()),
            Some(Json::Number(next)) => Some(next.to_string()),
            _ => None,
        };
        let known = all[list.field].take();
        let mut known = if let Json::Array(known) = known { known } else { Vec::new() };
        known.extend(entries);
        all = page;
        all[list.field] = known.into();
        if next.is_none() || left == 0 {
            return Ok(all);
        }
    }
}

fn take_entries(page: &mut Json, list: PagedList) -> Result<Vec<Json>, CommandError> {
    match page.get_mut(list.field).map(Json::take) {
        Some(Json::Array(entries)) => Ok(entries),
        _ => Err(CommandError::Failed(format!("the response has no list of {}", list.field))),
    }
}

/// Fetches all rules, in the form of one response of the API.
///
/// # Errors
/// If a request fails or the API returns an error.
pub(super) async fn fetch_rules_json(api: &AdminClient) -> Result<Json, CommandError> {
    fetch_list(api, RULES, &QueryString::default(), u32::MAX).await
}

/// Fetches all rules, in their order.
///
/// # Errors
/// If a request fails or the API returns an error.
pub(super) async fn fetch_rules(api: &AdminClient) -> Result<Vec<ListedRule>, CommandError> {
    let rules = fetch_rules_json(api).await?[RULES.field].take();
    serde_json::from_value(rules)
        .map_err(|error| CommandError::Failed(format!("cannot parse the list of rules: {error}")))
}
