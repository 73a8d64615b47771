//! Decodes a file: a domain and its tree of descriptors, each value checked on its own.

use std::collections::BTreeSet;

use crate::decode::{Diagnostics, Field};
use crate::diagnostic::FieldError;
use crate::import::ForeignFile;
use crate::import::document_writer::WindowText;
use crate::import::unsupported::UnsupportedCollector;
use crate::yaml::{self, SourceSpan};

/// A decoded file, possibly with errors.
pub(super) struct EnvoyFile<'s> {
    pub(super) name: &'s str,
    pub(super) domain: Option<String>,
    pub(super) descriptors: Vec<ImportedDescriptor>,
    pub(super) unsupported: UnsupportedCollector<'s>,
}

/// One node of the descriptor tree.
#[derive(Debug, Default)]
pub(super) struct ImportedDescriptor {
    pub(super) span: SourceSpan,
    pub(super) path: String,
    pub(super) key: String,
    /// Empty for any value.
    pub(super) value: String,
    pub(super) limit: Option<EnvoyLimit>,
    pub(super) shadow: bool,
    /// Whether all values that match its `*` share one counter.
    pub(super) shared: bool,
    pub(super) children: Vec<ImportedDescriptor>,
}

/// A `rate_limit`.
#[derive(Debug, Default)]
pub(super) struct EnvoyLimit {
    pub(super) requests: u64,
    /// `None` if unlimited.
    pub(super) window: Option<WindowText>,
    pub(super) name: String,
    /// Without duplicates: one name may stand for very many limits.
    pub(super) replaces: BTreeSet<String>,
}

/// Months and years have the lengths that the service uses.
const UNITS: [(&str, WindowText); 7] = [
    ("second", WindowText(1, "s")),
    ("minute", WindowText(1, "m")),
    ("hour", WindowText(1, "h")),
    ("day", WindowText(1, "d")),
    ("week", WindowText(1, "w")),
    ("month", WindowText(30, "d")),
    ("year", WindowText(365, "d")),
];

impl<'s> EnvoyFile<'s> {
    /// Decodes a file and reports its errors to `diagnostics`.
    pub(super) fn read(file: &ForeignFile<'s>, diagnostics: &Diagnostics<'s>) -> Self {
        let mut read = Self {
            name: file.file,
            domain: None,
            descriptors: Vec::new(),
            unsupported: UnsupportedCollector::new(file.file),
        };
        match yaml::parse(file.text, diagnostics).filter(|root| !root.is_null()) {
            Some(root) => read.read_root(&Field::new(&root, "", diagnostics)),
            None if diagnostics.is_empty() => {
                let error = FieldError::new("this file is empty");
                diagnostics.report(
                    SourceSpan::default(),
                    "",
                    error.with_hint("`domain:` and `descriptors:`"),
                );
            }
            None => {}
        }
        read
    }

    fn read_root(&mut self, field: &Field<'_>) {
        let Some(mut fields) = field.fields() else { return };
        let domain = fields.require("domain", "`domain:` and the domain of Envoy's filter");
        self.domain = domain.and_then(|domain| self.read_domain(&domain));
        if let Some(list) = fields.take("descriptors").and_then(|field| field.list()) {
            self.descriptors = list.iter().filter_map(|item| self.read_descriptor(item)).collect();
        }
        fields.finish();
    }

    /// The domain, unless rules cannot match it.
    fn read_domain(&mut self, field: &Field<'_>) -> Option<String> {
        let name = field.non_empty_text()?;
        if name.contains('*') {
            let instead =
                "its descriptors are skipped; give it another name, also in Envoy's filter";
            self.unsupported.note_field(
                field,
                "a `*` in a domain is a wildcard in Tidegate",
                instead,
            );
            return None;
        }
        Some(name.to_owned())
    }

