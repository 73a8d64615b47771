//! What a rule asks of a request: one fact, and the values that it may have.
//!
//! A condition is told a request and answers; finding the rules worth asking is the index's work.

mod descriptor;
mod disjoint;
mod glob;
mod nets;
mod path;
mod pattern;

use std::borrow::Cow;
use std::fmt;

use crate::facts::Facts;
use crate::paths::Paths;
use crate::secrets::is_secret_field;
pub(crate) use descriptor::{Descriptor, EntryTest, MAX_ENTRIES, ValueTest};
pub(crate) use disjoint::disjoint;
pub(crate) use glob::Glob;
pub(crate) use nets::{Nets, parse_net};
pub(crate) use path::{PathTest, bare, without_end};
pub(crate) use pattern::{Endpoint, Pattern, Segment, in_braces};

/// One condition of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Condition {
    pub(crate) sense: Sense,
    pub(crate) test: Test,
}

/// Whether the test must hold or must not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sense {
    Is,
    IsNot,
}

impl Sense {
    const fn sign(self) -> &'static str {
        match self {
            Self::Is => "=",
            Self::IsNot => "!=",
        }
    }
}

/// A test that holds or does not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Test {
    Text(TextTest),
    Path(PathTest),
    Ip(Nets),
    Endpoint(Box<[Pattern]>),
    Descriptor(Descriptor),
}

/// A fact that has one of some values, or fits one of some globs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TextTest {
    pub(crate) fact: Box<str>,
    /// Sorted, so that a long list is searched and not walked.
    pub(crate) exact: Box<[Box<str>]>,
    pub(crate) globs: Box<[Glob]>,
}

/// What conditions are asked about.
#[derive(Clone, Debug)]
pub(crate) struct Request<'f, 'a> {
    pub(crate) facts: &'f Facts<'a>,
    /// The path without slashes that do not count.
    pub(crate) path: Option<Cow<'f, str>>,
    pub(crate) endpoint: Endpoint<'f>,
}

impl<'f, 'a> Request<'f, 'a> {
    pub(crate) fn new(facts: &'f Facts<'a>) -> Self {
        Self { facts, path: facts.get("path").map(bare), endpoint: Endpoint::of(facts) }
    }
}

impl Condition {
    pub(crate) fn holds(&self, request: &Request<'_, '_>) -> bool {
        let passed = match &self.test {
            Test::Text(test) => request.facts.get(&test.fact).is_some_and(|v| test.accepts(v)),
            Test::Path(test) => request.path.as_deref().is_some_and(|path| test.accepts(path)),
            Test::Ip(nets) => request.facts.ip().is_some_and(|ip| nets.contains(ip)),
            Test::Endpoint(any) => any.iter().any(|pattern| pattern.matches(&request.endpoint)),
            Test::Descriptor(descriptor) => descriptor.fits(request.facts.descriptor()),
        };
        passed == (self.sense == Sense::Is)
    }

    /// The descriptor that it asks for.
    pub(crate) const fn descriptor(&self) -> Option<&Descriptor> {
        match &self.test {
            Test::Descriptor(descriptor) => Some(descriptor),
            _ => None,
        }
    }

    /// The domain, if it asks for that one alone.
    pub(crate) fn one_domain(&self) -> Option<&str> {
        match &self.test {
            Test::Text(test) if self.sense == Sense::Is && *test.fact == *"domain" => {
                let [domain] = &*test.exact else { return None };
                test.globs.is_empty().then_some(domain)
            }
            _ => None,
        }
    }

    /// It as a problem shows it: without values that are secret.
    pub(crate) fn described(&self) -> String {
        match &self.test {
            Test::Text(test) if is_secret_field(&test.fact) => {
                format!("{}{}…", test.fact, self.sense.sign())
            }
            _ => self.to_string(),
        }
    }

    /// The same condition for requests whose paths were put into their form for comparison.
    pub(crate) fn under(&self, paths: Paths) -> Self {
        let test = match &self.test {
            Test::Path(test) => Test::Path(test.under(paths)),
            Test::Endpoint(any) => {
                Test::Endpoint(any.iter().map(|pattern| pattern.under(paths)).collect())
            }
            other => other.clone(),
        };
        Self { sense: self.sense, test }
    }

    /// What it answers to every request, if that is always the same.
    pub(crate) fn foregone(&self) -> Option<bool> {
        match &self.test {
            Test::Endpoint(any) if any.iter().any(Pattern::is_anything) => {
                Some(self.sense == Sense::Is)
            }
            _ => None,
        }
    }
}

impl TextTest {
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

/// One text for one meaning, so that derived rule ids do not hang on how a document is laid out.
impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = self.sense.sign();
        let (fact, mut values): (&str, Vec<String>) = match &self.test {
            Test::Text(test) | Test::Path(PathTest { text: test, .. }) => {
                let globs = test.globs.iter().map(ToString::to_string);
                (&test.fact, test.exact.iter().map(ToString::to_string).chain(globs).collect())
            }
            Test::Ip(nets) => ("ip", nets.iter().map(ToString::to_string).collect()),
            Test::Endpoint(any) => ("endpoint", any.iter().map(ToString::to_string).collect()),
            Test::Descriptor(descriptor) => ("descriptor", vec![descriptor.to_string()]),
        };
        values.sort_unstable();
        write!(f, "{fact}{sign}{}", values.join(","))
    }
}
