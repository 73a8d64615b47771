//! JSON requests and responses of the HTTP API; the command line uses them too.

mod facts;
mod request;
mod response;

pub use request::{
    BatchCheckRequest, CheckRequest, ClientCountersRequest, MAX_CHECKS, PeekRequest, RefundRequest,
};
pub(crate) use response::retry_after_ms;
pub use response::{encode_counters, encode_decision, encode_decisions, encode_explanation};

use tidegate_rules::Facts;
pub use tidegate_web::json::{JsonRequestError, parse};

/// Reads facts from a JSON object such as `{"ip":"192.0.2.7","path":"/api"}`.
///
/// # Errors
/// The text is not valid JSON, or a fact is invalid.
pub fn parse_facts(text: &str) -> Result<Facts<'_>, JsonRequestError> {
    parse(text.as_bytes()).map(|facts::FactsOnly(facts)| *facts)
}
