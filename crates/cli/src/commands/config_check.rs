//! `tidegate config check`: validates a rules document and reports all errors in it.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Serialize;
use tidegate_core::key::Secret;
use tidegate_gateway::UpstreamRoute;
use tidegate_rules::diagnostic::{Diagnostic, DocumentError};
use tidegate_rules::{RuleLimit, RuleSet};

use crate::cli::ConfigCheckArgs;
use crate::table::format_columns;
use tidegate_server::CommandOutcome;
use tidegate_server::config::{
    DEFAULT_HTTP, GatewaySettings, ListenSpec, PartialGatewaySettings, PartialSettings,
};
use tidegate_server::error::CommandError;
use tidegate_server::missing_facts::{ExtractionListeners, MissingFacts};
use tidegate_server::output::{self, BOLD, GOOD, WARNING};
use tidegate_server::rule_source::DocumentSource;

/// A problem in the JSON output.
#[derive(Debug, Serialize)]
struct ProblemReport<'a> {
    /// `error`, or `warning` if the document is valid nevertheless.
    level: &'static str,
    file: &'a str,
    line: usize,
    column: usize,
    field: &'a str,
    found: Option<&'a str>,
    message: Cow<'a, str>,
    hint: Option<Cow<'a, str>>,
}

/// Checks a document.
///
/// # Errors
/// If the document cannot be read, or all errors in it.
pub(crate) fn run(args: &ConfigCheckArgs) -> Result<CommandOutcome, CommandError> {
    let source = DocumentSource::from_file(&args.file).with_region(args.region.clone());
    let checked = source.load().and_then(|loaded| {
        let rules = loaded.compile(Secret::UNSET)?;
        let gateway = check_gateway(&loaded.section.gateway)?;
        if let Some(gateway) = &gateway {
            gateway.check_hash_inputs(rules.identity())?;
        }
        Ok((rules, loaded.section, gateway))
    });
    match checked {
        Ok((rules, section, gateway)) => {
            let http = section.http.as_ref() != Some(&ListenSpec::Off);
            let missing = ExtractionListeners { gateway: gateway.is_some(), http }.missing(&rules);
            let (name, is_valid) =
                (source.name(), !missing.as_ref().is_some_and(MissingFacts::is_error));
            if args.output.json {
                let missing = missing.as_ref().map(|missing| report_missing_facts(&name, missing));
                output::print_json(&Vec::from_iter(missing))?;
                return Ok(is_valid.into());
            }
            if let Some(missing) = missing.as_ref().filter(|_| !is_valid) {
                let (line, advice) = (missing.line(), missing.advice());
                return Err(CommandError::Rejected(format!(
                    "{name}:{line}: {missing}\n  {advice}"
                )));
            }
            let mut text = summary(&name, &rules, &section, gateway.as_ref());
            if let Some(missing) = &missing {
                let advice = missing.advice();
                text.push_str(&format!("{WARNING}warning:{WARNING:#} {missing}\n  {advice}\n"));
            }
            output::print_text(&text)?;
            Ok(CommandOutcome::Success)
        }
        Err(CommandError::InvalidDocument(problems)) if args.output.json => {
            output::print_json(&report_problems(&problems))?;
            Ok(CommandOutcome::Rejected)
        }
        Err(failure) => Err(failure),
    }
}

/// Checks the gateway settings and reads the files they name. `None` if the document names no
/// upstream, which may be set on the command line instead.
fn check_gateway(typed: &PartialGatewaySettings) -> Result<Option<GatewaySettings>, CommandError> {
    match typed.has_upstream() {
        true => GatewaySettings::check(typed.clone()),
        false => Ok(None),
    }
}

fn summary(
    name: &str,
    rules: &RuleSet,
    section: &PartialSettings,
    gateway: Option<&GatewaySettings>,
) -> String {
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
            RuleLimit::Policy(policy) => policy.algorithm().name(),
            RuleLimit::Unlimited => "unlimited",
            RuleLimit::Deny { .. } => "deny",
        };
        *algorithms.entry(name).or_default() += 1;
    }
    let used: Vec<_> = algorithms.iter().map(|(name, times)| format!("{times} {name}")).collect();
    let http = section.http.clone().unwrap_or(DEFAULT_HTTP);
    let mut rows = vec![("rules", count), ("limits", used.join(", "))];
    rows.push(("listens", format!("http {http}")));
    rows.extend(gateway.into_iter().flat_map(gateway_rows));
    let rows: Vec<_> = rows
        .into_iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(name, value)| vec![name.to_owned(), value])
        .collect();
    format!("{BOLD}{name}{BOLD:#} is {GOOD}valid{GOOD:#}\n{}", format_columns(2, &rows))
}

/// The gateway's address, and the servers of each route.
fn gateway_rows(gateway: &GatewaySettings) -> Vec<(&'static str, String)> {
    let tls = if gateway.certificate.is_some() { " with TLS" } else { "" };
    let mut rows = vec![("", format!("gateway {}{tls}", gateway.listen.spec()))];
    for (at, UpstreamRoute { host, prefix, upstream }) in gateway.routes.iter().enumerate() {
        let servers = gateway.upstreams.get(*upstream).into_iter().flat_map(|known| &known.servers);
        let servers: Vec<_> = servers.map(|(address, _)| address.to_string()).collect();
        let name = if at == 0 { "routes" } else { "" };
        let host = host.as_deref().unwrap_or_default();
        rows.push((name, format!("{host}{prefix} to {}", servers.join(", "))));
    }
    rows
}

fn report_problems<'p>(problems: &'p DocumentError) -> Vec<ProblemReport<'p>> {
    let one = |problem: &'p Diagnostic| ProblemReport {
        level: "error",
        file: &problems.file,
        line: problem.line,
        column: problem.column,
        field: &problem.field,
        found: problem.found.as_deref(),
        message: problem.message.as_str().into(),
        hint: problem.hint.as_deref().map(Into::into),
    };
    problems.list.iter().map(one).collect()
}

/// Reports facts that rules use but requests do not have: an error if the document configures a
/// gateway, otherwise a warning.
fn report_missing_facts<'n>(file: &'n str, missing: &MissingFacts<'_>) -> ProblemReport<'n> {
    ProblemReport {
        level: if missing.is_error() { "error" } else { "warning" },
        file,
        line: missing.line(),
        column: 1,
        field: "identity",
        found: None,
        message: missing.to_string().into(),
        hint: Some(missing.advice().into()),
    }
}
