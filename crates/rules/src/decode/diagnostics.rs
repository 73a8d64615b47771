//! Collects the errors of a document, each with an excerpt of the source.

use std::cell::{Cell, RefCell};

use crate::diagnostic::{Diagnostic, DocumentError, FieldError, SourceExcerpt, sanitize_char};
use crate::secrets::SecretSpans;
use crate::yaml::{SourceSpan, YamlNode};

/// Maximum number of reported errors. More would not help the user, and a hostile document could
/// have very many.
const MAX_DIAGNOSTICS: usize = 100;

/// Maximum length of a source line in an excerpt.
const MAX_EXCERPT_CHARS: usize = 100;

/// The errors found so far in one document.
#[derive(Debug)]
pub struct Diagnostics<'s> {
    file: &'s str,
    lines: Vec<&'s str>,
    list: RefCell<Vec<Diagnostic>>,
    omitted: Cell<usize>,
    secrets: RefCell<SecretSpans>,
}

impl<'s> Diagnostics<'s> {
    /// An empty collection for a document with this file name and source.
    #[must_use]
    pub fn new(file: &'s str, source: &'s str) -> Self {
        Self {
            file,
            lines: source.lines().collect(),
            list: RefCell::default(),
            omitted: Cell::default(),
            secrets: RefCell::default(),
        }
    }

    /// Hides these secrets in all errors, including those already reported.
    pub(crate) fn redact_secrets(&self, secrets: SecretSpans) {
        self.secrets.replace(secrets);
    }

    /// Hides a value that may be a secret in all errors.
    pub(crate) fn hide_value(&self, node: &YamlNode, field: &str) {
        self.secrets.borrow_mut().hide_value(node, field);
    }

    /// The secrets that are hidden in errors.
    pub(crate) fn secrets(&self) -> SecretSpans {
        self.secrets.borrow().clone()
    }

    /// Whether no error was reported so far.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.borrow().is_empty()
    }

    /// Reports an error at a location.
    pub fn report(&self, span: SourceSpan, field: &str, error: FieldError) {
        if self.reserve_room() {
            self.push(span, field, error, self.excerpt(span));
        }
    }

    /// Reports an error without quoting the source: if a document cannot be parsed, any line may
    /// contain a secret.
    pub(crate) fn report_unquoted(&self, span: SourceSpan, error: FieldError) {
        if self.reserve_room() {
            self.push(span, "", error, None);
        }
    }

    /// Whether the list has room for one more error; otherwise counts it as omitted.
    fn reserve_room(&self) -> bool {
        let has_room = self.list.borrow().len() < MAX_DIAGNOSTICS;
        self.omitted.set(self.omitted.get() + usize::from(!has_room));
        has_room
    }

    fn push(
        &self,
        span: SourceSpan,
        field: &str,
        error: FieldError,
        excerpt: Option<SourceExcerpt>,
    ) {
        self.list.borrow_mut().push(Diagnostic {
            line: span.line,
            column: span.column,
            field: field.to_owned(),
            found: error.found,
            message: error.message,
            hint: error.hint,
            excerpt,
        });
    }

    /// Finishes the collection.
    ///
    /// # Errors
    /// All reported errors, in the order of the source.
    pub fn finish(self) -> Result<(), DocumentError> {
        let mut list = self.list.into_inner();
        if list.is_empty() {
            return Ok(());
        }
        let secrets = self.secrets.into_inner();
        list.iter_mut().for_each(|problem| secrets.redact(problem));
        list.sort_by_key(|problem| (problem.line, problem.column));
        Err(DocumentError { file: self.file.to_owned(), list, omitted: self.omitted.get() })
    }

    fn excerpt(&self, span: SourceSpan) -> Option<SourceExcerpt> {
        let line = self.lines.get(span.line.checked_sub(1)?)?;
        let column = span.column.saturating_sub(1);
        // A document may be a single very long line: show only the part around the location.
        let from =
            if column < MAX_EXCERPT_CHARS * 3 / 4 { 0 } else { column - MAX_EXCERPT_CHARS / 2 };
        let text: String =
            line.chars().skip(from).take(MAX_EXCERPT_CHARS).map(sanitize_char).collect();
        let length = text.chars().count();
        let before = (column - from).min(length);
        let width = span.width.clamp(1, (length - before).max(1));
        Some(SourceExcerpt { text: text.trim_end().to_owned(), before, width })
    }
}
