//! `tidegate override …`: a different limit for one key of a rule.

use http::{HeaderValue, Method, StatusCode};
use serde::Deserialize;
use serde_json::{Map, Value as Json, json};
use tidegate_web::date::{format_rfc3339, parse_rfc3339};
use tidegate_web::percent::percent_encode;

use super::api::{AdminClient, AdminResponse, block_on};
use super::api_errors::{self, ProblemResponse};
use super::pagination::{self, PagedList, QueryString};
use super::rules::{more_entries_hint, parse_list};
use super::{apply, confirm};
use crate::cli::{ConfirmArgs, OverrideCommand, OverrideListArgs, OverrideRmArgs, OverrideSetArgs};
use crate::table::format_table;
use tidegate_server::CommandOutcome;
use tidegate_server::error::CommandError;
use tidegate_server::output::{self, escape_unprintable};
use tidegate_server::rule_manager::wall_clock;

const OVERRIDES: PagedList =
    PagedList { path: "/v1/overrides", field: "overrides", cursor: "after" };

/// Runs a command on overrides.
///
/// # Errors
/// If the command fails.
pub(crate) fn run(command: &OverrideCommand) -> Result<CommandOutcome, CommandError> {
    match command {
        OverrideCommand::Set(args) => set(args),
        OverrideCommand::List(args) => list(args),
        OverrideCommand::Rm(args) => remove(args),
    }
}

fn set(args: &OverrideSetArgs) -> Result<CommandOutcome, CommandError> {
    let api = AdminClient::with_author(&args.admin_api, &args.authorship)?;
    let key = args.api_key.merge_with_facts(&args.key)?;
    if key.is_empty() {
        return Err(CommandError::Usage(format!(
            "the key of the override is missing\n  \
             write: tidegate override set {} FACT=VALUE …, with the facts that the rule counts by",
            args.rule
        )));
    }
    let now = wall_clock()();
    let until =
        args.lasting.map(|span| format_rfc3339(now.plus(span).as_micros().div_ceil(1_000_000)));
    let until = args.until.clone().or(until);
    if until
        .as_deref()
        .and_then(parse_rfc3339)
        .is_some_and(|end| end <= now.as_micros() / 1_000_000)
    {
        return Err(CommandError::Usage("--until must be in the future".to_owned()));
    }
    let mut entry = json!({"rule": args.rule, "key": key, "requests": args.requests});
    let optional = [
        ("burst", args.burst.map(Json::from)),
        ("until", until.map(Json::from)),
        ("note", args.note.clone().map(Json::from)),
    ];
    for (name, value) in optional {
        if let Some(value) = value {
            entry[name] = value;
        }
    }
    let response =
        block_on(put_entry(&api, OVERRIDES.path, &entry, &args.confirm, Some(&args.rule)))?;
    apply::report_version(&api, &response, "set")
}

/// Sets an entry; asks for confirmation before it replaces an existing one.
///
/// # Errors
/// If the user declines or the API returns an error.
pub(super) async fn put_entry(
    api: &AdminClient,
    path: &str,
    entry: &Json,
    args: &ConfirmArgs,
    rule: Option<&str>,
) -> Result<AdminResponse, CommandError> {
    let body = entry.to_string();
    let response = api.send_request(Method::POST, path, body.clone(), None).await?;
    if response.status == StatusCode::PRECONDITION_REQUIRED {
        confirm::prompt_to_continue("There is one already. Replace it?", args)?;
        return api
            .send_change(Method::POST, path, body, Some(HeaderValue::from_static("*")))
            .await;
    }
    if let Some(rule) = rule
        && ProblemResponse::from_response(&response).field.as_deref() == Some("rule")
    {
        return Err(api_errors::rule_not_found(api, rule).await);
    }
    api.check_response(response).await
}

#[derive(Deserialize)]
struct OverridesResponse {
    overrides: Vec<OverrideRow>,
    next: Option<String>,
}

#[derive(Deserialize)]
struct OverrideRow {
    id: String,
    pub rule: String,
    pub key: Map<String, Json>,
    pub key_by: Vec<String>,
    pub requests: Json,
    pub burst: Option<u64>,
    until: Option<String>,
    pub note: Option<String>,
}

fn list(args: &OverrideListArgs) -> Result<CommandOutcome, CommandError> {
    let api = AdminClient::new(&args.admin_api)?;
    let query = QueryString::default().with_param("rule", args.rule.as_deref());
    let list = block_on(pagination::fetch_list(&api, OVERRIDES, &query, args.limit.max))?;
    if api.json {
        output::print_json(&list)?;
        return Ok(CommandOutcome::Success);
    }
    let OverridesResponse { overrides, next } = parse_list(list)?;
    if overrides.is_empty() {
        output::print_text("no overrides\n")?;
        return Ok(CommandOutcome::Success);
    }
    let head = ["rule", "key", "requests", "burst", "until", "id", "note"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(overrides.iter().map(OverrideRow::table_row));
    output::print_text(&format!(
        "{}{}",
        format_table(0, &rows),
        more_entries_hint(next.is_some())
    ))?;
    Ok(CommandOutcome::Success)
}

impl OverrideRow {
    fn table_row(&self) -> Vec<String> {
        let text =
            |value: &Json| value.as_str().map_or_else(|| value.to_string(), escape_unprintable);
        // The server stores only the hash of an API key, so its value is missing.
        let key = self.key_by.iter().map(|name| match self.key.get(name) {
            Some(value) => format!("{}={}", escape_unprintable(name), text(value)),
            None => format!("{}=…", escape_unprintable(name)),
        });
        vec![
            escape_unprintable(&self.rule),
            key.collect::<Vec<_>>().join(" "),
            text(&self.requests),
            self.burst.map_or_else(|| "-".to_owned(), |burst| burst.to_string()),
            self.until.clone().unwrap_or_else(|| "no end".to_owned()),
            escape_unprintable(&self.id),
            self.note.as_deref().map(escape_unprintable).unwrap_or_default(),
        ]
    }
}

fn remove(args: &OverrideRmArgs) -> Result<CommandOutcome, CommandError> {
    let api = AdminClient::with_author(&args.admin_api, &args.authorship)?;
    let response = block_on(remove_entry(&api, OVERRIDES.path, &args.id))?;
    apply::report_version(&api, &response, "removed")
}

/// Removes the current version of an entry.
///
/// # Errors
/// If the entry does not exist, changes meanwhile, or the API returns another error.
pub(super) async fn remove_entry(
    api: &AdminClient,
    list: &str,
    id: &str,
) -> Result<AdminResponse, CommandError> {
    let path = format!("{list}/{}", percent_encode(id));
    let seen = api.get(&path).await?.etag;
    api.send_change(Method::DELETE, &path, String::new(), seen).await
}
