//! The ids of the rules to be, and which limits go by which name.

use std::collections::HashMap;

use super::domain::EnvoyDomain;
use super::read::ImportedDescriptor;
use super::walk::{DescriptorVisitor, walk};
use crate::import::rule_ids::{IdAllocator, RuleIdPath};

/// The ids of all rules, in the order of a walk through all domains.
#[derive(Debug, Default)]
pub(super) struct AssignedIds {
    pub(super) ids: Vec<String>,
    /// The rules that a domain's name of a limit stands for; what is unlimited cannot be replaced.
    by_limit_name: HashMap<(String, String), Vec<usize>>,
}

/// Gives ids on a walk through a domain.
struct IdAssigner<'n> {
    names: &'n mut AssignedIds,
    allocator: &'n mut IdAllocator,
    domain: &'n str,
    /// The names of the descriptors on the way.
    path: Vec<RuleIdPath>,
}

impl AssignedIds {
    pub(super) fn assign(domains: &[EnvoyDomain<'_>]) -> Self {
        let (mut names, mut given) = (Self::default(), IdAllocator::default());
        for domain in domains {
            let way = vec![RuleIdPath::new(domain.name)];
            let (names, given) = (&mut names, &mut given);
            walk(
                &domain.top_level(),
                &mut IdAssigner { names, allocator: given, domain: domain.name, path: way },
            );
        }
        names
    }

    /// The places of the rules that a name stands for.
    pub(super) fn rules_by_limit_name(
        &self,
        domain: &str,
        name: &str,
    ) -> impl Iterator<Item = usize> {
        let key = (domain.to_owned(), name.to_owned());
        self.by_limit_name.get(&key).into_iter().flatten().copied()
    }
}

impl DescriptorVisitor for IdAssigner<'_> {
    fn enter(&mut self, typed: &ImportedDescriptor) {
        let Some(above) = self.path.last() else { return };
        let mut name = above.join("/", &typed.key);
        if !typed.value.is_empty() {
            name = name.join("=", &typed.value);
        }
        self.path.push(name);
    }

    /// A limit's own name is what Envoy is told, so it is the id where it can be.
    fn visit_rule(&mut self, typed: &ImportedDescriptor) {
        let own = typed.limit.as_ref().map_or("", |limit| &limit.name);
        let id = match (self.allocator.claim(own), self.path.last()) {
            (true, _) => own.to_owned(),
            (false, Some(name)) => self.allocator.allocate(name),
            (false, None) => return,
        };
        self.names.ids.push(id);
        if typed.limit.as_ref().is_some_and(|limit| limit.window.is_some()) && !own.is_empty() {
            let key = (self.domain.to_owned(), own.to_owned());
            self.names.by_limit_name.entry(key).or_default().push(self.names.ids.len() - 1);
        }
    }

    fn leave(&mut self) {
        self.path.pop();
    }
}
