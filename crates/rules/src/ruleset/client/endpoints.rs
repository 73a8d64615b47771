//! The endpoints that a client may have asked for, where that is not known.

use crate::condition::{Condition, Endpoint, Pattern, Sense, Test};
use crate::facts::Facts;
use crate::key::{KeyPart, Keying};

/// The methods that requests have, beside those that patterns name.
const METHODS: [&str; 7] = ["DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"];

/// An endpoint that a request may have been for.
pub(super) struct Assumed {
    /// As a condition that holds for such requests.
    pub(super) endpoint: Condition,
    /// As it stands in keys.
    pub(super) text: String,
}

/// All of them; none where the facts say the endpoint.
pub(super) fn assumed(keying: &Keying, facts: &Facts<'_>) -> Vec<Assumed> {
    let Endpoint { method, path } = Endpoint::of(facts);
    match (method, path) {
        _ if facts.get("endpoint").is_some() => Vec::new(),
        (Some(_), Some(_)) => Vec::new(),
        (None, Some(path)) => {
            let methods = methods(keying);
            let methods = methods.into_iter().map(Some).chain([None]);
            methods.map(|method| at(keying, facts, method, path)).collect()
        }
        (method, None) => {
            let declared = keying.patterns();
            let admits = |pattern: &&Pattern| method.is_none() || pattern.admits_method(method);
            let declared = declared.into_iter().filter(admits);
            declared.flat_map(|pattern| with_methods(keying, pattern, method)).collect()
        }
    }
}

/// A path that is known, with a method that is not.
fn at(keying: &Keying, facts: &Facts<'_>, method: Option<&str>, path: &str) -> Assumed {
    let mut facts = facts.borrowed();
    if let Some(method) = method {
        facts.push("method", method);
    }
    let (_, text) = keying.describe(&KeyPart::Endpoint, &facts);
    Assumed { endpoint: is(Pattern::of(&Endpoint { method, path: Some(path) })), text }
}

/// A pattern with the method that is known, or each that it may stand for.
fn with_methods(keying: &Keying, pattern: &Pattern, method: Option<&str>) -> Vec<Assumed> {
    let methods: Vec<Option<&str>> = match method {
        Some(method) => vec![Some(method)],
        None if pattern.methods.is_empty() => {
            methods(keying).into_iter().map(Some).chain([None]).collect()
        }
        None => pattern.methods.iter().map(|method| Some(&**method)).collect(),
    };
    let assumed = |method: Option<&str>| {
        let methods = method.into_iter().map(Into::into).collect();
        let pattern = Pattern { methods, ..pattern.clone() };
        Assumed { text: pattern.to_string(), endpoint: is(pattern) }
    };
    methods.into_iter().map(assumed).collect()
}

/// Every method that a request may have.
fn methods(keying: &Keying) -> Vec<&str> {
    let declared = keying.patterns().into_iter().flat_map(|pattern| &pattern.methods);
    let mut methods: Vec<&str> = declared.map(|method| &**method).chain(METHODS).collect();
    methods.sort_unstable();
    methods.dedup();
    methods
}

fn is(pattern: Pattern) -> Condition {
    Condition { sense: Sense::Is, test: Test::Endpoint([pattern].into()) }
}
