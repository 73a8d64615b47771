//! Where readers note problems, each with an excerpt of the source.

use std::cell::{Cell, RefCell};

use crate::diagnostic::{Diagnostic, DocumentError, FieldError, SourceExcerpt, sanitize_char};
use crate::secrets::SecretSpans;
use crate::yaml::SourceSpan;

/// More problems than this help nobody, and a hostile document could have very many.
const MAX_DIAGNOSTICS: usize = 100;

/// The longest piece of a source line that is shown.
const MAX_EXCERPT_CHARS: usize = 100;

/// The problems found so far in one document.
#[derive(Debug)]
pub struct Diagnostics<'s> {
    file: &'s str,
    lines: Vec<&'s str>,
    list: RefCell<Vec<Diagnostic>>,
    omitted: Cell<usize>,
    secrets: RefCell<SecretSpans>,
}

impl<'s> Diagnostics<'s> {
    /// No problems yet in the document of that name and text.
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

    /// Quotes none of these, in whatever was noted or will be.
    pub(crate) fn redact_secrets(&self, secrets: SecretSpans) {
        self.secrets.replace(secrets);
    }

    /// What is not quoted.
    pub(crate) fn secrets(&self) -> SecretSpans {
        self.secrets.borrow().clone()
    }

    /// Whether nothing is wrong so far.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.borrow().is_empty()
    }

    /// Notes a problem at a place.
    pub fn report(&self, span: SourceSpan, field: &str, error: FieldError) {
        if self.reserve_room() {
            self.push(span, field, error, self.excerpt(span));
        }
    }

    /// Notes a problem at a place that is not quoted: in a document that cannot be read, any line
    /// may hold a secret.
    pub(crate) fn report_unquoted(&self, span: SourceSpan, error: FieldError) {
        if self.reserve_room() {
            self.push(span, "", error, None);
        }
    }

    /// Whether one more is kept; if not, it is counted.
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

    /// All problems in the order of the source, if there are any.
    ///
    /// # Errors
    /// The problems.
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
        // A document may be one very long line: only what is around the place is shown.
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
