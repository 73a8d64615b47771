//! The domains of all files, each with its descriptors as the service puts them together.

use std::collections::HashMap;

use super::read::{File, Typed};
use crate::decode::Findings;
use crate::problem::Remark;

/// A domain and the descriptors that any file has for it.
pub(super) struct Domain<'f> {
    pub(super) name: &'f str,
    /// The file of each top-level descriptor, and the descriptor.
    pub(super) descriptors: Vec<(&'f str, &'f Typed)>,
}

impl<'f> Domain<'f> {
    /// Gathers the domains in the order of the files, and notes descriptors that come twice.
    pub(super) fn gather(files: &'f [File<'_>], findings: &[Findings<'_>]) -> Vec<Self> {
        let mut domains: Vec<Self> = Vec::new();
        let mut known: HashMap<&str, (usize, Seen<'f>)> = HashMap::new();
        for (file, findings) in files.iter().zip(findings) {
            let Some(name) = file.domain.as_deref() else { continue };
            let (at, seen) = known.entry(name).or_insert_with(|| {
                domains.push(Self { name, descriptors: Vec::new() });
                (domains.len() - 1, Seen::default())
            });
            seen.level(&file.descriptors, file.name, findings);
            let own = file.descriptors.iter().map(|typed| (file.name, typed));
            domains[*at].descriptors.extend(own);
        }
        domains
    }

    pub(super) fn level(&self) -> Vec<&'f Typed> {
        self.descriptors.iter().map(|(_, typed)| *typed).collect()
    }
}

/// The descriptors of one level, as the service tells them apart: by key and value joined with `_`.
#[derive(Default)]
struct Seen<'f>(HashMap<String, (&'f str, usize)>);

impl<'f> Seen<'f> {
    fn level(&mut self, level: &'f [Typed], file: &'f str, findings: &Findings<'_>) {
        for typed in level {
            Self::default().level(&typed.below, file, findings);
            let place = (file, typed.span.line);
            let Some((other, line)) = self.0.insert(typed.joined(), place) else { continue };
            let message = "key and value, joined with `_`, are those of another descriptor here";
            let hint = format!("one descriptor for both; the other is at {other}:{line}");
            findings.note(
                typed.span,
                &typed.path,
                Remark::new(message).found(&typed.joined()).write(hint),
            );
        }
    }
}

impl Typed {
    /// What the service looks an entry up by.
    pub(super) fn joined(&self) -> String {
        match self.value.is_empty() {
            true => self.key.clone(),
            false => format!("{}_{}", self.key, self.value),
        }
    }

    /// Whether anything is limited here or below.
    pub(super) fn limits(&self) -> bool {
        self.limit.is_some() || self.below.iter().any(Self::limits)
    }

    /// Whether it takes more values than one.
    pub(super) fn is_open(&self) -> bool {
        self.value.is_empty() || self.value.contains('*')
    }
}
