//! Where readers note problems, each with an excerpt of the source.

use std::cell::{Cell, RefCell};

use crate::problem::{Excerpt, Problem, Problems, Remark, printable};
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
}

impl<'s> Findings<'s> {
    /// No problems yet in the document of that name and text.
    #[must_use]
    pub fn new(file: &'s str, source: &'s str) -> Self {
        let lines = source.lines().collect();
        Self { file, lines, list: RefCell::default(), omitted: Cell::default() }
    }

    /// Whether nothing is wrong so far.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.borrow().is_empty()
    }

    /// Notes a problem at a place.
    pub fn note(&self, span: Span, field: &str, remark: Remark) {
        let mut list = self.list.borrow_mut();
        if list.len() >= MOST {
            self.omitted.set(self.omitted.get() + 1);
            return;
        }
        list.push(Problem {
            line: span.line,
            column: span.column,
            field: field.to_owned(),
            found: remark.found,
            message: remark.message,
            hint: remark.hint,
            excerpt: self.excerpt(span),
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
