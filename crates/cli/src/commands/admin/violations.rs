//! `tidegate violations`: which clients were refused, by which rule and how often.

use std::time::Duration;

use serde::Deserialize;
use serde_json::Value as Json;
use tidegate_web::date::format_rfc3339;

use super::api::{AdminClient, block_on};
use super::pagination::{self, PagedList, QueryString};
use super::rules::{more_entries_hint, parse_list};
use crate::cli::ViolationsArgs;
use crate::table::format_table;
use tidegate_server::CommandOutcome;
use tidegate_server::error::CommandError;
use tidegate_server::output::{self, DIM, escape_unprintable};
use tidegate_server::rule_manager::wall_clock;

const VIOLATIONS: PagedList =
    PagedList { path: "/v1/violations", field: "violations", cursor: "before" };

/// Poll interval of `--follow`.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum number of violations to fetch per poll, and of groups that the API returns for `--top`.
const MAX_NEW_VIOLATIONS: u32 = 1_000;

#[derive(Deserialize)]
struct ViolationsResponse {
    violations: Vec<ViolationEntry>,
    next: Option<u64>,
}

#[derive(Deserialize)]
struct TopViolationsResponse {
    top: Vec<ViolationEntry>,
    counted: u64,
    complete: bool,
}

#[derive(Deserialize)]
struct ViolationEntry {
    number: u64,
    at: String,
    rule: String,
    user_id: Option<String>,
    ip: Option<String>,
    endpoint: Option<String>,
    enforced: bool,
    #[serde(default)]
    count: u64,
}

/// Lists violations.
///
/// # Errors
/// If the API key cannot be read, or the API returns an error.
pub(crate) fn run(args: &ViolationsArgs) -> Result<CommandOutcome, CommandError> {
    let (api, query) = (AdminClient::new(&args.admin_api)?, build_query(args)?);
    match (args.top, args.follow) {
        (true, _) => top(&api, &query, args.limit.max),
        (_, true) => block_on(follow(&api, &query, args.limit.max)),
        _ => list(&api, &query, args.limit.max),
    }
}

fn build_query(args: &ViolationsArgs) -> Result<QueryString, CommandError> {
    let since = args.since.map(|span| {
        let from = wall_clock()().minus(span).as_micros();
        format_rfc3339(from / 1_000_000)
    });
    let key = match &args.api_key.typed {
        Some(typed) => Some(typed.clone()),
        None => args.api_key.file.read_key()?,
    };
    Ok(QueryString::default()
        .with_param("since", since)
        .with_param("rule", args.rule.as_deref())
        .with_param("user_id", args.user.as_deref())
        .with_param("ip", args.ip.as_deref())
        .with_param("api_key", key))
}

fn list(api: &AdminClient, query: &QueryString, most: u32) -> Result<CommandOutcome, CommandError> {
    let list = block_on(pagination::fetch_list(api, VIOLATIONS, query, most))?;
    if api.json {
        output::print_json(&list)?;
        return Ok(CommandOutcome::Success);
    }
    let ViolationsResponse { violations, next } = parse_list(list)?;
    if violations.is_empty() {
        output::print_text("no violations\n")?;
        return Ok(CommandOutcome::Success);
    }
    let mut rows = vec![["when", "rule", "user", "ip", "endpoint", ""].map(str::to_owned).to_vec()];
    rows.extend(violations.iter().map(ViolationEntry::table_row));
    output::print_text(&format!(
        "{}{}",
        format_table(0, &rows),
        more_entries_hint(next.is_some())
    ))?;
    Ok(CommandOutcome::Success)
}

fn top(api: &AdminClient, query: &QueryString, most: u32) -> Result<CommandOutcome, CommandError> {
    let query = query.clone().with_param("limit", Some(most.min(MAX_NEW_VIOLATIONS)));
    let response = block_on(api.get(&format!("{}/top{query}", VIOLATIONS.path)))?;
    if api.json {
        output::print_text(&format!("{}\n", response.body))?;
        return Ok(CommandOutcome::Success);
    }
    let TopViolationsResponse { top, counted, complete } = response.parse()?;
    if top.is_empty() {
        output::print_text("no violations\n")?;
        return Ok(CommandOutcome::Success);
    }
    let head = ["times", "last", "rule", "user", "ip", "endpoint", ""];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(top.iter().map(|violation| {
        let mut row = vec![violation.count.to_string()];
        row.extend(violation.table_row());
        row
    }));
    let mut text = format_table(0, &rows);
    if !complete {
        text.push_str(&format!(
            "{DIM}only the newest {counted} violations were counted; narrow the range with --since{DIM:#}\n"
        ));
    }
    output::print_text(&text)?;
    Ok(CommandOutcome::Success)
}

/// Prints existing violations, oldest first, and then new ones, until interrupted.
async fn follow(
    api: &AdminClient,
    query: &QueryString,
    most: u32,
) -> Result<CommandOutcome, CommandError> {
    let (mut last, mut limit) = (0, most);
    loop {
        let mut list = pagination::fetch_list(api, VIOLATIONS, query, limit).await?;
        let Json::Array(found) = list[VIOLATIONS.field].take() else {
            return Ok(CommandOutcome::Success);
        };
        if found
            .first()
            .and_then(|newest| newest["number"].as_u64())
            .is_some_and(|newest| newest < last)
        {
            // Numbering restarts when the rules move from a file to a database.
            last = 0;
        }
        for entry in found.into_iter().rev() {
            let violation: ViolationEntry = parse_list(entry.clone())?;
            if violation.number <= last {
                continue;
            }
            last = violation.number;
            match api.json {
                true => output::print_json(&entry)?,
                false => output::print_text(&format!(
                    "{}\n",
                    violation.table_row().join("  ").trim_end()
                ))?,
            }
        }
        limit = MAX_NEW_VIOLATIONS;
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

impl ViolationEntry {
    fn table_row(&self) -> Vec<String> {
        let text = |value: &Option<String>| {
            value.as_deref().map_or_else(|| "-".to_owned(), escape_unprintable)
        };
        let shadow = if self.enforced { "" } else { "not enforced" };
        vec![
            escape_unprintable(&self.at),
            escape_unprintable(&self.rule),
            text(&self.user_id),
            text(&self.ip),
            text(&self.endpoint),
            shadow.to_owned(),
        ]
    }
}
