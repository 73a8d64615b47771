//! What a file says that a rules document cannot: where it stands, why, and what to do instead.

use std::fmt;

use crate::decode::Field;
use crate::problem::shown;
use crate::yaml::Span;

/// One thing without an equivalent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The file as the user named it.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The field as a path, such as `descriptors[2].quota_mode`.
    pub field: String,
    /// What it is, and why it cannot be carried over.
    pub why: String,
    /// What to do instead.
    pub instead: String,
}

/// One line, whatever the file's fields are called.
impl fmt::Display for Gap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, field, why, instead } = self;
        write!(f, "{file}:{line}: {field}: {why}; {instead}")
    }
}

/// The gaps found so far in one file.
#[derive(Debug)]
pub(super) struct Gaps<'s> {
    file: &'s str,
    pub(super) list: Vec<Gap>,
}

impl<'s> Gaps<'s> {
    pub(super) const fn new(file: &'s str) -> Self {
        Self { file, list: Vec::new() }
    }

    /// Notes a gap at a field.
    pub(super) fn at(&mut self, field: &Field<'_>, why: &str, instead: &str) {
        self.note(field.span(), field.path(), why, instead);
    }

    /// Notes that rules did not fit into the document.
    pub(super) fn too_long(&mut self, left_out: usize) {
        let why = format!("a rules document is at most 1 MiB, and {left_out} rules did not fit");
        let instead = "import fewer files at a time, or say it with fewer, wider limits";
        self.note(Span { line: 1, ..Span::default() }, "the whole", &why, instead);
    }

    pub(super) fn note(&mut self, span: Span, field: &str, why: &str, instead: &str) {
        self.list.push(Gap {
            file: self.file.to_owned(),
            line: span.line,
            field: shown_path(field),
            why: why.to_owned(),
            instead: instead.to_owned(),
        });
    }
}

/// The end of a long path says most.
fn shown_path(path: &str) -> String {
    const LONGEST: usize = 120;
    match path.char_indices().nth_back(LONGEST) {
        Some((at, c)) => format!("…{}", &path[at + c.len_utf8()..]),
        None => path.to_owned(),
    }
}

/// Text of a file between backquotes, short and safe to print.
pub(super) fn quoted(text: &str) -> String {
    format!("`{}`", shown(text))
}
