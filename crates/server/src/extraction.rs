//! Whether requests have the facts that rules name, at the listeners that take facts from requests
//! themselves: the gateway and forward-auth. Callers of the other APIs bring facts.

use std::fmt;

use tidegate_edge::Status;
use tidegate_rules::{RuleSet, UnsuppliedFact};

use crate::config::{Listen, Settings};
use crate::failure::Failure;
use crate::source::Source;
use crate::telemetry::Event;

/// The listeners of a process that take facts from requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extraction {
    /// There is a gateway.
    pub(crate) gateway: bool,
    /// The HTTP API is open, and proxies may ask there.
    pub(crate) http: bool,
}

/// Facts that rules name and requests do not have.
#[derive(Debug)]
pub(crate) struct MissingFacts<'r> {
    rules: &'r RuleSet,
    /// The listeners in words; none where only callers of APIs ask.
    at: Option<&'static str>,
}

impl Extraction {
    pub(crate) fn of(settings: &Settings) -> Self {
        let http = *settings.http.listen() != Listen::Off;
        Self { gateway: settings.gateway.is_some(), http }
    }

    /// What is missing under these rules.
    pub(crate) fn missing<'r>(&self, rules: &'r RuleSet) -> Option<MissingFacts<'r>> {
        // Forward-auth answers trusted proxies alone.
        let ip = &rules.identity().ip;
        let forward_auth = self.http && (ip.trusts_unix || !ip.trusted_proxies.is_empty());
        let at = match (self.gateway, forward_auth) {
            (true, true) => Some("the gateway and forward-auth"),
            (true, false) => Some("the gateway"),
            (false, true) => Some("forward-auth"),
            (false, false) => None,
        };
        let missing = !rules.unsupplied_facts().is_empty();
        missing.then_some(MissingFacts { rules, at })
    }

    /// Checks the rules of the start.
    ///
    /// # Errors
    /// When they would limit nothing at a listener that takes facts from requests.
    pub(crate) fn check(&self, rules: &RuleSet, source: &Source) -> Result<(), Failure> {
        match self.missing(rules) {
            Some(missing) if missing.at.is_some() => Err(missing.failure(source)),
            missing => {
                missing.iter().for_each(MissingFacts::tell);
                Ok(())
            }
        }
    }

    /// Reports what is missing under rules that came into force later: the listeners go on.
    pub(crate) fn report(&self, rules: &RuleSet, status: &Status) {
        let missing = self.missing(rules);
        missing.iter().for_each(MissingFacts::tell);
        let blocking = missing.filter(|missing| missing.at.is_some());
        status.facts_missing(blocking.map(|missing| format!("{missing}; {}", missing.advice())));
    }
}

impl MissingFacts<'_> {
    /// Whether a listener takes facts from requests that do not have these.
    pub(crate) const fn is_error(&self) -> bool {
        self.at.is_some()
    }

    /// The line of the document that names the first.
    pub(crate) fn line(&self) -> usize {
        self.rules.unsupplied_facts().first().map_or(0, |unsupplied| unsupplied.line)
    }

    /// What to write.
    pub(crate) fn advice(&self) -> String {
        let identity = self.rules.identity_to_add().unwrap_or_default();
        let names = self.names().join(", ");
        format!("add `{identity}`, or `facts: [{names}]` if only callers of the APIs bring them")
    }

    fn failure(&self, source: &Source) -> Failure {
        if source.path().is_some() {
            return Failure::No(format!("{self}\n  {}", self.advice()));
        }
        let names = self.names();
        let write = match (names.as_slice(), self.rules.identity_to_add()) {
            (["api_key"], _) => "--api-key-header x-api-key".to_owned(),
            (_, identity) => {
                format!("--config and a document with `{}`", identity.unwrap_or_default())
            }
        };
        let facts = names.join(",");
        Failure::Usage(format!(
            "{self}\n  write: {write}, or --facts {facts} if only callers of the APIs bring them"
        ))
    }

    fn tell(&self) {
        let (missing, advice) = (&self.to_string(), &self.advice());
        match self.at {
            Some(_) => Event::FactsMissing { missing, advice }.tell(),
            None => Event::FactsUnsupplied { missing, advice }.tell(),
        }
    }

    /// The names of the facts, each once.
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
        match self.at {
            Some(at) => write!(f, "no request at {at} has {names}, named by ")?,
            None => write!(f, "only callers of the APIs can bring {names}, named by ")?,
        }
        match rules.as_slice() {
            [rule] => write!(f, "rule `{rule}`"),
            [rule, others @ ..] => write!(f, "rule `{rule}` and {} more", others.len()),
            [] => f.write_str("rules"),
        }
    }
}
