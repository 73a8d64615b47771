//! Decodes the `descriptor` of a `match`: a list of entries, each `key`, `key=value` or a mapping.

use super::Spanned;
use crate::condition::{
    Condition, DescriptorMatcher, EntryMatcher, FactMatcher, MAX_ENTRIES, MatchPolarity,
    ValueMatcher,
};
use crate::decode::Field;
use crate::diagnostic::FieldError;
use crate::yaml::YamlValue;

const DESCRIPTOR_SYNTAX: &str =
    "the entries in order, such as `[remote_address]` or `[plan=free, user]`";

/// Decodes a descriptor; returns `None` after reporting an error.
pub(super) fn read(field: &Field<'_>) -> Option<Spanned<Condition>> {
    let YamlValue::List(items) = &field.node().value else {
        field.report_wrong_kind(DESCRIPTOR_SYNTAX);
        return None;
    };
    if items.is_empty() || items.len() > MAX_ENTRIES {
        let message = format!("a descriptor has from 1 to {MAX_ENTRIES} entries");
        field.report(
            FieldError::new(message)
                .with_found(&items.len().to_string())
                .with_hint(DESCRIPTOR_SYNTAX),
        );
        return None;
    }
    let entries: Vec<_> = field.list()?.iter().map(read_entry).collect();
    let entries: Box<[EntryMatcher]> = entries.into_iter().collect::<Option<_>>()?;
    let condition = Condition {
        polarity: MatchPolarity::Is,
        matcher: FactMatcher::Descriptor(DescriptorMatcher(entries)),
    };
    Some(Spanned { value: condition, span: field.span() })
}

fn read_entry(field: &Field<'_>) -> Option<EntryMatcher> {
    if matches!(field.node().value, YamlValue::Map(_)) {
        return read_entry_map(field);
    }
    let (key, value) = match field.non_empty_text()?.split_once('=') {
        Some((key, value)) => (key, ValueMatcher::parse(value)),
        None => (field.non_empty_text()?, ValueMatcher::Any),
    };
    if key.is_empty() {
        let error =
            FieldError::new("this entry has no key").with_found(field.scalar().unwrap_or_default());
        field.report(error.with_hint("`key` or `key=value`"));
        return None;
    }
    Some(EntryMatcher { key: key.into(), value, shared: false })
}

/// Decodes `{ key: path, value: "files/*", shared: true }`, which also allows keys with a `=`.
fn read_entry_map(field: &Field<'_>) -> Option<EntryMatcher> {
    let mut fields = field.fields()?;
    let key = fields.require("key", "`key:` and the entry's key").map(|key| key.non_empty_text());
    let value = fields.take("value").map(|value| value.text().map(ValueMatcher::parse));
    let shared = fields.take("shared").map(|shared| (shared.clone(), shared.boolean()));
    fields.finish();
    let value = value.unwrap_or(Some(ValueMatcher::Any));
    if let (Some(ValueMatcher::Exact(_)), Some((field, Some(true)))) = (&value, &shared) {
        let error = FieldError::new("a single value has no other value to share its counter with");
        field.report(error.with_hint("a value with a `*`, or leave `shared` out"));
    }
    let shared = shared.map_or(Some(false), |(_, shared)| shared);
    Some(EntryMatcher { key: key??.into(), value: value?, shared: shared? })
}
