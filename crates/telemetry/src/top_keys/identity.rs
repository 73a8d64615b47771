//! The client that a key stands for, and how much of it a caller may see.

use tidegate_core::key::Fingerprint;
use tidegate_limiter::DecisionEvent;

use crate::violation::IdentityPolicy;

/// Maximum length of a kept value, in bytes; a client may send thousands.
const MAX_PART_BYTES: usize = 200;

/// What a caller may see of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visibility {
    /// Identities in clear text, except for API keys, which are hashed.
    Clear,
    /// Keyed hashes: the ones that the log and the recorded violations show too, unless the node
    /// has no secret (`IdentityPolicy::for_unauthenticated`).
    Hashed,
}

/// The parts of a key by name, such as `ip` and `192.0.2.7`; empty if all requests share the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KeyIdentity {
    parts: Vec<IdentityPart>,
    /// Whether the key's hash may be shown (`core::key`).
    is_key_visible: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct IdentityPart {
    name: String,
    /// What [`Visibility::Clear`] shows.
    clear: String,
    /// What [`Visibility::Hashed`] shows.
    hashed: String,
}

impl KeyIdentity {
    /// The identity behind the key of the rule with index `rule`.
    pub(super) fn from_decision(
        decided: &DecisionEvent<'_, '_>,
        rule: u32,
        masks: &IdentityMask,
    ) -> Self {
        let DecisionEvent { rules, facts, .. } = decided;
        let rule = &rules[rule];
        let (parts, is_key_visible) = rules.with_enriched_facts(facts, |facts| {
            let is_visible = rule.public_fingerprint(facts, rules).is_some();
            (rule.key_parts(facts, rules), is_visible)
        });
        let parts = parts.into_iter().map(|(name, value)| {
            let hashed = masks.unauthenticated.hash_value(&name, &value);
            // An API key is a secret and is never kept in clear text.
            let secret = name == "api_key" || name == "descriptor" && value.contains("api_key");
            let clear = if secret {
                masks.authenticated.hash_value(&name, &value)
            } else {
                truncate_value(value)
            };
            IdentityPart { name, clear, hashed }
        });
        Self { parts: parts.collect(), is_key_visible }
    }

    /// The client as a caller sees it.
    pub(super) fn render(&self, visibility: Visibility) -> String {
        if self.parts.is_empty() {
            return "everyone".to_owned();
        }
        let parts =
            self.parts.iter().map(|IdentityPart { name, clear, hashed }| match visibility {
                Visibility::Clear => format!("{name}={clear}"),
                Visibility::Hashed => format!("{name}={hashed}"),
            });
        parts.collect::<Vec<_>>().join(", ")
    }
}

/// The hashes that stand for clients.
#[derive(Clone, Copy, Debug)]
pub(super) struct IdentityMask {
    /// For callers with full read access; the same hashes as in recorded violations.
    authenticated: IdentityPolicy,
    /// For all other callers.
    unauthenticated: IdentityPolicy,
}

impl IdentityMask {
    pub(super) fn new(identities: IdentityPolicy) -> Self {
        Self { authenticated: identities, unauthenticated: identities.for_unauthenticated() }
    }

    /// A key as a caller sees it. The fingerprint is a keyed hash; without a secret it would reveal
    /// the client, and is hashed again.
    pub(super) fn render_key(
        &self,
        key: Fingerprint,
        identity: Option<&KeyIdentity>,
        visibility: Visibility,
    ) -> String {
        let keyed = visibility == Visibility::Clear || self.authenticated.secret.is_set();
        if keyed && identity.is_some_and(|identity| identity.is_key_visible) {
            return key.to_hex();
        }
        self.unauthenticated.hash_value("key", &key.to_hex())
    }
}

fn truncate_value(mut value: String) -> String {
    if value.len() > MAX_PART_BYTES {
        value.truncate(value.floor_char_boundary(MAX_PART_BYTES));
        value.push('…');
    }
    value
}
