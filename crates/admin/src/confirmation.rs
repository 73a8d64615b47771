//! A change that removes the last rule needs a confirmation, because without rules every request is
//! allowed.

use std::collections::BTreeSet;

use http::StatusCode;
use http::header::{HeaderName, HeaderValue};
use tidegate_web::problem::HttpError;

use super::AdminRequest;
use tidegate_rulestore::EditError;
use tidegate_rulestore::EntryUpdate;
use tidegate_rulestore::{EntryKind, RuleConfig};

/// The header that confirms the change.
pub const CONFIRM_HEADER: HeaderName = HeaderName::from_static("x-tidegate-confirm");

/// The value of the header.
pub const CONFIRM_EMPTY: HeaderValue = HeaderValue::from_static("empty");

impl AdminRequest<'_> {
    /// Whether the caller confirms that the change removes the last rule.
    pub(super) fn confirms_empty(&self) -> Result<bool, HttpError> {
        match self.head.headers.get(&CONFIRM_HEADER) {
            None => Ok(false),
            Some(value) if *value == CONFIRM_EMPTY => Ok(true),
            Some(_) => {
                let detail = "set this header to `empty` to confirm that no rule is left";
                Err(HttpError::new(StatusCode::BAD_REQUEST, detail)
                    .with_field(CONFIRM_HEADER.as_str()))
            }
        }
    }
}

/// Refuses updates that remove all rules of a configuration.
pub(super) fn check_not_emptied(
    config: &RuleConfig,
    entries: &[EntryUpdate],
) -> Result<(), EditError> {
    let rules = || config.entries(EntryKind::Rule, None).map(|(id, _)| id);
    let changed = || entries.iter().filter(|entry| entry.kind == EntryKind::Rule);
    let removed: BTreeSet<&str> = changed().map(|entry| entry.id.as_str()).collect();
    let left = changed().any(|entry| entry.value.is_some())
        || rules().any(|id| !removed.contains(id))
        || removed.is_empty();
    if left { Ok(()) } else { Err(EditError::EmptyNotConfirmed { rules: rules().count() }) }
}
