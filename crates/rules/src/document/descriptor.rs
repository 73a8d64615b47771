//! The `descriptor` of a `match`: a list of entries, `key`, `key=value`, or a mapping of both.

use super::Spanned;
use crate::condition::{Condition, Descriptor, EntryTest, MAX_ENTRIES, Sense, Test, ValueTest};
use crate::decode::Field;
use crate::problem::Remark;
use crate::yaml::Value;

const FORM: &str = "the entries in order, such as `[remote_address]` or `[plan=free, user]`";

/// Reads a descriptor; nothing after noting a fault.
pub(super) fn read(field: &Field<'_>) -> Option<Spanned<Condition>> {
    let Value::List(items) = &field.node().value else {
        field.wrong_kind(FORM);
        return None;
    };
    if items.is_empty() || items.len() > MAX_ENTRIES {
        let message = format!("a descriptor has from 1 to {MAX_ENTRIES} entries");
        field.refuse(Remark::new(message).found(&items.len().to_string()).write(FORM));
        return None;
    }
    let entries: Vec<_> = field.list()?.iter().map(entry).collect();
    let entries: Box<[EntryTest]> = entries.into_iter().collect::<Option<_>>()?;
    let condition = Condition { sense: Sense::Is, test: Test::Descriptor(Descriptor(entries)) };
    Some(Spanned { value: condition, span: field.span() })
}

fn entry(field: &Field<'_>) -> Option<EntryTest> {
    if matches!(field.node().value, Value::Map(_)) {
        return long(field);
    }
    let (key, value) = match field.word()?.split_once('=') {
        Some((key, value)) => (key, ValueTest::parse(value)),
        None => (field.word()?, ValueTest::Any),
    };
    if key.is_empty() {
        let remark = Remark::new("an entry has a key").found(field.scalar().unwrap_or_default());
        field.refuse(remark.write("`key` or `key=value`"));
        return None;
    }
    Some(EntryTest { key: key.into(), value, shared: false })
}

/// `{ key: path, value: "files/*", shared: true }`, which also says keys that have a `=`.
fn long(field: &Field<'_>) -> Option<EntryTest> {
    let mut fields = field.fields()?;
    let key = fields.require("key", "`key:` and the entry's key").map(|key| key.word());
    let value = fields.take("value").map(|value| value.text().map(ValueTest::parse));
    let shared = fields.take("shared").map(|shared| (shared.clone(), shared.boolean()));
    fields.finish();
    let value = value.unwrap_or(Some(ValueTest::Any));
    if let (Some(ValueTest::Exact(_)), Some((field, Some(true)))) = (&value, &shared) {
        let remark = Remark::new("one value shares its counter with no other");
        field.refuse(remark.write("a value with a `*`, or leave `shared` out"));
    }
    let shared = shared.map_or(Some(false), |(_, shared)| shared);
    Some(EntryTest { key: key??.into(), value: value?, shared: shared? })
}
