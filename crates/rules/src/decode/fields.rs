//! The fields of a mapping: asked for by name, and what nobody asked for is a problem.

use super::{Field, Findings, nearest};
use crate::problem::Remark;
use crate::yaml::{Entry, Span};

/// The fields of one mapping. Call [`finish`](Self::finish) when all known ones were asked for.
#[derive(Debug)]
pub struct Fields<'a> {
    entries: &'a [Entry],
    span: Span,
    path: String,
    findings: &'a Findings<'a>,
    asked: Vec<&'static str>,
}

impl<'a> Fields<'a> {
    pub(super) const fn new(
        entries: &'a [Entry],
        span: Span,
        path: String,
        findings: &'a Findings<'a>,
    ) -> Self {
        Self { entries, span, path, findings, asked: Vec::new() }
    }

    /// The field of that name, if it is there and not null.
    pub fn take(&mut self, name: &'static str) -> Option<Field<'a>> {
        self.asked.push(name);
        let entry = self.entries.iter().find(|entry| entry.name == name)?;
        (!entry.node.is_null()).then(|| self.field(entry))
    }

    /// The field of that name; that it is missing is a problem, answered by what to write.
    pub fn require(&mut self, name: &'static str, hint: &str) -> Option<Field<'a>> {
        let field = self.take(name);
        if field.is_none() {
            self.missing(name, hint);
        }
        field
    }

    /// Notes that a field is missing, unless it is only misspelt, which is told by itself.
    pub fn missing(&self, name: &'static str, hint: &str) {
        // A field that is there says nothing: it is null.
        let mut others = self.entries.iter().filter(|entry| entry.name != name);
        if !others.any(|entry| nearest(&entry.name, [name]).is_some()) {
            self.refuse(Remark::new(format!("`{name}` is missing")).write(hint));
        }
    }

    /// A field that goes by several names; two of them at once are a problem.
    pub fn take_any(&mut self, names: &[&'static str]) -> Option<Field<'a>> {
        let mut given = names.iter().filter_map(|name| Some((*name, self.take(name)?)));
        let (first, field) = given.next()?;
        for (name, other) in given.collect::<Vec<_>>() {
            let remark = Remark::new(format!("`{name}` and `{first}` say the same thing"));
            other.refuse(remark.write(format!("only `{first}`")));
        }
        Some(field)
    }

    /// Every field, whatever its name, for mappings whose names are free.
    pub fn all(&self) -> impl Iterator<Item = (&'a str, Span, Field<'a>)> {
        self.entries.iter().map(|entry| (entry.name.as_str(), entry.name_span, self.field(entry)))
    }

    /// Notes what is wrong with the mapping as a whole.
    pub fn refuse(&self, remark: Remark) {
        self.findings.note(self.span, &self.path, remark);
    }

    /// Notes every field that nobody asked for.
    pub fn finish(self) {
        for entry in self.entries.iter().filter(|e| !self.asked.contains(&e.name.as_str())) {
            let near = nearest(&entry.name, self.asked.iter().copied());
            let hint = match near {
                Some(name) => format!("`{name}`"),
                None => format!("one of {}", self.asked.join(", ")),
            };
            let remark = Remark::new("this field is not known").found(&entry.name).write(hint);
            self.findings.note(entry.name_span, &self.field_path(entry), remark);
        }
    }

    fn field(&self, entry: &'a Entry) -> Field<'a> {
        Field::new(&entry.node, self.field_path(entry), self.findings)
    }

    fn field_path(&self, entry: &Entry) -> String {
        let name = crate::problem::shown(&entry.name);
        if self.path.is_empty() { name } else { format!("{}.{name}", self.path) }
    }
}
