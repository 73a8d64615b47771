//! `tidegate reset`: the counters of somebody as if they had never asked.

use http::{Method, StatusCode};
use serde_json::json;

use super::api::{Api, wait};
use super::refusal;
use crate::Outcome;
use crate::cli::ResetArgs;
use crate::commands::check::Decision;
use crate::facts;
use crate::failure::Failure;
use crate::output::{self, GOOD};

/// Resets counters.
///
/// # Errors
/// When nobody does.
pub(crate) fn run(args: &ResetArgs) -> Result<Outcome, Failure> {
    let (rule, words) = match args.words.split_first() {
        Some((first, rest)) if !first.contains('=') => (Some(first.as_str()), rest),
        _ => (None, args.words.as_slice()),
    };
    let typed: Result<Vec<_>, _> = words.iter().map(|word| facts::parse(word)).collect();
    let facts = args.api_key.among(&typed.map_err(Failure::Usage)?)?;
    if facts.is_empty() {
        let text = "whose counters?\n  write: tidegate reset FACT=VALUE …, such as ip=203.0.113.7";
        return Err(Failure::Usage(text.to_owned()));
    }
    let api = Api::new(&args.office)?;
    let mut question = json!({"facts": facts});
    if let Some(rule) = rule {
        question["rule"] = rule.into();
    }
    let told = wait(async {
        let answer = api.ask(Method::POST, "/v1/reset", question.to_string(), None).await?;
        let named = refusal::Problem::of(&answer).field.as_deref() == Some("rule");
        match rule {
            Some(rule) if named && answer.status == StatusCode::NOT_FOUND => {
                Err(refusal::no_rule(&api, rule).await)
            }
            _ => api.understood(answer).await,
        }
    })?;
    let decision: Decision = told.read()?;
    if api.json {
        output::text(&format!("{}\n", told.body))?;
    } else if decision.is_ungoverned() {
        output::text("nothing was reset: no rule counts this; `tidegate explain` says why\n")?;
    } else {
        output::text(&format!("{GOOD}reset{GOOD:#}\n{}", decision.readings()))?;
    }
    Ok((!decision.is_ungoverned()).into())
}
