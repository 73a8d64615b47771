//! What a file says that a rules document cannot: where it stands, why, and what to do instead.

use std::fmt;

use crate::decode::Field;
use crate::diagnostic::shorten;
use crate::yaml::SourceSpan;

/// One thing without an equivalent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnsupportedFeature {
    /// The file as the user named it.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The field as a path, such as `descriptors[2].quota_mode`.
    pub field: String,
    /// What it is, and why it cannot be carried over.
    pub reason: String,
    /// What to do instead.
    pub advice: String,
}

/// One line, whatever the file's fields are called.
impl fmt::Display for UnsupportedFeature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, field, reason: why, advice: instead } = self;
        write!(f, "{file}:{line}: {field}: {why}; {instead}")
    }
}

/// The gaps found so far in one file.
#[derive(Debug)]
pub(super) struct UnsupportedCollector<'s> {
    file: &'s str,
    pub(super) list: Vec<UnsupportedFeature>,
}

impl<'s> UnsupportedCollector<'s> {
    pub(super) const fn new(file: &'s str) -> Self {
        Self { file, list: Vec::new() }
    }

    /// Notes a gap at a field.
    pub(super) fn note_field(&mut self, field: &Field<'_>, why: &str, instead: &str) {
        self.note(field.span(), field.path(), why, instead);
    }

    /// Notes that rules did not fit into the document.
    pub(super) fn note_truncated(&mut self, left_out: usize) {
        let why = format!("a rules document is at most 1 MiB, and {left_out} rules did not fit");
        let instead = "import fewer files at a time, or say it with fewer, wider limits";
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

/// The end of a long path says most.
fn shorten_path(path: &str) -> String {
    const LONGEST: usize = 120;
    match path.char_indices().nth_back(LONGEST) {
        Some((at, c)) => format!("…{}", &path[at + c.len_utf8()..]),
        None => path.to_owned(),
    }
}

/// Text of a file between backquotes, short and safe to print.
pub(super) fn quote_text(text: &str) -> String {
    format!("`{}`", shorten(text))
}
