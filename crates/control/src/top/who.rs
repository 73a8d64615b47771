//! Who a key stands for, and how much of that somebody may see.

use std::hash::{BuildHasher as _, RandomState};

use tidegate_core::key::{Fingerprint, KeyHasher, Secret};
use tidegate_engine::Decided;

use crate::violation::{Identities, as_hash};

/// The longest value that is kept of a part, in bytes: a client may send thousands.
const LONGEST: usize = 200;

/// What is shown of those whose keys they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sight {
    /// Who they are; of API keys a hash.
    Clear,
    /// Hashes by which one is told from another as long as the process runs, and from which nobody is found.
    Hashed,
}

/// The parts of a key in words, such as `ip` and `192.0.2.7`; none if all requests share it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Who {
    parts: Vec<(String, String)>,
    /// Whether the key's hash may be shown (`core::key`).
    key_may_be_seen: bool,
}

impl Who {
    /// Whose key a decision is about, by the rule at a place.
    pub(super) fn of(decided: &Decided<'_, '_>, rule: u32, identities: &Identities) -> Self {
        let Decided { rules, facts, .. } = decided;
        let rule = &rules[rule];
        let (parts, key_may_be_seen) = rules.completing(facts, |facts| {
            let seen = rule.shown_fingerprint(facts, rules).is_some();
            (rule.key_parts(facts, rules), seen)
        });
        let parts = parts.into_iter().map(|(name, value)| {
            // Not even for a while: a key is a secret.
            let secret = name == "api_key" || name == "descriptor" && value.contains("api_key");
            let value = if secret { identities.hashed(&name, &value) } else { cut(value) };
            (name, value)
        });
        Self { parts: parts.collect(), key_may_be_seen }
    }
}

/// Hashes for those who may not see who it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Veil(Secret);

impl Veil {
    /// One that nobody else has and that ends with the process: the fleet's own secret may be unset, and then
    /// whoever tries all addresses finds them.
    pub(super) fn new() -> Self {
        let word = || RandomState::new().hash_one(0_u8).to_le_bytes();
        Self(Secret::from_bytes(&[word(), word()].concat()))
    }

    /// A key as it is shown.
    pub(super) fn key(self, key: Fingerprint, who: Option<&Who>, sight: Sight) -> String {
        if sight == Sight::Clear && who.is_some_and(|who| who.key_may_be_seen) {
            return key.hex();
        }
        self.hashed("key", &[key.hi.to_le_bytes(), key.lo.to_le_bytes()].concat())
    }

    /// Who it is, as it is shown.
    pub(super) fn who(self, who: &Who, sight: Sight) -> String {
        if who.parts.is_empty() {
            return "everyone".to_owned();
        }
        let parts = who.parts.iter().map(|(name, value)| match sight {
            Sight::Clear => format!("{name}={value}"),
            Sight::Hashed => format!("{name}={}", self.hashed(name, value.as_bytes())),
        });
        parts.collect::<Vec<_>>().join(", ")
    }

    fn hashed(self, what: &str, value: &[u8]) -> String {
        let mut hasher = KeyHasher::new(self.0);
        hasher.part(what.as_bytes());
        hasher.part(value);
        as_hash(hasher.finish())
    }
}

fn cut(mut value: String) -> String {
    if value.len() > LONGEST {
        value.truncate(value.floor_char_boundary(LONGEST));
        value.push('…');
    }
    value
}
