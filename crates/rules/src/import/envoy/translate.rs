//! Translates descriptors with a limit into rules.

use super::assigned_ids::AssignedIds;
use super::domain::EnvoyDomain;
use super::read::{EnvoyLimit, ImportedDescriptor};
use super::walk::{DescriptorVisitor, walk};
use crate::import::document_writer::{
    DocumentWriter, ImportedLimit, RuleBehavior, RuleYaml, yaml_scalar,
};

/// Writes the rules of all domains, as many as fit.
pub(super) fn translate_domains(domains: &[EnvoyDomain<'_>], head: &str) -> DocumentWriter {
    let names = AssignedIds::assign(domains);
    let whole = write_rules(domains, &names, head, names.ids.len());
    // The remaining rules must not replace rules that did not fit.
    match whole.skipped {
        0 => whole,
        _ => write_rules(domains, &names, head, whole.rules),
    }
}

/// Writes the rules; `replaces` names only the first `rule_count` of them.
fn write_rules(
    domains: &[EnvoyDomain<'_>],
    names: &AssignedIds,
    head: &str,
    rule_count: usize,
) -> DocumentWriter {
    let (mut writer, mut next) = (DocumentWriter::new(head), 0);
    for domain in domains {
        let matched = format!("domain: {}, descriptor: [", yaml_scalar(domain.name));
        let (writer, next, marks) = (&mut writer, &mut next, Vec::new());
        let rules = RuleEmitter {
            names,
            domain: domain.name,
            rule_count,
            writer,
            next,
            match_body: matched,
            entry_offsets: marks,
        };
        walk(&domain.top_level(), &mut { rules });
    }
    writer
}

/// Writes the rules of one domain.
struct RuleEmitter<'t> {
    names: &'t AssignedIds,
    domain: &'t str,
    rule_count: usize,
    writer: &'t mut DocumentWriter,
    /// Index of the next rule among all domains.
    next: &'t mut usize,
    /// The beginning of a `match`, up to the current entry.
    match_body: String,
    /// The length of `match_body` before each entry.
    entry_offsets: Vec<usize>,
}

impl DescriptorVisitor for RuleEmitter<'_> {
    fn enter(&mut self, typed: &ImportedDescriptor) {
        self.entry_offsets.push(self.match_body.len());
        if self.entry_offsets.len() > 1 {
            self.match_body.push_str(", ");
        }
        self.match_body.push_str(&entry_yaml(typed));
    }

    fn visit_rule(&mut self, typed: &ImportedDescriptor) {
        let limit = typed.limit.as_ref();
        let names = limit.into_iter().flat_map(|limit| &limit.replaces);
        let others = names.flat_map(|name| self.names.rules_by_limit_name(self.domain, name));
        let others = others.filter(|at| *at < self.rule_count);
        let replaces = others.map(|at| self.names.ids[at].as_str()).collect();
        self.match_body.push(']');
        self.writer.push_rule(&RuleYaml {
            id: &self.names.ids[*self.next],
            match_body: &self.match_body,
            key_by: None,
            limit: limit.map_or(ImportedLimit::Unlimited, convert_limit),
            behavior: if typed.shadow { RuleBehavior::Shadow } else { RuleBehavior::ChargeAlways },
            replaces,
        });
        self.match_body.pop();
        *self.next += 1;
    }

    fn leave(&mut self) {
        self.match_body.truncate(self.entry_offsets.pop().unwrap_or(0));
    }
}

const fn convert_limit(limit: &EnvoyLimit) -> ImportedLimit {
    match (limit.window, limit.requests) {
        (None, _) => ImportedLimit::Unlimited,
        (Some(window), 0) => ImportedLimit::DenyAll { window },
        (Some(window), requests) => ImportedLimit::FixedWindow { requests, window },
    }
}

/// Formats an entry of a descriptor, in the short form if possible.
fn entry_yaml(typed: &ImportedDescriptor) -> String {
    let ImportedDescriptor { key, value, shared, .. } = typed;
    match (value.is_empty(), *shared || key.contains('=')) {
        (true, false) => yaml_scalar(key),
        (false, false) => yaml_scalar(&format!("{key}={value}")),
        (true, true) => format!("{{ key: {} }}", yaml_scalar(key)),
        (false, true) => {
            let shared = if *shared { ", shared: true" } else { "" };
            format!("{{ key: {}, value: {}{shared} }}", yaml_scalar(key), yaml_scalar(value))
        }
    }
}
