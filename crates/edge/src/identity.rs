//! The extractor of a rule set: a request is taken apart and decided under one and the same rules.

use std::sync::Arc;

use http::StatusCode;
use tidegate_rules::{Owner, RuleSet};

use crate::extract::{BadFact, BadIdentity, Extractor};
use crate::problem::Problem;

/// Finds extractors, which are kept beside their rule sets.
#[derive(Debug)]
pub(crate) struct Extractors(Owner);

impl Default for Extractors {
    fn default() -> Self {
        Self(Owner::new())
    }
}

impl Extractors {
    /// With the extractor of these rules made already.
    ///
    /// # Errors
    /// When none can be made.
    pub(crate) fn starting_with(rules: &RuleSet) -> Result<Self, BadIdentity> {
        let extractors = Self::default();
        extractors.make(rules)?;
        Ok(extractors)
    }

    /// The extractor of these rules; it is made by the first request under them.
    ///
    /// # Errors
    /// When none can be made. Whoever loads rules tries that before they come into force.
    pub(crate) fn of<'r>(&self, rules: &'r RuleSet) -> Result<&'r Extractor, Problem> {
        if let Some(known) = rules.beside().get(self.0) {
            return Ok(known);
        }
        let made = self.make(rules).inspect_err(|error| {
            tracing::error!(%error, "the identity of the rules cannot be used");
        });
        made.ok().and_then(|()| rules.beside().get(self.0)).ok_or_else(|| {
            let detail = "who asks cannot be told at present";
            Problem::new(StatusCode::INTERNAL_SERVER_ERROR, detail)
        })
    }

    fn make(&self, rules: &RuleSet) -> Result<(), BadIdentity> {
        let extractor = Extractor::new(rules.identity())?.with_costs(rules.rules());
        rules.beside().keep(self.0, &Arc::new(extractor));
        Ok(())
    }
}

impl From<BadFact> for Problem {
    fn from(bad: BadFact) -> Self {
        Self::new(StatusCode::BAD_REQUEST, bad.why.to_string()).with_field(bad.name)
    }
}
