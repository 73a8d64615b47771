//! Violations: requests that a rule refused, as they are recorded and queried, with their
//! identities masked.

use std::hash::{BuildHasher as _, RandomState};

use serde_json::{Value as Json, json};
use tidegate_core::hex;
use tidegate_core::key::{Fingerprint, KeyHasher, Secret};
use tidegate_core::time::Timestamp;
use tidegate_rules::{Facts, RuleSet};
use tidegate_web::date::format_rfc3339;

/// How recorded violations contain users and addresses.
#[derive(Clone, Copy, Debug)]
pub struct IdentityPolicy {
    /// The key of the hashes.
    pub secret: Secret,
    /// Whether identities are recorded in clear text instead of hashed.
    pub plain: bool,
}

impl IdentityPolicy {
    /// The value of a fact as it is recorded: hashed, or in clear text if configured.
    #[must_use]
    pub fn mask(&self, fact: &str, value: &str) -> String {
        if self.plain { value.to_owned() } else { self.hash_value(fact, value) }
    }

    /// The client's address as it is recorded. The hash is that of the network that rules count, so
    /// all addresses of an IPv6 network have the same hash.
    #[must_use]
    pub fn mask_ip(&self, facts: &Facts<'_>, rules: &RuleSet) -> Option<String> {
        let text = facts.get("ip")?;
        Some(match facts.ip() {
            Some(ip) if !self.plain => self.hash_value("ip", &rules.client_name(ip)),
            _ => self.mask("ip", text),
        })
    }

    /// The policy for callers without full read access: hashes only, with the same secret, or with
    /// a random one if none is set. Without a secret, a caller could hash all IPv4 addresses to
    /// find the client behind a hash.
    pub(crate) fn for_unauthenticated(self) -> Self {
        if self.secret.is_set() {
            return Self { plain: false, ..self };
        }
        let word = || RandomState::new().hash_one(0_u8).to_le_bytes();
        Self { secret: Secret::from_bytes(&[word(), word()].concat()), plain: false }
    }

    /// Keyed hash: lets you look up a known identity, but not recover one.
    #[must_use]
    pub fn hash_value(&self, fact: &str, value: &str) -> String {
        let mut hasher = KeyHasher::new(self.secret);
        hasher.write_part(b"identity");
        hasher.write_part(fact.as_bytes());
        hasher.write_part(value.as_bytes());
        format_hash(hasher.finish())
    }
}

/// Formats the hash of an identity.
fn format_hash(print: Fingerprint) -> String {
    let mut text = String::with_capacity("h:".len() + 16);
    text.push_str("h:");
    hex::push_hex(&mut text, print.lo);
    text
}

/// A request that a rule refused, or would have refused outside of shadow mode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleViolation {
    /// When it happened.
    pub at: Timestamp,
    /// The rule's ID.
    pub rule: String,
    /// The key of the counter, as a keyed hash in hexadecimal.
    pub bucket_key: String,
    /// The user, hashed unless configured otherwise. The hashed API key if there is no user.
    pub user_id: Option<String>,
    /// The client's address, hashed unless configured otherwise.
    pub ip: Option<String>,
    /// The pattern of the endpoint.
    pub endpoint: Option<String>,
    /// The remaining quota.
    pub remaining: u64,
    /// Whether the request was refused; `false` if the rule is in shadow mode.
    pub enforced: bool,
}

/// Violations that are written together, exactly once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViolationBatch {
    /// A name of the writing process that no other process has.
    pub writer: String,
    /// Sequence number among the writer's batches, ascending. A retried batch keeps its number, so
    /// that the sink can ignore it if the first attempt succeeded.
    pub number: u64,
    /// The violations, oldest first.
    pub violations: Vec<RuleViolation>,
}

impl RuleViolation {
    /// The violation as JSON.
    pub fn view(&self) -> Json {
        let Self { at, rule, bucket_key, user_id, ip, endpoint, remaining, enforced } = self;
        json!({
            "at": format_rfc3339(at.as_micros() / 1_000_000), "at_us": at.as_micros(), "rule": rule,
            "bucket_key": bucket_key, "user_id": user_id, "ip": ip, "endpoint": endpoint,
            "remaining": remaining, "enforced": enforced,
        })
    }
}

/// A recorded violation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViolationRow {
    /// Its number, ascending.
    pub number: u64,
    /// The violation.
    pub violation: RuleViolation,
}

/// Selects violations. A filter that is `None` matches all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ViolationQuery {
    /// The rule's ID.
    pub rule: Option<String>,
    /// The user, as recorded.
    pub user_id: Option<String>,
    /// The client's address, as recorded.
    pub ip: Option<String>,
    /// Earliest time, inclusive.
    pub since: Option<Timestamp>,
    /// Latest time, exclusive.
    pub until: Option<Timestamp>,
    /// Only lower numbers than this; for the next page.
    pub before: Option<u64>,
    /// Maximum number of violations.
    pub limit: u32,
}

/// A page of violations, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ViolationPage {
    /// The violations.
    pub rows: Vec<ViolationRow>,
    /// The value of [`ViolationQuery::before`] for the next page, if there is one.
    pub next: Option<u64>,
}