    fn read_descriptor(&mut self, field: &Field<'_>) -> Option<ImportedDescriptor> {
        let mut fields = field.fields()?;
        let key = fields.require("key", "`key:` and the key of an entry");
        let value = fields.take("value");
        let limit = fields.take("rate_limit");
        let below = fields.take("descriptors").and_then(|field| field.list());
        let [shadow, quota, detailed, metric, shared] =
            ["shadow_mode", "quota_mode", "detailed_metric", "value_to_metric", "share_threshold"]
                .map(|name| fields.take(name).filter(is_flag_set));
        let metadata = fields.take("metadata");
        fields.finish();
        let key = key.and_then(|key| key.non_empty_text()).unwrap_or_default().to_owned();
        let value = value.map_or(Some(""), |value| value.text()).unwrap_or_default().to_owned();
        if let Some(field) = shared.as_ref().filter(|_| !value.contains('*')) {
            let error = FieldError::new("`share_threshold` needs a value with a `*`");
            field.report(error.with_hint("`value:` with a `*` beside it, or leave it out"));
        }
        self.note_unsupported(
            &key,
            field,
            quota.filter(|_| limit.is_some()).as_ref(),
            metadata.as_ref(),
        );
        self.note_metrics([detailed, metric]);
        Some(ImportedDescriptor {
            span: field.span(),
            path: field.path().to_owned(),
            key,
            value,
            limit: limit.and_then(|limit| read_limit(&limit)),
            shadow: shadow.is_some(),
            shared: shared.is_some(),
            children: below
                .into_iter()
                .flatten()
                .filter_map(|item| self.read_descriptor(&item))
                .collect(),
        })
    }

    fn note_unsupported(
        &mut self,
        key: &str,
        field: &Field<'_>,
        quota: Option<&Field<'_>>,
        metadata: Option<&Field<'_>>,
    ) {
        if let Some(quota) = quota {
            let why = "the service refuses a call only when all its quotas are used up; Tidegate refuses it when any is";
            self.unsupported.note_field(
                quota,
                why,
                "it is imported as an ordinary limit; `mode: shadow` counts without refusing",
            );
        }
        if let Some(metadata) = metadata {
            let why = "responses contain no metadata of rules";
            self.unsupported.note_field(
                metadata,
                why,
                "route by the status or by headers, and leave it out",
            );
        }
        if key.contains('*') {
            let why = "a `*` in a key is a literal character in Tidegate, and a wildcard in some versions of the service";
            self.unsupported.note_field(
                field,
                why,
                "write a descriptor for each key that should match",
            );
        }
    }

    fn note_metrics(&mut self, fields: [Option<Field<'_>>; 2]) {
        for field in fields.into_iter().flatten() {
            let why =
                "it only affects metric names, and Tidegate's metrics contain no client values";
            self.unsupported.note_field(&field, why, "nothing else depends on it; leave it out");
        }
    }
}

fn read_limit(field: &Field<'_>) -> Option<EnvoyLimit> {
    let mut fields = field.fields()?;
    let unlimited = fields.take("unlimited").filter(is_flag_set).is_some();
    let requests = fields.take("requests_per_unit");
    let (unit, name, replaces) =
        (fields.take("unit"), fields.take("name"), fields.take("replaces"));
    if unit.is_none() && !unlimited {
        fields.report_missing("unit", "`unit: minute`, or `unlimited: true`");
    }
    fields.finish();
    if let Some(unit) = unit.as_ref().filter(|unit| unlimited && names_unit(unit)) {
        let error = FieldError::new("an unlimited limit has no unit");
        unit.report(error.with_hint("`unlimited: true` alone, or a limit"));
    }
    let window = unit.filter(|_| !unlimited).and_then(|unit| unit.choice(&UNITS));
    // Go decodes a missing number as 0, and the service uses that.
    let requests = requests.map_or(Some(0), |field| field.integer(0, u64::from(u32::MAX)));
    let name = name.and_then(|name| name.text()).unwrap_or_default().to_owned();
    let replaces = replaces.and_then(|field| field.list()).unwrap_or_default();
    let replaces = replaces.iter().filter_map(|item| read_replaced(item, &name)).collect();
    Some(EnvoyLimit { requests: requests?, window, name, replaces })
}

fn read_replaced(field: &Field<'_>, own: &str) -> Option<String> {
    let mut fields = field.fields()?;
    let name = fields.require("name", "`name:` and the name of the limit that is replaced");
    fields.finish();
    let field = name?;
    let name = field.non_empty_text()?;
    if name == own {
        let error = FieldError::new("a limit cannot replace itself").with_found(name);
        field.report(error.with_hint("the name of another limit"));
    }
    Some(name.to_owned())
}

fn names_unit(field: &Field<'_>) -> bool {
    let text = field.scalar().unwrap_or_default();
    UNITS.iter().any(|(name, _)| name.eq_ignore_ascii_case(text))
}

/// Whether a flag is set. Accepts the words that the service's YAML library accepts.
fn is_flag_set(field: &Field<'_>) -> bool {
    match field.scalar().unwrap_or_default().to_ascii_lowercase().as_str() {
        "y" | "yes" | "on" => true,
        "n" | "no" | "off" => false,
        _ => field.boolean().unwrap_or(false),
    }
}
