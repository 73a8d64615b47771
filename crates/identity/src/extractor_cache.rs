//! The extractor of a rule set: a request is taken apart and decided under one and the same rules.

use std::sync::Arc;

use http::StatusCode;
use tidegate_rules::{ExtensionKey, RuleSet};

use crate::{Extractor, IdentityConfigError, InvalidFactError};
use tidegate_web::problem::HttpError;

/// Finds extractors, which are kept beside their rule sets.
#[derive(Debug)]
pub struct ExtractorCache(ExtensionKey);

impl Default for ExtractorCache {
    fn default() -> Self {
        Self(ExtensionKey::new())
    }
}

impl ExtractorCache {
    /// With the extractor of these rules made already.
    ///
    /// # Errors
    /// When none can be made.
    pub fn with_rules(rules: &RuleSet) -> Result<Self, IdentityConfigError> {
        let extractors = Self::default();
        extractors.create(rules)?;
        Ok(extractors)
    }

    /// The extractor of these rules; it is made by the first request under them.
    ///
    /// # Errors
    /// When none can be made. Whoever loads rules tries that before they come into force.
    pub fn get_or_create<'r>(&self, rules: &'r RuleSet) -> Result<&'r Extractor, HttpError> {
        if let Some(known) = rules.extensions().get(self.0) {
            return Ok(known);
        }
        let made = self.create(rules).inspect_err(|error| {
            tracing::error!(%error, "the identity of the rules cannot be used");
        });
        made.ok().and_then(|()| rules.extensions().get(self.0)).ok_or_else(|| {
            let detail = "who asks cannot be told at present";
            HttpError::new(StatusCode::INTERNAL_SERVER_ERROR, detail)
        })
    }

    fn create(&self, rules: &RuleSet) -> Result<(), IdentityConfigError> {
        let extractor = Extractor::new(rules.identity())?.with_cost_headers(rules.rules());
        rules.extensions().insert(self.0, &Arc::new(extractor));
        Ok(())
    }
}

impl From<InvalidFactError> for HttpError {
    fn from(bad: InvalidFactError) -> Self {
        Self::new(StatusCode::BAD_REQUEST, bad.why.to_string()).with_field(bad.name)
    }
}
