//! Caches the fact extractor of each rule set, so that facts are extracted and decided under the
//! same rules.

use std::sync::Arc;

use http::StatusCode;
use tidegate_rules::{ExtensionKey, RuleSet};

use crate::{Extractor, IdentityConfigError, InvalidFactError};
use tidegate_web::problem::HttpError;

/// Looks up extractors, which are stored in their rule sets.
#[derive(Debug)]
pub struct ExtractorCache(ExtensionKey);

impl Default for ExtractorCache {
    fn default() -> Self {
        Self(ExtensionKey::new())
    }
}

impl ExtractorCache {
    /// Creates a cache and builds the extractor of these rules.
    ///
    /// # Errors
    /// If the extractor cannot be built.
    pub fn with_rules(rules: &RuleSet) -> Result<Self, IdentityConfigError> {
        let extractors = Self::default();
        extractors.create(rules)?;
        Ok(extractors)
    }

    /// Returns the extractor of these rules; the first request under them builds it.
    ///
    /// # Errors
    /// If the extractor cannot be built. A rule load validates this before it installs the rules.
    pub fn get_or_create<'r>(&self, rules: &'r RuleSet) -> Result<&'r Extractor, HttpError> {
        if let Some(known) = rules.extensions().get(self.0) {
            return Ok(known);
        }
        let built = self.create(rules).inspect_err(|error| {
            tracing::error!(%error, "cannot build the identity extractor of the active rules");
        });
        built.ok().and_then(|()| rules.extensions().get(self.0)).ok_or_else(|| {
            let detail = "internal error: identity extraction is not configured correctly";
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
