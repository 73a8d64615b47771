//! `tidegate rules …`: which command does what, and those that only show.

use serde::Deserialize;
use serde_json::{Value as Json, json};
use tidegate_control::yaml_text;
use tidegate_edge::path::percent_encoded;

use super::api::{Api, Told, wait};
use super::pages::{self, List, Query};
use super::{apply, refusal, rules_change, rules_table};
use crate::Outcome;
use crate::cli::{
    Format, RulesCommand, RulesExportArgs, RulesGetArgs, RulesHistoryArgs, RulesListArgs,
};
use crate::failure::Failure;
use crate::output::{self, DIM, printable};

const VERSIONS: List = List { path: "/v1/versions", field: "versions", cursor: "before" };

/// Does what is asked with rules.
///
/// # Errors
/// When it is not done.
pub(crate) fn run(command: &RulesCommand) -> Result<Outcome, Failure> {
    match command {
        RulesCommand::List(args) => list(args),
        RulesCommand::Get(args) => get(args),
        RulesCommand::Apply(args) => apply::apply(args),
        RulesCommand::Diff(args) => apply::diff(args),
        RulesCommand::Delete(args) => rules_change::delete(args),
        RulesCommand::Enable(args) => rules_change::switch(args, "enable"),
        RulesCommand::Disable(args) => rules_change::switch(args, "disable"),
        RulesCommand::History(args) => history(args),
        RulesCommand::Rollback(args) => rules_change::rollback(args),
        RulesCommand::Export(args) => export(args),
    }
}

/// One rule, or that there is none and which was probably meant.
///
/// # Errors
/// When it is not told.
pub(super) async fn one(api: &Api, id: &str) -> Result<Told, Failure> {
    match api.get(&format!("/v1/rules/{}", percent_encoded(id))).await {
        Err(Failure::No(_)) => Err(refusal::no_rule(api, id).await),
        told => told,
    }
}

fn list(args: &RulesListArgs) -> Result<Outcome, Failure> {
    let api = Api::new(&args.office)?;
    if api.json {
        output::json(&wait(pages::rules_told(&api))?)?;
    } else {
        output::text(&rules_table::rendered(&wait(pages::rules(&api))?))?;
    }
    Ok(Outcome::Well)
}

fn get(args: &RulesGetArgs) -> Result<Outcome, Failure> {
    let api = Api::new(&args.office)?;
    let told = wait(one(&api, &args.id))?;
    if api.json {
        output::text(&format!("{}\n", told.body))?;
    } else {
        let rule = told.value()?["rule"].take();
        output::text(&yaml_text::document(&json!({"rules": [rule]})))?;
    }
    Ok(Outcome::Well)
}

fn history(args: &RulesHistoryArgs) -> Result<Outcome, Failure> {
    #[derive(Deserialize)]
    struct History {
        versions: Vec<Version>,
        next: Option<u64>,
    }
    #[derive(Deserialize)]
    struct Version {
        version: u64,
        author: String,
        reason: String,
        at: String,
        changes: u64,
    }
    let api = Api::new(&args.office)?;
    let told = wait(pages::of(&api, VERSIONS, &Query::default(), args.most.most))?;
    if api.json {
        output::json(&told)?;
        return Ok(Outcome::Well);
    }
    let history: History = read(told)?;
    let mut rows = vec![["version", "when", "who", "changes", "why"].map(str::to_owned).to_vec()];
    rows.extend(history.versions.into_iter().map(|made| {
        let Version { version, author, reason, at, changes } = made;
        vec![version.to_string(), at, printable(&author), changes.to_string(), printable(&reason)]
    }));
    if rows.len() == 1 {
        let text =
            "no versions: only rules in a database (--rules-db) have them, one for each change\n";
        output::text(text)?;
        return Ok(Outcome::Well);
    }
    output::text(&format!("{}{}", output::table(0, &rows), more(history.next.is_some())))?;
    Ok(Outcome::Well)
}

fn export(args: &RulesExportArgs) -> Result<Outcome, Failure> {
    let api = Api::new(&args.office)?;
    let (format, end) = match args.format {
        Format::Yaml if !api.json => ("yaml", ""),
        _ => ("json", "\n"),
    };
    let told = wait(api.get(&format!("/v1/document?format={format}")))?;
    output::text(&format!("{}{end}", told.body))?;
    Ok(Outcome::Well)
}

/// A list that was told, in its form.
///
/// # Errors
/// When it has another.
pub(super) fn read<T: for<'de> Deserialize<'de>>(told: Json) -> Result<T, Failure> {
    serde_json::from_value(told)
        .map_err(|error| Failure::CouldNot(format!("the answer is not understood: {error}")))
}

/// That a list goes on.
pub(super) fn more(there_is: bool) -> String {
    if there_is { format!("{DIM}there are more: --most N{DIM:#}\n") } else { String::new() }
}
