//! Why a layer cannot be built.

use std::{error, fmt};

use tidegate_identity::IdentityConfigError;
use tidegate_rules::RuleSet;

/// Why a [`RateLimitLayer`](crate::RateLimitLayer) cannot enforce the rules of its limiter.
///
/// ```
/// use tidegate::Limiter;
/// use tidegate_tower::{LayerError, RateLimitLayer};
///
/// # fn main() -> Result<(), tidegate::BuildError> {
/// let limiter = Limiter::builder().limit("100/min by api_key").build()?;
/// let error = RateLimitLayer::new(limiter).unwrap_err();
/// assert!(matches!(error, LayerError::MissingFacts { .. }));
/// assert!(error.to_string().contains("identity: { api_key: { header: x-api-key } }"));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LayerError {
    /// Rules use facts that no request has.
    MissingFacts {
        /// The facts.
        facts: Vec<String>,
        /// The ID of the first rule that uses one.
        rule: String,
        /// The line of the document that would supply them.
        identity: String,
    },
    /// The `identity` section of the rules cannot be used.
    Identity(IdentityConfigError),
}

impl LayerError {
    /// Checks that requests have the facts that the rules use.
    pub(crate) fn check_facts(rules: &RuleSet) -> Result<(), Self> {
        let unsupplied = rules.unsupplied_facts();
        let Some(first) = unsupplied.first() else { return Ok(()) };
        let mut facts: Vec<String> =
            unsupplied.iter().map(|missing| missing.fact.clone()).collect();
        facts.sort_unstable();
        facts.dedup();
        let identity = rules.suggested_identity().unwrap_or_default().to_owned();
        Err(Self::MissingFacts { facts, rule: first.rule.clone(), identity })
    }
}

impl fmt::Display for LayerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MissingFacts { facts, rule, identity } => {
                let facts = facts.join(", ");
                write!(
                    f,
                    "no request supplies {facts}, used by rule `{rule}`; add `{identity}` to the \
                     rules, or `facts: [{facts}]` and supply them with `RateLimitLayer::with_facts`"
                )
            }
            Self::Identity(error) => error.fmt(f),
        }
    }
}

impl error::Error for LayerError {}

impl From<IdentityConfigError> for LayerError {
    fn from(error: IdentityConfigError) -> Self {
        Self::Identity(error)
    }
}
