//! Conditions of a rule: each names one fact and the values that match.
//!
//! A condition only evaluates one request. The index finds the rules whose conditions are worth
//! evaluating.

mod descriptor;
mod disjoint;
mod glob;
mod ip_networks;
mod path;
mod pattern;
mod spelling;

use std::borrow::Cow;
use std::fmt;

use crate::facts::Facts;
use crate::path_normalization::PathNormalization;
use crate::secrets::is_secret_field;
pub(crate) use descriptor::{DescriptorMatcher, EntryMatcher, MAX_ENTRIES, ValueMatcher};
pub(crate) use disjoint::are_disjoint;
pub(crate) use glob::Glob;
pub(crate) use ip_networks::{IpNetworks, parse_network};
pub(crate) use path::{PathMatcher, normalize_slashes, trim_trailing_slash};
pub(crate) use pattern::{EndpointPattern, PatternSegment, RequestEndpoint, to_brace_placeholders};
pub(crate) use spelling::{require_canonical_host, require_canonical_path};

/// One condition of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Condition {
    pub(crate) polarity: MatchPolarity,
    pub(crate) matcher: FactMatcher,
}

/// Whether the matcher must match or must not match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MatchPolarity {
    Is,
    IsNot,
}

impl MatchPolarity {
    const fn operator(self) -> &'static str {
        match self {
            Self::Is => "=",
            Self::IsNot => "!=",
        }
    }
}

/// Tests one fact of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FactMatcher {
    Text(TextMatcher),
    Path(PathMatcher),
    Ip(IpNetworks),
    Endpoint(Box<[EndpointPattern]>),
    Descriptor(DescriptorMatcher),
}

/// Matches a fact that equals one of the values or matches one of the globs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TextMatcher {
    pub(crate) fact: Box<str>,
    /// Sorted for binary search.
    pub(crate) exact: Box<[Box<str>]>,
    pub(crate) globs: Box<[Glob]>,
}

/// The facts of a request, prepared for evaluating conditions.
#[derive(Clone, Debug)]
pub(crate) struct MatchInput<'f, 'a> {
    pub(crate) facts: &'f Facts<'a>,
    /// The path without redundant slashes.
    pub(crate) path: Option<Cow<'f, str>>,
    pub(crate) endpoint: RequestEndpoint<'f>,
}

impl<'f, 'a> MatchInput<'f, 'a> {
    pub(crate) fn new(facts: &'f Facts<'a>) -> Self {
        Self {
            facts,
            path: facts.get("path").map(normalize_slashes),
            endpoint: RequestEndpoint::from_facts(facts),
        }
    }
}

impl Condition {
    pub(crate) fn holds(&self, request: &MatchInput<'_, '_>) -> bool {
        let passed = match &self.matcher {
            FactMatcher::Text(test) => {
                request.facts.get(&test.fact).is_some_and(|v| test.accepts(v))
            }
            FactMatcher::Path(test) => {
                request.path.as_deref().is_some_and(|path| test.accepts(path))
            }
            FactMatcher::Ip(nets) => request.facts.ip().is_some_and(|ip| nets.contains(ip)),
            FactMatcher::Endpoint(any) => {
                any.iter().any(|pattern| pattern.matches(&request.endpoint))
            }
            FactMatcher::Descriptor(descriptor) => descriptor.matches(request.facts.descriptor()),
        };
        passed == (self.polarity == MatchPolarity::Is)
    }

    /// The descriptor that the condition matches, if it is a descriptor condition.
    pub(crate) const fn descriptor(&self) -> Option<&DescriptorMatcher> {
        match &self.matcher {
            FactMatcher::Descriptor(descriptor) => Some(descriptor),
            _ => None,
        }
    }

    /// The domain, if the condition matches exactly one domain.
    pub(crate) fn single_domain(&self) -> Option<&str> {
        match &self.matcher {
            FactMatcher::Text(test)
                if self.polarity == MatchPolarity::Is && *test.fact == *"domain" =>
            {
                let [domain] = &*test.exact else { return None };
                test.globs.is_empty().then_some(domain)
            }
            _ => None,
        }
    }

    /// The condition as shown in error messages, without secret values.
    pub(crate) fn redacted_text(&self) -> String {
        match &self.matcher {
            FactMatcher::Text(test) if is_secret_field(&test.fact) => {
                format!("{}{}…", test.fact, self.polarity.operator())
            }
            _ => self.to_string(),
        }
    }

    /// The same condition for requests with normalized paths.
    pub(crate) fn with_normalized_paths(&self, paths: PathNormalization) -> Self {
        let test = match &self.matcher {
            FactMatcher::Path(test) => FactMatcher::Path(test.with_normalized_paths(paths)),
            FactMatcher::Endpoint(any) => FactMatcher::Endpoint(
                any.iter().map(|pattern| pattern.with_normalized_paths(paths)).collect(),
            ),
            other => other.clone(),
        };
        Self { polarity: self.polarity, matcher: test }
    }

    /// The result, if it is the same for every request.
    pub(crate) fn constant_result(&self) -> Option<bool> {
        match &self.matcher {
            FactMatcher::Endpoint(any) if any.iter().any(EndpointPattern::matches_everything) => {
                Some(self.polarity == MatchPolarity::Is)
            }
            _ => None,
        }
    }
}

impl TextMatcher {
    pub(crate) fn new(fact: &str, values: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        let (mut exact, mut globs): (Vec<Box<str>>, Vec<Glob>) = (Vec::new(), Vec::new());
        for value in values {
            match Glob::parse(value.as_ref()) {
                Some(glob) => globs.push(glob),
                None => exact.push(value.as_ref().into()),
            }
        }
        exact.sort_unstable();
        exact.dedup();
        Self { fact: fact.into(), exact: exact.into(), globs: globs.into() }
    }

    pub(crate) fn accepts(&self, value: &str) -> bool {
        self.exact.binary_search_by(|known| known.as_ref().cmp(value)).is_ok()
            || self.globs.iter().any(|glob| glob.matches(value))
    }
}

/// Equal conditions have equal text, so derived rule ids do not depend on the document's layout.
impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = self.polarity.operator();
        let (fact, mut values): (&str, Vec<String>) = match &self.matcher {
            FactMatcher::Text(test) | FactMatcher::Path(PathMatcher { text: test, .. }) => {
                let globs = test.globs.iter().map(ToString::to_string);
                (&test.fact, test.exact.iter().map(ToString::to_string).chain(globs).collect())
            }
            FactMatcher::Ip(nets) => ("ip", nets.iter().map(ToString::to_string).collect()),
            FactMatcher::Endpoint(any) => {
                ("endpoint", any.iter().map(ToString::to_string).collect())
            }
            FactMatcher::Descriptor(descriptor) => ("descriptor", vec![descriptor.to_string()]),
        };
        values.sort_unstable();
        write!(f, "{fact}{sign}{}", values.join(","))
    }
}
