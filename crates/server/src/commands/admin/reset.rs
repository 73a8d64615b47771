//! `tidegate reset`: the counters of a client, or all of a rule, as if they had never been used.

use http::Method;
use serde_json::json;
use tidegate_edge::path::percent_encoded;
use tidegate_rules::FIRST_GENERATION;

use super::api::{Api, wait};
use super::client::Client;
use super::{confirm, rules};
use crate::Outcome;
use crate::cli::ResetArgs;
use crate::commands::check::Decision;
use crate::failure::Failure;
use crate::output::{self, GOOD, printable};

/// Resets counters.
///
/// # Errors
/// When they are not reset.
pub(crate) fn run(args: &ResetArgs) -> Result<Outcome, Failure> {
    let client = Client::typed(&args.words, args.rule.as_deref(), &args.api_key)?;
    if args.all {
        return reset_all(args, &client);
    }
    if client.facts.is_empty() && client.rule.is_none() {
        let text = "whose counters?\n  write: tidegate reset FACT=VALUE …, such as ip=203.0.113.7";
        return Err(Failure::Usage(text.to_owned()));
    }
    let api = Api::new(&args.office)?;
    let told = wait(client.ask(&api, "/v1/reset"))?;
    let decision: Decision = told.read()?;
    if api.json {
        output::text(&format!("{}\n", told.body))?;
    } else if decision.is_ungoverned() {
        output::text(
            "nothing was reset: no rule counts this; `tidegate rules list` shows what they count by\n",
        )?;
    } else {
        output::text(&format!("{GOOD}reset{GOOD:#}\n{}", decision.readings()))?;
    }
    Ok((!decision.is_ungoverned()).into())
}

/// Gives a rule's counters a new generation.
fn reset_all(args: &ResetArgs, client: &Client) -> Result<Outcome, Failure> {
    let (Some(id), true) = (&client.rule, client.facts.is_empty()) else {
        let text = "--all resets every counter of one rule\n  write: tidegate reset RULE --all";
        return Err(Failure::Usage(text.to_owned()));
    };
    let api = Api::signed(&args.office, &args.sign)?;
    let (seen, status) = wait(async {
        let status = api.get("/v1/status").await?.value()?;
        Ok((rules::one(&api, id).await?, status))
    })?;
    let generation = seen.value()?["rule"]["generation"].as_u64();
    let next = generation.unwrap_or_else(|| u64::from(FIRST_GENERATION)) + 1;
    let source = &status["rules"];
    if source["editable"] == false {
        let why = printable(source["read_only_reason"].as_str().unwrap_or_default());
        let id = printable(id);
        return Err(Failure::No(format!("{why}\n  write in rule `{id}`: generation: {next}")));
    }
    let shown = printable(id);
    let question = format!("Reset all counters, warnings and bans of rule `{shown}`?");
    confirm::ask(&question, &args.confirm)?;
    let path = format!("/v1/rules/{}", percent_encoded(id));
    let edit = json!({"generation": next}).to_string();
    let told = wait(api.change(Method::PATCH, &path, edit, seen.tag))?;
    let text = format!("{GOOD}reset{GOOD:#}: rule {shown} is at generation {next}\n");
    output::text(&if api.json { format!("{}\n", told.body) } else { text })?;
    Ok(Outcome::Well)
}
