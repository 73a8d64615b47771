//! Assigns ids to the rules, and maps the names of limits to rules.

use std::collections::HashMap;

use super::domain::EnvoyDomain;
use super::read::ImportedDescriptor;
use super::walk::{DescriptorVisitor, walk};
use crate::import::rule_ids::{IdAllocator, RuleIdPath};

/// The ids of all rules, in the order of a walk through all domains.
#[derive(Debug, Default)]
pub(super) struct AssignedIds {
    pub(super) ids: Vec<String>,
    /// The rules with a limit of this domain and name. Unlimited ones cannot be replaced.
    by_limit_name: HashMap<(String, String), Vec<usize>>,
}

/// Assigns ids during a walk through a domain.
struct IdAssigner<'n> {
    names: &'n mut AssignedIds,
    allocator: &'n mut IdAllocator,
    domain: &'n str,
    /// The id paths from the domain to the current descriptor.
    path: Vec<RuleIdPath>,
}

impl AssignedIds {
    pub(super) fn assign(domains: &[EnvoyDomain<'_>]) -> Self {
        let (mut names, mut allocator) = (Self::default(), IdAllocator::default());
        for domain in domains {
            let path = vec![RuleIdPath::new(domain.name)];
            let (names, allocator) = (&mut names, &mut allocator);
            walk(
                &domain.top_level(),
                &mut IdAssigner { names, allocator, domain: domain.name, path },
            );
        }
        names
    }

    /// Indexes of the rules with a limit of this name.
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

    /// Envoy reports the name of a limit, so it becomes the id if it is valid and unused.
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
