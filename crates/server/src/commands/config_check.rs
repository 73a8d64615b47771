//! `tidegate config check`: whether a document is valid, and everything that is wrong with it.

use std::collections::BTreeMap;

use serde::Serialize;
use tidegate_core::key::Secret;
use tidegate_rules::problem::{Problem, Problems};
use tidegate_rules::{Limit, RuleSet};

use crate::Outcome;
use crate::cli::ConfigCheckArgs;
use crate::config::{DEFAULT_HTTP, Layer};
use crate::failure::Failure;
use crate::output::{self, BOLD, GOOD};
use crate::source::Source;

/// A problem as programs read it.
#[derive(Debug, Serialize)]
struct Told<'a> {
    file: &'a str,
    line: usize,
    column: usize,
    field: &'a str,
    found: Option<&'a str>,
    message: &'a str,
    hint: Option<&'a str>,
}

/// Checks a document.
///
/// # Errors
/// When it cannot be read, or all that is wrong with it.
pub(crate) fn run(args: &ConfigCheckArgs) -> Result<Outcome, Failure> {
    let source = Source::file(&args.file);
    let checked = source.load().and_then(|loaded| {
        let rules = loaded.compile(Secret::UNSET)?;
        Ok((rules, loaded.section))
    });
    match checked {
        Ok((rules, section)) => {
            if args.output.json {
                output::json(&[(); 0])?;
            } else {
                output::text(&summary(&source.name(), &rules, &section))?;
            }
            Ok(Outcome::Well)
        }
        Err(Failure::Invalid(problems)) if args.output.json => {
            output::json(&told(&problems))?;
            Ok(Outcome::No)
        }
        Err(failure) => Err(failure),
    }
}

fn summary(name: &str, rules: &RuleSet, section: &Layer) -> String {
    let all = rules.rules();
    let idle = all.iter().filter(|rule| !rule.is_active()).count();
    let mut count = match all.len() {
        0 => "none: every request passes".to_owned(),
        count => count.to_string(),
    };
    if idle > 0 {
        count.push_str(&format!(", {idle} of them not active"));
    }
    let mut algorithms: BTreeMap<&str, usize> = BTreeMap::new();
    for rule in all {
        let name = match rule.limit() {
            Limit::Policy(policy) => policy.algorithm().name(),
            Limit::Unlimited => "unlimited",
            Limit::Deny => "deny",
        };
        *algorithms.entry(name).or_default() += 1;
    }
    let used: Vec<_> = algorithms.iter().map(|(name, times)| format!("{times} {name}")).collect();
    let http = section.http.clone().unwrap_or(DEFAULT_HTTP);
    let rows = [("rules", count), ("limits", used.join(", ")), ("listens", format!("http {http}"))];
    let rows: Vec<_> = rows
        .into_iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(name, value)| vec![name.to_owned(), value])
        .collect();
    format!("{BOLD}{name}{BOLD:#} is {GOOD}valid{GOOD:#}\n{}", output::columns(2, &rows))
}

fn told<'p>(problems: &'p Problems) -> Vec<Told<'p>> {
    let one = |problem: &'p Problem| Told {
        file: &problems.file,
        line: problem.line,
        column: problem.column,
        field: &problem.field,
        found: problem.found.as_deref(),
        message: &problem.message,
        hint: problem.hint.as_deref(),
    };
    problems.list.iter().map(one).collect()
}
