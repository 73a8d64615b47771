//! The extractor that belongs to the rules in force: a request is taken apart and decided under one and
//! the same rule set.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use http::StatusCode;
use tidegate_rules::RuleSet;

use crate::extract::{BadFact, BadIdentity, Extractor};
use crate::problem::Problem;

/// Rules with the extractor that is made for them.
#[derive(Debug)]
pub(crate) struct Ruled {
    pub(crate) rules: Arc<RuleSet>,
    pub(crate) extractor: Extractor,
}

/// What is in force at present; nothing before the first request.
#[derive(Debug, Default)]
pub(crate) struct IdentityInForce(ArcSwapOption<Ruled>);

impl Ruled {
    fn new(rules: Arc<RuleSet>) -> Result<Self, BadIdentity> {
        Ok(Self { extractor: Extractor::new(rules.identity())?, rules })
    }
}

impl IdentityInForce {
    /// With the extractor for these rules made already.
    ///
    /// # Errors
    /// When none can be made.
    pub(crate) fn new(rules: Arc<RuleSet>) -> Result<Self, BadIdentity> {
        Ruled::new(rules).map(|ruled| Self(ArcSwapOption::from_pointee(ruled)))
    }

    /// The extractor for these rules; it is made by the first request under them.
    ///
    /// # Errors
    /// When none can be made. Whoever loads rules tries that before they come into force.
    pub(crate) fn under(&self, rules: Arc<RuleSet>) -> Result<Arc<Ruled>, Problem> {
        let known = self.0.load_full();
        if let Some(known) = known.filter(|known| Arc::ptr_eq(&known.rules, &rules)) {
            return Ok(known);
        }
        match Ruled::new(rules) {
            Ok(ruled) => {
                let ruled = Arc::new(ruled);
                self.0.store(Some(Arc::clone(&ruled)));
                Ok(ruled)
            }
            Err(error) => {
                tracing::error!(%error, "the identity of the rules cannot be used");
                let detail = "who asks cannot be told at present";
                Err(Problem::new(StatusCode::INTERNAL_SERVER_ERROR, detail))
            }
        }
    }
}

impl From<BadFact> for Problem {
    fn from(bad: BadFact) -> Self {
        Self::new(StatusCode::BAD_REQUEST, bad.why.to_string()).with_field(bad.name)
    }
}
