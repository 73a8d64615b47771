//! Merges the descriptors of all files by domain, as the service does.

use std::collections::HashMap;

use super::read::{EnvoyFile, ImportedDescriptor};
use crate::decode::Diagnostics;
use crate::diagnostic::FieldError;

/// A domain and its descriptors from all files.
pub(super) struct EnvoyDomain<'f> {
    pub(super) name: &'f str,
    /// Each top-level descriptor with its file.
    pub(super) descriptors: Vec<(&'f str, &'f ImportedDescriptor)>,
}

impl<'f> EnvoyDomain<'f> {
    /// Collects the domains in the order of the files, and reports duplicate descriptors.
    pub(super) fn collect_domains(
        files: &'f [EnvoyFile<'_>],
        diagnostics: &[Diagnostics<'_>],
    ) -> Vec<Self> {
        let mut domains: Vec<Self> = Vec::new();
        let mut known: HashMap<&str, (usize, SiblingDescriptors<'f>)> = HashMap::new();
        for (file, diagnostics) in files.iter().zip(diagnostics) {
            let Some(name) = file.domain.as_deref() else { continue };
            let (at, seen) = known.entry(name).or_insert_with(|| {
                domains.push(Self { name, descriptors: Vec::new() });
                (domains.len() - 1, SiblingDescriptors::default())
            });
            seen.check_duplicates(&file.descriptors, file.name, diagnostics);
            let own = file.descriptors.iter().map(|typed| (file.name, typed));
            domains[*at].descriptors.extend(own);
        }
        domains
    }

    pub(super) fn top_level(&self) -> Vec<&'f ImportedDescriptor> {
        self.descriptors.iter().map(|(_, typed)| *typed).collect()
    }
}

/// The descriptors of one level. The service identifies them by key and value, joined with `_`.
#[derive(Default)]
struct SiblingDescriptors<'f>(HashMap<String, (&'f str, usize)>);

impl<'f> SiblingDescriptors<'f> {
    fn check_duplicates(
        &mut self,
        level: &'f [ImportedDescriptor],
        file: &'f str,
        diagnostics: &Diagnostics<'_>,
    ) {
        for typed in level {
            Self::default().check_duplicates(&typed.children, file, diagnostics);
            let place = (file, typed.span.line);
            let Some((other, line)) = self.0.insert(typed.joined_key(), place) else { continue };
            let message =
                "key and value, joined with `_`, equal those of another descriptor on this level";
            let hint = format!("one descriptor for both; the other is at {other}:{line}");
            diagnostics.report(
                typed.span,
                &typed.path,
                FieldError::new(message).with_found(&typed.joined_key()).with_hint(hint),
            );
        }
    }
}

impl ImportedDescriptor {
    /// The text by which the service looks up an entry.
    pub(super) fn joined_key(&self) -> String {
        match self.value.is_empty() {
            true => self.key.clone(),
            false => format!("{}_{}", self.key, self.value),
        }
    }

    /// Whether this descriptor or one below has a limit.
    pub(super) fn has_limit(&self) -> bool {
        self.limit.is_some() || self.children.iter().any(Self::has_limit)
    }

    /// Whether it matches more than one value.
    pub(super) fn is_wildcard(&self) -> bool {
        self.value.is_empty() || self.value.contains('*')
    }
}
