//! Checks that requests supply the facts that rules use. This concerns the gateway and
//! forward-auth, which extract facts from requests. Callers of the other APIs send facts
//! themselves.

use std::fmt;

use tidegate_rules::{RuleSet, UnsuppliedFact};
use tidegate_web::ProcessStatus;

use crate::config::{ListenSpec, Settings};
use crate::error::CommandError;
use crate::rule_source::DocumentSource;
use crate::telemetry::ServerEvent;

/// The listeners of this process that extract facts from requests.
#[derive(Clone, Copy, Debug)]
pub struct ExtractionListeners {
    /// The gateway is enabled.
    pub gateway: bool,
    /// The HTTP API is enabled, so proxies can use forward-auth.
    pub http: bool,
}

/// Facts that rules use and no request supplies.
#[derive(Debug)]
pub struct MissingFacts<'r> {
    rules: &'r RuleSet,
    /// The affected listeners, as text; `None` if only API callers send requests.
    listeners: Option<&'static str>,
}

impl ExtractionListeners {
    pub(crate) fn from_settings(settings: &Settings) -> Self {
        let http = *settings.http.spec() != ListenSpec::Off;
        Self { gateway: settings.gateway.is_some(), http }
    }

    /// Returns the facts that are missing under these rules, if any.
    pub fn missing<'r>(&self, rules: &'r RuleSet) -> Option<MissingFacts<'r>> {
        // Forward-auth only answers trusted proxies.
        let ip = &rules.identity().ip;
        let forward_auth = self.http && (ip.trusts_unix || !ip.trusted_proxies.is_empty());
        let at = match (self.gateway, forward_auth) {
            (true, true) => Some("the gateway and forward-auth"),
            (true, false) => Some("the gateway"),
            (false, true) => Some("forward-auth"),
            (false, false) => None,
        };
        let missing = !rules.unsupplied_facts().is_empty();
        missing.then_some(MissingFacts { rules, listeners: at })
    }

    /// Checks the rules at startup.
    ///
    /// # Errors
    /// When a rule would never apply at a listener that extracts facts from requests.
    pub(crate) fn check(
        &self,
        rules: &RuleSet,
        source: &DocumentSource,
    ) -> Result<(), CommandError> {
        match self.missing(rules) {
            Some(missing) if missing.listeners.is_some() => Err(missing.to_error(source)),
            missing => {
                missing.iter().for_each(MissingFacts::log);
                Ok(())
            }
        }
    }

    /// Reports facts missing under rules installed at runtime. The listeners keep running.
    pub(crate) fn report(&self, rules: &RuleSet, status: &ProcessStatus) {
        let missing = self.missing(rules);
        missing.iter().for_each(MissingFacts::log);
        let blocking = missing.filter(|missing| missing.listeners.is_some());
        status.set_facts_error(blocking.map(|missing| format!("{missing}; {}", missing.advice())));
    }
}

impl MissingFacts<'_> {
    /// Whether a listener that extracts facts is affected.
    pub const fn is_error(&self) -> bool {
        self.listeners.is_some()
    }

    /// The document line that uses the first missing fact.
    pub fn line(&self) -> usize {
        self.rules.unsupplied_facts().first().map_or(0, |unsupplied| unsupplied.line)
    }

    /// What to add to the document.
    pub fn advice(&self) -> String {
        let identity = self.rules.suggested_identity().unwrap_or_default();
        let names = self.names().join(", ");
        format!("add `{identity}`, or `facts: [{names}]` if only API callers supply them")
    }

    fn to_error(&self, source: &DocumentSource) -> CommandError {
        if source.path().is_some() {
            return CommandError::Rejected(format!("{self}\n  {}", self.advice()));
        }
        let names = self.names();
        let write = match (names.as_slice(), self.rules.suggested_identity()) {
            (["api_key"], _) => "--api-key-header x-api-key".to_owned(),
            (_, identity) => {
                format!("--config and a document with `{}`", identity.unwrap_or_default())
            }
        };
        let facts = names.join(",");
        CommandError::Usage(format!(
            "{self}\n  write: {write}, or --facts {facts} if only API callers supply them"
        ))
    }

    fn log(&self) {
        let (missing, advice) = (&self.to_string(), &self.advice());
        match self.listeners {
            Some(_) => ServerEvent::FactsMissing { missing, advice }.log(),
            None => ServerEvent::FactsUnsupplied { missing, advice }.log(),
        }
    }

    /// The names of the missing facts, without duplicates.
    fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for UnsuppliedFact { fact, .. } in self.rules.unsupplied_facts() {
            if !names.contains(&fact.as_str()) {
                names.push(fact);
            }
        }
        names
    }
}

impl fmt::Display for MissingFacts<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.names().iter().map(|name| format!("`{name}`")).collect();
        let mut rules: Vec<&str> = Vec::new();
        for UnsuppliedFact { rule, .. } in self.rules.unsupplied_facts() {
            if rules.last() != Some(&rule.as_str()) {
                rules.push(rule);
            }
        }
        let names = names.join(" and ");
        match self.listeners {
            Some(at) => write!(f, "no request at {at} supplies {names}, used by ")?,
            None => write!(f, "only API callers can supply {names}, used by ")?,
        }
        match rules.as_slice() {
            [rule] => write!(f, "rule `{rule}`"),
            [rule, others @ ..] => write!(f, "rule `{rule}` and {} more", others.len()),
            [] => f.write_str("rules"),
        }
    }
}
