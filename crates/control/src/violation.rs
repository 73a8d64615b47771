//! Refusals on record.

use serde_json::{Value as Json, json};
use tidegate_core::hex;
use tidegate_core::key::{Fingerprint, KeyHasher, Secret};
use tidegate_core::time::Timestamp;
use tidegate_edge::date::rfc3339;

/// How users and addresses are kept.
#[derive(Clone, Copy, Debug)]
pub struct Identities {
    /// What hashes are made with.
    pub secret: Secret,
    /// Whether they are kept as they are.
    pub plain: bool,
}

impl Identities {
    /// What is kept of a value of a fact.
    #[must_use]
    pub fn kept(&self, fact: &str, value: &str) -> String {
        if self.plain { value.to_owned() } else { self.hashed(fact, value) }
    }

    /// A hash by which who is asked for is found, and nobody is read.
    #[must_use]
    pub fn hashed(&self, fact: &str, value: &str) -> String {
        let mut hasher = KeyHasher::new(self.secret);
        hasher.part(b"identity");
        hasher.part(fact.as_bytes());
        hasher.part(value.as_bytes());
        as_hash(hasher.finish())
    }
}

/// A hash that stands for somebody.
pub(crate) fn as_hash(print: Fingerprint) -> String {
    let mut text = String::with_capacity("h:".len() + 16);
    text.push_str("h:");
    hex::push(&mut text, print.lo);
    text
}

/// A request that a rule refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
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
pub struct Batch {
    /// Who writes them: a name that no other process has.
    pub writer: String,
    /// Which of the writer's batches it is. They come in order; one that comes again, because nobody knows what became
    /// of it, has the number that it had.
    pub number: u64,
    /// What happened, in order.
    pub violations: Vec<Violation>,
}

impl Violation {
    /// What readers are told of it.
    pub(crate) fn view(&self) -> Json {
        let Self { at, rule, bucket_key, user_id, ip, endpoint, remaining, enforced } = self;
        json!({
            "at": rfc3339(at.as_micros() / 1_000_000), "at_us": at.as_micros(), "rule": rule,
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
    pub violation: Violation,
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
    pub most: u32,
}

/// Some violations, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The violations.
    pub rows: Vec<ViolationRow>,
    /// Where the next page begins, if there is one.
    pub next: Option<u64>,
}
