//! `tidegate explain`: why a request is decided as it is, with nothing charged.

use std::collections::BTreeMap;

use clap::ArgMatches;
use serde::Deserialize;
use tidegate_edge::json;

use super::ask::{self, Target};
use super::check::Decision;
use crate::Outcome;
use crate::cli::AskArgs;
use crate::failure::Failure;
use crate::output::{self, BOLD, DIM, printable};

/// An explanation as it is answered over HTTP.
#[derive(Debug, Deserialize)]
struct Explanation {
    facts: BTreeMap<String, String>,
    deciding: Option<String>,
    why: String,
    rules: Vec<Explained>,
    decision: Decision,
}

/// One rule that governs the request.
#[derive(Debug, Deserialize)]
struct Explained {
    id: String,
    matched: Vec<String>,
    key: BTreeMap<String, String>,
    fingerprint: Option<String>,
    limit: String,
    bound: String,
    why: String,
    verdict: String,
}

/// Explains one request.
///
/// # Errors
/// When there is no answer.
pub(crate) fn run(args: &AskArgs, matches: &ArgMatches) -> Result<Outcome, Failure> {
    let (target, question) = (Target::of(args, matches)?, ask::question(args)?);
    let body = ask::wait(answer(target, question))?;
    let explanation: Explanation = ask::read(&body)?;
    if args.output.json {
        output::text(&format!("{body}\n"))?;
    } else {
        output::text(&rendered(&explanation))?;
    }
    Ok(explanation.decision.allowed.into())
}

async fn answer(target: Target, question: String) -> Result<String, Failure> {
    match target {
        Target::Server(server) => ask::understood(server.post("/v1/explain", question).await?),
        Target::Here(limiter) => {
            let check: json::Check<'_> = json::parse(question.as_bytes())
                .map_err(|error| Failure::Usage(error.to_string()))?;
            let explanation = limiter.explain(&check.facts, check.cost).await;
            Ok(json::explanation(&explanation))
        }
    }
}

fn rendered(explanation: &Explanation) -> String {
    let mut text = format!("{BOLD}facts{BOLD:#}\n");
    let facts = explanation.facts.iter();
    let rows: Vec<_> = facts.map(|(name, value)| vec![printable(name), printable(value)]).collect();
    text.push_str(&output::columns(2, &rows));
    if rows.is_empty() {
        text.push_str("  none\n");
    }
    text.push_str(&format!("\n{BOLD}rules that govern the request{BOLD:#}\n"));
    for rule in &explanation.rules {
        text.push_str(&explained(rule, explanation.deciding.as_ref() == Some(&rule.id)));
    }
    if explanation.rules.is_empty() {
        text.push_str("  none\n");
    }
    let decision = &explanation.decision;
    text.push_str(&format!("\n{BOLD}decision{BOLD:#}\n  {}\n", decision.headline()));
    // The headline and the rule's state have said why a request is refused.
    if decision.allowed && !decision.is_ungoverned() {
        text.push_str(&format!("  {}\n", printable(&explanation.why)));
    }
    text
}

fn explained(rule: &Explained, decides: bool) -> String {
    let matched = match rule.matched.as_slice() {
        [] => "every request".to_owned(),
        conditions => conditions.join(" and "),
    };
    let parts: Vec<_> = rule.key.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let key = if parts.is_empty() { "one for all".to_owned() } else { parts.join(" and ") };
    let row = |name: &str, value: &str| vec![name.to_owned(), printable(value)];
    let rows = [
        row("matches", &matched),
        row("key", &key),
        row("hashed", rule.fingerprint.as_deref().unwrap_or("not shown")),
        row("limit", &rule.limit),
        row("bound", &rule.bound),
        row("state", &rule.why),
        row("verdict", &rule.verdict),
    ];
    let mark = if decides { format!("  {DIM}decides{DIM:#}") } else { String::new() };
    format!("  {BOLD}{}{BOLD:#}{mark}\n{}", printable(&rule.id), output::columns(4, &rows))
}
