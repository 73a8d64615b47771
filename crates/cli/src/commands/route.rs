//! `tidegate route`: shows which server of an upstream a request goes to, and why.

use serde::Serialize;
use tidegate_core::key::Secret;
use tidegate_gateway::{Balance, HashInput, RoutingKey, find_upstream, rank_servers};
use tidegate_rules::Facts;

use crate::cli::RouteArgs;
use tidegate_server::CommandOutcome;
use tidegate_server::config::GatewaySettings;
use tidegate_server::error::CommandError;
use tidegate_server::output::{self, BOLD};
use tidegate_server::rule_source::DocumentSource;

/// Where a request goes.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct PlannedRoute {
    /// The servers, in the order in which the request prefers them. Without a preference, in the
    /// order of the document.
    servers: Vec<String>,
    /// Whether the first server gets the request as long as it is healthy and not overloaded.
    is_hashed: bool,
    /// The reason for the order.
    why: String,
}

/// Shows the servers for one request.
///
/// # Errors
/// If the document cannot be read or names no upstream.
pub(crate) fn run(args: &RouteArgs) -> Result<CommandOutcome, CommandError> {
    let loaded = DocumentSource::from_file(&args.config).load()?;
    let rules = loaded.compile(Secret::UNSET)?;
    let Some(gateway) = GatewaySettings::check(loaded.section.gateway.clone())? else {
        return Err(CommandError::Rejected(format!(
            "{} names no upstream\n  write: `server: {{ upstreams: … }}`, see docs/gateway.md",
            args.config.display()
        )));
    };
    gateway.check_hash_inputs(rules.identity())?;
    let mut facts: Facts<'_> =
        args.facts.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    rules.enrich(&mut facts);
    let (host, path) = (facts.get("host"), facts.get("path").unwrap_or("/"));
    let Some(planned) = plan_route(&gateway, &facts) else {
        let host = host.map_or_else(String::new, |host| format!("host {host} and "));
        return Err(CommandError::Rejected(format!("no route matches {host}path {path}")));
    };
    match args.output.json {
        true => output::print_json(&planned)?,
        false => output::print_text(&render(&planned))?,
    }
    Ok(CommandOutcome::Success)
}

fn plan_route(gateway: &GatewaySettings, facts: &Facts<'_>) -> Option<PlannedRoute> {
    let path = facts.get("path").unwrap_or("/");
    let upstream = find_upstream(&gateway.routes, facts.get("host"), path)?;
    let upstream = gateway.upstreams.get(upstream)?;
    let listed = || upstream.servers.iter().map(|(address, _)| address.to_string()).collect();
    let input = match &upstream.balance {
        Balance::Hash(input) => input,
        Balance::LeastLoaded => {
            return Some(PlannedRoute::any(listed(), "the least loaded server"));
        }
        Balance::Weighted => {
            return Some(PlannedRoute::any(listed(), "each server in turn, by weight"));
        }
    };
    let (HashInput::Fact(name) | HashInput::Header(name)) = input;
    let Some(value) = facts.get(name) else {
        let why = format!("the request has no {name}, so it goes to the least loaded server");
        return Some(PlannedRoute { servers: listed(), is_hashed: false, why });
    };
    let ranked = rank_servers(&upstream.servers, RoutingKey::new(value.as_bytes()));
    let servers = ranked.into_iter().map(|(address, _)| address.to_string()).collect();
    let why = format!("the hash of {name}={value} prefers the servers in this order");
    Some(PlannedRoute { servers, is_hashed: true, why })
}

impl PlannedRoute {
    fn any(servers: Vec<String>, which: &str) -> Self {
        Self { servers, is_hashed: false, why: format!("the request goes to {which}") }
    }
}

fn render(planned: &PlannedRoute) -> String {
    let mut text = String::new();
    for (at, server) in planned.servers.iter().enumerate() {
        let number = if planned.is_hashed { format!("{}. ", at + 1) } else { String::new() };
        match at == 0 && planned.is_hashed {
            true => text.push_str(&format!("{BOLD}{number}{server}{BOLD:#}\n")),
            false => text.push_str(&format!("{number}{server}\n")),
        }
    }
    format!("{text}{}\n", planned.why)
}
