//! Error texts for counters that cannot be listed or reset.

use tidegate_rules::{Facts, RuleSet};

/// Error text when the store is down during a reset. Reporting success would be wrong: the client
/// would still be refused once the store is back.
pub(crate) const STORE_DOWN_NOT_RESET: &str = "the store is unavailable, so the counters were \
     not reset; retry when `/readyz` no longer reports `degraded`";

/// Error text when the store is down during a listing. The fallback's counters are not listed,
/// because they are not the ones in the store.
pub(crate) const STORE_DOWN_NOT_LISTED: &str = "the store is unavailable, so its counters cannot \
     be read; retry when `/readyz` no longer reports `degraded`";

/// Returns the error text naming the key facts that `rule` needs and `facts` does not contain.
/// Without them the rule's counter cannot be identified.
pub(crate) fn missing_key_message(
    rules: &RuleSet,
    rule: &str,
    facts: &Facts<'_>,
) -> Option<String> {
    let missing = rules.missing_key_facts(rule, facts);
    let missing: Vec<String> = missing.iter().map(|name| format!("`{name}`")).collect();
    if missing.is_empty() {
        return None;
    }
    Some(format!("rule `{rule}` is keyed by facts that are missing: {}", missing.join(", ")))
}
