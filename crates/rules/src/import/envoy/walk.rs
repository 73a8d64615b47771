//! Selects the descriptors that become rules: those with a limit, and those that are exempt from
//! one.
//!
//! A descriptor without a limit is exempt from a wildcard's limit, because the service finds it
//! first and does not continue with the wildcard. If no wildcard with the same key has a limit, the
//! descriptor has no effect and is skipped.

use std::collections::HashSet;

use super::read::ImportedDescriptor;

/// Called for descriptors during a walk through a domain.
pub(super) trait DescriptorVisitor {
    /// Enters a descriptor.
    fn enter(&mut self, typed: &ImportedDescriptor);
    /// Visits a descriptor that becomes a rule.
    fn visit_rule(&mut self, typed: &ImportedDescriptor);
    /// Leaves the current descriptor.
    fn leave(&mut self);
}

/// Walks through the descriptors of a level and all below, in the order of the file.
pub(super) fn walk(level: &[&ImportedDescriptor], visitor: &mut impl DescriptorVisitor) {
    let wider = level.iter().filter(|typed| typed.is_wildcard() && typed.has_limit());
    let wider: HashSet<&str> = wider.map(|typed| typed.key.as_str()).collect();
    for typed in level {
        visitor.enter(typed);
        let exempt = !typed.has_limit() && wider.contains(typed.key.as_str());
        if typed.limit.is_some() || exempt {
            visitor.visit_rule(typed);
        }
        if typed.has_limit() {
            walk(&typed.children.iter().collect::<Vec<_>>(), visitor);
        }
        visitor.leave();
    }
}
