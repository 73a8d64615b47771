//! Refusals on record.

use std::hash::{BuildHasher as _, RandomState};

use serde_json::{Value as Json, json};
use tidegate_core::hex;
use tidegate_core::key::{Fingerprint, KeyHasher, Secret};
use tidegate_core::time::Timestamp;
use tidegate_rules::{Facts, RuleSet};
use tidegate_web::date::format_rfc3339;

/// How users and addresses are kept.
#[derive(Clone, Copy, Debug)]
pub struct IdentityPolicy {
    /// What hashes are made with.
    pub secret: Secret,
    /// Whether they are kept as they are.
    pub plain: bool,
}

impl IdentityPolicy {
    /// What is kept of a value of a fact.
    #[must_use]
    pub fn mask(&self, fact: &str, value: &str) -> String {
        if self.plain { value.to_owned() } else { self.hash_value(fact, value) }
    }

    /// What is kept of a client's address. The hash is that of the client as rules count it, so that
    /// all addresses of an IPv6 network have one.
    #[must_use]
    pub fn mask_ip(&self, facts: &Facts<'_>, rules: &RuleSet) -> Option<String> {
        let text = facts.get("ip")?;
        Some(match facts.ip() {
            Some(ip) if !self.plain => self.hash_value("ip", &rules.client_name(ip)),
            _ => self.mask("ip", text),
        })
    }

    /// The same secret, or a random one where none is set. With a known secret, hashing all IPv4
    /// addresses would show whose hash it is; so callers without read access get other hashes.
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

/// A hash that stands for somebody.
fn format_hash(print: Fingerprint) -> String {
    let mut text = String::with_capacity("h:".len() + 16);
    text.push_str("h:");
    hex::push_hex(&mut text, print.lo);
    text
}

/// A request that a rule refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleViolation {
    /// When.
    pub at: Timestamp,
    /// By which rule.
    pub rule: String,
    /// The counter, as a keyed hash in hexadecimal.
    pub bucket_key: String,
    /// Whose, hashed unless configured otherwise.
    pub user_id: Option<String>,
    /// From where, hashed unless configured otherwise.
    pub ip: Option<String>,
    /// On what: the pattern of the endpoint.
    pub endpoint: Option<String>,
    /// What was left.
    pub remaining: u64,
    /// Whether it was only reported (`shadow`) or also refused.
    pub enforced: bool,
}

/// Violations that are written together, and once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViolationBatch {
    /// Who writes them: a name that no other process has.
    pub writer: String,
    /// Which of the writer's batches it is. They come in order; one that comes again, because nobody knows what became
    /// of it, has the number that it had.
    pub number: u64,
    /// What happened, in order.
    pub violations: Vec<RuleViolation>,
}

impl RuleViolation {
    /// What readers are told of it.
    pub fn view(&self) -> Json {
        let Self { at, rule, bucket_key, user_id, ip, endpoint, remaining, enforced } = self;
        json!({
            "at": format_rfc3339(at.as_micros() / 1_000_000), "at_us": at.as_micros(), "rule": rule,
            "bucket_key": bucket_key, "user_id": user_id, "ip": ip, "endpoint": endpoint,
            "remaining": remaining, "enforced": enforced,
        })
    }
}

/// A violation with its place on record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViolationRow {
    /// Its number, which grows.
    pub number: u64,
    /// What happened.
    pub violation: RuleViolation,
}

/// Which violations are asked for; what is not said does not matter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ViolationQuery {
    /// By this rule.
    pub rule: Option<String>,
    /// Of this user.
    pub user_id: Option<String>,
    /// From this address.
    pub ip: Option<String>,
    /// Not before.
    pub since: Option<Timestamp>,
    /// Before.
    pub until: Option<Timestamp>,
    /// With lower numbers than this: the next page.
    pub before: Option<u64>,
    /// At most so many.
    pub limit: u32,
}

/// Some violations, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ViolationPage {
    /// The violations.
    pub rows: Vec<ViolationRow>,
    /// Where the next page begins, if there is one.
    pub next: Option<u64>,
}
