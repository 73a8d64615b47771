//! `tidegate check`: one request decided and charged.

use clap::ArgMatches;
use serde::Deserialize;
use tidegate_core::time::Micros;
use tidegate_edge::json;

use super::ask::{self, Target};
use crate::Outcome;
use crate::cli::AskArgs;
use crate::failure::Failure;
use crate::output::{self, BAD, GOOD, printable};

/// A decision as it is answered over HTTP.
#[derive(Debug, Deserialize)]
pub(super) struct Decision {
    pub(super) allowed: bool,
    rule: Option<String>,
    retry_after_ms: Option<u64>,
    delay_ms: u64,
    answered_by: String,
    rules: Vec<Reading>,
}

/// One rule's part in it.
#[derive(Debug, Deserialize)]
struct Reading {
    id: String,
    verdict: String,
    limit: Option<u64>,
    remaining: Option<u64>,
    reset_after_ms: u64,
}

/// Decides one request.
///
/// # Errors
/// When there is no answer.
pub(crate) fn run(args: &AskArgs, matches: &ArgMatches) -> Result<Outcome, Failure> {
    let (target, question) = (Target::of(args, matches)?, ask::question(args)?);
    let body = ask::wait(answer(target, question))?;
    let decision: Decision = ask::read(&body)?;
    if args.output.json {
        output::text(&format!("{body}\n"))?;
    } else {
        output::text(&rendered(&decision))?;
    }
    Ok(decision.allowed.into())
}

async fn answer(target: Target, question: String) -> Result<String, Failure> {
    match target {
        Target::Server(server) => ask::understood(server.post("/v1/check", question).await?),
        Target::Here(limiter) => {
            let check: json::Check<'_> = json::parse(question.as_bytes())
                .map_err(|error| Failure::Usage(error.to_string()))?;
            let decision = limiter.decide(&check.facts, check.cost).await;
            Ok(json::decision(&decision))
        }
    }
}

fn rendered(decision: &Decision) -> String {
    let mut text = format!("{}\n", decision.headline());
    if decision.is_ungoverned() {
        return text;
    }
    text.push_str(&decision.readings());
    if decision.answered_by == "fallback" {
        text.push_str("  the store did not answer; the rules' `on_fail` did\n");
    }
    text
}

impl Decision {
    /// Whether no rule governs the request.
    pub(super) fn is_ungoverned(&self) -> bool {
        self.rules.is_empty()
    }

    /// What every rule has left.
    pub(super) fn readings(&self) -> String {
        let mut rows =
            vec![["rule", "verdict", "left", "full again in"].map(str::to_owned).to_vec()];
        rows.extend(self.rules.iter().map(|reading| {
            let left = reading.remaining.zip(reading.limit);
            let left = left.map_or("-".to_owned(), |(left, limit)| format!("{left} of {limit}"));
            vec![
                printable(&reading.id),
                printable(&reading.verdict),
                left,
                span(reading.reset_after_ms),
            ]
        }));
        output::table(2, &rows)
    }

    /// The answer in one line.
    pub(super) fn headline(&self) -> String {
        let rule = self.rule.as_deref().map(printable).unwrap_or_default();
        match (self.allowed, self.delay_ms, self.retry_after_ms) {
            (true, 0, _) if self.rules.is_empty() => {
                format!("{GOOD}allowed{GOOD:#}: no rule governs this request")
            }
            (true, 0, _) => format!("{GOOD}allowed{GOOD:#}"),
            (true, delay, _) => {
                format!("{GOOD}allowed{GOOD:#}, after a wait of {}", span(delay))
            }
            (false, _, Some(wait)) => {
                format!("{BAD}refused{BAD:#} by {rule}: retry in {}", span(wait))
            }
            (false, _, None) => format!("{BAD}refused{BAD:#} by {rule}: it never passes"),
        }
    }
}

pub(super) fn span(millis: u64) -> String {
    Micros::from_millis(millis).in_words()
}
