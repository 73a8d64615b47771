//! `tidegate rules …`: which command does what, and those that only show.

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
use tidegate_server::CommandOutcome;
use tidegate_server::error::CommandError;
use tidegate_server::output::{self, DIM, escape_unprintable};

const VERSIONS: PagedList = PagedList { path: "/v1/versions", field: "versions", cursor: "before" };

/// Does what is asked with rules.
///
/// # Errors
/// When it is not done.
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

/// One rule, or that there is none and which was probably meant.
///
/// # Errors
/// When it is not told.
pub(super) async fn get_rule(api: &AdminClient, id: &str) -> Result<AdminResponse, CommandError> {
    match api.get(&format!("/v1/rules/{}", percent_encode(id))).await {
        Err(CommandError::Rejected(_)) => Err(api_errors::rule_not_found(api, id).await),
        told => told,
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
    let told = block_on(get_rule(&api, &args.id))?;
    if api.json {
        output::print_text(&format!("{}\n", told.body))?;
    } else {
        let rule = told.parse_json()?["rule"].take();
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
    let told =
        block_on(pagination::fetch_list(&api, VERSIONS, &QueryString::default(), args.limit.most))?;
    if api.json {
        output::print_json(&told)?;
        return Ok(CommandOutcome::Success);
    }
    let history: VersionsResponse = parse_list(told)?;
    let mut rows = vec![["version", "when", "who", "changes", "why"].map(str::to_owned).to_vec()];
    rows.extend(history.versions.into_iter().map(|made| {
        let VersionRow { version, author, reason, at, changes } = made;
        vec![
            version.to_string(),
            at,
            escape_unprintable(&author),
            changes.to_string(),
            escape_unprintable(&reason),
        ]
    }));
    if rows.len() == 1 {
        let text =
            "no versions: only rules in a database (--rules-db) have them, one for each change\n";
        output::print_text(text)?;
        return Ok(CommandOutcome::Success);
    }
    output::print_text(&format!(
        "{}{}",
        output::format_table(0, &rows),
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
    let told = block_on(api.get(&format!("/v1/document?format={format}")))?;
    output::print_text(&format!("{}{end}", told.body))?;
    Ok(CommandOutcome::Success)
}

/// A list that was told, in its form.
///
/// # Errors
/// When it has another.
pub(super) fn parse_list<T: for<'de> Deserialize<'de>>(told: Json) -> Result<T, CommandError> {
    serde_json::from_value(told)
        .map_err(|error| CommandError::Failed(format!("the answer is not understood: {error}")))
}

/// That a list goes on.
pub(super) fn more_entries_hint(there_is: bool) -> String {
    if there_is { format!("{DIM}there are more: --most N{DIM:#}\n") } else { String::new() }
}
