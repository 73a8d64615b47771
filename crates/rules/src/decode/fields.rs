//! The fields of a mapping. Readers take fields by name; fields that no reader takes are errors.

use super::{Diagnostics, Field, nearest};
use crate::diagnostic::FieldError;
use crate::yaml::{SourceSpan, YamlEntry};

/// The fields of one mapping. Call [`finish`](Self::finish) after taking all known fields.
#[derive(Debug)]
pub struct FieldMap<'a> {
    entries: &'a [YamlEntry],
    span: SourceSpan,
    path: String,
    diagnostics: &'a Diagnostics<'a>,
    known: Vec<&'static str>,
}

impl<'a> FieldMap<'a> {
    pub(super) const fn new(
        entries: &'a [YamlEntry],
        span: SourceSpan,
        path: String,
        diagnostics: &'a Diagnostics<'a>,
    ) -> Self {
        Self { entries, span, path, diagnostics, known: Vec::new() }
    }

    /// The field with this name, if present and not null.
    pub fn take(&mut self, name: &'static str) -> Option<Field<'a>> {
        self.known.push(name);
        self.get(name)
    }

    /// The field with this name, if present and not null, for a reader that checks it against other
    /// fields. Another reader takes it.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Field<'a>> {
        let entry = self.entries.iter().find(|entry| entry.name == name)?;
        (!entry.node.is_null()).then(|| self.field(entry))
    }

    /// The field with this name. Reports an error with the hint if it is missing.
    pub fn require(&mut self, name: &'static str, hint: &str) -> Option<Field<'a>> {
        let field = self.take(name);
        if field.is_none() {
            self.report_missing(name, hint);
        }
        field
    }

    /// Reports a missing field, unless it is only misspelled: `finish` reports misspelled fields.
    pub fn report_missing(&self, name: &'static str, hint: &str) {
        // A field with exactly this name is null, not misspelled.
        let mut others = self.entries.iter().filter(|entry| entry.name != name);
        if !others.any(|entry| nearest(&entry.name, [name]).is_some()) {
            self.report(FieldError::new(format!("`{name}` is missing")).with_hint(hint));
        }
    }

    /// A field with several accepted names. Reports an error if more than one is present.
    pub fn take_any(&mut self, names: &[&'static str]) -> Option<Field<'a>> {
        let mut given = names.iter().filter_map(|name| Some((*name, self.take(name)?)));
        let (first, field) = given.next()?;
        for (name, other) in given.collect::<Vec<_>>() {
            let error = FieldError::new(format!("`{name}` and `{first}` say the same thing"));
            other.report(error.with_hint(format!("only `{first}`")));
        }
        Some(field)
    }

    /// All fields, for mappings with arbitrary names.
    pub fn all_fields(&self) -> impl Iterator<Item = (&'a str, SourceSpan, Field<'a>)> {
        self.entries.iter().map(|entry| (entry.name.as_str(), entry.name_span, self.field(entry)))
    }

    /// Reports an error of the mapping as a whole.
    pub fn report(&self, error: FieldError) {
        self.diagnostics.report(self.span, &self.path, error);
    }

    /// Reports every field that no reader took.
    pub fn finish(self) {
        for entry in self.entries.iter().filter(|e| !self.known.contains(&e.name.as_str())) {
            let near = nearest(&entry.name, self.known.iter().copied());
            let hint = match near {
                Some(name) => format!("`{name}`"),
                None => format!("one of {}", self.known.join(", ")),
            };
            let error = FieldError::new("unknown field").with_found(&entry.name).with_hint(hint);
            let path = self.field_path(entry);
            self.diagnostics.report(entry.name_span, &path, error);
            // The name may be a misspelled `api_key`.
            self.diagnostics.hide_value(&entry.node, &path);
        }
    }

    fn field(&self, entry: &'a YamlEntry) -> Field<'a> {
        Field::new(&entry.node, self.field_path(entry), self.diagnostics)
    }

    fn field_path(&self, entry: &YamlEntry) -> String {
        let name = crate::diagnostic::shorten(&entry.name);
        if self.path.is_empty() { name } else { format!("{}.{name}", self.path) }
    }
}
