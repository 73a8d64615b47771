//! `tidegate rules …`: dispatches the subcommands, and implements those that only read.

use serde::Deserialize;
use serde_json::{Value as Json, json};
use tidegate_rules::yaml_writer;
use tidegate_web::percent::percent_encode;

use super::api::{AdminClient, AdminResponse, block_on};
use super::pagination::{self, PagedList, QueryString};
use super::{api_errors, apply, rules_change, rules_table};
use crate::cli::{
    ExportFormat, RulesCommand, RulesExportArgs, RulesGetArgs, RulesHistoryArgs, RulesListArgs,
};
use crate::table::format_table;
use tidegate_server::CommandOutcome;
use tidegate_server::error::CommandError;
use tidegate_server::output::{self, DIM, escape_unprintable};

const VERSIONS: PagedList = PagedList { path: "/v1/versions", field: "versions", cursor: "before" };

/// Runs a command on rules.
///
/// # Errors
/// If the command fails.
pub(crate) fn run(command: &RulesCommand) -> Result<CommandOutcome, CommandError> {
    match command {
        RulesCommand::List(args) => list(args),
        RulesCommand::Get(args) => get(args),
        RulesCommand::Apply(args) => apply::apply(args),
        RulesCommand::Diff(args) => apply::diff(args),
        RulesCommand::Delete(args) => rules_change::delete(args),
        RulesCommand::Enable(args) => rules_change::set_rule_active(args, "enable"),
        RulesCommand::Disable(args) => rules_change::set_rule_active(args, "disable"),
        RulesCommand::History(args) => history(args),
        RulesCommand::Rollback(args) => rules_change::rollback(args),
        RulesCommand::Export(args) => export(args),
    }
}

/// Fetches one rule.
///
/// # Errors
/// If there is no such rule (with a suggestion), or the API returns another error.
pub(super) async fn get_rule(api: &AdminClient, id: &str) -> Result<AdminResponse, CommandError> {
    match api.get(&format!("/v1/rules/{}", percent_encode(id))).await {
        Err(CommandError::Rejected(_)) => Err(api_errors::rule_not_found(api, id).await),
        result => result,
    }
}

fn list(args: &RulesListArgs) -> Result<CommandOutcome, CommandError> {
    let api = AdminClient::new(&args.admin_api)?;
    if api.json {
        output::print_json(&block_on(pagination::fetch_rules_json(&api))?)?;
    } else {
        output::print_text(&rules_table::render_table(&block_on(pagination::fetch_rules(&api))?))?;
    }
    Ok(CommandOutcome::Success)
}

fn get(args: &RulesGetArgs) -> Result<CommandOutcome, CommandError> {
    let api = AdminClient::new(&args.admin_api)?;
    let response = block_on(get_rule(&api, &args.id))?;
    if api.json {
        output::print_text(&format!("{}\n", response.body))?;
    } else {
        let rule = response.parse_json()?["rule"].take();
        output::print_text(&yaml_writer::render_yaml(&json!({"rules": [rule]})))?;
    }
    Ok(CommandOutcome::Success)
}

fn history(args: &RulesHistoryArgs) -> Result<CommandOutcome, CommandError> {
    #[derive(Deserialize)]
    struct VersionsResponse {
        versions: Vec<VersionRow>,
        next: Option<u64>,
    }
    #[derive(Deserialize)]
    struct VersionRow {
        version: u64,
        author: String,
        reason: String,
        at: String,
        changes: u64,
    }
    let api = AdminClient::new(&args.admin_api)?;
    let list =
        block_on(pagination::fetch_list(&api, VERSIONS, &QueryString::default(), args.limit.max))?;
    if api.json {
        output::print_json(&list)?;
        return Ok(CommandOutcome::Success);
    }
    let history: VersionsResponse = parse_list(list)?;
    let head = ["version", "time", "author", "changes", "reason"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(history.versions.into_iter().map(|row| {
        let VersionRow { version, author, reason, at, changes } = row;
        vec![
            version.to_string(),
            at,
            escape_unprintable(&author),
            changes.to_string(),
            escape_unprintable(&reason),
        ]
    }));
    if rows.len() == 1 {
        let text = "no versions: they are kept only for rules in a database (--rules-db)\n";
        output::print_text(text)?;
        return Ok(CommandOutcome::Success);
    }
    output::print_text(&format!(
        "{}{}",
        format_table(0, &rows),
        more_entries_hint(history.next.is_some())
    ))?;
    Ok(CommandOutcome::Success)
}

fn export(args: &RulesExportArgs) -> Result<CommandOutcome, CommandError> {
    let api = AdminClient::new(&args.admin_api)?;
    let (format, end) = match args.format {
        ExportFormat::Yaml if !api.json => ("yaml", ""),
        _ => ("json", "\n"),
    };
    let response = block_on(api.get(&format!("/v1/document?format={format}")))?;
    output::print_text(&format!("{}{end}", response.body))?;
    Ok(CommandOutcome::Success)
}

/// Converts a list from JSON.
///
/// # Errors
/// If the list does not have the expected form.
pub(super) fn parse_list<T: for<'de> Deserialize<'de>>(list: Json) -> Result<T, CommandError> {
    serde_json::from_value(list)
        .map_err(|error| CommandError::Failed(format!("cannot parse the response: {error}")))
}

/// The line to print below a list that is not complete.
pub(super) fn more_entries_hint(has_more: bool) -> String {
    if has_more {
        format!("{DIM}there are more; raise --max to list them{DIM:#}\n")
    } else {
        String::new()
    }
}
