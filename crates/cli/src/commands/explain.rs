//! `tidegate explain`: shows why a request is allowed or refused, without charging counters.

use std::collections::BTreeMap;

use clap::ArgMatches;
use serde::Deserialize;
use tidegate_api::json;

use super::check::DecisionResponse;
use super::decision_query::{self, DecisionTarget};
use crate::cli::DecisionArgs;
use crate::table::format_columns;
use tidegate_server::CommandOutcome;
use tidegate_server::error::CommandError;
use tidegate_server::output::{self, BOLD, DIM, escape_unprintable};

/// The response body of `/v1/explain`.
#[derive(Debug, Deserialize)]
struct ExplainResponse {
    facts: BTreeMap<String, String>,
    deciding: Option<String>,
    why: String,
    rules: Vec<ExplainedRule>,
    decision: DecisionResponse,
}

/// One rule that governs the request.
#[derive(Debug, Deserialize)]
struct ExplainedRule {
    id: String,
    matched: Vec<String>,
    key: BTreeMap<String, String>,
    fingerprint: Option<String>,
    limit: String,
    consistency: Option<ExplainedConsistency>,
    /// From which regions the node borrows; missing in responses of earlier versions.
    borrow: Option<String>,
    bound: String,
    why: String,
    verdict: String,
}

/// How the nodes agree on the rule's counter.
#[derive(Debug, Deserialize)]
struct ExplainedConsistency {
    mode: String,
    description: String,
    /// What the node holds of the counter.
    units: Option<u64>,
}

/// Explains one request.
///
/// # Errors
/// If the arguments are wrong or the server does not respond.
pub(crate) fn run(
    args: &DecisionArgs,
    matches: &ArgMatches,
) -> Result<CommandOutcome, CommandError> {
    let (target, request) =
        (DecisionTarget::from_args(args, matches)?, decision_query::request_body(args)?);
    let body = decision_query::block_on(fetch_explanation(target, request))?;
    let explanation: ExplainResponse = decision_query::parse_response(&body)?;
    if args.output.json {
        output::print_text(&format!("{body}\n"))?;
    } else {
        output::print_text(&render_explanation(&explanation))?;
    }
    Ok(explanation.decision.allowed.into())
}

async fn fetch_explanation(
    target: DecisionTarget,
    request: String,
) -> Result<String, CommandError> {
    match target {
        DecisionTarget::Remote(server) => {
            decision_query::check_response(server.post("/v1/explain", request).await?)
        }
        DecisionTarget::InProcess(limiter) => {
            let check: json::CheckRequest<'_> = json::parse(request.as_bytes())
                .map_err(|error| CommandError::Usage(error.to_string()))?;
            let explanation = limiter.explain(&check.facts, check.cost).await;
            Ok(json::encode_explanation(&explanation))
        }
    }
}

fn render_explanation(explanation: &ExplainResponse) -> String {
    let mut text = format!("{BOLD}facts{BOLD:#}\n");
    let facts = explanation.facts.iter();
    let rows: Vec<_> = facts
        .map(|(name, value)| vec![escape_unprintable(name), escape_unprintable(value)])
        .collect();
    text.push_str(&format_columns(2, &rows));
    if rows.is_empty() {
        text.push_str("  none\n");
    }
    text.push_str(&format!("\n{BOLD}rules that govern the request{BOLD:#}\n"));
    for rule in &explanation.rules {
        text.push_str(&render_rule(rule, explanation.deciding.as_ref() == Some(&rule.id)));
    }
    if explanation.rules.is_empty() {
        text.push_str("  none\n");
    }
    let decision = &explanation.decision;
    text.push_str(&format!("\n{BOLD}decision{BOLD:#}\n  {}\n", decision.headline()));
    // For a refused request, the headline and the rule's state already give the reason.
    if decision.allowed && !decision.is_ungoverned() {
        text.push_str(&format!("  {}\n", escape_unprintable(&explanation.why)));
    }
    text
}

fn render_rule(rule: &ExplainedRule, decides: bool) -> String {
    let matched = match rule.matched.as_slice() {
        [] => "every request".to_owned(),
        conditions => conditions.join(" and "),
    };
    let parts: Vec<_> = rule.key.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let key =
        if parts.is_empty() { "shared by all clients".to_owned() } else { parts.join(" and ") };
    let row = |name: &str, value: &str| vec![name.to_owned(), escape_unprintable(value)];
    let mut rows = vec![
        row("matches", &matched),
        row("key", &key),
        row("hashed", rule.fingerprint.as_deref().unwrap_or("not shown")),
        row("limit", &rule.limit),
    ];
    if let Some(ExplainedConsistency { mode, description, units }) = &rule.consistency {
        rows.push(row("counted", description));
        let held = match mode.as_str() {
            "leased" => "leased and not spent",
            _ => "admitted and not reported to the store",
        };
        rows.extend(units.map(|units| row("this node", &format!("{units} units {held}"))));
    }
    rows.extend(rule.borrow.as_deref().map(|borrow| row("borrows", borrow)));
    rows.extend([
        row("bound", &rule.bound),
        row("state", &rule.why),
        row("verdict", &rule.verdict),
    ]);
    let mark = if decides { format!("  {DIM}decides{DIM:#}") } else { String::new() };
    format!("  {BOLD}{}{BOLD:#}{mark}\n{}", escape_unprintable(&rule.id), format_columns(4, &rows))
}
