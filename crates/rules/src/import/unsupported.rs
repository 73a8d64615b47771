//! Features of a file without an equivalent in a rules document: location, reason and advice.

use std::fmt;

use crate::decode::Field;
use crate::diagnostic::shorten;
use crate::yaml::SourceSpan;

/// One feature without an equivalent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnsupportedFeature {
    /// The file as the user named it.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The field as a path, such as `descriptors[2].quota_mode`.
    pub field: String,
    /// What the feature is, and why it cannot be translated.
    pub reason: String,
    /// What to do instead.
    pub advice: String,
}

/// Always a single line, whatever the names of the fields are.
impl fmt::Display for UnsupportedFeature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, field, reason: why, advice: instead } = self;
        write!(f, "{file}:{line}: {field}: {why}; {instead}")
    }
}

/// Collects the unsupported features of one file.
#[derive(Debug)]
pub(super) struct UnsupportedCollector<'s> {
    file: &'s str,
    pub(super) list: Vec<UnsupportedFeature>,
}

impl<'s> UnsupportedCollector<'s> {
    pub(super) const fn new(file: &'s str) -> Self {
        Self { file, list: Vec::new() }
    }

    /// Adds an unsupported feature at a field.
    pub(super) fn note_field(&mut self, field: &Field<'_>, why: &str, instead: &str) {
        self.note(field.span(), field.path(), why, instead);
    }

    /// Adds a note that some rules did not fit into the document.
    pub(super) fn note_truncated(&mut self, left_out: usize) {
        let why = format!("a rules document is at most 1 MiB, and {left_out} rules did not fit");
        let instead = "import fewer files at a time, or use fewer, wider limits";
        self.note(SourceSpan { line: 1, ..SourceSpan::default() }, "the whole", &why, instead);
    }

    pub(super) fn note(&mut self, span: SourceSpan, field: &str, why: &str, instead: &str) {
        self.list.push(UnsupportedFeature {
            file: self.file.to_owned(),
            line: span.line,
            field: shorten_path(field),
            reason: why.to_owned(),
            advice: instead.to_owned(),
        });
    }
}

/// Shortens a path at its beginning, because the end is more informative.
fn shorten_path(path: &str) -> String {
    const LONGEST: usize = 120;
    match path.char_indices().nth_back(LONGEST) {
        Some((at, c)) => format!("…{}", &path[at + c.len_utf8()..]),
        None => path.to_owned(),
    }
}

/// Formats text of a file in backquotes, short and safe to print.
pub(super) fn quote_text(text: &str) -> String {
    format!("`{}`", shorten(text))
}
