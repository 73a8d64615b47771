//! `tidegate reset`: resets the counters of a client, or all counters of a rule.

use http::Method;
use serde_json::json;
use tidegate_rules::FIRST_GENERATION;
use tidegate_web::percent::percent_encode;

use super::api::{AdminClient, block_on};
use super::client_selector::ClientSelector;
use super::{confirm, rules};
use crate::cli::ResetArgs;
use crate::commands::check::DecisionResponse;
use tidegate_server::CommandOutcome;
use tidegate_server::error::CommandError;
use tidegate_server::output::{self, GOOD, escape_unprintable};

/// Resets counters.
///
/// # Errors
/// If the arguments are wrong or the API returns an error.
pub(crate) fn run(args: &ResetArgs) -> Result<CommandOutcome, CommandError> {
    let client = ClientSelector::parse(&args.words, args.rule.as_deref(), &args.api_key)?;
    if args.all {
        return reset_rule(args, &client);
    }
    if client.facts.is_empty() && client.rule.is_none() {
        let text = "name the client whose counters to reset\n  \
                    write: tidegate reset FACT=VALUE …, such as ip=203.0.113.7";
        return Err(CommandError::Usage(text.to_owned()));
    }
    let api = AdminClient::new(&args.admin_api)?;
    let response = block_on(client.query(&api, "/v1/reset"))?;
    let decision: DecisionResponse = response.parse()?;
    if api.json {
        output::print_text(&format!("{}\n", response.body))?;
    } else if decision.is_ungoverned() {
        output::print_text(
            "nothing was reset: no rule counts by these facts; see `tidegate rules list`\n",
        )?;
    } else {
        output::print_text(&format!("{GOOD}reset{GOOD:#}\n{}", decision.render_readings()))?;
    }
    Ok((!decision.is_ungoverned()).into())
}

/// Resets all counters of a rule by giving it a new generation.
fn reset_rule(args: &ResetArgs, client: &ClientSelector) -> Result<CommandOutcome, CommandError> {
    let (Some(id), true) = (&client.rule, client.facts.is_empty()) else {
        let text = "--all resets every counter of one rule\n  write: tidegate reset RULE --all";
        return Err(CommandError::Usage(text.to_owned()));
    };
    let api = AdminClient::with_author(&args.admin_api, &args.authorship)?;
    let (seen, status) = block_on(async {
        let status = api.get("/v1/status").await?.parse_json()?;
        Ok((rules::get_rule(&api, id).await?, status))
    })?;
    let generation = seen.parse_json()?["rule"]["generation"].as_u64();
    let next = generation.unwrap_or_else(|| u64::from(FIRST_GENERATION)) + 1;
    let source = &status["rules"];
    if source["editable"] == false {
        let why = escape_unprintable(source["read_only_reason"].as_str().unwrap_or_default());
        let id = escape_unprintable(id);
        return Err(CommandError::Rejected(format!(
            "{why}\n  write in rule `{id}`: generation: {next}"
        )));
    }
    let shown = escape_unprintable(id);
    let question = format!("Reset all counters, warnings and bans of rule `{shown}`?");
    confirm::prompt_to_continue(&question, &args.confirm)?;
    let path = format!("/v1/rules/{}", percent_encode(id));
    let edit = json!({"generation": next}).to_string();
    let response = block_on(api.send_change(Method::PATCH, &path, edit, seen.etag))?;
    let text = format!("{GOOD}reset{GOOD:#}: rule {shown} is at generation {next}\n");
    output::print_text(&if api.json { format!("{}\n", response.body) } else { text })?;
    Ok(CommandOutcome::Success)
}
