//! Descriptors with a limit as rules.

use super::domain::Domain;
use super::names::Names;
use super::read::{Typed, TypedLimit};
use super::walk::{Visitor, walk};
use crate::import::write::{Allows, Conduct, RuleText, Writer, scalar};

/// Writes the rules of all domains, as many as fit.
pub(super) fn all(domains: &[Domain<'_>], head: &str) -> Writer {
    let names = Names::of(domains);
    let whole = written(domains, &names, head, names.ids.len());
    // A rule that was left out cannot be replaced by one that is there.
    match whole.left_out {
        0 => whole,
        _ => written(domains, &names, head, whole.rules),
    }
}

/// The rules, of which that many are there.
fn written(domains: &[Domain<'_>], names: &Names, head: &str, there: usize) -> Writer {
    let (mut writer, mut next) = (Writer::new(head), 0);
    for domain in domains {
        let matched = format!("domain: {}, descriptor: [", scalar(domain.name));
        let (writer, next, marks) = (&mut writer, &mut next, Vec::new());
        let rules = Rules { names, domain: domain.name, there, writer, next, matched, marks };
        walk(&domain.level(), &mut { rules });
    }
    writer
}

/// Writes the rules of one domain.
struct Rules<'t> {
    names: &'t Names,
    domain: &'t str,
    there: usize,
    writer: &'t mut Writer,
    /// The place of the next rule among all.
    next: &'t mut usize,
    /// The beginning of a `match`, up to the entry where the walk is.
    matched: String,
    /// How long that was before each entry.
    marks: Vec<usize>,
}

impl Visitor for Rules<'_> {
    fn enter(&mut self, typed: &Typed) {
        self.marks.push(self.matched.len());
        if self.marks.len() > 1 {
            self.matched.push_str(", ");
        }
        self.matched.push_str(&entry(typed));
    }

    fn rule(&mut self, typed: &Typed) {
        let limit = typed.limit.as_ref();
        let names = limit.into_iter().flat_map(|limit| &limit.replaces);
        let others = names.flat_map(|name| self.names.named(self.domain, name));
        let others = others.filter(|at| *at < self.there);
        let replaces = others.map(|at| self.names.ids[at].as_str()).collect();
        self.matched.push(']');
        self.writer.rule(&RuleText {
            id: &self.names.ids[*self.next],
            matched: &self.matched,
            key_by: None,
            limit: limit.map_or(Allows::Everything, allows),
            conduct: if typed.shadow { Conduct::Shadow } else { Conduct::ChargesAlways },
            replaces,
        });
        self.matched.pop();
        *self.next += 1;
    }

    fn leave(&mut self) {
        self.matched.truncate(self.marks.pop().unwrap_or(0));
    }
}

const fn allows(limit: &TypedLimit) -> Allows {
    match (limit.window, limit.requests) {
        (None, _) => Allows::Everything,
        (Some(_), 0) => Allows::Nothing,
        (Some(window), requests) => Allows::Windows { requests, window },
    }
}

/// An entry of a descriptor, short where that says it.
fn entry(typed: &Typed) -> String {
    let Typed { key, value, shared, .. } = typed;
    match (value.is_empty(), *shared || key.contains('=')) {
        (true, false) => scalar(key),
        (false, false) => scalar(&format!("{key}={value}")),
        (true, true) => format!("{{ key: {} }}", scalar(key)),
        (false, true) => {
            let shared = if *shared { ", shared: true" } else { "" };
            format!("{{ key: {}, value: {}{shared} }}", scalar(key), scalar(value))
        }
    }
}
