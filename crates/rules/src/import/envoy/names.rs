//! The ids of the rules to be, and which limits go by which name.

use std::collections::HashMap;

use super::domain::Domain;
use super::read::Typed;
use super::walk::{Visitor, walk};
use crate::import::ids::{Ids, Name};

/// The ids of all rules, in the order of a walk through all domains.
#[derive(Debug, Default)]
pub(super) struct Names {
    pub(super) ids: Vec<String>,
    /// The rules that a domain's name of a limit stands for; what is unlimited cannot be replaced.
    named: HashMap<(String, String), Vec<usize>>,
}

/// Gives ids on a walk through a domain.
struct Naming<'n> {
    names: &'n mut Names,
    given: &'n mut Ids,
    domain: &'n str,
    /// The names of the descriptors on the way.
    way: Vec<Name>,
}

impl Names {
    pub(super) fn of(domains: &[Domain<'_>]) -> Self {
        let (mut names, mut given) = (Self::default(), Ids::default());
        for domain in domains {
            let way = vec![Name::new(domain.name)];
            let (names, given) = (&mut names, &mut given);
            walk(&domain.level(), &mut Naming { names, given, domain: domain.name, way });
        }
        names
    }

    /// The places of the rules that a name stands for.
    pub(super) fn named(&self, domain: &str, name: &str) -> impl Iterator<Item = usize> {
        let key = (domain.to_owned(), name.to_owned());
        self.named.get(&key).into_iter().flatten().copied()
    }
}

impl Visitor for Naming<'_> {
    fn enter(&mut self, typed: &Typed) {
        let Some(above) = self.way.last() else { return };
        let mut name = above.then("/", &typed.key);
        if !typed.value.is_empty() {
            name = name.then("=", &typed.value);
        }
        self.way.push(name);
    }

    /// A limit's own name is what Envoy is told, so it is the id where it can be.
    fn rule(&mut self, typed: &Typed) {
        let own = typed.limit.as_ref().map_or("", |limit| &limit.name);
        let id = match (self.given.claim(own), self.way.last()) {
            (true, _) => own.to_owned(),
            (false, Some(name)) => self.given.give(name),
            (false, None) => return,
        };
        self.names.ids.push(id);
        if typed.limit.as_ref().is_some_and(|limit| limit.window.is_some()) && !own.is_empty() {
            let key = (self.domain.to_owned(), own.to_owned());
            self.names.named.entry(key).or_default().push(self.names.ids.len() - 1);
        }
    }

    fn leave(&mut self) {
        self.way.pop();
    }
}
