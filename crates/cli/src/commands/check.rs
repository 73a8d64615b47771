//! `tidegate check`: decides one request and charges its counters.

use clap::ArgMatches;
use serde::Deserialize;
use tidegate_api::json;
use tidegate_core::time::Micros;

use super::decision_query::{self, DecisionTarget};
use crate::cli::DecisionArgs;
use crate::table::format_table;
use tidegate_server::CommandOutcome;
use tidegate_server::error::CommandError;
use tidegate_server::output::{self, BAD, GOOD, escape_unprintable};

/// The response body of `/v1/check`.
#[derive(Debug, Deserialize)]
pub(super) struct DecisionResponse {
    pub(super) allowed: bool,
    rule: Option<String>,
    retry_after_ms: Option<u64>,
    delay_ms: u64,
    answered_by: String,
    rules: Vec<CheckedRule>,
}

/// One rule's part in the decision.
#[derive(Debug, Deserialize)]
struct CheckedRule {
    id: String,
    verdict: String,
    limit: Option<u64>,
    remaining: Option<u64>,
    reset_after_ms: u64,
}

/// Decides one request.
///
/// # Errors
/// If the arguments are wrong or the server does not respond.
pub(crate) fn run(
    args: &DecisionArgs,
    matches: &ArgMatches,
) -> Result<CommandOutcome, CommandError> {
    let (target, request) =
        (DecisionTarget::from_args(args, matches)?, decision_query::request_body(args)?);
    let body = decision_query::block_on(fetch_decision(target, request))?;
    let decision: DecisionResponse = decision_query::parse_response(&body)?;
    if args.output.json {
        output::print_text(&format!("{body}\n"))?;
    } else {
        output::print_text(&render_decision(&decision))?;
    }
    Ok(decision.allowed.into())
}

async fn fetch_decision(target: DecisionTarget, request: String) -> Result<String, CommandError> {
    match target {
        DecisionTarget::Remote(server) => {
            decision_query::check_response(server.post("/v1/check", request).await?)
        }
        DecisionTarget::InProcess(limiter) => {
            let check: json::CheckRequest<'_> = json::parse(request.as_bytes())
                .map_err(|error| CommandError::Usage(error.to_string()))?;
            let decision = limiter.decide(&check.facts, check.cost).await;
            Ok(json::encode_decision(&decision))
        }
    }
}

fn render_decision(decision: &DecisionResponse) -> String {
    let mut text = format!("{}\n", decision.headline());
    if decision.is_ungoverned() {
        return text;
    }
    text.push_str(&decision.render_readings());
    if decision.answered_by == "fallback" {
        text.push_str("  the store did not answer; the rules' `on_fail` decided\n");
    }
    text
}

impl DecisionResponse {
    /// Whether no rule governs the request.
    pub(super) fn is_ungoverned(&self) -> bool {
        self.rules.is_empty()
    }

    /// A table of the rules, with what is left of their limits.
    pub(super) fn render_readings(&self) -> String {
        let mut rows =
            vec![["rule", "verdict", "left", "full again in"].map(str::to_owned).to_vec()];
        rows.extend(self.rules.iter().map(|reading| {
            let left = reading.remaining.zip(reading.limit);
            let left = left.map_or("-".to_owned(), |(left, limit)| format!("{left} of {limit}"));
            vec![
                escape_unprintable(&reading.id),
                escape_unprintable(&reading.verdict),
                left,
                format_millis(reading.reset_after_ms),
            ]
        }));
        format_table(2, &rows)
    }

    /// The decision in one line.
    pub(super) fn headline(&self) -> String {
        let rule = self.rule.as_deref().map(escape_unprintable).unwrap_or_default();
        match (self.allowed, self.delay_ms, self.retry_after_ms) {
            (true, 0, _) if self.rules.is_empty() => {
                format!("{GOOD}allowed{GOOD:#}: no rule governs this request")
            }
            (true, 0, _) => format!("{GOOD}allowed{GOOD:#}"),
            (true, delay, _) => {
                format!("{GOOD}allowed{GOOD:#}, after a delay of {}", format_millis(delay))
            }
            (false, _, Some(wait)) => {
                format!("{BAD}refused{BAD:#} by {rule}: retry in {}", format_millis(wait))
            }
            (false, _, None) => {
                format!("{BAD}refused{BAD:#} by {rule}: this request can never pass")
            }
        }
    }
}

pub(super) fn format_millis(millis: u64) -> String {
    Micros::from_millis(millis).to_human_string()
}
