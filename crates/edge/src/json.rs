//! JSON, as callers write requests and read answers; the command line speaks it too.

mod answer;
mod facts;
mod request;
pub(crate) mod write;

pub(crate) use answer::retry_after_ms;
pub use answer::{counters, decision, decisions, explanation};
pub(crate) use request::Object;
pub use request::{Check, Checks, Client, MAX_CHECKS, Malformed, Peek, Refund, parse};

use tidegate_rules::Facts;

/// Facts from the text of a JSON object, such as `{"ip":"192.0.2.7","path":"/api"}`.
///
/// # Errors
/// When the text is no JSON, or a fact cannot be used.
pub fn facts(text: &str) -> Result<Facts<'_>, Malformed> {
    parse(text.as_bytes()).map(|facts::FactsOnly(facts)| *facts)
}
