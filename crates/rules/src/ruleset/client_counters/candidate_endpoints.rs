//! The endpoints that a client may have requested, if the facts do not contain one.

use crate::condition::{Condition, EndpointPattern, FactMatcher, MatchPolarity, RequestEndpoint};
use crate::facts::Facts;
use crate::key::{KeyDerivation, KeyPart};

/// Common methods, in addition to those in patterns.
const METHODS: [&str; 7] = ["DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"];

/// An endpoint that a client may have requested.
pub(super) struct CandidateEndpoint {
    /// The condition that such requests satisfy.
    pub(super) condition: Condition,
    /// The text of the endpoint in keys.
    pub(super) key_text: String,
}

/// All candidates; empty if the facts contain the endpoint.
pub(super) fn candidate_endpoints(
    keying: &KeyDerivation,
    facts: &Facts<'_>,
) -> Vec<CandidateEndpoint> {
    let RequestEndpoint { method, path } = RequestEndpoint::from_facts(facts);
    match (method, path) {
        _ if facts.get("endpoint").is_some() => Vec::new(),
        (Some(_), Some(_)) => Vec::new(),
        (None, Some(path)) => {
            let methods = all_methods(keying);
            let methods = methods.into_iter().map(Some).chain([None]);
            methods.map(|method| with_method(keying, facts, method, path)).collect()
        }
        (method, None) => {
            let declared = keying.patterns();
            let admits =
                |pattern: &&EndpointPattern| method.is_none() || pattern.allows_method(method);
            let declared = declared.into_iter().filter(admits);
            declared.flat_map(|pattern| with_methods(keying, pattern, method)).collect()
        }
    }
}

/// Combines a known path with an assumed method.
fn with_method(
    keying: &KeyDerivation,
    facts: &Facts<'_>,
    method: Option<&str>,
    path: &str,
) -> CandidateEndpoint {
    let mut facts = facts.borrowed();
    if let Some(method) = method {
        facts.push("method", method);
    }
    let (_, text) = keying.describe(&KeyPart::Endpoint, &facts);
    CandidateEndpoint {
        condition: endpoint_condition(EndpointPattern::for_endpoint(&RequestEndpoint {
            method,
            path: Some(path),
        })),
        key_text: text,
    }
}

/// Combines a pattern with the known method, or with each method that it allows.
fn with_methods(
    keying: &KeyDerivation,
    pattern: &EndpointPattern,
    method: Option<&str>,
) -> Vec<CandidateEndpoint> {
    let methods: Vec<Option<&str>> = match method {
        Some(method) => vec![Some(method)],
        None if pattern.methods.is_empty() => {
            all_methods(keying).into_iter().map(Some).chain([None]).collect()
        }
        None => pattern.methods.iter().map(|method| Some(&**method)).collect(),
    };
    let assumed = |method: Option<&str>| {
        let methods = method.into_iter().map(Into::into).collect();
        let pattern = EndpointPattern { methods, ..pattern.clone() };
        CandidateEndpoint { key_text: pattern.to_string(), condition: endpoint_condition(pattern) }
    };
    methods.into_iter().map(assumed).collect()
}

/// All methods that a request may have.
fn all_methods(keying: &KeyDerivation) -> Vec<&str> {
    let declared = keying.patterns().into_iter().flat_map(|pattern| &pattern.methods);
    let mut methods: Vec<&str> = declared.map(|method| &**method).chain(METHODS).collect();
    methods.sort_unstable();
    methods.dedup();
    methods
}

fn endpoint_condition(pattern: EndpointPattern) -> Condition {
    Condition { polarity: MatchPolarity::Is, matcher: FactMatcher::Endpoint([pattern].into()) }
}
