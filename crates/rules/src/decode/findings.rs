//! Where readers note problems, each with an excerpt of the source.

use std::cell::{Cell, RefCell};

use crate::problem::{Excerpt, Problem, Problems, Remark, printable};
use crate::secrets::Secrets;
use crate::yaml::Span;

/// More problems than this help nobody, and a hostile document could have very many.
const MOST: usize = 100;

/// The longest piece of a source line that is shown.
const EXCERPT: usize = 100;

/// The problems found so far in one document.
#[derive(Debug)]
pub struct Findings<'s> {
    file: &'s str,
    lines: Vec<&'s str>,
    list: RefCell<Vec<Problem>>,
    omitted: Cell<usize>,
    secrets: RefCell<Secrets>,
}

impl<'s> Findings<'s> {
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
    pub(crate) fn hide(&self, secrets: Secrets) {
        self.secrets.replace(secrets);
    }

    /// What is not quoted.
    pub(crate) fn secrets(&self) -> Secrets {
        self.secrets.borrow().clone()
    }

    /// Whether nothing is wrong so far.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.borrow().is_empty()
    }

    /// Notes a problem at a place.
    pub fn note(&self, span: Span, field: &str, remark: Remark) {
        if self.has_room() {
            self.push(span, field, remark, self.excerpt(span));
        }
    }

    /// Notes a problem at a place that is not quoted: in a document that cannot be read, any line
    /// may hold a secret.
    pub(crate) fn note_unquoted(&self, span: Span, remark: Remark) {
        if self.has_room() {
            self.push(span, "", remark, None);
        }
    }

    /// Whether one more is kept; if not, it is counted.
    fn has_room(&self) -> bool {
        let has_room = self.list.borrow().len() < MOST;
        self.omitted.set(self.omitted.get() + usize::from(!has_room));
        has_room
    }

    fn push(&self, span: Span, field: &str, remark: Remark, excerpt: Option<Excerpt>) {
        self.list.borrow_mut().push(Problem {
            line: span.line,
            column: span.column,
            field: field.to_owned(),
            found: remark.found,
            message: remark.message,
            hint: remark.hint,
            excerpt,
        });
    }

    /// All problems in the order of the source, if there are any.
    ///
    /// # Errors
    /// The problems.
    pub fn finish(self) -> Result<(), Problems> {
        let mut list = self.list.into_inner();
        if list.is_empty() {
            return Ok(());
        }
        let secrets = self.secrets.into_inner();
        list.iter_mut().for_each(|problem| secrets.redact(problem));
        list.sort_by_key(|problem| (problem.line, problem.column));
        Err(Problems { file: self.file.to_owned(), list, omitted: self.omitted.get() })
    }

    fn excerpt(&self, span: Span) -> Option<Excerpt> {
        let line = self.lines.get(span.line.checked_sub(1)?)?;
        let column = span.column.saturating_sub(1);
        // A document may be one very long line: only what is around the place is shown.
        let from = if column < EXCERPT * 3 / 4 { 0 } else { column - EXCERPT / 2 };
        let text: String = line.chars().skip(from).take(EXCERPT).map(printable).collect();
        let length = text.chars().count();
        let before = (column - from).min(length);
        let width = span.width.clamp(1, (length - before).max(1));
        Some(Excerpt { text: text.trim_end().to_owned(), before, width })
    }
}
